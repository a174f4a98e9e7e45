# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine is, from readings of its cards and memory: its kind, and its capacity as SGLang reads it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .memory import Capacity
from .memory_releases import MemoryRelease

# A process with less on a card is a monitor or a display, not a neighbour that competes for memory.
NEIGHBOUR_MIB = 512

NOT_SUPPORTED = "not_supported"
LOST = "lost"
DRIVER_MISMATCH = "driver_mismatch"
NO_DRIVER = "no_driver"
NO_PERMISSION = "no_permission"
ERROR = "error"


@dataclass(frozen=True)
class Process:
    """A process that holds memory of a card. None: the driver does not say."""

    pid: int
    name: str = ""
    owner: str = ""
    used_mib: float | None = None
    ours: bool = False


@dataclass(frozen=True)
class Card:
    """One card as NVML or nvidia-smi reports it. None: not reported; `problem` says what was wrong with the card."""

    index: int
    uuid: str = ""
    name: str = ""
    bus: str = ""
    total_mib: float | None = None
    free_mib: float | None = None
    used_mib: float | None = None
    memory_status: str = "ok"
    compute_capability: str = ""
    clocks_mhz: Mapping[str, int] = field(default_factory=dict)
    temperature_c: int | None = None
    mig: bool = False
    processes: tuple[Process, ...] = ()
    problem: str = ""

    @property
    def compute_major(self) -> int | None:
        head = self.compute_capability.partition(".")[0]
        return int(head) if head.isdigit() else None


@dataclass(frozen=True)
class Host:
    """The memory of the host, in bytes. None: not known."""

    total_bytes: int
    available_bytes: int
    free_bytes: int | None = None
    cached_bytes: int | None = None
    shared_bytes: int | None = None
    locked_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    limit_bytes: int | None = None
    limit_current_bytes: int | None = None
    limit_source: str = ""
    shm_bytes: int | None = None
    numa_node_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Readings:
    """Everything that was read from a machine, and from where."""

    source: str
    cards: tuple[Card, ...]
    host: Host
    driver: str = ""
    cuda: str = ""
    smi_totals: tuple[str, ...] | None = None
    smi_error: str = ""
    cuda_totals_mib: tuple[float, ...] = ()
    problems: tuple[Mapping[str, str], ...] = ()

    @property
    def broken(self) -> tuple[Card, ...]:
        return tuple(card for card in self.cards if card.problem)


@dataclass(frozen=True)
class Kind:
    """The kind of a machine with the evidence; `unknown` where the readings do not say."""

    kind: str
    evidence: tuple[str, ...]


def is_integrated(card: Card) -> bool:
    """Whether the card has no memory of its own. Only a healthy card that says so counts: a lost one says nothing."""
    return not card.problem and card.memory_status == NOT_SUPPORTED and not card.mig


def kind_of(readings: Readings, ours: Sequence[int] = (), shared: bool | None = None) -> Kind:
    """dedicated, shared or unified. `ours` are processes of this instance, `shared` what was declared."""
    healthy = [card for card in readings.cards if not card.problem]
    if not healthy:
        why = "; ".join(f"card {card.index}: {card.problem}" for card in readings.cards) or "no card was found"
        return Kind("unknown", (why, *(problem["text"] for problem in readings.problems)))
    integrated = [card for card in healthy if is_integrated(card)]
    if integrated:
        return Kind(
            "unified",
            tuple(
                f"card {card.index} ({card.name or 'unnamed'}) reports no memory of its own: it shares the host's "
                f"{readings.host.total_bytes / 2**30:.1f} GiB"
                for card in integrated
            ),
        )
    neighbours = [
        f"card {card.index}: {process.name or 'a process'} (pid {process.pid}"
        + (f", {process.owner}" if process.owner else "")
        + f") holds {process.used_mib:.0f} MiB"
        for card in healthy
        for process in card.processes
        if process.used_mib is not None and process.used_mib >= NEIGHBOUR_MIB and not _is_ours(process, ours)
    ]
    if neighbours:
        return Kind("shared", tuple(neighbours))
    if shared:
        return Kind("shared", ("declared as shared",))
    return Kind("dedicated", (f"no other process holds {NEIGHBOUR_MIB} MiB or more of any card",))


def _is_ours(process: Process, ours: Sequence[int]) -> bool:
    return process.ours or process.pid in ours


def neighbours_mib(card: Card, ours: Sequence[int] = ()) -> float:
    """What others hold of a card."""
    return sum(process.used_mib or 0.0 for process in card.processes if not _is_ours(process, ours))


def own_mib(card: Card) -> float:
    """What the instance itself holds of a card."""
    return sum(process.used_mib or 0.0 for process in card.processes if process.ours)


def capacity_of(readings: Readings, platform: str, release: MemoryRelease, environment: Mapping[str, str]) -> Capacity:
    """The capacity as SGLang of this release would read it, or unknown."""
    major = next((card.compute_major for card in readings.cards if card.compute_major is not None), None)
    if platform == "cpu":
        return _cpu_capacity(readings.host, release, environment)
    if platform != "cuda":
        known = [card.total_mib for card in readings.cards if card.total_mib is not None]
        return Capacity(min(known) if known else None, "the smallest card", platform, major)
    return _cuda_capacity(readings, major)


def _cuda_capacity(readings: Readings, major: int | None) -> Capacity:
    """nvidia-smi's total of the smallest card of the host, whatever CUDA_VISIBLE_DEVICES says; else CUDA's own."""
    totals = readings.smi_totals
    if totals is None:
        totals = tuple(f"{card.total_mib:g}" if card.total_mib is not None else "[N/A]" for card in readings.cards)
    numbers = [float(text) for text in totals if _is_plain_number(text)]
    if numbers and not readings.smi_error:
        why = "nvidia-smi, the smallest card of the host" if len(numbers) > 1 else "nvidia-smi"
        return Capacity(min(numbers), why, "cuda", major)
    if readings.cuda_totals_mib:
        return Capacity(min(readings.cuda_totals_mib), "CUDA's total, as nvidia-smi gives no number", "cuda", major)
    if any(is_integrated(card) for card in readings.cards):
        total = readings.host.total_bytes // 2**20
        return Capacity(float(total), "the host's memory: CUDA reports it whole on an integrated card", "cuda", major)
    return Capacity(None, readings.smi_error or "neither nvidia-smi nor CUDA gives a number", "cuda", major)


def _is_plain_number(text: str) -> bool:
    whole, _dot, decimals = text.strip().partition(".")
    return whole.isdigit() and (not _dot or decimals.isdigit())


def _cpu_capacity(host: Host, release: MemoryRelease, environment: Mapping[str, str]) -> Capacity:
    if environment.get("SGLANG_CPU_OMP_THREADS_BIND"):
        return Capacity(None, "SGLANG_CPU_OMP_THREADS_BIND is set, which hides it", "cpu")
    nodes = max(1, len(host.numa_node_bytes))
    if release.cpu_limit_counts:
        total = host.total_bytes if host.limit_bytes is None else min(host.total_bytes, host.limit_bytes)
        return Capacity(float(total / nodes // 2**20), "the host's memory or its limit, divided by NUMA nodes", "cpu")
    smallest = min(host.numa_node_bytes) if host.numa_node_bytes else host.total_bytes
    return Capacity(float(smallest // 2**20), "the smallest NUMA node", "cpu")


def as_dict(readings: Readings) -> dict[str, Any]:
    """The readings as a module returns them."""
    return asdict(readings)


def readings_from(data: Mapping[str, Any]) -> Readings:
    """The readings from what a module returned, on the controller or in a playbook's variable."""
    cards = tuple(
        Card(
            **{
                **{key: value for key, value in card.items() if key in Card.__dataclass_fields__},
                "processes": tuple(
                    Process(**{key: value for key, value in process.items() if key in Process.__dataclass_fields__})
                    for process in card.get("processes") or ()
                ),
            }
        )
        for card in data.get("cards") or ()
    )
    host = {key: value for key, value in (data.get("host") or {}).items() if key in Host.__dataclass_fields__}
    host["numa_node_bytes"] = tuple(host.get("numa_node_bytes") or ())
    totals = data.get("smi_totals")
    return Readings(
        source=str(data.get("source", "given")),
        cards=cards,
        host=Host(**host),
        driver=str(data.get("driver") or ""),
        cuda=str(data.get("cuda") or ""),
        smi_totals=tuple(str(total) for total in totals) if totals is not None else None,
        smi_error=str(data.get("smi_error") or ""),
        cuda_totals_mib=tuple(float(total) for total in data.get("cuda_totals_mib") or ()),
        problems=tuple(data.get("problems") or ()),
    )
