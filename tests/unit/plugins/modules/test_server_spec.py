# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as Ansible runs it: what it returns, how it refuses, and that no secret leaves it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.serving.sglang.plugins.modules import server_spec

DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 100}
MAIN = {"name": "main", "model": "/srv/models/tiny", "port": 30000, "cards": [0]}


def run(capsys: pytest.CaptureFixture[str], *instances: dict[str, Any], **defaults: Any) -> tuple[int, dict[str, Any]]:
    arguments = {
        "host_name": "h1",
        "address": "10.77.0.11",
        "instances": list(instances),
        "defaults": {**DEFAULTS, **defaults},
    }
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        server_spec.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_returns_what_the_files_are_written_from(capsys: pytest.CaptureFixture[str]) -> None:
    status, result = run(capsys, MAIN)
    assert (status, result["changed"]) == (0, False)
    assert result["versions"] == ["0.5.22"]
    assert result["instances"][0]["desired"]["replica"] == "h1-main"
    # What is doubtful is shown by Ansible too.
    assert len(result["notes"]) == len(result["warnings"]) == 1


def test_refuses_with_all_problems(capsys: pytest.CaptureFixture[str]) -> None:
    status, result = run(capsys, {**MAIN, "name": "a-b", "version": "latest"}, {"name": "two"})
    assert status == 1
    assert len(result["problems"]) == 5
    assert all(problem in result["msg"] for problem in result["problems"])
    assert result["msg"].startswith("h1: 5 problems in its instances; nothing was touched:\n- ")


def test_no_secret_leaves_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, result = run(capsys, {**MAIN, "api_key": "k-client-123"}, hf_token="hf_token_789")
    text = json.dumps(result)
    assert "k-client-123" not in text
    assert "hf_token_789" not in text
    assert result["instances"][0]["credentials"] == ["api_key", "hf_token"]
