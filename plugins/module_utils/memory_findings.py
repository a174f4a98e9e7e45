# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the readings of a machine mean for a start, before it is tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .finding import ERROR, WARNING, Finding
from .machine import Card, Host, Process, neighbours_mib
from .memory_arguments import MemoryArguments

GIB = 1 << 30
# SGLang refuses ranks that differ by more.
BALANCE = 0.9
# What the processes of a server take of the host's memory: an H200, SGLang 0.5.17.
HOST_WARM_GIB = 2.9
HOST_COLD_GIB = 3.5
HOST_COMPILING_GIB = 24.5
# The hierarchical cache holds so many times the pool where nothing is said.
HICACHE_RATIO = 2.0


def unbalanced_cards(
    free_gib: Sequence[float], cards: Sequence[Card] = (), environment: Mapping[str, str] | None = None
) -> Finding | None:
    """Ranks whose free memory differs too much: SGLang ends with "The memory capacity is unbalanced"."""
    if len(free_gib) < 2:
        return None
    least, most = min(free_gib), max(free_gib)
    if least >= BALANCE * most:
        return None
    rank = free_gib.index(least)
    named = next((card for position, card in enumerate(cards) if position == rank), None)
    who = f"card {named.index} ({named.uuid or named.name})" if named is not None else f"the card of rank {rank}"
    held = ""
    if named is not None and named.processes:
        held = "; it is held by " + ", ".join(_process(process) for process in named.processes)
    tolerated = (environment or {}).get("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "1").lower() in ("0", "false")
    return Finding(
        "memory.unbalanced_cards",
        WARNING if tolerated else ERROR,
        f"{who} has {least:.2f} GiB free, below 0.9 x {most:.2f} = {BALANCE * most:.2f} GiB of the emptiest",
        f"free on each rank: {', '.join(f'{free:.2f}' for free in free_gib)} GiB{held}",
        "free that card, or give the instance other cards",
    )


def _process(process: Process) -> str:
    used = "an unknown amount" if process.used_mib is None else f"{process.used_mib / 1024:.2f} GiB"
    return f"{process.name or 'a process'} (pid {process.pid}{', ' + process.owner if process.owner else ''}): {used}"


def foreign_memory(cards: Sequence[Card], ours: Sequence[int] = ()) -> Finding | None:
    """Other processes that hold memory of the cards."""
    held = [(card, neighbours_mib(card, ours)) for card in cards]
    total = sum(mib for _card, mib in held)
    if total < 1:
        return None
    named = [
        f"card {card.index}: {_process(process)}"
        for card, _mib in held
        for process in card.processes
        if not process.ours and process.pid not in ours
    ]
    return Finding(
        "memory.foreign_process",
        WARNING,
        f"others hold {total / 1024:.2f} GiB of the cards",
        "; ".join(named),
        "end them, or declare the cards as shared so that the fraction is chosen from what is left",
    )


def another_process_grew(
    free_at_start_gib: float, free_now_gib: float, ours_gib: float, foreign_gib: Sequence[float]
) -> list[Finding]:
    """CUDA out of memory while the card is shared: who grew, then what is left to do about it."""
    foreign = sum(foreign_gib)
    found: list[Finding] = []
    lost = free_at_start_gib - free_now_gib
    if foreign > 0 and lost > 0:
        found.append(
            Finding(
                "memory.another_process_grew",
                ERROR,
                f"another process holds {foreign:.1f} GiB of the card; free memory fell from "
                f"{free_at_start_gib:.1f} to {free_now_gib:.1f} GiB since the start",
                f"ours {ours_gib:.1f} GiB, others {', '.join(f'{gib:.1f}' for gib in foreign_gib)} GiB",
                "end the other process or move it; a server sizes its pool once and does not give it back",
            )
        )
    found.append(
        Finding(
            "memory.lower_the_fraction",
            WARNING,
            "a lower fraction leaves more outside of the pool",
            f"{free_now_gib:.1f} GiB are free now",
            "second to the first: choose the fraction for a shared card from its free memory at the low point",
        )
    )
    return found


def host_limit(host: Host, arguments: MemoryArguments, workers: int, pool_gib: float = 0.0) -> Finding | None:
    """Host memory that a start pins against the limit that holds, which is the control group's."""
    pinned = pinned_gib(arguments, workers, pool_gib)
    total = host.total_bytes / GIB
    limit = host.limit_bytes / GIB if host.limit_bytes is not None else None
    holds = min(total, limit) if limit is not None else total
    source = f"the limit of the control group, {limit:.0f} GiB" if limit is not None and limit < total else "the host"
    if pinned > holds:
        return Finding(
            "memory.host_limit",
            ERROR,
            f"{workers} x {pinned / workers:.4g} = {pinned:.4g} GiB of the host would be pinned, above {holds:.0f} GiB",
            f"what holds is {source}; the host has {total:.0f} GiB",
            "lower --hicache-size or --cpu-offload-gb, or raise MemoryMax of the instance",
        )
    if holds < pinned + HOST_WARM_GIB:
        return Finding(
            "memory.host_limit",
            ERROR,
            f"a start needs {pinned + HOST_WARM_GIB:.1f} GiB of host memory and {holds:.1f} GiB hold",
            f"{pinned:.4g} GiB pinned and {HOST_WARM_GIB} GiB for the processes; what holds is {source}",
            "raise MemoryMax of the instance",
        )
    if holds < pinned + HOST_COMPILING_GIB:
        return Finding(
            "memory.host_limit_cold",
            WARNING,
            f"a cold start that compiles kernels takes up to {HOST_COMPILING_GIB} GiB of the host, {holds:.1f} hold",
            f"measured: {HOST_WARM_GIB} GiB warm, {HOST_COLD_GIB} cold, {HOST_COMPILING_GIB} when nvcc compiles",
            "warm the kernel caches first, or raise MemoryMax for the first start",
        )
    return None


def hicache_gib(arguments: MemoryArguments, pool_gib: float = 0.0) -> float:
    """Host memory of the hierarchical cache on each rank: a size, or so many times the pool."""
    if not arguments.enable_hierarchical_cache:
        return 0.0
    if arguments.hicache_size:
        return float(arguments.hicache_size)
    return pool_gib * (HICACHE_RATIO if arguments.hicache_ratio is None else arguments.hicache_ratio)


def pinned_gib(arguments: MemoryArguments, workers: int, pool_gib: float = 0.0) -> float:
    """Host memory that all ranks of the host pin."""
    return (hicache_gib(arguments, pool_gib) + arguments.cpu_offload_gb) * workers


def host_memory(arguments: MemoryArguments, workers: int, pool_gib: float = 0.0) -> dict[str, float]:
    """The host memory that a start needs, by how cold its kernel caches are."""
    pinned = pinned_gib(arguments, workers, pool_gib)
    needs = {"warm_gib": HOST_WARM_GIB, "cold_gib": HOST_COLD_GIB, "compiling_gib": HOST_COMPILING_GIB}
    return {"pinned_gib": round(pinned, 3), **{name: round(pinned + gib, 3) for name, gib in needs.items()}}


def unified_memory(
    host: Host, fraction: float | None, shm_gib: float | None = None, wanted_gib: float | None = None
) -> list[Finding]:
    """What a host with unified memory must watch: the page cache, /dev/shm, and pages that cannot be reclaimed."""
    found: list[Finding] = []
    total, available = host.total_bytes / GIB, host.available_bytes / GIB
    if host.free_bytes is not None and host.available_bytes - host.free_bytes > GIB:
        free = host.free_bytes / GIB
        found.append(
            Finding(
                "memory.page_cache",
                WARNING,
                f"{available:.1f} GiB are free for SGLang; tools that read CUDA's own figure see {free:.1f} GiB",
                f"MemAvailable {available:.1f}, MemFree {free:.1f} GiB: between them is page cache, which gives way",
                "nothing for SGLang; do not size it by CUDA's figure",
            )
        )
    if shm_gib is not None and fraction is not None and shm_gib > 0:
        remains = total - total * fraction - shm_gib
        if remains < total * 0.1 or shm_gib > total * 0.25:
            found.append(
                Finding(
                    "memory.shm_same_pool",
                    WARNING,
                    f"/dev/shm of {shm_gib:g} GiB comes out of the same {total:.1f} GiB",
                    f"{total:.1f} - {fraction:g} x {total:.1f} - {shm_gib:g} = {remains:.1f} GiB remain when full",
                    "a smaller shared memory (tp 1 needs little), or a lower fraction",
                )
            )
    pinned = max(host.locked_bytes or 0, host.shared_bytes or 0) / GIB
    needed = wanted_gib if wanted_gib is not None else total * 0.25
    if pinned > total * 0.1 and available < needed:
        found.append(
            Finding(
                "memory.pinned_pages",
                ERROR,
                f"{pinned:.1f} GiB of shared or locked pages cannot be reclaimed and {available:.1f} GiB are available",
                f"Shmem and Mlocked hold {pinned:.1f} of {total:.1f} GiB; starting again at once fails again",
                "find who holds them (a dead server's /dev/shm segments, a hung process) and start when they are gone",
            )
        )
    return found
