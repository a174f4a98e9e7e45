# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Following a host job from the controller, over a connection that may fail."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.serving.sglang.plugins.module_utils import ledger
from ansible_collections.serving.sglang.plugins.plugin_utils import host_job_follow
from ansible_collections.serving.sglang.plugins.plugin_utils.host_job_follow import Follower, LostConnection

BOOT = "886182dc-b6cf-4974-b9f7-5eb3fe288606"


def output(unit="active", **changes):
    data = {
        "schema": 1,
        "job": "stop",
        "instance": "main",
        "id": "j1",
        "request": "r",
        "boot_id": BOOT,
        "state": "running",
        "step": "drain",
        "progress": {"text": "2 running, 1 s of at most 60 s"},
        "steps": [],
        "result": {},
        "started_at": "t0",
        "updated_at": "t1",
    }
    return f"{unit}\n{BOOT}\n{host_job_follow._MARK}\n{json.dumps({**data, **changes})}\n"


STEP = {"step": "drain", "ok": True, "elapsed_s": 3.0, "detail": {"running_at_leave": 2}}
DONE = output("inactive", state="done", steps=[STEP], result={"changed": True})
BROKEN = AnsibleConnectionFailure("no route to host")


class Host:
    """Answers one after another; an exception among them is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.commands = []
        self.resets = 0

    def __call__(self, command):
        self.commands.append(command)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reset(self):
        self.resets += 1


@pytest.fixture
def clock(monkeypatch):
    """Time that passes by sleeping only."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(host_job_follow, "time", clock)
    return clock


@pytest.fixture
def shown(monkeypatch):
    texts = []
    monkeypatch.setattr(host_job_follow.display, "display", texts.append)
    return texts


def follower(host, line=None, touch=(), reconnect_s=60.0):
    return Follower(host, "stop", "main", "h1", list(touch), reconnect_s, line, host.reset)


def test_a_job_is_followed_to_its_end(clock, shown):
    host = Host(output(), output(progress={"text": "1 running, 2 s of at most 60 s"}), DONE)
    result = follower(host).follow("j1")
    assert result["changed"]
    assert result["steps"] == [STEP]
    assert not result.get("failed")
    assert shown == [
        "[h1] stop main: drain: 2 running, 1 s of at most 60 s",
        "[h1] stop main: drain: 1 running, 2 s of at most 60 s",
    ]


def test_progress_is_shown_when_something_happens_and_every_ten_seconds(clock, shown):
    answers = [
        output(progress={"text": f"2 running, {second} s of at most 60 s"}) for second in range(25) for _again in (1, 2)
    ]
    follower(Host(*answers, DONE)).follow("j1")
    assert len(shown) == 3


def test_a_lost_connection_that_comes_back_costs_nothing(clock, shown):
    host = Host(output(), BROKEN, BROKEN, output(), DONE)
    assert follower(host).follow("j1")["changed"]
    assert host.resets == 2
    assert any("goes on there" in text for text in shown)


def test_a_connection_that_stays_lost_is_a_failure_and_not_unreachable(clock, shown):
    host = Host(output(), BROKEN)
    following = follower(host, reconnect_s=30.0)
    with pytest.raises(LostConnection) as caught:
        following.follow("j1")
    result = following.lost_result(caught.value, True)
    assert result["failed"]
    assert result["lost_connection"]
    assert "unreachable" not in result
    assert "goes on there" in result["msg"]
    assert "no route to host" in result["msg"]
    assert "sglang-job-main.service" in result["msg"]


def test_an_outage_counts_from_its_own_beginning(clock, shown):
    outage = [BROKEN] * 10  # 20 s each
    host = Host(*outage, output(), *outage, output(), DONE)
    assert follower(host, reconnect_s=30.0).follow("j1")["changed"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (output("inactive"), "killed from outside"),
        (output("active", boot_id="other"), "restarted"),
        (f"inactive\n{BOOT}\n{host_job_follow._MARK}\n", "status file is gone"),
    ],
)
def test_a_job_that_is_gone_has_a_clear_end(clock, shown, answer, words):
    result = follower(Host(output(), answer)).follow("j1")
    assert result["failed"]
    assert result["kind"] == "job_lost"
    assert words in result["msg"]


def test_an_answer_that_is_none_of_ours_is_waited_over(clock, shown):
    host = Host(output(), "Last login: today\n", "", DONE)
    assert follower(host).follow("j1")["changed"]


def test_answers_that_are_never_ours_come_to_an_end(clock, shown):
    result = follower(Host(output(), "sudo: a password is required\n")).follow("j1")
    assert result["kind"] == "job_lost"
    assert "a password is required" in result["msg"]


def test_steps_go_to_the_ledger_once(clock, shown, tmp_path):
    path = str(tmp_path / "run.jsonl")
    line = {"path": path, "run": "7", "replica": "h1-main", "host": "h1"}
    host = Host(output(), output(steps=[STEP]), output(steps=[STEP]), DONE)
    follower(host, line).follow("j1")
    # A second controller that joins the same job writes nothing twice.
    follower(Host(DONE), line).follow("j1")
    (written,) = ledger.read(path)
    assert (written.step, written.ok, written.elapsed_s) == ("drain", True, 3.0)
    assert written.detail["running_at_leave"] == 2


def test_files_are_touched_by_every_look(clock, shown):
    host = Host(DONE)
    follower(host, touch=["/var/lib/sglang/rollout/it's.lock"]).follow("j1")
    assert "touch -c -- '/var/lib/sglang/rollout/it'\"'\"'s.lock'" in host.commands[0]


def test_the_unit_is_asked_before_the_status_file():
    command = host_job_follow.look_command("main", [])
    assert command.index("is-active") < command.index("main.json")


def test_it_remembers_at_which_step_the_job_was(monkeypatch):
    monkeypatch.setattr(host_job_follow, "POLL_S", 0)
    answers = iter([output(), output(step="stop"), output("inactive", step="stop")])
    follower = Follower(lambda _command: next(answers), "stop", "main", "h1", [], 1, None)
    assert follower.step == "drain"
    assert follower.follow("j1")["kind"] == "job_lost"
    assert follower.step == "stop"
