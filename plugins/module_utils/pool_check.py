# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the pool that a server measured with the one that was predicted for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A pool below this share of the prediction was sized wrongly: something else held the memory at that moment.
FAR_BELOW = 0.5
# Below this it is worth a look.
BELOW = 0.9


def compare(memory: Mapping[str, Any] | None, measured_tokens: int | None) -> tuple[bool, str]:
    """Whether the pool is what was planned, and what to say when it is not."""
    prediction = (memory or {}).get("prediction")
    predicted = prediction.get("max_total_num_tokens") if isinstance(prediction, Mapping) else None
    if memory is None or not isinstance(predicted, int) or predicted <= 0 or not measured_tokens:
        return True, ""
    share = measured_tokens / predicted
    if share >= BELOW:
        return True, ""
    said = (
        f"its pool has {measured_tokens} tokens and {predicted} were predicted for a fraction of "
        f"{memory.get('fraction')} ({share:.0%})"
    )
    if share >= FAR_BELOW or not memory.get("binding"):
        return True, said
    return False, (
        f"{said}. Memory was held elsewhere while SGLang measured it: another process on the card, leftovers of the "
        "weights' load, or a host short of memory where it is unified. Look at gpu_info, free it, and start again; if "
        "the prediction is wrong for this model, declare mem_fraction: auto"
    )
