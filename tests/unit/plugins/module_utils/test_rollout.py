# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a rollout: waves, refusals, and where an interrupted run is taken up again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import rollout

RUN = "20261129T100000Z-aaaa"
NEW = "20261129T110000Z-bbbb"


def member(number, **changes):
    given_values = {
        "replica": f"r{number}",
        "rank": 0,
        "host": f"h{number}",
        "instance": "main",
        "worker_url": f"http://10.0.0.{number}:30000",
        "serving": True,
        "state": "up",
        "active_since": 1000.0,
    }
    return rollout.Member(**{**given_values, **changes})


def plan(members, **options):
    return rollout.make_plan(members, **{"new_run": NEW, "min_serving": 1, **options})


def names(result):
    return [[replica.name for replica in wave] for wave in result.waves]


def record(step, at=2000.0, run=RUN):
    return rollout.Record(run=run, step=step, at=at)


@pytest.mark.parametrize(
    ("value", "total", "expected"),
    [(1, 3, 1), ("2", 3, 2), ("25%", 8, 2), ("25%", 3, 1), ("100%", 3, 3), (" 10 %", 1000, 100), ("9", 3, 9)],
)
def test_max_unavailable(value, total, expected):
    assert rollout.max_unavailable_of(value, total) == expected


@pytest.mark.parametrize("value", ["0", "-1", "", "half", "0%", "101%", "1.5", None])
def test_max_unavailable_refuses(value):
    with pytest.raises(rollout.PlanError, match="sglang_rollout_max_unavailable"):
        rollout.max_unavailable_of(value, 3)


def test_one_replica_a_wave_by_default():
    result = plan([member(1), member(2), member(3)])
    assert names(result) == [["r1"], ["r2"], ["r3"]]
    assert result.refusals == ()
    assert (result.run, result.continues) == (NEW, False)


def test_two_replicas_on_one_host_are_two_units():
    result = plan(
        [member(1), member(1, replica="r1b", instance="second", worker_url="http://10.0.0.1:30001"), member(2)]
    )
    assert names(result) == [["r1"], ["r1b"], ["r2"]]


def test_a_replica_over_several_hosts_is_one_unit_first_rank_first():
    result = plan([member(2, replica="big", rank=1), member(1, replica="big", rank=0), member(3)])
    assert names(result) == [["big"], ["r3"]]
    assert [m.rank for m in result.waves[0][0].members] == [0, 1]


def test_maintenance_keeps_a_host_together():
    members = [member(1), member(1, replica="r1b", instance="second"), member(2)]
    assert names(plan(members, by_host=True, min_serving=0)) == [["r1", "r1b"], ["r2"]]


def test_refuses_an_unhealthy_fleet_with_the_reason():
    result = plan([member(1), member(2, serving=False, state="stopped", why_not_serving="exit code 1"), member(3)])
    assert len(result.refusals) == 1
    assert "r2" in result.refusals[0]
    assert "exit code 1" in result.refusals[0]


def test_a_replica_may_be_accepted_out_of_service_and_comes_first():
    members = [member(1), member(2, serving=False, state="stopped"), member(3)]
    result = plan(members, accept_not_serving=["r2"])
    assert result.refusals == ()
    assert names(result)[0] == ["r2"]


@pytest.mark.parametrize(
    ("workers", "words"),
    [({}, "does not have it"), ({"http://10.0.0.2:30000": False}, "calls it unhealthy")],
)
def test_a_replica_the_gateway_does_not_route_to_is_not_serving(workers, words):
    gateway = {"http://10.0.0.1:30000": True, **workers}
    result = plan([member(1), member(2)], gateway_workers={"gw": gateway})
    assert any(words in refusal and "r2" in refusal for refusal in result.refusals)


@pytest.mark.parametrize(("min_serving", "refused"), [(0, False), (1, False), (2, False), (3, True)])
def test_min_serving(min_serving, refused):
    result = plan([member(1), member(2), member(3)], min_serving=min_serving)
    assert bool(result.refusals) is refused


def test_min_serving_counts_the_whole_wave():
    result = plan([member(1), member(2), member(3)], max_unavailable=3, min_serving=1)
    assert "sglang_rollout_min_serving" in result.refusals[0]


def test_unreachable_hosts_and_gateways_are_refused_by_name():
    result = plan([member(1), member(2)], unreachable=["h9"], unreachable_gateways=["gw"])
    assert "h9" in result.refusals[0]
    assert "gw" in result.refusals[1]


def test_every_refusal_is_found_at_once():
    lock = rollout.Lock(run=RUN, token="t", owner="ann@laptop", controller="other", pid=7, age_s=3)
    members = [member(1), member(2, serving=False, state="stopped")]
    options = {"unreachable": ["h9"], "only": ["r7"], "min_serving": 5}
    text = "\n".join(plan(members, locks={"h1": lock}, **options).refusals)
    for word in ("h9", "ann@laptop", "r7"):
        assert word in text
    text = "\n".join(plan(members, **options).refusals)
    for word in ("h9", "r7", "r2 is not serving"):
        assert word in text


def test_nothing_deployed_is_refused():
    assert "deploy" in plan([]).refusals[0]


LOCK = {"run": RUN, "token": "t", "owner": "ann@laptop", "controller": "here", "pid": 7}


@pytest.mark.parametrize(
    ("ages", "alive", "controller", "held"),
    [
        ([5.0], [7], "here", True),  # runs on this controller
        ([5.0], [], "here", False),  # its process is gone from this controller: stale at once
        ([5.0], [], "elsewhere", True),  # another controller cannot be asked; it gave a sign of life
        ([500.0], [], "elsewhere", False),
        ([500.0, 5.0], [], "elsewhere", True),  # as fresh as its freshest sign of life
    ],
)
def test_locks(ages, alive, controller, held):
    locks = {f"h{n}": rollout.Lock(age_s=age, **LOCK) for n, age in enumerate(ages, start=1)}
    result = plan([member(1), member(2)], locks=locks, own_controller=controller, alive=alive)
    assert bool(result.refusals) is held
    assert (result.break_tokens == ("t",)) is not held
    said = result.refusals if held else result.notes
    assert any("ann@laptop" in line and RUN in line for line in said)


def test_an_unfinished_run_is_continued():
    result = plan(
        [
            member(1, record=record("done"), active_since=1500.0),
            member(2, record=record("leaving", at=2000.0), serving=False, state="stopped"),
            member(3),
        ]
    )
    assert (result.run, result.continues) == (RUN, True)
    assert result.refusals == ()
    assert names(result) == [["r2"], ["r3"]]
    assert result.waves[0][0].resume == rollout.START
    assert result.skipped == (("r1", f"done earlier in run {RUN}"),)


@pytest.mark.parametrize(
    ("changes", "resume"),
    [
        ({"serving": True, "active_since": 1000.0}, rollout.LEAVE),  # left, not yet stopped
        ({"serving": False, "state": "stopped", "active_since": None}, rollout.START),
        ({"serving": True, "active_since": 2500.0}, rollout.START),  # started since
        (
            {"serving": True, "active_since": 2500.0, "restart_pending": True},
            rollout.LEAVE,
        ),  # with what is not declared
        ({"serving": False, "state": "starting", "active_since": 2500.0}, rollout.START),
    ],
)
def test_where_a_replica_is_taken_up_again(changes, resume):
    result = plan([member(1), member(2, record=record("leaving", at=2000.0), **changes)])
    assert result.waves[0][0].name == "r2", "what was begun is ended first"
    assert result.waves[0][0].resume == resume


def test_done_does_not_count_when_the_declaration_changed_since():
    result = plan([member(1, record=record("done"), restart_pending=True), member(2, record=record("failed"))])
    assert {r.name for wave in result.waves for r in wave} == {"r1", "r2"}


def test_a_finished_run_is_not_continued():
    result = plan([member(1, record=record("done")), member(2, record=record("done"))])
    assert result.run == NEW
    assert names(result) == [["r1"], ["r2"]]


def test_a_run_can_be_begun_anew():
    result = plan([member(1, record=record("done")), member(2, record=record("failed"))], continue_unfinished=False)
    assert result.run == NEW
    assert names(result) == [["r1"], ["r2"]]


def test_only_pending():
    result = plan([member(1), member(2, restart_pending=True)], only_pending=True)
    assert names(result) == [["r2"]]
    assert result.skipped == (("r1", "no restart pending"),)


def test_only_hosts_leaves_the_rest_but_counts_it():
    result = plan([member(1), member(2)], only_hosts=["h2"], min_serving=1)
    assert names(result) == [["r2"]]
    assert result.refusals == ()


def test_the_plan_is_shown():
    result = plan([member(1, restart_pending=True), member(2)], only=["r1"])
    text = "\n".join(rollout.render_plan(result))
    for words in (NEW, "wave 1: r1 on h1/main", "restart pending", "skipped: r2: not chosen"):
        assert words in text


def test_a_plan_as_data_marks_heads_and_resume():
    result = plan([member(1, replica="big", rank=0), member(2, replica="big", rank=1)], min_serving=0).as_dict()
    wave = result["waves"][0]
    assert wave["replicas"] == ["big"]
    assert [(m["head"], m["resume"]) for m in wave["members"]] == [(True, "leave"), (False, "leave")]


def test_members_come_from_readings():
    info = {
        "instance": "main",
        "replica": "r1",
        "state": "up",
        "ready": True,
        "since": "1970-01-01T00:00:05Z",
        "restart_pending": True,
        "worker_url": "http://a:1",
        "desired": {"worker_url": "http://a:2", "rank": 0},
    }
    reading = {
        "instances": [info, {"instance": "broken", "error": "not JSON"}],
        "records": {"main": {"run": RUN, "step": "failed", "at": 3.5}},
    }
    members, problems = rollout.members_of("h1", reading)
    assert members[0].record == record("failed", at=3.5)
    assert members[0].restart_pending
    assert members[0].serving
    assert members[0].active_since == 5.0
    assert (members[0].worker_url, members[0].next_worker_url) == ("http://a:1", "http://a:2")
    assert problems == ["h1/broken: not JSON"]


def test_a_server_that_does_not_tell_is_not_serving():
    info = {
        "instance": "main",
        "replica": "r1",
        "state": "up",
        "ready": True,
        "error": "GET /server_info was not answered in full within 6 s.",
        "desired": {"worker_url": "http://a:1", "rank": 0},
    }
    members, _problems = rollout.members_of("h1", {"instances": [info]})
    assert not members[0].serving
    assert "6 s" in plan(members).refusals[0]


FLEETS = st.lists(
    st.builds(
        lambda replica, host, serving, pending: {
            "replica": f"r{replica}",
            "host": f"h{host}",
            "serving": serving,
            "state": "up" if serving else "stopped",
            "restart_pending": pending,
        },
        st.integers(0, 12),
        st.integers(0, 6),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(fleet=FLEETS, limit=st.integers(1, 6), min_serving=st.integers(0, 8), by_host=st.booleans())
def test_a_plan_that_begins_never_takes_too_much_away(fleet, limit, min_serving, by_host):
    members = [member(n, instance=f"i{n}", **changes) for n, changes in enumerate(fleet)]
    result = plan(members, max_unavailable=limit, min_serving=min_serving, by_host=by_host)
    moved = [replica.name for wave in result.waves for replica in wave]
    assert sorted(moved) == sorted({m.replica for m in members}), "each replica once"
    if result.refusals:
        return
    for wave in result.waves:
        if not by_host:
            assert len(wave) <= limit
        assert result.serving - sum(replica.serving for replica in wave) >= min_serving


def test_a_claim_is_as_fresh_as_its_freshest_sign_of_life():
    def found(token, age_s):
        return rollout.lock_of({"token": token, "age_s": age_s})

    locks = [found("a", 500), found("a", 3), found("b", 130), found("b", 121), found("c", 120)]
    assert rollout.stale_tokens(locks, 120) == ["b"]
    assert rollout.stale_tokens([], 120) == []


def test_beside_another_rollout_nothing_is_said_that_is_not_so():
    """The other one has taken r1 out and claimed the hosts: that is neither unfinished nor a fault of the fleet."""
    lock = rollout.Lock(run=RUN, token="t", owner="ann@laptop", controller="other", pid=7, age_s=3)
    gone = rollout.Lock(run="R0", token="old", owner="bob@laptop", controller="other", pid=8, age_s=900)
    away = member(1, serving=False, state="draining", record=record("leaving"))
    result = plan([away, member(2), member(3)], locks={"h1": lock, "h2": lock, "h3": gone})
    (refusal,) = result.refusals
    assert "another rollout holds the lock" in refusal
    text = "\n".join(rollout.render_plan(result))
    assert text == f"Rollout {NEW}: 2 of 3 replicas serve, at most 1 away at once"
    assert (result.continues, result.waves, result.break_tokens) == (False, (), ())


def test_what_a_refused_plan_would_do_is_not_said_as_if_it_were_done():
    members = [member(1, record=record("leaving")), member(2, serving=False, state="stopped")]
    result = plan(members)
    assert result.refusals
    text = "\n".join(rollout.render_plan(result))
    assert f"if it began: continuing run {RUN}" in text
    assert "note:" not in text
    assert f"note: continuing run {RUN}" in "\n".join(rollout.render_plan(plan([*members[:1], member(2)])))


@pytest.mark.parametrize(
    ("by_host", "state", "resume"),
    [(False, "up", "start"), (True, "up", "leave"), (True, "starting", "leave"), (True, "stopped", "start")],
)
def test_maintenance_never_runs_its_tasks_beside_a_server_that_was_started_meanwhile(by_host, state, resume):
    """A deployment starts what an interrupted maintenance left stopped, and routes to it."""
    left = record("leaving", at=2000.0)
    active = None if state == "stopped" else 2500.0
    away = member(1, record=left, state=state, serving=state == "up", active_since=active)
    result = plan([away, member(2)], by_host=by_host, only_hosts=["h1"])
    assert result.refusals == ()
    assert [replica.resume for wave in result.waves for replica in wave] == [resume]
