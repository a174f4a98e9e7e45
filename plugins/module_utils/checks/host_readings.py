# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything of a host that decides whether an instance can start on it: driver, cards, memory, ports, services."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .. import gpu_readings, host_memory_reader, machine, nvml_reader
from ..cards import Card, parse_card
from ..host_memory_reader import parse_meminfo
from ..port_plan import PortUse, ports_used
from . import card_health, driver_readings, file_systems, kernel_log, process_scan, service_readings
from .check import as_dicts, run_checks
from .plain import plain
from .reading import CouldNotTell, Reader, Reading, Unknown, gather, read_first, read_text

GIB = 1 << 30
MEMINFO = "/proc/meminfo"
RDMA = "/sys/class/infiniband"
DAEMON_JSON = "/etc/docker/daemon.json"
STORAGE_CONF = "/etc/containers/storage.conf"
CONTAINERS = ("docker", "podman")

NOT_READ = Unknown("it was not read")


@dataclass(frozen=True)
class Wanted:
    """An instance as it is declared, as far as the host matters to it."""

    name: str
    version: str = ""
    runtime: str = "native"
    device: str = "cuda"
    cards: tuple[Card, ...] | None = None
    shared: bool = False
    image: str = ""
    cuda: str = ""
    cuda_compat: bool | None = None
    host: str = "0.0.0.0"
    ports: tuple[PortUse, ...] = ()
    python: str = ""
    nnodes: int = 1
    problem: str = ""

    @property
    def unit(self) -> str:
        return f"sglang-{self.name}.service"

    @property
    def slice(self) -> str:
        return f"sglang-{self.name}.slice"

    @property
    def on_cuda(self) -> bool:
        return self.device == "cuda"


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
class DiskNeed:
    """Space that a path must have, for what, and where the figure comes from."""

    path: str
    bytes: int
    purpose: str
    source: str
    # Whether what needs it may be there already, which is not looked into here.
    may_be_there: bool = False


@dataclass(frozen=True)
class HostReadings:
    """A host. Whatever may fail to be read is a Reading."""

    wanted: tuple[Wanted, ...] = ()
    needs: tuple[DiskNeed, ...] = ()
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
    rdma: Reading[tuple[str, ...]] = NOT_READ
    spaces: Mapping[str, Reading[DiskSpace]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        processes = self.processes
        if isinstance(processes, process_scan.ProcessScan):
            # Who is alive is for the rules: thousands of numbers say nothing to a reader.
            found["processes"].pop("alive", None)
        return found


def read_wanted(instances: Any) -> tuple[Wanted, ...]:
    """The declared instances; what is wrong with one is noted and the others are looked at."""
    if not isinstance(instances, (list, tuple)):
        return ()
    return tuple(_wanted(position, each) for position, each in enumerate(instances) if isinstance(each, Mapping))


def _wanted(position: int, given: Mapping[str, Any]) -> Wanted:
    name = str(given.get("name") or f"number {position + 1}")
    arguments = {str(key).replace("_", "-"): value for key, value in (given.get("arguments") or {}).items()}
    problems: list[str] = []
    ports: tuple[PortUse, ...] = ()
    if given.get("port") is not None:
        try:
            ports = tuple(ports_used(int(given["port"]), arguments))
        except (TypeError, ValueError) as error:
            problems.append(f"port: {error}")
    cards: tuple[Card, ...] | None = None
    if given.get("cards"):
        try:
            cards = tuple(parse_card(card) for card in given["cards"])
        except (TypeError, ValueError) as error:
            problems.append(f"cards: {error}")
    compat = given.get("cuda_compat")
    return Wanted(
        name=name,
        version=str(given.get("version") or ""),
        runtime=str(given.get("runtime") or "native"),
        device=str(arguments.get("device") or "cuda"),
        cards=cards,
        shared=bool(given.get("cards_shared")),
        image=str(given.get("image") or ""),
        cuda=str(given.get("cuda") or ""),
        cuda_compat=None if compat is None else bool(compat),
        host=str(arguments.get("host") or given.get("host") or "0.0.0.0"),
        ports=ports,
        python=str(given.get("python") or ""),
        nnodes=int(given["nnodes"]) if str(given.get("nnodes") or "").isdigit() else 1,
        problem="; ".join(problems),
    )


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


def read_gpus() -> machine.Readings:
    """The cards with their processes; ours are those in the slice of any instance.

    Where NVML answers, nvidia-smi is not asked: what it says more is not needed here, and it may hang.
    """
    try:
        cards, driver, cuda = nvml_reader.read(nvml_reader.load())
        readings = machine.Readings("nvml", cards, host_memory_reader.read(), driver, cuda)
    except nvml_reader.NvmlUnavailable:
        readings = gpu_readings.read()
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


def disk_needs(params: Mapping[str, Any], wanted: Sequence[Wanted]) -> tuple[DiskNeed, ...]:
    """What the declared instances need on disk. Every figure can be given; the source says where it is from."""

    def size(name: str, default: float) -> tuple[int, str]:
        given = params.get(name)
        try:
            chosen = float(default if given is None else given)
        except (TypeError, ValueError):
            chosen, given = default, None
        return int(chosen * GIB), f"{name}: {chosen:g} GiB" + (", the default" if given is None else "")

    needs: list[DiskNeed] = []
    caches, source = size("disk_cache_gib", 10)
    if wanted:
        needs.append(DiskNeed(str(params.get("cache_dir") or "/var/cache/sglang"), caches, "kernel caches", source))
    environment, source = size("disk_environment_gib", 15)
    for python in sorted({each.python for each in wanted if each.python and each.runtime not in CONTAINERS}):
        if not os.path.exists(python):
            root = os.path.dirname(os.path.dirname(python))
            needs.append(DiskNeed(root, environment, "an environment of SGLang", source))
    image, source = size("disk_image_gib", 45)
    for engine, default in (("docker", docker_root()), ("podman", podman_root())):
        for each in sorted({each.image for each in wanted if each.runtime == engine and each.image}):
            needs.append(DiskNeed(default, image, f"the image {each}", source, may_be_there=True))
    for more in params.get("disk_needs") or ():
        if isinstance(more, Mapping) and more.get("path"):
            try:
                amount = int(float(more.get("gib") or 0) * GIB)
            except (TypeError, ValueError):
                continue
            needs.append(DiskNeed(str(more["path"]), amount, str(more.get("purpose") or "declared"), "disk_needs"))
    return tuple(needs)


def docker_root() -> str:
    return _configured(DAEMON_JSON, r'"data-root"\s*:\s*"([^"]+)"', "/var/lib/docker")


def podman_root() -> str:
    return _configured(STORAGE_CONF, r'^\s*graphroot\s*=\s*"([^"]+)"', "/var/lib/containers/storage")


def _configured(path: str, pattern: str, default: str) -> str:
    try:
        match = re.search(pattern, read_first(path) or "", re.MULTILINE)
    except CouldNotTell:
        return default
    return match.group(1) if match else default


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


def read_host(params: Mapping[str, Any]) -> HostReadings:
    """Read everything side by side: the slowest reading is what it takes."""
    wanted = read_wanted(params.get("instances"))
    needs = disk_needs(params, wanted)
    ports = {use.port for each in wanted for use in each.ports}
    paths = list(dict.fromkeys(need.path for need in needs))
    readers = {
        "distribution": Reader(service_readings.read_distribution),
        "kernel_module": Reader(driver_readings.read_kernel_module),
        "library": Reader(driver_readings.read_library),
        "pci": Reader(driver_readings.read_pci),
        "fabric_manager_version": Reader(driver_readings.read_fabric_manager_version),
        "gpus": Reader(read_gpus, 2.5),
        "listed": Reader(card_health.read_list, 2.5),
        "health": Reader(card_health.read_health, 2.5),
        "dmesg": Reader(kernel_log.read_dmesg, 2.2),
        "kernel_journal": Reader(kernel_log.read_journal, 2.4),
        "processes": Reader(partial(process_scan.scan, ports, time.time()), 2.5),
        "memory": Reader(read_memory),
        "shm": Reader(partial(read_space, process_scan.SHM)),
        "services": Reader(partial(service_readings.read_services, services_asked(wanted)), 2.2),
        "default_limits": Reader(service_readings.read_default_limits, 2.2),
        "earlyoom": Reader(service_readings.read_earlyoom),
        "upgrades": Reader(_read_upgrades, 2.4),
        "clock": Reader(service_readings.read_clock),
        "rdma": Reader(read_rdma),
    }
    spaces = {f"space:{path}": Reader(partial(read_space, path)) for path in paths}
    read = gather({**readers, **spaces})
    return HostReadings(
        wanted=wanted,
        needs=needs,
        spaces={path: read[f"space:{path}"] for path in paths},
        **{name: read[name] for name in readers},
    )


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """What the module host_info returns: the readings and the findings."""
    from .host_checks import CHECKS

    readings = read_host(params)
    return {"readings": readings.as_dict(), "findings": as_dicts(run_checks(CHECKS, readings))}
