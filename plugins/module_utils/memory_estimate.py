# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Free memory around a load that has not happened yet, from the card and the model alone. Pure.

Every figure here that was not read from a machine says where it comes from. They are estimates for a plan; once the
weights are loaded, SGLang's own lines replace them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kv_cell import PoolError, WillNotStart
from .kv_pool import GIB, Memory
from .memory import Capacity
from .memory_arguments import MemoryArguments
from .memory_releases import MemoryRelease
from .model import Model
from .model_weights import rank_weight_bytes

# The driver keeps a part of a card that CUDA never shows: 420 MiB and 0.13 % fit T4, L4, A100, H100 and H200.
DRIVER_MIB = 420
DRIVER_SHARE = 0.0013
# What the CUDA context and the process take before SGLang measures: an H200, tp 1.
CONTEXT_MIB = 600
# More for the communicators of NCCL; not measured, a usual figure.
COMMUNICATORS_MIB = 600
# What the process groups take: an H200, tp 1, between the baseline of 0.5.17 and its line "Load weight begin".
GROUPS_GIB = 0.09
# Beside the weights themselves a load leaves a little: 15.28 GiB for 15.26 GiB on an H200.
LOAD_SHARE = 0.0015
# On unified memory the processes of the server come out of the same memory: a GB10.
UNIFIED_PROCESSES_GIB = 0.9
# What the operating system of a machine with unified memory holds when nobody says: a GB10.
UNIFIED_SYSTEM_GIB = 9.1


@dataclass(frozen=True)
class Estimate:
    """Free memory as it will be, with the sums."""

    memory: Memory
    weights_gib: float
    draft_gib: float
    why: tuple[str, ...]


def baseline_gib(logged_begin_gib: float, integrated: bool, ranks: int, release: MemoryRelease) -> float:
    """What SGLang measured before the load, from its line "Load weight begin", which comes a little later."""
    later = not integrated and ranks == 1 and not release.groups_in_baseline
    return logged_begin_gib + (GROUPS_GIB if later else 0.0)


def weights_gib(model: Model, arguments: MemoryArguments, with_own_draft: bool = False) -> float:
    """What the weights take on one rank."""
    if model.weights is None:
        raise PoolError(
            f"{model.file}: there are no safetensors beside it and its weights cannot be computed "
            f"(architecture {model.architecture}, quantisation {model.quantization or 'none'}); give their size"
        )
    held = rank_weight_bytes(
        model.weights, model, arguments.tp_size, arguments.attn_tp_size * arguments.attn_cp_size, arguments.pp_size
    )
    if with_own_draft:
        held += model.weights.draft_bytes // arguments.tp_size
    return held / GIB


def expected_memory(
    model: Model,
    arguments: MemoryArguments,
    capacity: Capacity,
    release: MemoryRelease,
    integrated: bool,
    free_mib: float | None = None,
    given_weights_gib: float | None = None,
    draft: Model | None = None,
) -> Estimate:
    """Free memory before and after a load. `free_mib` is what the card, or the host on unified memory, has free now."""
    before, why = _before(arguments, capacity, release, integrated, free_mib)
    own_draft = arguments.speculative_algorithm is not None and draft is None
    held = weights_gib(model, arguments, own_draft) if given_weights_gib is None else given_weights_gib
    source = "given" if model.weights is None or given_weights_gib is not None else model.weights.source
    why.append(f"{held:.2f} GiB weights on a rank: {source}")
    draft_gib = weights_gib(draft, arguments) if draft is not None else 0.0
    if draft_gib:
        why.append(f"{draft_gib:.2f} GiB weights of the draft")
    loaded = (held + draft_gib) * (1 + LOAD_SHARE)
    if not integrated and not release.groups_in_baseline:
        loaded += GROUPS_GIB
        why.append(f"{GROUPS_GIB} GiB for the process groups")
    if integrated:
        loaded += UNIFIED_PROCESSES_GIB
        why.append(f"{UNIFIED_PROCESSES_GIB} GiB the server's own processes, out of the same memory")
    if loaded >= before:
        raise WillNotStart(
            f"the weights take {loaded:.2f} GiB on a rank and only {before:.2f} GiB are free: the model does not fit. "
            "More ranks (--tp-size), a smaller or quantised model, or a larger card"
        )
    return Estimate(Memory(before, before - loaded), held, draft_gib, tuple(why))


def _before(
    arguments: MemoryArguments, capacity: Capacity, release: MemoryRelease, integrated: bool, free_mib: float | None
) -> tuple[float, list[str]]:
    if free_mib is None and capacity.mib is None:
        raise PoolError("neither the capacity nor the free memory of the card is known")
    if integrated:
        if free_mib is not None:
            return free_mib / 1024, [f"{free_mib / 1024:.2f} GiB are available to the operating system now"]
        whole = (capacity.mib or 0) / 1024
        free = whole - UNIFIED_SYSTEM_GIB
        return max(free, 0.0), [f"{whole:.2f} GiB less {UNIFIED_SYSTEM_GIB} GiB for the operating system: assumed"]
    why = []
    if free_mib is None:
        total = capacity.mib or 0
        driver = DRIVER_MIB + DRIVER_SHARE * total
        free_mib = total - driver
        why.append(f"{total / 1024:.2f} GiB less {driver / 1024:.2f} GiB for the driver: an empty card is assumed")
    else:
        why.append(f"{free_mib / 1024:.2f} GiB are free on the card now")
    taken: float = CONTEXT_MIB + (COMMUNICATORS_MIB if arguments.tp_size * arguments.pp_size > 1 else 0)
    if release.groups_in_baseline:
        taken += GROUPS_GIB * 1024
    why.append(f"{taken / 1024:.2f} GiB for CUDA and the process")
    return max(free_mib - taken, 0.0) / 1024, why
