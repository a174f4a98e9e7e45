# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which replicas a rollback brings back, and what becomes of one that fails with a new state."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import (
    previous_state,
    rollback,
    rollout,
    served_states,
    upgrade_state,
)

RUN = "20261130T060000Z-aaaa"


def member(number, replica=None, **changes):
    return rollout.Member(
        **{
            "replica": replica or f"r{number}",
            "rank": 0,
            "host": f"h{number}",
            "instance": "main",
            "worker_url": f"http://10.0.0.{number}:30000",
            "serving": True,
            "state": "up",
            **changes,
        }
    )


def info(by="deployment", **changes):
    difference = {
        "from": {"version": "2", "image": None, "runtime": "native"},
        "to": {"version": "1", "image": None, "runtime": "native"},
        "changes": [{"part": "version", "name": "version", "before": "2", "after": "1"}],
        "assumed": [],
    }
    previous = {"version": "1", "kept_at": "2026-11-30T05:00:00Z", "by": by, "same": False, "runs": False}
    return {"previous": {**previous, "difference": difference, **changes}, "upgrade": None}


NONE = {"previous": None, "upgrade": None}


def choose(*pairs, **options):
    members = [one for one, _info in pairs]
    entries = {(one.host, one.instance): info_ for one, info_ in pairs}
    return rollback.choose(members, entries, **options)


def test_every_replica_with_a_previous_state_by_default():
    choice = choose((member(1), info()), (member(2), NONE), (member(3), info()))
    assert choice.restore == (("h1", "main"), ("h3", "main"))
    assert choice.restart == ("r1", "r3")
    assert choice.skipped == (("r2", "no previous state is kept"),)
    assert choice.refusals == ()


@pytest.mark.parametrize("options", [{"replicas": ["r3"]}, {"hosts": ["h3"]}])
def test_only_what_is_chosen(options):
    choice = choose((member(1), info()), (member(3), info()), **options)
    assert choice.restore == (("h3", "main"),)
    assert choice.restart == ("r3",)


@pytest.mark.parametrize(
    ("one", "what", "restore", "restart"),
    [
        # What an interrupted call left: the files are back, and so is what runs, or not yet.
        (member(1), info("rollback"), False, False),
        (member(1, restart_pending=True), info("rollback"), False, True),
        (member(1, serving=False, state="stopped"), info("rollback"), False, True),
        (member(1, record=rollout.Record(RUN, "leaving", 1.0)), info("rollback"), False, True),
        (member(1, record=rollout.Record(RUN, "done", 1.0)), info("rollback"), False, False),
        (member(1, record=rollout.Record(RUN, "rolled_back", 1.0)), info("rollback"), False, False),
        # Deployed and not yet rolled out: what runs is what comes back.
        (member(1, restart_pending=True), info(runs=True), True, False),
        (member(1, serving=False, state="stopped"), info(), True, True),
        (member(1), info("undo"), True, True),
        (member(1), info(same=True), False, False),
    ],
)
def test_what_is_done_with_a_replica(one, what, restore, restart):
    choice = choose((one, what))
    assert bool(choice.restore) is restore
    assert bool(choice.restart) is restart
    assert bool(choice.skipped) is not (restore or restart)
    assert choice.refusals == ()


@pytest.mark.parametrize(
    ("one", "what", "restore", "restart"),
    [
        (member(1), info("rollback"), True, True),
        (member(1), info("deployment"), False, False),
        (member(1), info("undo"), False, False),
        (member(1, restart_pending=True), info("undo"), False, True),
    ],
)
def test_taking_a_rollback_back(one, what, restore, restart):
    choice = choose((one, what), undo=True)
    assert bool(choice.restore) is restore
    assert bool(choice.restart) is restart


def test_what_is_named_and_cannot_be_brought_back_is_refused():
    choice = choose((member(1), NONE), (member(2), {**NONE, "previous_error": "not JSON"}), replicas=["r1", "r2", "r9"])
    assert len(choice.refusals) == 3
    assert "sglang_rollback_replicas: unknown: r9" in choice.refusals[0]
    assert "r1 cannot be brought back: h1/main: no previous state is kept" in choice.refusals[1]
    assert "r2 cannot be read: h2/main: not JSON" in choice.refusals[2]


def test_half_a_replica_is_refused():
    choice = choose((member(1, "big"), info()), (member(2, "big", rank=1), NONE))
    assert choice.restore == ()
    assert "h2/main: no previous state is kept" in choice.refusals[0]


def test_the_plan_says_what_happens_to_whom():
    pairs = [
        (member(1), info()),
        (member(2), info(runs=True)),
        (member(3, restart_pending=True), {**info("rollback"), "upgrade": info()["previous"]["difference"]}),
        (member(4), NONE),
    ]
    members = [one for one, _info in pairs]
    entries = {(one.host, one.instance): info_ for one, info_ in pairs}
    choice = rollback.choose(members, entries)
    text = "\n".join(rollback.render(choice, members, rollback.changes_of(choice, members, entries), False))
    for words in (
        "Rollback: 2 replicas get their previous state back, 2 are restarted",
        "back: r1, r2, r3: 2 -> 1",
        "they still run it: r2",
        "their files are back already: r3",
        "skipped: r4: no previous state is kept",
    ):
        assert words in text
    assert "nothing to bring back" in rollback.render(rollback.Choice(), [], [], False)[-1]


# --- after a failure ------------------------------------------------------------------------------------------------


def of_wave(number, **changes):
    named = {"changes_state": True, "previous_version": "1", "head": True, **changes}
    return {"replica": f"r{number}", "host": f"h{number}", "instance": "main", **named}


def failure(number, step, **changes):
    return {
        "failed": True,
        "msg": "it died",
        "failed_at": {"replica": f"r{number}", "host": f"h{number}", "step": step},
        **changes,
    }


@pytest.mark.parametrize(
    ("step", "tried"),
    [("start", True), ("verify", True), ("rejoin", True), ("done", True), ("drain", False), ("stop", False)],
)
def test_only_what_a_new_state_broke(step, tried):
    found = rollback.targets({"results": [{"failed": False}, failure(2, step)]}, [of_wave(1), of_wave(2)])
    assert [target["replica"] for target in found] == (["r2"] if tried else [])


def test_a_task_of_the_operators_is_no_failure_of_a_state():
    assert rollback.targets({"failed": True, "msg": "no"}, [of_wave(1)]) == []


@pytest.mark.parametrize(
    ("changes", "result", "words"),
    [
        ({}, {}, ""),
        ({"changes_state": False}, {}, "its state was not changed"),
        ({"previous_version": ""}, {}, "no previous state is kept of h1/main"),
        ({}, {"lost_connection": True}, "h1 cannot be reached"),
    ],
)
def test_why_one_cannot_return(changes, result, words):
    (target,) = rollback.targets(failure(1, "start", **result), [of_wave(1, **changes)])
    assert target["why_not"].startswith(words)
    assert bool(target["why_not"]) is bool(words)


def test_how_it_ended_is_told():
    (target,) = rollback.targets(failure(1, "start"), [of_wave(1)])
    well = rollback.outcome(target, None)
    badly = rollback.outcome(target, {"results": [{"failed": True, "msg": "The image is gone."}]})
    assert (well["ok"], badly["ok"]) == (True, False)
    text = rollback.told([well])
    assert text.startswith("r1 was returned to its previous state and serves 1 again. Nothing else was touched")
    assert "serving.sglang.rollback" in text
    assert rollback.told([badly]) == "r1 was NOT returned to its previous state: The image is gone."
    out = rollback.told([well], [{"failed": True, "item": [{"replica": "r1"}, "gw"]}])
    assert "but is not back in gw" in out
    assert rollback.told([]) == ""


# --- the plan of a rollout after that --------------------------------------------------------------------------------


def plan(members):
    return rollout.make_plan(members, new_run="new", min_serving=0)


def returned(number, **changes):
    return member(number, record=rollout.Record(RUN, "rolled_back", 2000.0), **changes)


def done(number, **changes):
    return member(number, record=rollout.Record(RUN, "done", 2000.0), **changes)


def names(result):
    return [replica.name for wave in result.waves for replica in wave]


def test_the_run_goes_on_as_long_as_something_is_pending():
    result = plan([done(1), returned(2), member(3, restart_pending=True)])
    assert result.run == RUN
    assert names(result) == ["r3"]
    assert dict(result.skipped)["r2"] == f"returned to its previous state in run {RUN}, and no restart is pending"


def test_what_is_deployed_again_is_tried_again():
    result = plan([done(1), returned(2, restart_pending=True)])
    assert (result.run, names(result)) == (RUN, ["r2"])
    assert result.waves[0][0].resume == rollout.LEAVE


def test_with_nothing_pending_a_new_run_begins():
    result = plan([done(1), returned(2)])
    assert (result.run, names(result)) == ("new", ["r1", "r2"])


def test_what_is_away_already_needs_nobody_to_go_on_serving():
    away = member(1, serving=False, state="stopped")
    result = rollout.make_plan([away], new_run="new", accept_not_serving=["r1"], min_serving=1)
    assert result.refusals == ()


# --- what the next start replaces ------------------------------------------------------------------------------------

A, B = ({"instance": "main", "version": version} for version in ("0.5.22", "0.5.23"))
UP = {"state": "up", "ready": True}
STOPPED = {"state": "stopped", "ready": False}


def kept(desired, by="deployment"):
    text = previous_state.render_desired(desired)
    return previous_state.Kept("then", desired, {"/etc/sglang/main.json": text}, by)


def on_host(disk, running, previous=None, served=()):
    texts = {name: previous_state.render_desired(one) if one else None for name, one in (("d", disk), ("r", running))}
    digests = tuple(served_states.digest(previous_state.render_desired(one)) for one in served)
    return previous_state.Found("main", texts["d"], texts["r"], previous, {}, digests)


@pytest.mark.parametrize(
    ("found", "live", "expected"),
    [
        (on_host(A, A, served=[A]), UP, None),
        (on_host(B, A, kept(A), [A]), {**UP, "restart_pending": True}, A),
        (on_host(B, B, kept(A), [A]), STOPPED, A),
        (on_host(B, B, kept(A), [A, B]), STOPPED, None),
        # Started by a reboot: nobody noted it, and it serves.
        (on_host(B, B, kept(A), [A]), UP, None),
        (on_host(A, B, kept(B, "rollback"), [B]), STOPPED, None),
        (on_host(A, None), STOPPED, None),
    ],
)
def test_what_the_next_start_replaces(found, live, expected):
    assert upgrade_state.before_restart(found, live) == expected


def test_what_a_rollback_would_bring():
    told = upgrade_state.of_found(on_host(B, A, kept(A), [A]), {**UP, "restart_pending": True})
    assert told["previous"]["runs"]
    assert told["previous"]["difference"] is None
    assert (told["upgrade"]["from"]["version"], told["upgrade"]["to"]["version"]) == ("0.5.22", "0.5.23")
    told = upgrade_state.of_found(on_host(B, B, kept(A), [A, B]), UP)
    assert not told["previous"]["runs"]
    assert told["previous"]["difference"]["to"]["version"] == "0.5.22"
    assert told["upgrade"] is None
    assert upgrade_state.of_found(on_host(A, A), UP)["previous"] is None
