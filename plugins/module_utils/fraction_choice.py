# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which memory fraction an instance gets on a machine of its kind, with the window it lies in and the reasons. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .fraction_window import STEP, Remedy, Share, Window, window
from .kv_cell import PoolError
from .kv_pool import GIB, Memory, Pool, encoders_gib, predict
from .memory import Capacity, Fraction, Term, automatic_fraction
from .memory_arguments import MemoryArguments
from .memory_releases import MemoryRelease
from .model import Model

DEDICATED = "dedicated"
SHARED = "shared"
UNIFIED = "unified"
KINDS = (DEDICATED, SHARED, UNIFIED)

# On unified memory an unproven value starts below 0.7.
UNIFIED_START = 0.69
UNIFIED_HOST_RESERVE_GIB = 12.0
# The steps in which values are raised.
RAISE_BY = 0.02
# A tower, a draft or graphs that save less than this are not worth a suggestion.
_WORTH_GIB = 0.1


@dataclass(frozen=True)
class Machine:
    """The machine that an instance runs on, as far as the choice asks for it.

    `neighbours_may_take_gib` is what others on the card, or on the host with unified memory, may still claim.
    `needed_outside_gib` replaces what the automatic rule reserves by what was measured outside of the pool.
    """

    kind: str
    memory: Memory
    neighbours_may_take_gib: float = 0.0
    host_reserve_gib: float | None = None
    needed_outside_gib: float | None = None
    neighbours_hold_gib: float = 0.0
    apple: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PoolError(f"machine kind {self.kind!r} is none of {', '.join(KINDS)}")
        for name in ("neighbours_may_take_gib", "host_reserve_gib", "needed_outside_gib", "neighbours_hold_gib"):
            value = getattr(self, name)
            if value is not None and (not math.isfinite(value) or value < 0):
                raise PoolError(f"{name}: {value} is not a size in GiB")

    @property
    def reserve_gib(self) -> float:
        """What must stay free for the host where it shares the memory."""
        if self.kind != UNIFIED:
            return 0.0
        return UNIFIED_HOST_RESERVE_GIB if self.host_reserve_gib is None else self.host_reserve_gib


@dataclass(frozen=True)
class Reason:
    """One figure that the choice rests on."""

    name: str
    value: float
    unit: str
    why: str


@dataclass(frozen=True)
class Choice:
    """A fraction with its reasons; None when no value can work."""

    fraction: float | None
    kind: str
    source: str
    window: Window
    pool: Pool | None
    reasons: tuple[Reason, ...]
    lines: tuple[str, str, str]
    warnings: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        return self.fraction is not None


@dataclass(frozen=True)
class Case:
    """Everything that a prediction for one instance needs."""

    automatic: Fraction
    model: Model
    arguments: MemoryArguments
    capacity: Capacity
    release: MemoryRelease
    machine: Machine
    draft: Model | None = None
    draft_gib: float = 0.0
    wanted_tokens: int = 0

    def pool(self, fraction: float) -> Pool:
        return predict(
            self.machine.memory,
            fraction,
            self.model,
            self.arguments,
            self.capacity,
            self.release,
            self.automatic.chunked_prefill_size,
            self.draft,
        )


def feasible_window(case: Case) -> Window:
    """The fractions with which this instance starts, holds the wanted tokens, and leaves what runs outside."""
    memory = case.machine.memory
    trial = case.pool(0.999)
    wanted = max(case.wanted_tokens, trial.cell.page_size)
    inside = [
        Share("weights", memory.loaded_gib - case.draft_gib, "and what the load leaves beside them"),
        Share("draft", case.draft_gib, "weights of the draft model"),
        Share("encoders", encoders_gib(case.model, case.arguments, case.release), "held back for images"),
    ]
    pool_gib = wanted * trial.cell.token_bytes / GIB
    inside.append(Share("pool", pool_gib, f"{wanted} tokens of {trial.cell.token_bytes:g} bytes"))
    inside = [share for share in inside if share.gib > 0]
    outside = outside_shares(case)
    least = _least_fraction(case, wanted, sum(share.gib for share in inside) / memory.before_gib)
    state_gib = least * memory.before_gib - sum(share.gib for share in inside)
    if case.model.recurrent is not None and state_gib > _WORTH_GIB and least < 1:
        inside.append(Share("state", state_gib, "state of recurrent layers, divided from the same budget"))
    at_most = case.automatic.value if _by_the_rule(case) else None
    if _cap_leaves_enough(case, trial, inside, outside):
        at_most = 1 - STEP
    return window(memory.before_gib, inside, outside, remedies(case), at_least=least, at_most=at_most)


def _cap_leaves_enough(case: Case, trial: Pool, inside: list[Share], outside: list[Share]) -> bool:
    """With --max-total-tokens the pool does not grow with the fraction: what is left outside does not shrink."""
    cap = case.arguments.max_total_tokens
    if cap is None:
        return False
    held = sum(share.gib for share in inside if share.name != "pool") + cap * trial.cell.token_bytes / GIB
    return held + sum(share.gib for share in outside) <= case.machine.memory.before_gib


def _least_fraction(case: Case, wanted: int, estimate: float) -> float:
    """The least fraction in steps of 0.001 whose pool holds the wanted tokens; 1 when none does."""

    def enough(steps: int) -> bool:
        pool = case.pool(steps * STEP)
        return pool.feasible and pool.tokens >= wanted

    low, high = 1, 999
    if not enough(high):
        return 1.0
    guess = min(max(math.ceil(estimate / STEP), 1), 999)
    if enough(guess) and (guess == 1 or not enough(guess - 1)):
        return guess * STEP
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low * STEP


def _by_the_rule(case: Case) -> bool:
    """On a dedicated card nothing else counts, and SGLang's own value is what leaves enough outside."""
    machine = case.machine
    return (
        machine.kind == DEDICATED
        and machine.needed_outside_gib is None
        and not machine.neighbours_may_take_gib
        and case.automatic.automatic
        and case.capacity.mib is not None
    )


def outside_shares(case: Case) -> list[Share]:
    """What runs beside weights and pool."""
    machine = case.machine
    if machine.needed_outside_gib is not None:
        shares = [Share("runtime", machine.needed_outside_gib, "measured beside weights and pool")]
    elif _by_the_rule(case):
        slack = (1 - case.automatic.value) * machine.memory.before_gib
        shares = [Share("runtime", slack, "what the automatic rule leaves of what is free")]
    else:
        shares = [Share(term.name, term.mib / 1024, term.why) for term in rule_terms(case) if term.name != "floor"]
    if machine.neighbours_may_take_gib:
        shares.append(Share("neighbours", machine.neighbours_may_take_gib, "what others may still claim"))
    if machine.reserve_gib:
        shares.append(Share("host", machine.reserve_gib, "stays available to the operating system"))
    return shares


def rule_terms(case: Case) -> tuple[Term, ...]:
    """The reserve of the automatic rule, also where the rule itself would reserve nothing."""
    arguments = replace(case.arguments, mem_fraction_static=None)
    capacity = case.capacity
    if capacity.mib is None:
        capacity = replace(capacity, mib=max(1.0, case.machine.memory.before_gib * 1024))
        arguments = replace(arguments, chunked_prefill_size=case.automatic.chunked_prefill_size)
    return automatic_fraction(capacity, arguments, case.model.traits, case.release).terms


def remedies(case: Case) -> list[Remedy]:
    """What would make room for both sides, each with the GiB that it is worth."""
    weights = case.machine.memory.loaded_gib - case.draft_gib
    found: list[Remedy] = []
    if case.draft_gib > _WORTH_GIB:
        text = f"a smaller draft, or none: up to {case.draft_gib:.1f} GiB"
        found.append(Remedy("draft", case.draft_gib, text))
    chunk = case.automatic.chunked_prefill_size
    if chunk > 2048:
        gib = 1.5 * (chunk - 2048) / 1024
        text = f"--chunked-prefill-size 2048 instead of {chunk}: up to {gib:.1f} GiB (1.5 MiB a token)"
        found.append(Remedy("chunk", gib, text))
    if case.model.quantization is None and weights > _WORTH_GIB:
        found.append(Remedy("quantised", weights / 2, f"weights in FP8: about {weights / 2:.1f} GiB"))
    ranks = case.arguments.tp_size * 2
    gib = weights / 2 + case.draft_gib / 2
    found.append(Remedy("ranks", gib, f"--tp-size {ranks}: about {gib:.1f} GiB less on each card"))
    return [remedy for remedy in found if remedy.gib > _WORTH_GIB]


def choose(case: Case, proven: float | None = None) -> Choice:
    """The fraction for this machine. `proven` is a higher value that earlier evidence allows."""
    bounds = feasible_window(case)
    warnings = _warnings(case)
    if case.machine.kind == DEDICATED and case.capacity.mib is not None:
        wanted, source = case.automatic.value, "automatic"
        if proven is not None and proven > wanted:
            wanted, source = proven, "proven"
            bounds = replace(bounds, high=max(bounds.high, proven), high_exact=max(bounds.high_exact, proven))
    else:
        wanted, source = _explicit(case, bounds), "explicit"
        if case.machine.kind == UNIFIED:
            wanted = min(wanted, proven if proven is not None else UNIFIED_START)
        elif proven is not None:
            wanted = min(wanted, proven)
    fraction = None
    if bounds.feasible:
        fraction = min(max(wanted, bounds.low), bounds.high)
        if fraction != wanted:
            source = "explicit"
    pool = case.pool(fraction) if fraction is not None else None
    reasons = _reasons(case, bounds, fraction)
    lines = _lines(case, bounds, fraction, source, pool)
    return Choice(fraction, case.machine.kind, source, bounds, pool, reasons, lines, warnings)


def _explicit(case: Case, bounds: Window) -> float:
    """The highest fraction that leaves enough; for a capped pool a step above the least that fills it.

    The step is for what the estimate of the load may be wrong by.
    """
    cap = case.arguments.max_total_tokens
    if cap is None or not bounds.feasible:
        return bounds.high
    page = case.pool(bounds.high).cell.page_size
    least = _least_fraction(case, max(page, cap // page * page), bounds.low)
    return min(bounds.high, round(least + RAISE_BY, 3))


def _reasons(case: Case, bounds: Window, fraction: float | None) -> tuple[Reason, ...]:
    memory = case.machine.memory
    found = [
        Reason("before", memory.before_gib, "GiB", "free before the weights are loaded"),
        Reason("after", memory.after_gib, "GiB", "free once they are"),
        Reason("automatic", case.automatic.value, "fraction", "what SGLang would compute"),
        *(Reason("inside." + share.name, share.gib, "GiB", share.why) for share in bounds.inside),
        *(Reason("outside." + share.name, share.gib, "GiB", share.why) for share in bounds.outside),
        Reason("window.low", bounds.low, "fraction", "below it the wanted tokens do not fit"),
        Reason("window.high", bounds.high, "fraction", "above it what runs outside does not fit"),
    ]
    if fraction is not None:
        slack = (1 - fraction) * memory.before_gib
        found.append(Reason("slack", slack, "GiB", "what this fraction leaves outside"))
    return tuple(found)


def _lines(case: Case, bounds: Window, fraction: float | None, source: str, pool: Pool | None) -> tuple[str, str, str]:
    if fraction is None or pool is None:
        helps = "; ".join(remedy.text for remedy in bounds.remedies) or "a larger card"
        return (bounds.text(), f"missing: {bounds.missing_gib:.2f} GiB", f"what would open it: {helps}")
    return (_why(case, bounds, fraction, source), _pool_line(pool), bounds.text())


def _why(case: Case, bounds: Window, fraction: float, source: str) -> str:
    automatic, machine = case.automatic, case.machine
    if source == "automatic":
        return f"{fraction:g}: SGLang's own value, {rule_sum(automatic)}"
    if source == "proven":
        return f"{fraction:g}: proven under load before; SGLang's own value is {automatic.value:g}"
    outside = " + ".join(f"{share.gib:.1f} {share.name}" for share in bounds.outside)
    text = f"{fraction:g}: {machine.kind} memory, {machine.memory.before_gib:.2f} GiB free must leave {outside} GiB"
    if machine.kind == UNIFIED and fraction >= UNIFIED_START:
        return text + f"; it starts below 0.7 and rises on evidence (SGLang's own value is {automatic.value:g})"
    return text + f" (SGLang's own value is {automatic.value:g})"


def rule_sum(automatic: Fraction) -> str:
    """The sum that an automatic fraction came from, in one line."""
    mib = automatic.capacity.mib
    if mib is None:
        return "0.95 as the capacity is unknown"
    terms = " + ".join(f"{term.mib:g} {term.name}" for term in automatic.terms)
    factors = "".join(f", {factor.name} {factor.value:+.4f}" for factor in automatic.factors)
    return f"({mib:g} - {automatic.reserve_mib:g}) / {mib:g} MiB with a reserve of {terms}{factors}"


def _pool_line(pool: Pool) -> str:
    text = (
        f"pool: {pool.tokens} tokens in {pool.pool_gib:.2f} GiB ({pool.cell.token_bytes:g} bytes each), at most "
        f"{pool.max_running_requests} requests at once, prompts up to {pool.longest_prompt_tokens} tokens"
    )
    return text if pool.feasible else f"no pool: {pool.problem}"


def _warnings(case: Case) -> tuple[str, ...]:
    found: list[str] = []
    machine = case.machine
    if machine.neighbours_hold_gib and machine.kind != UNIFIED:
        slack = (1 - case.automatic.value) * machine.memory.before_gib
        whole = case.automatic.outside_mib
        alone = f" instead of {whole / 1024:.2f} GiB on an empty card" if whole is not None else ""
        found.append(
            f"others hold {machine.neighbours_hold_gib:.1f} GiB of the card: the automatic fraction stays "
            f"{case.automatic.value:g}, but it leaves {slack:.2f} GiB{alone}"
        )
    if case.capacity.mib is None:
        found.append("the capacity is unknown: SGLang would take 0.95 and reserve nothing; that is never chosen")
    if case.model.unverified:
        found.append(f"{case.model.architecture}: nothing was compared with a real server yet (unverified)")
    if case.release.assumed:
        found.append(f"no data for this release: that of SGLang {case.release.version} is assumed")
    return tuple(found)


def inputs_key(
    card: Mapping[str, Any], model: Mapping[str, Any], arguments: Mapping[str, Any], release: str, asked: Any
) -> str:
    """What a choice depends on, as one word: while it stays the same the choice is kept."""
    text = json.dumps([card, model, arguments, release, asked], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
