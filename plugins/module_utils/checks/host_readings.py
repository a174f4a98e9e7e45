# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything of a host that decides whether an instance can start on it: driver, cards, memory, ports, services."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from .. import gpu_readings, host_memory_reader, machine, nvml_reader
from ..host_memory_reader import parse_meminfo
from . import card_health, driver_readings, file_systems, kernel_log, process_scan, service_readings
from .check import as_dicts, run_checks
from .plain import plain
from .reading import CouldNotTell, Reader, Reading, Unknown, gather, read_first, read_text
from .wanted import DAEMON_JSON, TEMPORARY, DiskNeed, Wanted, disk_needs, read_wanted

MEMINFO = "/proc/meminfo"
RDMA = "/sys/class/infiniband"

# A whole preflight takes 3 s at most. What is left over after the readings is for the rules, on a machine that is busy.
LIMIT_S = 1.8
CARDS_S = 1.7
NOT_READ = Unknown("it was not read")
NOT_ASKED = Unknown("the cards were not asked: no instance of this host is declared to run on one")
SLOW_CARDS = "NVML or nvidia-smi does not answer: the driver hangs, or a card without persistence mode comes up"
T = TypeVar("T")


@dataclass(frozen=True)
class HostMemory:
    """Bytes of /proc/meminfo that are not free for a server."""

    total: int
    available: int
    shared: int = 0
    locked: int = 0
    huge_pages: int = 0
    huge_pages_free: int = 0
    swap_total: int = 0
    swap_free: int = 0


@dataclass(frozen=True)
class DiskSpace:
    """A file system: `asked` is the path that was asked for, `found` the nearest one that exists."""

    asked: str
    found: str
    device: int
    free: int
    total: int
    exists: bool


@dataclass(frozen=True)
class Cards:
    """The cards of the host, read in one go."""

    gpus: Reading[machine.Readings] = NOT_ASKED
    health: Reading[card_health.Health] = NOT_ASKED
    listed: Reading[tuple[card_health.ListedCard, ...]] = NOT_ASKED


@dataclass(frozen=True)
class HostReadings:
    """A host. Whatever may fail to be read is a Reading."""

    wanted: tuple[Wanted, ...] = ()
    needs: tuple[DiskNeed, ...] = ()
    # False where the host is looked at for its instances alone, and none of them runs on a card.
    cards_matter: bool = True
    distribution: Reading[service_readings.Distribution] = NOT_READ
    kernel_module: Reading[driver_readings.KernelModule] = NOT_READ
    library: Reading[driver_readings.Library] = NOT_READ
    pci: Reading[tuple[driver_readings.PciDevice, ...]] = NOT_READ
    fabric_manager_version: Reading[str | None] = NOT_READ
    gpus: Reading[machine.Readings] = NOT_READ
    listed: Reading[tuple[card_health.ListedCard, ...]] = NOT_READ
    health: Reading[card_health.Health] = NOT_READ
    dmesg: Reading[kernel_log.KernelLog] = NOT_READ
    kernel_journal: Reading[kernel_log.KernelLog] = NOT_READ
    processes: Reading[process_scan.ProcessScan] = NOT_READ
    memory: Reading[HostMemory] = NOT_READ
    shm: Reading[DiskSpace] = NOT_READ
    services: Reading[Mapping[str, service_readings.Service]] = NOT_READ
    default_limits: Reading[service_readings.Service] = NOT_READ
    earlyoom: Reading[str] = NOT_READ
    upgrades: Reading[service_readings.Upgrades] = NOT_READ
    clock: Reading[service_readings.Clock] = NOT_READ
    docker_limits: Reading[Mapping[str, int]] = NOT_READ
    rdma: Reading[tuple[str, ...]] = NOT_READ
    spaces: Mapping[str, Reading[DiskSpace]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        processes = self.processes
        if isinstance(processes, process_scan.ProcessScan):
            # Who is alive is for the rules: thousands of numbers say nothing to a reader.
            found["processes"].pop("alive", None)
        return found


def read_memory() -> HostMemory:
    values = parse_meminfo(read_text(MEMINFO))
    if not values.get("MemTotal") or "MemAvailable" not in values:
        raise CouldNotTell(f"{MEMINFO} names no MemTotal or no MemAvailable")
    page = values.get("Hugepagesize", 0)
    return HostMemory(
        total=values["MemTotal"],
        available=values["MemAvailable"],
        shared=values.get("Shmem", 0),
        locked=values.get("Mlocked", 0),
        # Hugetlb counts every size of page; older kernels name only the default one.
        huge_pages=values.get("Hugetlb", values.get("HugePages_Total", 0) * page),
        huge_pages_free=values.get("HugePages_Free", 0) * page,
        swap_total=values.get("SwapTotal", 0),
        swap_free=values.get("SwapFree", 0),
    )


def read_space(path: str) -> DiskSpace:
    """The file system of a path, or of the nearest directory above it that exists."""
    found = file_systems.nearest_existing(os.path.abspath(path))
    space = file_systems.space_of(found)
    try:
        device = os.stat(found).st_dev
    except OSError as error:
        raise CouldNotTell(f"{found}: {error.strerror or error}") from None
    return DiskSpace(path, found, device, space.free_bytes, space.total_bytes, os.path.abspath(path) == found)


def read_cards() -> Cards:
    """The cards by NVML, in one session: opening a card without persistence mode takes seconds.

    Where NVML answers, nvidia-smi is not asked: it says no more, and may hang.
    """
    try:
        nvml = nvml_reader.load()
        with nvml_reader.session(nvml):
            cards, driver, cuda = nvml_reader.read(nvml)
            gpus = machine.Readings("nvml", cards, host_memory_reader.read(), driver, cuda)
            # Not by threads of their own: they would wait for the driver one after another too.
            return Cards(with_ours(gpus), _said(card_health.read_nvml, nvml), _said(card_health.list_nvml, nvml))
    except nvml_reader.NvmlUnavailable:
        read = gather(
            {
                "gpus": Reader(_read_gpus, CARDS_S, SLOW_CARDS),
                "health": Reader(card_health.read_health, CARDS_S, SLOW_CARDS),
                "listed": Reader(card_health.read_list, CARDS_S, SLOW_CARDS),
            }
        )
        return Cards(**read)


def _read_gpus() -> machine.Readings:
    return with_ours(gpu_readings.read(smi_limit_s=card_health.SMI_LIMIT_S))


def _said(read: Callable[[Any], T], nvml: Any) -> Reading[T]:
    try:
        return read(nvml)
    except CouldNotTell as error:
        return Unknown(str(error))


def with_ours(readings: machine.Readings) -> machine.Readings:
    """The processes that are ours marked: those in the slice of any instance."""
    cards = tuple(
        replace(card, processes=tuple(replace(one, ours=in_our_slice(_group(one.pid))) for one in card.processes))
        for card in readings.cards
    )
    return replace(readings, cards=cards)


def in_our_slice(group: str) -> bool:
    return re.search(r"/sglang-[a-z0-9_]+\.slice(/|$)", group, re.MULTILINE) is not None


def _group(pid: int) -> str:
    try:
        return read_first(f"/proc/{pid}/cgroup") or ""
    except CouldNotTell:
        return ""


def read_rdma() -> tuple[str, ...]:
    """The InfiniBand and RoCE devices: their use needs locked memory."""
    try:
        return tuple(sorted(os.listdir(RDMA)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CouldNotTell(f"{RDMA}: {error.strerror or error}") from None


def read_docker_limits() -> dict[str, int]:
    """The soft limits that Docker gives every container by its configuration, by their names there."""
    text = read_first(DAEMON_JSON)
    if text is None or not text.strip():
        return {}
    try:
        limits = json.loads(text).get("default-ulimits") or {}
        return {str(name): int(limit["Soft"]) for name, limit in limits.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CouldNotTell(f"{DAEMON_JSON} cannot be understood: {type(error).__name__}: {error}") from None


def services_asked(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    names = [
        service_readings.FABRIC_MANAGER,
        "nvidia-persistenced.service",
        "containerd.service",
        "docker.service",
        *service_readings.GUARD_SERVICES,
        *service_readings.CLOCK_SERVICES,
        *service_readings.APT_TIMERS,
        "-.slice",
        "sglang.slice",
    ]
    for each in wanted:
        if re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", each.name):
            names += [each.unit, each.slice]
    return tuple(dict.fromkeys(names))


def _read_upgrades() -> service_readings.Upgrades:
    return service_readings.read_upgrades(service_readings.read_distribution().family)


def matters(params: Mapping[str, Any], wanted: Sequence[Wanted]) -> bool:
    """Whether the cards are to be asked: some instance wants them, or the host is looked at for its own sake."""
    return any(each.on_cuda for each in wanted) if wanted else not params.get("only_declared")


def read_host(params: Mapping[str, Any]) -> HostReadings:
    """Read everything side by side: the slowest reading is what it takes."""
    wanted = read_wanted(params.get("instances"))
    needs = disk_needs(params, wanted)
    ports = {use.port for each in wanted for use in each.ports}
    paths = list(dict.fromkeys([*(need.path for need in needs), *TEMPORARY]))
    cards_matter = matters(params, wanted)
    readers = {
        "distribution": Reader(service_readings.read_distribution),
        "kernel_module": Reader(driver_readings.read_kernel_module),
        "library": Reader(driver_readings.read_library),
        "pci": Reader(driver_readings.read_pci),
        "fabric_manager_version": Reader(driver_readings.read_fabric_manager_version),
        "cards": Reader(read_cards if cards_matter else Cards, LIMIT_S, SLOW_CARDS),
        "dmesg": Reader(kernel_log.read_dmesg),
        "kernel_journal": Reader(kernel_log.read_journal),
        "processes": Reader(partial(process_scan.scan, ports, time.time())),
        "memory": Reader(read_memory),
        "shm": Reader(partial(read_space, process_scan.SHM)),
        "services": Reader(partial(service_readings.read_services, services_asked(wanted))),
        "default_limits": Reader(service_readings.read_default_limits),
        "earlyoom": Reader(service_readings.read_earlyoom),
        "upgrades": Reader(_read_upgrades),
        "clock": Reader(service_readings.read_clock),
        "docker_limits": Reader(read_docker_limits),
        "rdma": Reader(read_rdma),
    }
    spaces = {f"space:{path}": Reader(partial(read_space, path)) for path in paths}
    read = gather({**readers, **spaces})
    cards = read.pop("cards")
    if isinstance(cards, Unknown):
        cards = Cards(cards, cards, cards)
    elif isinstance(cards.gpus, machine.Readings) and cards.gpus.cards:
        # Where nothing has used the cards since the boot, asking them is what loads the module.
        read.update(gather({"kernel_module": Reader(driver_readings.read_kernel_module, 0.2)}))
    return HostReadings(
        wanted=wanted,
        needs=needs,
        cards_matter=cards_matter,
        gpus=cards.gpus,
        health=cards.health,
        listed=cards.listed,
        spaces={path: read[f"space:{path}"] for path in paths},
        **{name: read[name] for name in readers if name in read},
    )


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """What the module host_info returns: the readings and the findings."""
    from .host_checks import CHECKS

    readings = read_host(params)
    return {"readings": readings.as_dict(), "findings": as_dicts(run_checks(CHECKS, readings))}
