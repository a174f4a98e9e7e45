# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drain timeout and grace period: how long an instance may take to end without losing an answer.

one answer   = output cap / slowest tokens per second
rounds       = ceil((running at once + waiting) / running at once)
drain        = rounds x one answer + margin                 before SIGTERM
grace period = rounds x one answer + SGLang's own tail + margin    after SIGTERM
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .releases import Release

MARGIN_S = 30
LONGEST_GRACE_S = 24 * 3600
"""A million tokens at 20 tokens/s are 14 h. What is longer is a unit that was mistaken, as tokens for milliseconds."""


@dataclass(frozen=True)
class Load:
    """What an instance may have accepted when it is told to end. None: not limited by an argument."""

    output_cap_tokens: int
    slowest_tokens_per_s: float
    running_at_once: int | None = None
    waiting: int | None = None
    margin_s: int = MARGIN_S


@dataclass(frozen=True)
class Times:
    """The two times, in whole seconds, with the sums they come from."""

    drain_timeout_s: int
    drain_arithmetic: str
    grace_period_s: int
    grace_arithmetic: str
    rounds: int
    answer_s: float
    tail_s: int
    notes: tuple[str, ...] = ()


def rounds(load: Load) -> tuple[int, str, tuple[str, ...]]:
    """How many answers in a row the last request in the queue may have to wait for, itself included."""
    if load.running_at_once is None:
        note = (
            "max-running-requests is not set, so how many requests run at once is not known: "
            "one further round is assumed for those that wait; set max-running-requests and max-queued-requests"
        )
        return 2, "2 rounds (how many run at once is not limited; one further round assumed)", (note,)
    running = load.running_at_once
    if load.waiting is None:
        note = (
            "max-queued-requests is not set, so any number of requests may wait: "
            f"one further round of {running} is assumed; set max-queued-requests to bound it"
        )
        text = f"ceil(({running} running + {running} waiting, assumed) / {running} at once) = 2 rounds"
        return 2, text, (note,)
    count = -(-(running + load.waiting) // running)
    word = "round" if count == 1 else "rounds"
    return count, f"ceil(({running} running + {load.waiting} waiting) / {running} at once) = {count} {word}", ()


def times(load: Load, release: Release) -> Times:
    """The computed drain timeout and grace period of a release."""
    count, rounds_text, notes = rounds(load)
    answer_s = load.output_cap_tokens / load.slowest_tokens_per_s
    answer_text = f"{load.output_cap_tokens} tokens / {_number(load.slowest_tokens_per_s)} tokens/s = {answer_s:.1f} s"
    answers_s = count * answer_s
    drain_s = math.ceil(answers_s + load.margin_s)
    grace_s = math.ceil(answers_s + release.tail_s + load.margin_s)
    tail_text = (
        f"{release.tail_s} s tail ({release.drain_poll_s} poll + {release.scheduler_exit_s} + "
        f"{release.children_exit_s} to end its processes)"
    )
    return Times(
        drain_timeout_s=drain_s,
        drain_arithmetic=(f"{rounds_text} x longest answer ({answer_text}) + {load.margin_s} s margin = {drain_s} s"),
        grace_period_s=grace_s,
        grace_arithmetic=(
            f"{rounds_text} x longest answer ({answer_text}) + {tail_text} + {load.margin_s} s margin = {grace_s} s"
        ),
        rounds=count,
        answer_s=answer_s,
        tail_s=release.tail_s,
        notes=notes,
    )


def endless(load: Load, release: Release) -> str | None:
    """Why the grace period is no limit any more; None when it is one."""
    try:
        found = times(load, release)
    except OverflowError:
        return f"output_cap_tokens is {load.output_cap_tokens}, which no server can make in any time. Correct it"
    if found.grace_period_s <= LONGEST_GRACE_S:
        return None
    return (
        f"the grace period is {found.grace_period_s / 3600:,.0f} h, and it is at most {LONGEST_GRACE_S // 3600} h: so "
        "long a server that hangs would keep its host from shutting down. Lower output_cap_tokens, which the server "
        "enforces, correct slowest_tokens_per_s, or bound the queue with max-queued-requests. "
        f"It is {found.grace_arithmetic}"
    )


def refusal(output_cap_tokens: Any, slowest_tokens_per_s: Any, release: Release) -> str | None:
    """Why no grace period can be computed and what to set; None when cap and rate are given."""
    given = {"output_cap_tokens": output_cap_tokens, "slowest_tokens_per_s": slowest_tokens_per_s}
    missing = [option for option, value in given.items() if not value]
    if not missing:
        return None
    example = times(Load(32000, 30.0, running_at_once=16, waiting=0), release)
    minutes = int((example.answer_s + example.tail_s) // 60)
    return (
        f"{' and '.join(missing)} not set, so the grace period cannot be computed: without a longest answer a server "
        "may take any time to end, and what ends it sooner loses requests. Set them on the instance, or "
        f"{' and '.join('sglang_server_' + option for option in missing)} for the host; the cap is enforced by the "
        f"server ({release.output_cap_variable}). For example 32000 tokens at 30 tokens/s are "
        f"{example.answer_s:,.0f} s for one answer, with SGLang's own tail of {example.tail_s} s more than "
        f"{minutes} minutes: {example.grace_arithmetic}"
    )


def _number(value: float) -> str:
    return f"{value:g}"
