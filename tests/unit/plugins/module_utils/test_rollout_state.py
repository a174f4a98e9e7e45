# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock and the records that a rollout leaves on a host."""

from __future__ import annotations

import os
import threading
import time

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import host_job
from ansible_collections.serving.sglang.plugins.module_utils import rollout_state as state


def claim(token, **changes):
    return {"run": f"run-{token}", "token": token, "owner": "ann@laptop", "controller": "c", "pid": 7, **changes}


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "rollout")


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A host without jobs; what is called begins one."""
    monkeypatch.setattr(host_job, "JOBS_DIR", str(tmp_path / "jobs"))

    def begin(instance, job_id):
        host_job.Reporter("start", instance, job_id, "task-1").finish(None)

    return begin


def test_take_again_and_release(home):
    assert state.read_lock(home) is None
    assert state.take_lock(claim("a"), directory=home) is True
    assert state.take_lock(claim("a"), directory=home) is False
    assert state.read_lock(home)["owner"] == "ann@laptop"
    assert state.release_lock("a", home) is True
    assert state.release_lock("a", home) is False
    assert state.read_lock(home) is None


def test_a_second_claim_is_refused_and_says_whose_it_is(home):
    state.take_lock(claim("a"), directory=home)
    with pytest.raises(state.LockHeld, match=r"run-a of ann@laptop \(process 7\)"):
        state.take_lock(claim("b"), directory=home)
    assert state.release_lock("b", home) is False
    assert state.read_lock(home)["token"] == "a"


def test_only_the_named_claim_is_broken(home):
    state.take_lock(claim("a"), directory=home)
    with pytest.raises(state.LockHeld):
        state.take_lock(claim("b"), break_tokens=["other"], directory=home)
    assert state.take_lock(claim("b"), break_tokens=["a"], directory=home) is True
    assert state.read_lock(home)["token"] == "b"


def test_of_many_that_claim_at_once_one_succeeds(home):
    won, lost = [], []
    barrier = threading.Barrier(8)

    def run(token):
        barrier.wait()
        try:
            state.take_lock(claim(token), directory=home)
            won.append(token)
        except state.LockHeld:
            lost.append(token)

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 7
    assert state.read_lock(home)["token"] == won[0]


def test_a_sign_of_life_makes_it_young_again(home):
    state.take_lock(claim("a"), directory=home)
    old = time.time() - 500
    os.utime(os.path.join(home, state.LOCK), (old, old))
    assert state.read_lock(home)["age_s"] > 490
    state.check_lock("a", home)
    assert state.read_lock(home)["age_s"] < 60


def test_a_lost_lock_is_noticed(home):
    with pytest.raises(state.LockLost, match="gone"):
        state.check_lock("a", home)
    state.take_lock(claim("b"), directory=home)
    with pytest.raises(state.LockLost, match="run-b"):
        state.check_lock("a", home)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\x00"])
def test_a_damaged_lock_is_named(home, content):
    os.makedirs(home)
    with open(os.path.join(home, state.LOCK), "w", encoding="utf-8") as handle:
        handle.write(content)
    with pytest.raises(state.StateError, match=r"lock\.json"):
        state.read_lock(home)


def test_records(home):
    assert state.read_record("main", home) is None
    assert state.write_record("main", "r", "leaving", home) is True
    first = state.read_record("main", home)
    assert state.write_record("main", "r", "leaving", home) is False
    assert state.read_record("main", home) == first, "an earlier time of leaving is kept"
    assert state.write_record("main", "r", "done", home) is True
    assert state.read_record("main", home)["step"] == "done"


def test_an_instance_may_be_called_lock(home):
    state.take_lock(claim("a"), directory=home)
    state.write_record("lock", "r", "leaving", home)
    assert state.read_lock(home)["token"] == "a"


def test_a_job_that_began_since_the_plan_is_noticed(home, jobs):
    jobs("main", "j1")
    seen = host_job.last_jobs()
    assert seen == {"main": "j1"}
    assert state.would_take(claim("a"), jobs_seen=seen, directory=home) is True
    jobs("main", "j2")
    for take in (state.would_take, state.take_lock):
        with pytest.raises(state.JobBegun, match="of main began"):
            take(claim("a"), jobs_seen=seen, directory=home)
    assert state.read_lock(home) is None, "the host was not claimed"
    assert state.take_lock(claim("a"), jobs_seen=host_job.last_jobs(), directory=home) is True


def test_a_job_that_is_gone_is_none_that_began(home, jobs):
    assert state.take_lock(claim("a"), jobs_seen={"main": "j1"}, directory=home) is True


def test_a_host_whose_jobs_are_not_looked_at(home, jobs):
    jobs("main", "j1")
    assert state.take_lock(claim("a"), directory=home) is True


def test_a_claimed_host_is_left_alone_unless_the_claim_is_stale(home):
    state.refuse_claimed(directory=home)
    state.take_lock(claim("a"), directory=home)
    with pytest.raises(state.LockHeld, match="run-a"):
        state.refuse_claimed(["b"], home)
    with pytest.raises(state.LockHeld), state.unclaimed(directory=home):
        raise AssertionError("not reached")
    with state.unclaimed(["a"], home):
        pass


def test_either_the_start_meets_the_claim_or_the_claim_meets_the_start(home, jobs):
    """Whoever is first, never both: whatever the moment, one of them is refused."""
    outcomes = set()
    for number in range(40):
        seen = host_job.last_jobs()
        barrier = threading.Barrier(2)
        ended = {}

        def start(number=number, barrier=barrier, ended=ended):
            barrier.wait()
            time.sleep(0.02 * (number % 2))
            try:
                with state.unclaimed(directory=home):
                    jobs("main", f"j{number}")
                ended["start"] = True
            except state.LockHeld:
                ended["start"] = False

        def roll(number=number, barrier=barrier, ended=ended, seen=seen):
            barrier.wait()
            time.sleep(0.02 * (number // 2 % 2))
            try:
                state.take_lock(claim(f"t{number}"), jobs_seen=seen, directory=home)
                ended["claim"] = True
            except state.JobBegun:
                ended["claim"] = False

        threads = [threading.Thread(target=start), threading.Thread(target=roll)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ended["start"] != ended["claim"], ended
        outcomes.add(ended["start"])
        state.release_lock(f"t{number}", home)
    assert outcomes == {True, False}, "both orders were tried"
