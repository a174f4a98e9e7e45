# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as Ansible runs it: findings, the difference of an upgrade, and no secret in what comes back."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.modules import args_check


def run(tmp_path: pathlib.Path, **arguments: Any) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    done = subprocess.run(
        [sys.executable, args_check.__file__, file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout)


def test_what_is_right(tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path, version="v0.5.23", arguments={"tp-size": 2, "enable-metrics": True}, port=30000)
    assert (status, result["changed"], result["outcome"], result["findings"]) == (0, False, "ok", [])
    assert (result["version"], result["data_of"], result["assumed"], result["difference"]) == (
        *("0.5.23", "0.5.23", False),
        None,
    )


def test_findings_and_an_upgrade_without_secrets(tmp_path: pathlib.Path) -> None:
    secrets = ("k-1234567890", "t-1234567890", "f-1234567890")
    status, result = run(
        tmp_path,
        version="0.5.22",
        upgrade_to="v0.5.23",
        arguments={"max_running_requests": 4, "speculative-skip-dp-mlp-sync": True},
        command_line=["--config=/x.yml", "--api-key", secrets[0], "--tokenizer-worker-num", "2"],
        config={"enable-tf32-matmul": True, "admin-api-key": secrets[2]},
        environment={"MY_TOKEN": secrets[1]},
        keys=["admin_api_key"],
    )
    assert status == 0
    assert {one["id"] for one in result["findings"] if one["severity"] == "error"} == {
        "args.config_equals",
        "args.keys_with_tokenizer_workers",
        "args.spelling",
        "env.secret",
    }
    assert {one["id"] for one in result["difference"]["new_findings"]} == {"args.config_refused", "args.removed"}
    assert result["difference"]["lines"][0].startswith("error   --speculative-skip-dp-mlp-sync: removed")
    assert not [secret for secret in secrets if secret in json.dumps(result)]


def test_a_release_without_data(tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path, version="0.5.99", arguments={"brand-new-flag": 1})
    assert (status, result["assumed"], result["data_of"], result["outcome"]) == (0, True, "0.5.23", "unknown")
    assert [one["id"] for one in result["findings"]] == ["release.assumed", "args.unknown"]
    assert "assumed for 0.5.99" in result["findings"][1]["evidence"]


@pytest.mark.parametrize("version", ["nonsense", "9" * 5000, None])
def test_what_is_no_release(version: str | None, tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path, version=version)
    assert (status, result["outcome"]) == (0, "error")
    assert [one["id"] for one in result["findings"]] == ["release.not_a_release"]


def test_an_upgrade_to_what_is_no_release(tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path, version="v0.5.22", upgrade_to="nonsense")
    assert (status, result["outcome"]) == (0, "error")
    assert "'nonsense' is no release" in result["findings"][0]["summary"]


def test_a_wrong_option(tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path, version="0.5.23", keys=["password"])
    assert (status, result["failed"]) == (1, True)
