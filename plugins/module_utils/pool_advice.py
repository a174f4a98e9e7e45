# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a pool should be kept, shrunk, raised or lowered, from what was seen of it under load. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .finding import ERROR, WARNING, Finding
from .kv_pool import GIB
from .pool_log import Observations

KEEP = "keep"
SHRINK = "shrink"
RAISE = "raise"
LOWER = "lower"
OTHER = "other_lever"
UNCLEAR = "unclear"

STEP = 0.02
# Enough traffic to say anything: an hour, and a thousand requests.
ENOUGH_REQUESTS = 1000
ENOUGH_S = 3600.0
FULL = 0.95
SPARE = 0.6
# What a burst that was not seen yet may need beside the highest one.
BURST = 1.25
# A shrink below this is not worth a restart.
WORTH_GIB = 0.5
# What must stay free on the card at its peak when the fraction is raised by a step.
MARGIN_GIB = 1.0
HIGHEST = 0.99


@dataclass(frozen=True)
class Asked:
    """What is asked beside the observations."""

    fraction: float
    before_gib: float
    pool_tokens: int
    token_bytes: float
    free_at_peak_gib: float | None = None
    stage: str = "production"
    highest_in_staging: float | None = None
    steps_below_staging: int = 1
    enough_requests: int = ENOUGH_REQUESTS
    enough_s: float = ENOUGH_S


@dataclass(frozen=True)
class Advice:
    """One verdict. `fraction` is the value it leads to, `tokens` the pool, `gives_back_gib` what others then have."""

    verdict: str
    fraction: float
    tokens: int
    gives_back_gib: float
    lines: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    highest_in_staging: float | None = None


def advise(seen: Observations, asked: Asked) -> Advice:
    """The advice for one server."""
    failed = _after_failures(seen, asked)
    if failed is not None:
        return failed
    traffic = f"{seen.requests} requests in {seen.duration_s / 60:.0f} min"
    if seen.requests < asked.enough_requests or seen.duration_s < asked.enough_s:
        needed = f"{asked.enough_requests} requests in {asked.enough_s / 60:.0f} min"
        return _advice(UNCLEAR, asked, asked.fraction, (f"nothing is advised from {traffic}; it takes {needed}",))
    remembered = _remembered(asked, ran=True)
    usage = (
        f"highest usage {seen.peak:.2f}, 95 of 100 samples below {seen.usual():.2f}; {seen.retractions} retractions; "
        f"at most {seen.queued_while_full} queued while it was full; {traffic}"
    )
    limit = ceiling(asked)
    if asked.fraction > limit + 1e-9:
        steps = asked.steps_below_staging
        why = f"staging ran up to {asked.highest_in_staging:g}; production stays {steps} step(s) below"
        return _advice(LOWER, asked, limit, (why, usage), highest=remembered)
    if seen.retractions and seen.peak >= FULL:
        return _when_full(seen, asked, usage, limit, remembered)
    if seen.peak <= SPARE:
        shrunk = _shrink(seen, asked, usage, remembered)
        if shrunk is not None:
            return shrunk
    return _advice(KEEP, asked, asked.fraction, ("the pool is used and does not overflow", usage), highest=remembered)


def ceiling(asked: Asked) -> float:
    """The highest fraction that this stage may take."""
    if asked.stage != "production" or asked.highest_in_staging is None:
        return HIGHEST
    return round(asked.highest_in_staging - STEP * asked.steps_below_staging, 3)


def _remembered(asked: Asked, ran: bool) -> float | None:
    if asked.stage == "staging" and ran:
        return max(asked.fraction, asked.highest_in_staging or 0.0)
    return asked.highest_in_staging


def _after_failures(seen: Observations, asked: Asked) -> Advice | None:
    """What an error says, whatever the amount of traffic."""
    if seen.card_failures:
        return _lower(seen, asked)
    if seen.slot_failures and seen.peak < FULL:
        finding = Finding(
            "memory.request_slots",
            ERROR,
            f"request slots ran out {seen.slot_failures} times while the pool was used to {seen.peak:.2f}",
            "alloc_req_slots runs out of memory: slots for requests, not memory of the card",
            "raise or set --max-running-requests; the fraction is not the lever",
        )
        return _advice(OTHER, asked, asked.fraction, (finding.summary, finding.fix), (finding,))
    return None


def _lower(seen: Observations, asked: Asked) -> Advice:
    """The card's memory ran out beside the pool: the pool has taken what activations need."""
    worst = max(seen.card_failures, key=lambda one: (one.tried_gib or 0.0) - (one.free_gib or 0.0))
    missing = max((worst.tried_gib or 0.0) - (worst.free_gib or 0.0), 0.0)
    steps = max(1, math.ceil((missing / asked.before_gib) / STEP - 1e-9))
    fraction = round(max(STEP, asked.fraction - STEP * steps), 3)
    where = "in the attention of a long prompt" if worst.in_attention else "beside the pool"
    room = "" if worst.free_pool_tokens is None else f" although {worst.free_pool_tokens} tokens of the pool were free"
    sizes = f"; it tried {worst.tried_gib:.2f} GiB" if worst.tried_gib is not None else ""
    finding = Finding(
        "memory.card_out_of_memory",
        ERROR,
        f"the card ran out of memory {where}{room}",
        f"{len(seen.card_failures)} times{sizes}; the last usage of the pool was {worst.usage or 0.0:.2f}",
        f"lower the fraction to {fraction:g}, or a smaller --chunked-prefill-size; a larger pool makes it worse",
    )
    lines = (finding.summary, finding.evidence, finding.fix)
    highest = asked.highest_in_staging
    if highest is not None and highest >= asked.fraction:
        highest = fraction
    return _advice(LOWER, asked, fraction, lines, (finding,), highest)


def _when_full(seen: Observations, asked: Asked, usage: str, limit: float, remembered: float | None) -> Advice:
    """A pool that overflows: more of it, as long as the card has room and nothing else caps it."""
    if seen.capped_by_tokens is not None and seen.pool_tokens is not None and seen.capped_by_tokens <= seen.pool_tokens:
        why = f"--max-total-tokens {seen.capped_by_tokens} caps the pool: lift it first, the fraction changes nothing"
        return _advice(OTHER, asked, asked.fraction, (why, usage), highest=remembered)
    raised = round(asked.fraction + STEP, 3)
    if raised > limit + 1e-9:
        why = f"the pool overflows, but {raised:g} is above {limit:g}" + (
            f", {asked.steps_below_staging} step(s) below what staging ran" if limit < HIGHEST else ""
        )
        return _advice(KEEP, asked, asked.fraction, (why, usage), highest=remembered)
    needed = STEP * asked.before_gib + MARGIN_GIB
    free = asked.free_at_peak_gib if asked.free_at_peak_gib is not None else seen.free_outside_gib
    if free is None:
        why = f"the pool overflows; what is free on the card at its peak is not known, and {needed:.1f} GiB are needed"
        return _advice(UNCLEAR, asked, asked.fraction, (why, usage), highest=remembered)
    if free < needed:
        why = f"the pool overflows, but {free:.1f} GiB are free on the card; a step and its margin take {needed:.1f}"
        more = "fewer requests at once, an FP8 cache (--kv-cache-dtype fp8_e4m3), or another replica"
        return _advice(KEEP, asked, asked.fraction, (why, more, usage), highest=remembered)
    why = f"the pool overflows and {free:.1f} GiB are free on the card: raise by {STEP:g} to {raised:g}"
    return _advice(RAISE, asked, raised, (why, usage), highest=remembered)


def _shrink(seen: Observations, asked: Asked, usage: str, remembered: float | None) -> Advice | None:
    """A pool that never fills is memory that another program cannot use."""
    wanted = math.ceil(max(seen.peak * BURST, 0.05) * asked.pool_tokens)
    back = (asked.pool_tokens - wanted) * asked.token_bytes / GIB
    fraction = math.floor((asked.fraction - back / asked.before_gib) * 1000 + 1) / 1000
    back = (asked.fraction - fraction) * asked.before_gib
    if back < WORTH_GIB or fraction <= 0:
        return None
    why = (
        f"the pool was never used beyond {seen.peak:.2f}: {wanted} tokens hold {BURST:g} times the highest burst; a "
        f"fraction of {fraction:g} gives back {back:.1f} GiB (keep it if nothing else wants them)"
    )
    return _advice(SHRINK, asked, fraction, (why, usage), highest=remembered)


def _advice(
    verdict: str,
    asked: Asked,
    fraction: float,
    lines: tuple[str, ...],
    findings: tuple[Finding, ...] = (),
    highest: float | None = None,
) -> Advice:
    moved = (asked.fraction - fraction) * asked.before_gib
    tokens = max(0, asked.pool_tokens - int(moved * GIB / asked.token_bytes))
    if asks_for_action(verdict) and not findings:
        findings = (Finding(f"memory.pool_{verdict}", WARNING, lines[0], "; ".join(lines[1:])),)
    return Advice(verdict, fraction, tokens, max(0.0, moved), lines, findings, highest)


def asks_for_action(verdict: str) -> bool:
    """Whether a verdict asks for something to be done."""
    return verdict in (SHRINK, RAISE, LOWER, OTHER)
