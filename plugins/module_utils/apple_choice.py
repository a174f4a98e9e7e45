# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fraction on a Mac with MLX, where the pool is a share of what the system has available. Pure.

SGLang's own value leaves a few GiB there, which the next prefill and the desktop share: an engineer's Mac is where a
server with an almost empty pool died of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .fraction_choice import UNIFIED_START
from .fraction_window import Share, Window, window
from .kv_pool import GIB, AppleMemory, predict_apple
from .memory import Fraction, Term
from .model import DTYPE_BYTES, FULL, Model

HOST_RESERVE_GIB = 4.0
_LEAST_TOKENS = 256


@dataclass(frozen=True)
class AppleChoice:
    """A fraction for MLX with its window; None when no value can work."""

    fraction: float | None
    window: Window
    tokens: int
    budget_gib: float
    binds: str
    lines: tuple[str, str, str]


def token_bytes(model: Model) -> int:
    """Bytes of a token in the MLX pool: only full-attention layers are in it."""
    layers = sum(layer == FULL for layer in model.layers) or len(model.layers)
    heads = model.full
    return 0 if heads is None else layers * heads.count * 2 * heads.key_dim * DTYPE_BYTES[model.dtype]


def choose_apple(
    memory: AppleMemory,
    automatic: Fraction,
    terms: Sequence[Term],
    model: Model,
    wanted_tokens: int = 0,
    host_reserve_gib: float | None = None,
    given: float | None = None,
) -> AppleChoice:
    """The fraction, or what a given one leads to."""
    reserve = HOST_RESERVE_GIB if host_reserve_gib is None else host_reserve_gib
    pool_gib = max(wanted_tokens, _LEAST_TOKENS) * token_bytes(model) / GIB
    inside = [Share("pool", pool_gib, f"{max(wanted_tokens, _LEAST_TOKENS)} tokens")]
    outside = [Share(term.name, term.mib / 1024, term.why) for term in terms if term.name != "floor"]
    outside.append(Share("host", reserve, "stays available to the system and its other programs"))
    metal = (memory.active_gib + pool_gib) / memory.limit_gib
    bounds = window(memory.available_gib, inside, outside, at_least=min(1.0, metal))
    fraction = given
    if fraction is None and bounds.feasible:
        fraction = max(bounds.low, min(UNIFIED_START, bounds.high))
    if fraction is None:
        missing = f"missing: {bounds.missing_gib:.2f} GiB"
        return AppleChoice(
            None, bounds, 0, 0.0, "", (bounds.text(), missing, "close other programs, or a smaller model")
        )
    tokens, budget, binds = predict_apple(memory, fraction, model)
    left = memory.available_gib - budget
    first = (
        f"{fraction:g}: of {memory.available_gib:.2f} GiB available the pool leaves {left:.2f} GiB for prefill and the "
        f"system (SGLang's own value is {automatic.value:g}, which leaves "
        f"{memory.available_gib * (1 - automatic.value):.2f} GiB)"
    )
    second = f"pool: {tokens} tokens in {budget:.2f} GiB; what binds is {binds}"
    return AppleChoice(fraction, bounds, tokens, budget, binds, (first, second, bounds.text()))
