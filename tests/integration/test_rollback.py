# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An upgrade, the way back from it, and a new state that does not start, with a real SGLang of two releases.

The tests stand in an order that costs few starts; each goes on from what the one before left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

OLD, NEW = "0.5.22", "0.5.23"
PREVIOUS = "/etc/sglang/main.previous.json"


class Operator:
    """Whoever runs the playbooks: one inventory, and what it declares just now."""

    def __init__(self, host, scratch: Path) -> None:
        self.host = host
        self.scratch = scratch
        self.ledgers = scratch / "ledger"

    def declare(self, version: str, **arguments) -> None:
        given = self.host.variables
        declared = {
            **given,
            "sglang_server_start": True,
            "sglang_server_version": version,
            "sglang_server_environment": {
                **given["sglang_server_environment"],
                "PYTHONPATH": f"/opt/sglang/{version}/stubs",
            },
            "sglang_server_arguments": {**given["sglang_server_arguments"], **arguments},
            "sglang_server_instances": given["sglang_server_instances"][:1],
            "sglang_rollout_ledger_dir": str(self.ledgers),
            "sglang_rollout_min_serving": 0,
            "sglang_rollout_soak_s": 0,
            "sglang_rollout_settle_s": 0,
        }
        (self.scratch / "declared.json").write_text(json.dumps(declared))

    def begin(self, playbook: str, **variables) -> subprocess.Popen[str]:
        words = [str(self.host.checkout / "tests" / "dev" / "run"), "ansible-playbook", "-i", str(self.host.inventory)]
        words += ["-e", f"@{self.scratch / 'declared.json'}", "-e", json.dumps(variables), f"serving.sglang.{playbook}"]
        return subprocess.Popen(
            self.host.command("exec", "--fleet", self.host.fleet, "--", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, playbook: str, expected: int = 0, **variables) -> str:
        process = self.begin(playbook, **variables)
        output, _nothing = process.communicate(timeout=600)
        assert process.returncode == expected, output
        assert self.host.key not in output
        assert self.host.admin_key not in output
        return output

    def lines(self) -> list[dict]:
        (*_older, last) = sorted(self.ledgers.glob("*.jsonl"), key=os.path.getmtime)
        return [json.loads(line) for line in last.read_text().splitlines()]

    def kept(self) -> tuple[str, str]:
        content = json.loads(self.host.shell(f"cat {PREVIOUS}"))
        return content["desired"]["version"], content["by"]

    def serves(self) -> str:
        entry = self.host.info()
        assert entry["state"] == "up", entry
        assert entry["restart_pending"] is False
        return entry["version"]


@pytest.fixture(scope="module")
def operator(host, tmp_path_factory):
    return Operator(host, tmp_path_factory.mktemp("operator"))


@pytest.mark.full
def test_an_upgrade_keeps_what_served_and_says_what_it_changes(operator):
    operator.declare(OLD)
    operator.run("deploy")
    assert operator.serves() == OLD
    assert operator.host.shell(f"ls {PREVIOUS}", check=False) == ""
    operator.declare(NEW, **{"max-running-requests": 8})
    operator.run("deploy")
    assert operator.kept() == (OLD, "deployment")
    assert operator.host.shell(f"stat -c '%a %U' {PREVIOUS}").strip() == "644 root"
    plan = operator.run("rollout", sglang_rollout_plan_only=True)
    assert f"changes: h1-main: {OLD} -> {NEW}" in plan
    assert "argument max-running-requests: 16 -> 8" in plan
    assert "default of --enable-tf32-matmul changes from false to unset" in plan
    operator.run("rollout")
    assert operator.serves() == NEW
    assert "ok=" in operator.run("deploy")
    assert operator.kept() == (OLD, "deployment"), "the same deployed again changes nothing"


@pytest.mark.full
def test_a_rollback_that_is_cut_off_is_continued_and_never_swaps_back(operator):
    before = operator.host.shell("cat /etc/sglang/main.json")
    plan = operator.run("rollback", sglang_rollout_plan_only=True)
    assert f"back: h1-main: {NEW} -> {OLD}" in plan
    assert operator.host.shell("cat /etc/sglang/main.json") == before
    process = operator.begin("rollback")
    end = time.monotonic() + 120
    while operator.kept()[1] != "rollback" and time.monotonic() < end:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert operator.kept() == (NEW, "rollback")
    said = operator.run("rollback")
    assert "their files are back already: h1-main" in said
    assert "The inventory still declares what they were brought back from" in " ".join(said.split())
    assert operator.serves() == OLD
    pid = operator.host.info()["main_pid"]
    assert "nothing to bring back" in operator.run("rollback")
    assert operator.host.info()["main_pid"] == pid
    assert operator.kept() == (NEW, "rollback")


# The scenario podman does the same with an image that cannot start.
@pytest.mark.full
def test_a_state_that_does_not_start_is_returned_from(operator):
    # It is there, so that nothing is missing before the replica leaves, and has no tokenizer.
    operator.declare(OLD, **{"tokenizer-path": "/srv/models"})
    operator.run("deploy")
    assert operator.kept() == (OLD, "deployment")
    said = " ".join(operator.run("rollout", expected=2, sglang_rollout_on_failure="rollback").split())
    assert "on failure: that replica returns to its previous state" in said
    assert "The rollout stopped at h1-main on h1, at the step start" in said
    assert "did not start: " in said
    assert f"h1-main was returned to its previous state and serves {OLD} again" in said
    assert operator.serves() == OLD
    assert "tokenizer-path" not in operator.host.shell("cat /etc/sglang/main.json")
    steps = [(line["step"], line["ok"]) for line in operator.lines()]
    assert steps[-4:] == [("stop", True), ("start", True), ("verify", True), ("failed", False)]
    assert ("start", False) in steps
    last = operator.lines()[-1]["detail"]
    assert (last["rolled_back"], last["previous_version"]) == (True, OLD)
    # The declaration still is the broken one; what is on the host is not, and nothing is pending there.
    assert "nothing to do" in operator.run("rollout", sglang_rollout_only_pending=True)
