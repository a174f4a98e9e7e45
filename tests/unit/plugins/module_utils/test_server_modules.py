# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What server_start does on a host that a rollout has claimed."""

from __future__ import annotations

import fcntl
import os

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import host_job, job_launch, rollout_state, server_modules

CLAIM = {"run": "R7", "token": "t7", "owner": "ann@laptop", "controller": "c", "pid": 7}
PARAMS = {
    "instance": "main",
    "request": "task-1",
    "wait": False,
    "verify": True,
    "deadline_s": None,
    "unless_claimed": True,
    "stale_claims": [],
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The directory of the host's rollout state."""
    directory = str(tmp_path / "rollout")
    for function in (rollout_state.unclaimed, rollout_state.refuse_claimed):
        monkeypatch.setattr(
            rollout_state,
            function.__name__,
            lambda stale, _directory=None, function=function: function(stale, directory),
        )
    monkeypatch.setattr(host_job, "JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return directory


@pytest.fixture
def launched(home, monkeypatch):
    """The jobs that were begun, each with whether claims were held off meanwhile."""
    begun = []

    def launch(kind, instance, request, options):
        with open(os.path.join(home, ".guard"), "a", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                begun.append((kind, instance, False))
            except BlockingIOError:
                begun.append((kind, instance, True))
        host_job.Reporter(kind, instance, "j1", request).finish(None)
        return host_job.Decision("launch", host_job.parse_status(host_job.read_status_text(instance)))

    monkeypatch.setattr(job_launch, "launch", launch)
    return begun


def test_a_free_host(launched):
    assert server_modules.run_start(PARAMS, False)["changed"] is True
    assert launched == [("start", "main", True)], "no claim can come between the look and the start"


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_claimed_host_is_left_alone(home, launched, check_mode):
    rollout_state.take_lock(CLAIM, directory=home)
    result = server_modules.run_start(PARAMS, check_mode)
    assert (result["failed"], result["kind"], result["changed"]) == (True, "claimed", False)
    assert "rollout R7 of ann@laptop" in result["msg"]
    assert launched == []


@pytest.mark.parametrize("changes", [{"stale_claims": ["t7"]}, {"unless_claimed": False}])
def test_a_claim_that_does_not_count(home, launched, changes):
    rollout_state.take_lock(CLAIM, directory=home)
    assert server_modules.run_start({**PARAMS, **changes}, False)["changed"] is True
    assert launched == [("start", "main", "stale_claims" in changes)]


def test_a_claim_that_cannot_be_read(home, launched):
    os.makedirs(home)
    with open(os.path.join(home, rollout_state.LOCK), "w", encoding="utf-8") as handle:
        handle.write("{")
    result = server_modules.run_start(PARAMS, False)
    assert (result["failed"], result["kind"]) == (True, "claimed")
    assert "lock.json" in result["msg"]
