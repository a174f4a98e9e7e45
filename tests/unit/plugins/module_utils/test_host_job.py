# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Host jobs: status files of every condition, and what is concluded from them."""

from __future__ import annotations

import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import host_job
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

BOOT = "886182dc-b6cf-4974-b9f7-5eb3fe288606"


def status(**changes):
    data = {
        "schema": 1,
        "job": "stop",
        "instance": "main",
        "id": "j1",
        "request": "rollout-7/h1-main",
        "pid": 12,
        "started_at": "2026-11-29T22:47:03.220Z",
        "updated_at": "2026-11-29T22:47:30.000Z",
        "boot_id": BOOT,
        "state": "running",
        "step": "drain",
        "progress": {"text": "2 running, 0 waiting"},
        "steps": [{"step": "drain", "ok": True, "elapsed_s": 3.0, "detail": {}}],
        "result": {"changed": True, "exit_code": 0},
        "error": None,
    }
    return json.dumps({**data, **changes})


@pytest.mark.parametrize(
    ("text", "unit", "job_id", "seen", "state"),
    [
        (status(), "active", "j1", True, "running"),
        (status(), "active", None, False, "running"),
        (status(state="done"), "inactive", "j1", True, "ended"),
        (status(state="failed"), "failed", "j1", True, "ended"),
        # The job of an earlier call is still on file while the new one starts.
        (status(id="j0", state="done"), "active", "j1", False, "waiting"),
        (None, "activating", "j1", False, "waiting"),
        ("", "active", "j1", False, "waiting"),
        # The job is gone, in each way it can be.
        (status(), "inactive", "j1", True, "lost"),
        (status(), "failed", "j1", True, "lost"),
        (status(), "", "j1", True, "lost"),
        (status(boot_id="other"), "active", "j1", True, "lost"),
        (None, "inactive", "j1", True, "lost"),
        (status(id="j2"), "active", "j1", True, "lost"),
        # A file that is not whole: believed to be running only while its unit is.
        (status()[:80], "active", "j1", True, "running"),
        (status()[:80], "inactive", "j1", True, "lost"),
    ],
)
def test_looks(text, unit, job_id, seen, state):
    look = host_job.look(text, unit, BOOT, job_id, seen)
    assert look.state == state
    if state == "lost":
        assert look.reason


def test_a_restart_of_the_host_is_named():
    look = host_job.look(status(boot_id="other"), "inactive", BOOT, "j1", True)
    assert "host was restarted" in look.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "schema"),
        (status(schema=9), "schema"),
        (status(job="dance"), "no known job"),
        (status(state="odd"), "no known job"),
    ],
)
def test_a_status_that_is_not_ours_is_refused(text, words):
    with pytest.raises(EngineError, match=words):
        host_job.parse_status(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELDS = ["id", "request", "pid", "step", "progress", "steps", "result", "error", "boot_id", "instance"]


@given(st.sampled_from(FIELDS), JSON)
def test_no_content_of_a_field_breaks_the_reader(name, value):
    look = host_job.look(status(**{name: value}), "active", BOOT, None, False)
    assert look.state in ("running", "lost")
    if look.status is not None:
        host_job.outcome(look.status)


@pytest.mark.parametrize(
    ("text", "unit", "kind", "request_name", "action"),
    [
        (status(), "active", "stop", "", "join"),
        (status(), "active", "stop", "another", "join"),
        (status(), "active", "start", "", "refuse"),
        (status(state="done"), "inactive", "stop", "rollout-7/h1-main", "finished"),
        (status(state="failed"), "inactive", "stop", "rollout-7/h1-main", "finished"),
        (status(state="done"), "inactive", "stop", "another", "launch"),
        (status(state="done"), "inactive", "stop", "", "launch"),
        (status(state="done"), "inactive", "start", "rollout-7/h1-main", "launch"),
        (status(), "inactive", "stop", "rollout-7/h1-main", "launch"),
        (None, "inactive", "stop", "", "launch"),
        ("{", "inactive", "stop", "", "launch"),
        ("{", "active", "stop", "", "refuse"),
    ],
)
def test_what_is_done_about_a_job_that_is_there(text, unit, kind, request_name, action):
    decision = host_job.decide(host_job.look(text, unit, BOOT, None, False), kind, request_name)
    assert decision.action == action


def test_a_refusal_says_what_runs_since_when_for_whom():
    decision = host_job.decide(host_job.look(status(), "active", BOOT, None, False), "start", "")
    for words in ("stop of instance main", "2026-11-29T22:47:03.220Z", "rollout-7/h1-main", "2 running", "has to wait"):
        assert words in decision.msg


def test_the_outcome_of_a_failed_job():
    failed = host_job.parse_status(
        status(state="failed", error={"kind": "drain_timeout", "msg": "2 running"}, result={"running_at_leave": 2})
    )
    result = host_job.outcome(failed)
    assert result["failed"]
    assert (result["kind"], result["msg"]) == ("drain_timeout", "2 running")
    assert result["running_at_leave"] == 2
    assert result["changed"] is False
    assert result["steps"][0]["step"] == "drain"


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(host_job, "JOBS_DIR", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


def read(jobs):
    return json.loads((jobs / "main.json").read_text())


def test_a_reporter_writes_every_change(jobs):
    reporter = host_job.Reporter("stop", "main", "j1", "r", ("Zsecret",))
    assert read(jobs)["state"] == "running"
    reporter.begin("drain", "2 running")
    assert read(jobs)["progress"]["text"] == "2 running"
    reporter.progress("1 running, key Zsecret", running=1)
    assert read(jobs)["progress"]["running"] == 1
    reporter.end(True, running_at_leave=2)
    reporter.result["changed"] = True
    reporter.finish(None)
    data = read(jobs)
    assert data["state"] == "done"
    assert data["result"] == {"changed": True}
    assert data["steps"][0]["detail"] == {"running_at_leave": 2}
    assert data["steps"][0]["ok"]
    assert "Zsecret" not in (jobs / "main.json").read_text()
    assert os.stat(jobs / "main.json").st_mode & 0o777 == 0o644
    assert [path.name for path in jobs.iterdir()] == ["main.json"]


def test_a_reporter_shows_that_it_lives(jobs, monkeypatch):
    monkeypatch.setattr(host_job, "HEARTBEAT_S", 0.02)
    reporter = host_job.Reporter("stop", "main", "j1", "r")
    first = read(jobs)["updated_at"]
    deadline = threading.Event()
    for _ in range(100):
        if read(jobs)["updated_at"] != first:
            break
        deadline.wait(0.02)
    assert read(jobs)["updated_at"] != first
    reporter.finish({"kind": "died", "msg": "gone"})
    assert read(jobs)["error"] == {"kind": "died", "msg": "gone"}


def test_the_last_jobs_of_a_host(jobs):
    assert host_job.last_jobs() == {}
    host_job.Reporter("start", "main", "j1", "r").finish(None)
    host_job.Reporter("stop", "two", "j2", "r").finish(None)
    for name, text in (("main.j3.request.json", "{}"), (".two.json.abc", "{"), ("bad.json", "{"), ("main.code", "")):
        (jobs / name).write_text(text)
    assert host_job.last_jobs() == {"main": "j1", "two": "j2"}
