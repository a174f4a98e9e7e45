# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drain timeout and the grace period: the sums, their bounds, and what is assumed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import grace
from ansible_collections.serving.sglang.plugins.module_utils.releases import RELEASES, release_for

RELEASE = release_for("0.5.22")

loads = st.builds(
    grace.Load,
    output_cap_tokens=st.integers(1, 200_000),
    slowest_tokens_per_s=st.floats(0.1, 1000),
    running_at_once=st.none() | st.integers(1, 4096),
    waiting=st.none() | st.integers(0, 10_000),
    margin_s=st.integers(0, 600),
)


def test_sum_is_the_one_that_the_design_gives() -> None:
    times = grace.times(grace.Load(4096, 100.0, running_at_once=16, waiting=16), RELEASE)
    # ceil(32 / 16) x 40.96 s = 81.92 s; the tail is 5 + 15 + 60, the margin 30.
    assert (times.drain_timeout_s, times.grace_period_s) == (112, 192)
    assert times.grace_arithmetic == (
        "ceil((16 running + 16 waiting) / 16 at once) = 2 rounds x longest answer (4096 tokens / 100 tokens/s = 41.0 s)"
        " + 80 s tail (5 poll + 15 + 60 to end its processes) + 30 s margin = 192 s"
    )
    assert times.notes == ()


def test_one_long_answer_alone_takes_more_than_eighteen_minutes() -> None:
    times = grace.times(grace.Load(32000, 30.0, running_at_once=16, waiting=0), RELEASE)
    assert times.rounds == 1
    assert times.grace_period_s > 18 * 60


@pytest.mark.parametrize(("waiting", "rounds"), [(0, 1), (1, 2), (16, 2), (17, 3)])
def test_those_that_wait_take_further_rounds(waiting: int, rounds: int) -> None:
    assert grace.times(grace.Load(100, 1.0, 16, waiting), RELEASE).rounds == rounds


@pytest.mark.parametrize(
    ("running", "waiting", "said"),
    [(None, None, "max-running-requests is not set"), (8, None, "max-queued-requests is not set")],
)
def test_what_is_not_limited_is_assumed_and_said(running: int | None, waiting: int | None, said: str) -> None:
    times = grace.times(grace.Load(100, 1.0, running, waiting), RELEASE)
    assert times.rounds == 2
    assert said in times.notes[0]
    assert "assumed" in times.grace_arithmetic


@given(loads, st.sampled_from(sorted(RELEASES)))
def test_grace_period_holds_the_answers_and_the_tail(load: grace.Load, version: str) -> None:
    release = release_for(version)
    times = grace.times(load, release)
    answers_s = times.rounds * load.output_cap_tokens / load.slowest_tokens_per_s
    assert times.grace_period_s >= answers_s + release.tail_s + load.margin_s
    assert times.grace_period_s < answers_s + release.tail_s + load.margin_s + 1.001
    assert times.grace_period_s >= times.drain_timeout_s >= answers_s
    assert times.grace_arithmetic.endswith(f" = {times.grace_period_s} s")
    assert times.drain_arithmetic.endswith(f" = {times.drain_timeout_s} s")


@given(loads, st.integers(0, 100_000))
def test_a_higher_cap_never_gives_less_time(load: grace.Load, more: int) -> None:
    higher = grace.Load(
        load.output_cap_tokens + more, load.slowest_tokens_per_s, load.running_at_once, load.waiting, load.margin_s
    )
    assert grace.times(higher, RELEASE).grace_period_s >= grace.times(load, RELEASE).grace_period_s
    assert grace.times(higher, RELEASE).drain_timeout_s >= grace.times(load, RELEASE).drain_timeout_s


@given(loads, st.integers(1, 1000))
def test_more_that_wait_never_give_less_time(load: grace.Load, more: int) -> None:
    fuller = grace.Load(
        load.output_cap_tokens,
        load.slowest_tokens_per_s,
        load.running_at_once,
        (load.waiting or 0) + more,
        load.margin_s,
    )
    emptier = grace.Load(
        load.output_cap_tokens, load.slowest_tokens_per_s, load.running_at_once, load.waiting or 0, load.margin_s
    )
    assert grace.times(fuller, RELEASE).grace_period_s >= grace.times(emptier, RELEASE).grace_period_s


def test_without_a_cap_the_refusal_shows_what_to_set_and_why() -> None:
    assert grace.refusal(4096, 30.0, RELEASE) is None
    refusal = grace.refusal(None, 30.0, RELEASE)
    assert refusal is not None
    assert refusal.startswith("output_cap_tokens not set")
    for part in ("sglang_server_output_cap_tokens", "SGLANG_MAX_NEW_TOKENS_LIMIT", "1,067 s", "more than 19 minutes"):
        assert part in refusal
    both = grace.refusal(0, None, RELEASE)
    assert both is not None
    assert both.startswith("output_cap_tokens and slowest_tokens_per_s not set")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (grace.Load(1_000_000, 20.0, running_at_once=16, waiting=0), None),
        (grace.Load(86_290, 1.0, running_at_once=16, waiting=0), None),
        (grace.Load(86_291, 1.0, running_at_once=16, waiting=0), "the grace period is 24 h, and it is at most 24 h"),
        (grace.Load(4096, 0.001, running_at_once=16, waiting=0), "the grace period is 1,138 h, and it is at most 24 h"),
        (grace.Load(10**400, 30.0, running_at_once=16, waiting=0), "which no server can make in any time"),
    ],
)
def test_a_grace_period_that_is_no_limit_is_refused(load: grace.Load, said: str | None) -> None:
    found = grace.endless(load, RELEASE)
    assert found == said or (said and found and said in found)
