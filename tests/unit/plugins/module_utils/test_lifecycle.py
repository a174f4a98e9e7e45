# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a server's life."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import lifecycle
from ansible_collections.serving.sglang.plugins.module_utils.lifecycle import DrainWatch, Readings
from ansible_collections.serving.sglang.plugins.module_utils.releases import release_for
from ansible_collections.serving.sglang.plugins.module_utils.server_client import Loads, Probe
from ansible_collections.serving.sglang.plugins.module_utils.server_log import DrainLog, LifeSigns
from ansible_collections.serving.sglang.plugins.module_utils.systemd import Unit

V17, V22, V23 = release_for("0.5.17"), release_for("0.5.22"), release_for("0.5.23")
ACTIVE = Unit(id="u", load_state="loaded", active_state="active", sub_state="running", invocation_id="b")
UP, NOT_READY, REFUSED, SILENT = Probe(code=200), Probe(code=503), Probe(problem="refused"), Probe(problem="timeout")
FIRED = LifeSigns(fired_up=True)


def loads(running=0, waiting=0, published_at=1000.0, used=0):
    return Loads(running, waiting, 0.0, 65536, published_at, used)


@pytest.mark.parametrize(
    ("state", "release", "readings"),
    [
        ("stopped", V22, Readings(Unit("u", active_state="inactive"))),
        ("stopped", V22, Readings(Unit("u", active_state="failed"))),
        ("restarting", V22, Readings(Unit("u", active_state="activating", sub_state="auto-restart"))),
        ("draining", V22, Readings(Unit("u", active_state="deactivating", sub_state="stop-sigterm"))),
        ("loading", V22, Readings(Unit("u", active_state="activating", sub_state="start-pre"))),
        ("loading", V22, Readings(ACTIVE, ready=REFUSED)),
        ("hung", V22, Readings(ACTIVE, ready=SILENT)),
        ("up", V22, Readings(ACTIVE, ready=UP)),
        ("up", V22, Readings(ACTIVE, ready=UP, report_age_s=300, busy=0)),
        ("up", V22, Readings(ACTIVE, ready=UP, report_age_s=30, busy=4)),
        ("hung", V22, Readings(ACTIVE, ready=UP, report_age_s=61, busy=4)),
        ("up", V17, Readings(ACTIVE, ready=UP)),
        ("starting", V22, Readings(ACTIVE, ready=NOT_READY)),
        ("starting", V17, Readings(ACTIVE, ready=NOT_READY)),
        ("unhealthy", V22, Readings(ACTIVE, ready=NOT_READY, signs=FIRED)),
        ("paused", V22, Readings(ACTIVE, ready=NOT_READY, signs=LifeSigns(fired_up=True, paused=True))),
        (
            "unhealthy",
            V22,
            Readings(ACTIVE, ready=NOT_READY, signs=LifeSigns(fired_up=True, paused=True, health_failed=True)),
        ),
        ("draining", V22, Readings(ACTIVE, ready=NOT_READY, signs=LifeSigns(fired_up=True, draining=True))),
        ("paused", V23, Readings(ACTIVE, ready=NOT_READY, ping=UP, signs=FIRED)),
        ("unhealthy", V23, Readings(ACTIVE, ready=NOT_READY, ping=NOT_READY, signs=FIRED)),
        ("unhealthy", V23, Readings(ACTIVE, ready=NOT_READY, ping=SILENT, signs=FIRED)),
    ],
)
def test_states(state, release, readings):
    assert lifecycle.classify(readings, release) == state


@pytest.mark.parametrize(
    ("state", "resume", "probe", "drain", "stop"),
    [
        ("stopped", False, False, False, False),
        ("restarting", False, False, False, True),
        ("loading", False, False, False, True),
        ("starting", False, False, False, True),
        ("draining", False, False, False, True),
        ("up", False, False, True, True),
        ("hung", False, False, True, True),
        ("paused", True, True, True, True),
        ("unhealthy", True, True, True, True),
    ],
)
def test_each_state_has_its_treatment(state, resume, probe, drain, stop):
    todo = lifecycle.treatment(state)
    assert (todo.resume, todo.probe, todo.drain, todo.stop) == (resume, probe, drain, stop)
    assert todo.why


def test_one_zero_proves_nothing():
    watch = DrainWatch(limit_s=60)
    for reading in (loads(2, 1), loads(0), loads(0), loads(1), loads(0), loads(0)):
        watch.add(reading, 1000.0)
        assert not watch.drained
    watch.add(loads(0), 1000.0)
    assert watch.drained
    assert (watch.running_at_leave, watch.waiting_at_leave) == (2, 1)
    assert watch.rises == 1


def test_a_prompt_that_is_computed_in_pieces_is_not_drained():
    watch = DrainWatch(limit_s=60)
    for used in (2048, 4096, 6144, 8192, 8192, 8192):
        watch.add(loads(used=used), 1000.0)
        assert not watch.drained
    watch.add(loads(used=8192), 1000.0)
    assert watch.drained


def test_waiting_requests_are_not_drained():
    watch = DrainWatch(limit_s=60)
    for _ in range(5):
        watch.add(loads(0, 1), 1000.0)
    assert not watch.drained


def test_requests_that_still_arrive_are_told():
    watch = DrainWatch(limit_s=60)
    for count in (3, 2, 4):
        watch.add(loads(count), 1000.0)
    assert "still arrive" in watch.text(5)


def test_a_silent_scheduler_is_told():
    watch = DrainWatch(limit_s=60)
    watch.add(loads(2, published_at=1000.0), 1030.0)
    assert watch.stalled
    assert "30 s ago" in watch.text(30)
    idle = DrainWatch(limit_s=60)
    idle.add(loads(0, published_at=1000.0), 1030.0)
    assert not idle.stalled


def ended(code=0, killed=False, result="success", **more):
    return Unit(
        "u",
        active_state="inactive" if result == "success" else "failed",
        exec_main_code=2 if killed else 1,
        exec_main_status=code,
        result=result,
        **more,
    )


def drained(remaining=0, **more):
    return DrainLog(begun=True, remaining=remaining, **more)


@pytest.mark.parametrize(
    ("unit", "log", "release"),
    [
        (ended(0), drained(), V22),
        (ended(0), drained(), V23),
        (ended(9, killed=True, result="signal"), drained(), V17),
    ],
)
def test_a_clean_stop(unit, log, release):
    assert lifecycle.judge_stop(unit, log, release, served=True).clean


@pytest.mark.parametrize(
    ("unit", "log", "release", "words"),
    [
        (ended(9, killed=True, result="signal"), drained(), V22, "ended with -9"),
        (ended(0), drained(), V17, "ended with 0"),
        (ended(1, result="exit-code"), drained(), V22, "ended with 1"),
        (ended(0), DrainLog(), V22, "does not show that the server received SIGTERM"),
        (ended(0), drained(2), V22, "2 requests remained"),
        (ended(0), DrainLog(begun=True), V22, "not known"),
        (ended(0), DrainLog(begun=True, forced="health check failed"), V22, "forced to end"),
        (ended(0), drained(crashed="scheduler_0 ended with -11"), V22, "crashed"),
        (Unit("u", active_state="inactive"), drained(), V22, "has no exit code"),
        (ended(9, killed=True, result="timeout", timeout_stop_s=150.0), drained(3), V22, "grace period of 150 s"),
        (ended(9, killed=True, result="timeout", timeout_stop_s=150.0), drained(3), V17, "grace period of 150 s"),
    ],
)
def test_a_stop_that_proves_nothing(unit, log, release, words):
    verdict = lifecycle.judge_stop(unit, log, release, served=True)
    assert not verdict.clean
    assert any(words in problem for problem in verdict.problems)


def test_a_server_that_was_still_starting_owes_no_drain():
    assert lifecycle.judge_stop(ended(15, killed=True, result="signal"), DrainLog(), V22, served=False).clean
    assert not lifecycle.judge_stop(ended(9, killed=True, result="timeout"), DrainLog(), V22, served=False).clean


def test_an_assumed_release_is_named_as_such():
    verdict = lifecycle.judge_stop(ended(1), drained(), release_for("0.9.9"), served=True)
    assert "assumed" in verdict.problems[0]


def test_late_requests_and_stragglers_are_notes():
    log = drained(stragglers="4711", first_rids=frozenset("a"), all_rids=frozenset("abc"))
    verdict = lifecycle.judge_stop(ended(0), log, V22, served=True)
    assert verdict.clean
    assert len(verdict.notes) == 2
    assert "2 requests arrived after SIGTERM" in verdict.notes[1]


FIRST = Unit("u", load_state="loaded", active_state="inactive", invocation_id="a")


@pytest.mark.parametrize(
    ("unit", "ready", "queued_s", "outcome"),
    [
        (FIRST, None, 0.2, "wait"),
        (Unit("u", active_state="inactive", invocation_id="a", job=5), None, 9, "wait"),
        (Unit("u", active_state="activating", sub_state="start-pre", invocation_id="b"), None, 1, "wait"),
        (ACTIVE, REFUSED, 1, "wait"),
        (ACTIVE, NOT_READY, 1, "wait"),
        (ACTIVE, SILENT, 1, "wait"),
        (ACTIVE, UP, 1, "ready"),
        (FIRST, None, 6, "inactive again"),
        (Unit("u", active_state="inactive", invocation_id="b"), None, 1, "inactive again"),
        (Unit("u", active_state="failed", result="exit-code", exec_main_code=1, exec_main_status=2), None, 1, "with 2"),
        (Unit("u", active_state="failed", result="signal", exec_main_code=2, exec_main_status=9), None, 1, "signal 9"),
        (Unit("u", active_state="activating", sub_state="auto-restart", restarts=0), None, 1, "restarted"),
        (Unit("u", active_state="active", invocation_id="c", restarts=2), UP, 1, "2 times"),
        (Unit("u", active_state="deactivating", invocation_id="b"), None, 1, "stopping"),
        (Unit("u", active_state="inactive", invocation_id="a", condition_result=False), None, 1, "condition"),
    ],
)
def test_a_start_waits_is_ready_or_is_dead(unit, ready, queued_s, outcome):
    step = lifecycle.judge_start(unit, FIRST, 0, ready, queued_s)
    if outcome == "wait":
        assert step == lifecycle.StartStep()
    elif outcome == "ready":
        assert step.ready
    else:
        assert outcome in (step.dead or "")


def test_restarts_before_the_watch_do_not_count():
    unit = Unit("u", active_state="active", invocation_id="b", restarts=2)
    assert lifecycle.judge_start(unit, FIRST, 2, UP, 1).ready
