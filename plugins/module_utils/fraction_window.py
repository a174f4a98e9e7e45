# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fractions that can work: from below what is loaded and the wanted tokens, from above what runs outside. Pure.

A window may be empty. Then it says both sums, how much is missing, and what would open it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

# SGLang prints and takes three decimals; a fourth would be lost in every message.
STEP = 0.001


@dataclass(frozen=True)
class Share:
    """A part of the memory that was free before the load, and what it is for."""

    name: str
    gib: float
    why: str = ""


@dataclass(frozen=True)
class Remedy:
    """What would make room, and how much."""

    name: str
    gib: float
    text: str
    enough: bool = False


@dataclass(frozen=True)
class Window:
    """From `low` to `high`, both included, in steps of 0.001; the exact bounds are what they were rounded from."""

    before_gib: float
    inside: tuple[Share, ...]
    outside: tuple[Share, ...]
    low_exact: float
    high_exact: float
    low: float
    high: float
    remedies: tuple[Remedy, ...] = ()

    @property
    def feasible(self) -> bool:
        return self.low <= self.high

    @property
    def missing_gib(self) -> float:
        """How much more memory both sides together need than there is; 0 when the window is open."""
        if self.feasible:
            return 0.0
        return max(0.0, (self.low_exact - self.high_exact) * self.before_gib)

    def holds(self, fraction: float) -> bool:
        return self.feasible and self.low - 1e-9 <= fraction <= self.high + 1e-9

    def text(self) -> str:
        """The window, or both sums of an empty one."""
        if self.feasible:
            return f"fractions from {self.low:.3f} to {self.high:.3f} can work"
        return (
            f"no feasible fraction: {_sum(self.inside)} inside need at least {self.low:.3f}, "
            f"{_sum(self.outside)} outside need at most {self.high_exact:.4f}, of {self.before_gib:.2f} GiB"
        )


def _sum(shares: Sequence[Share]) -> str:
    return " + ".join(f"{share.gib:.2f} GiB {share.name}" for share in shares if share.gib) or "nothing"


def window(
    before_gib: float,
    inside: Sequence[Share],
    outside: Sequence[Share],
    remedies: Sequence[Remedy] = (),
    at_least: float = 0.0,
    at_most: float | None = None,
) -> Window:
    """The window of these shares. `at_least` is the least fraction that gives a pool, where that is known better.

    At the exact lower bound the pool would be empty, so the window begins above it. `at_most` replaces the upper bound
    by a fraction that is known to leave enough.
    """
    low_exact = sum(share.gib for share in inside) / before_gib
    high_exact = 1 - sum(share.gib for share in outside) / before_gib
    low = max(_up(low_exact), STEP, at_least)
    if low <= low_exact and low > at_least:
        low += STEP
    high = min(_down(high_exact), 1 - STEP)
    if at_most is not None:
        high, high_exact = at_most, max(high_exact, at_most)
    empty = round(low, 3) > round(high, 3)
    return Window(
        before_gib=before_gib,
        inside=tuple(inside),
        outside=tuple(outside),
        low_exact=low_exact,
        high_exact=high_exact,
        low=round(low, 3),
        high=high if at_most is not None else round(high, 3),
        remedies=_remedies(remedies, (low_exact - high_exact) * before_gib) if empty else (),
    )


def _remedies(remedies: Sequence[Remedy], missing_gib: float) -> tuple[Remedy, ...]:
    """The remedies, largest first, each marked when it is enough alone."""
    ordered = sorted(remedies, key=lambda remedy: -remedy.gib)
    return tuple(
        replace(remedy, enough=True, text=remedy.text + " (enough alone)") if remedy.gib > missing_gib else remedy
        for remedy in ordered
    )


def _up(value: float) -> float:
    return math.ceil(round(value / STEP, 9)) * STEP


def _down(value: float) -> float:
    return math.floor(round(value / STEP, 9)) * STEP
