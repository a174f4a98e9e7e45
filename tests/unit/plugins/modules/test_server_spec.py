# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as Ansible runs it: what it returns, how it refuses, and that no secret leaves it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.modules import server_spec

DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 100}
MAIN = {"name": "main", "model": "/srv/models/tiny", "port": 30000, "cards": [0]}


@pytest.fixture
def run(tmp_path):
    def run_module(*instances: dict[str, Any], **defaults: Any) -> tuple[int, dict[str, Any]]:
        arguments = {
            "host_name": "h1",
            "address": "10.77.0.11",
            "instances": list(instances),
            "defaults": {**DEFAULTS, **defaults},
        }
        file = tmp_path / "arguments.json"
        file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        path = pathlib.Path(server_spec.__file__)
        done = subprocess.run(
            [sys.executable, path, file],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, json.loads(done.stdout)

    return run_module


def test_returns_what_the_files_are_written_from(run) -> None:
    status, result = run(MAIN)
    assert (status, result["changed"]) == (0, False)
    assert result["versions"] == ["0.5.22"]
    assert result["instances"][0]["desired"]["replica"] == "h1-main"
    # What is doubtful is shown by Ansible too.
    (note,) = result["notes"]
    assert note in str(result["warnings"])


def test_refuses_with_all_problems(run) -> None:
    status, result = run({**MAIN, "name": "a-b", "version": "latest"}, {"name": "two"})
    assert status == 1
    assert len(result["problems"]) == 5
    assert all(problem in result["msg"] for problem in result["problems"])
    assert result["msg"].startswith("h1: 5 problems in its instances; nothing was touched:\n- ")


def test_no_secret_leaves_it(run) -> None:
    _, result = run({**MAIN, "api_key": "k-client-123"}, hf_token="hf_token_789")
    text = json.dumps(result)
    assert "k-client-123" not in text
    assert "hf_token_789" not in text
    assert result["instances"][0]["credentials"] == ["api_key", "hf_token"]
