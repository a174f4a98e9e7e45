# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host means for a start: ports, limits, disks and clock; and the table of all rules of the area."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..port_plan import PortUse
from ..ports import conflicts
from . import card_checks, driver_checks, fabric_checks, memory_checks, shm_checks
from .check import Kind, check
from .host_readings import NOT_READ, DiskSpace, HostReadings
from .process_scan import Held
from .reading import Reading, Unknown, known
from .service_readings import CLOCK_SERVICES, Service
from .wanted import CONTAINERS, GIB, TEMPORARY, DiskNeed, Wanted

# So many files of a server with a thousand connections, its ranks and its shards are open at once.
LEAST_FILES = 65536
LEAST_LOCKED = 64 << 20
LITTLE_TEMPORARY, LEAST_TEMPORARY = GIB, 64 << 20

DECLARATION = Kind(
    "host.declaration",
    ERROR,
    "an instance is declared with something that cannot be understood",
    "What is not understood is not checked.",
    "correct the instance in the inventory",
    "module_utils/port_plan.py and cards.py, which the role sglang_server asks too",
)
PORT_TAKEN = Kind(
    "ports.taken",
    ERROR,
    "a declared port is taken by something else",
    "The server loads its model, then fails to listen and ends.",
    "end what listens there, or give the instance another port",
    "SGLang: the port is bound after the model is loaded",
)
FILES = Kind(
    "limits.nofile",
    WARNING,
    "a server could open few files only",
    "Every connection and every shard is an open file: `Too many open files` under load, not at the start.",
    "LimitNOFILE=1048576 in the unit",
    "systemd's default soft limit is 1024",
)
LOCKED = Kind(
    "limits.memlock",
    ERROR,
    "a server could lock little memory only",
    "RDMA and NCCL over it lock their buffers: `ibv_reg_mr failed`, or a slower way without a word.",
    "LimitMEMLOCK=infinity in the unit",
    "systemd's default is 8 MiB",
)
SPACE = Kind(
    "disk.space",
    ERROR,
    "a disk has too little space for what is declared",
    "The installation, the pull or the compilation of kernels fails when the disk is full, mostly far into it.",
    "make room, or put the directory on a larger disk",
    "estimates of the collection",
)
CLOCK = Kind(
    "clock.unsynchronised",
    WARNING,
    "the clock is not synchronised",
    "The evidence of a rollout cannot be put in order across hosts, and TLS and tokens fail when it is far off.",
    "timedatectl set-ntp true",
    "adjtimex(2)",
)


@check(DECLARATION)
def declarations(readings: HostReadings) -> Iterable[Finding]:
    for wanted in readings.wanted:
        if wanted.problem:
            yield DECLARATION.found(f"instance '{wanted.name}': {wanted.problem}", f"instance '{wanted.name}'")


@check(PORT_TAKEN)
def ports(readings: HostReadings) -> Iterable[Finding]:
    if not any(each.ports for each in readings.wanted):
        yield PORT_TAKEN.fine("no instance declares a port")
        return
    scan = known(readings.processes)
    for wanted in readings.wanted:
        for use in wanted.ports:
            on_it = [held for held in scan.listeners if held.listener.port == use.port]
            meeting = conflicts([held.listener for held in on_it], wanted.host)
            # A process listens for IPv4 and IPv6 each: it is named once.
            holders = {held.listener.pid: held for held in on_it if held.listener in meeting}
            for held in holders.values():
                yield _taken(readings, wanted, use, held, scan.hidden)


def _taken(readings: HostReadings, wanted: Wanted, use: PortUse, held: Held, hidden: str) -> Finding:
    who = held.listener.text()
    evidence = f"/proc/net/tcp: {who}, wanted as {use.purpose} of instance '{wanted.name}'"
    if held.listener.pid is None and hidden:
        summary = f"port {use.port} is taken, by whom could not be told"
        fix = f"as root: `ss -tlnp 'sport = :{use.port}'`"
        return Finding(PORT_TAKEN.id, UNKNOWN, summary, f"{evidence}; {hidden}", fix)
    if re.search(rf"/{re.escape(wanted.slice)}(/|$)|/{re.escape(wanted.unit)}(/|$)", held.group, re.MULTILINE):
        return PORT_TAKEN.fine(f"instance '{wanted.name}' itself listens on {use.port}", evidence)
    if "docker-proxy" in held.listener.command.split(" ")[0] and _serves_in_a_container(readings, wanted):
        return PORT_TAKEN.fine(f"the container of instance '{wanted.name}' listens on {use.port}", evidence)
    ours = re.search(r"/sglang-([a-z0-9_]+)\.slice(/|$)", held.group, re.MULTILINE)
    whose = f"instance '{ours.group(1)}', " if ours else ""
    return PORT_TAKEN.found(
        f"port {use.port} ({use.purpose}) of instance '{wanted.name}' is taken by {whose}{who}",
        evidence,
        f"see who it is: `ss -tlnp 'sport = :{use.port}'`; end it, or give '{wanted.name}' another port",
    )


def _serves_in_a_container(readings: HostReadings, wanted: Wanted) -> bool:
    services = readings.services
    unit = None if isinstance(services, Unknown) else services.get(wanted.unit)
    return wanted.runtime in CONTAINERS and unit is not None and unit.active


@check(FILES, LOCKED)
def limits(readings: HostReadings) -> Iterable[Finding]:
    if not readings.wanted:
        yield from _limits_of(readings, "a service of this host", known(readings.default_limits), declared=False)
        return
    services = known(readings.services)
    for wanted in readings.wanted:
        unit = services.get(wanted.unit)
        if wanted.runtime == "docker":
            # A container's processes descend from containerd, whatever the unit says that runs `docker`.
            engine = services.get("containerd.service")
            if engine is None or not engine.exists:
                yield _limits_unknown(wanted, "containerd.service, which containers descend from, is not there")
            else:
                of_container = _with_docker_limits(engine, known(readings.docker_limits))
                who = f"the container of instance '{wanted.name}'"
                yield from _limits_of(readings, who, of_container, declared=True)
        elif unit is not None and unit.exists:
            yield from _limits_of(readings, f"instance '{wanted.name}'", unit, declared=True)
        else:
            yield FILES.fine(
                f"instance '{wanted.name}' has no unit yet",
                "the unit that the role sglang_server writes sets LimitNOFILE=1048576 and LimitMEMLOCK=infinity",
            )


def _with_docker_limits(engine: Service, limits: Mapping[str, int]) -> Service:
    """The limits of containerd, but for those that Docker's configuration sets."""
    given = {
        f"{name}Soft": "infinity" if limits[key] < 0 else str(limits[key])
        for name, key in (("LimitNOFILE", "nofile"), ("LimitMEMLOCK", "memlock"))
        if key in limits
    }
    return Service(engine.name, {**engine.values, **given})


def _limits_unknown(wanted: Wanted, reason: str) -> Finding:
    return Finding(FILES.id, UNKNOWN, f"could not tell the limits of instance '{wanted.name}'", reason)


def _limits_of(readings: HostReadings, who: str, service: Service, declared: bool) -> Iterable[Finding]:
    files, locked = service.limit("LimitNOFILE"), service.limit("LimitMEMLOCK")
    said = f"{service.name}: LimitNOFILE (soft) {_limit(files)}, LimitMEMLOCK (soft) {_limit(locked)}"
    if not declared:
        yield FILES.fine("no instance is declared; the unit of an instance sets its own limits", said)
        return
    container = service.name == "containerd.service"
    drop_in = f"in a drop-in (`systemctl edit {service.name}`), then restart it in a maintenance"
    if files is not None and files < LEAST_FILES:
        fix = (
            "the option `--ulimit=nofile=1048576:1048576` for the container"
            if container
            else f"LimitNOFILE=1048576 {drop_in}"
        )
        yield FILES.found(f"{who} could open {files} files, below {LEAST_FILES}", said, fix)
    else:
        yield FILES.fine(f"{who} may open {_limit(files)} files", said)
    if locked is not None and locked < LEAST_LOCKED:
        rdma = readings.rdma
        devices = () if isinstance(rdma, Unknown) else rdma
        matters = bool(devices) and any(each.nnodes > 1 for each in readings.wanted)
        fix = "the option `--ulimit=memlock=-1` for the container" if container else f"LimitMEMLOCK=infinity {drop_in}"
        seen = f"; RDMA devices: {', '.join(devices)}" if devices else ""
        yield LOCKED.found(
            f"{who} could lock {locked / 2**20:.1f} MiB",
            said + seen,
            fix,
            severity=ERROR if matters else WARNING,
        )
    else:
        yield LOCKED.fine(f"{who} may lock {_limit(locked)} bytes", said)


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else str(value)


@check(SPACE)
def disk_space(readings: HostReadings) -> Iterable[Finding]:
    """Needs on one file system are added up: each alone may fit where all together do not."""
    together: dict[int, list[tuple[DiskNeed, DiskSpace]]] = {}
    for need in readings.needs:
        space: Reading[DiskSpace] = readings.spaces.get(need.path, Unknown(f"{need.path} was not read"))
        if isinstance(space, Unknown):
            summary = f"could not tell the free space of {need.path} ({need.purpose})"
            yield Finding(SPACE.id, UNKNOWN, summary, space.reason, f"df -h {shlex.quote(need.path)}")
            continue
        together.setdefault(space.device, []).append((need, space))
    for group in together.values():
        yield _fits(group)
    if not readings.needs:
        yield SPACE.fine("no need of space is declared")
    yield from _temporary(readings)


def _temporary(readings: HostReadings) -> Iterable[Finding]:
    """Every compiler and pip need room here for a moment, and fail without it, whatever else is free."""
    seen: set[int] = set()
    for path in TEMPORARY:
        space = readings.spaces.get(path, NOT_READ)
        if isinstance(space, Unknown):
            if path in readings.spaces:
                summary = f"could not tell the free space of {path} (temporary files)"
                yield Finding(SPACE.id, UNKNOWN, summary, space.reason, f"df -h {path}")
        elif space.device not in seen:
            seen.add(space.device)
            mib = space.free / 2**20
            evidence = f"{space.found}: {mib:.0f} of {space.total / 2**20:.0f} MiB free, at least 1024 are wanted"
            if space.free < LITTLE_TEMPORARY:
                yield SPACE.found(
                    f"{mib:.0f} MiB are free for temporary files in {path}: compilers and pip fail there",
                    evidence,
                    f"free space on this file system: `{_largest(path)}` shows what fills it",
                    severity=ERROR if space.free < LEAST_TEMPORARY else WARNING,
                )
            else:
                yield SPACE.fine(f"{mib:.0f} MiB free for temporary files in {path}", evidence)


def _largest(path: str) -> str:
    """The line that shows what fills a file system: what is in the way may lie beside the path."""
    return f'du -xh --max-depth=2 "$(findmnt -no TARGET -T {shlex.quote(path)})" | sort -h | tail'


def _fits(group: Sequence[tuple[DiskNeed, DiskSpace]]) -> Finding:
    space = group[0][1]
    asked = sum(need.bytes for need, _space in group)
    sure = sum(need.bytes for need, _space in group if not need.may_be_there)
    listed = "; ".join(f"{need.path}: {need.purpose}, {need.source}" for need, _space in group)
    evidence = f"{space.found}: {space.free / GIB:.1f} of {space.total / GIB:.1f} GiB free; {listed}"
    if space.free >= asked:
        return SPACE.fine(f"{space.free / GIB:.1f} GiB free for {asked / GIB:.1f} GiB at {space.found}", evidence)
    paths = ", ".join(dict.fromkeys(need.path for need, _space in group))
    enough = space.free >= sure
    more = " (what is pulled already needs none)" if enough else ""
    return SPACE.found(
        f"{space.free / GIB:.1f} GiB are free and {asked / GIB:.1f} wanted on the file system of {paths}{more}",
        evidence,
        f"free space on this file system, or mount a larger disk: `{_largest(space.found)}` shows what fills it",
        severity=WARNING if enough else ERROR,
    )


@check(CLOCK)
def clock_synchronised(readings: HostReadings) -> Iterable[Finding]:
    clock = known(readings.clock)
    off = "" if clock.error_s is None else f", largest error {clock.error_s:.3f} s"
    services = readings.services
    running: list[str] = []
    if not isinstance(services, Unknown):
        running = [name for name in CLOCK_SERVICES if name in services and services[name].active]
    evidence = f"{clock.source}{off}; {', '.join(running) or 'no time service seen'}"
    if clock.synchronised:
        yield CLOCK.fine("the clock is synchronised", evidence)
        return
    yield CLOCK.found(
        "the clock is not synchronised",
        evidence,
        f"see why {running[0]} has no source: `chronyc sources`, or `timedatectl timesync-status`"
        if running
        else driver_checks.by_family(
            readings,
            "`apt install chrony && systemctl enable --now chrony`",
            "`dnf install chrony && systemctl enable --now chronyd`",
        ),
    )


CHECKS = (
    declarations,
    *driver_checks.CHECKS,
    *fabric_checks.CHECKS,
    *card_checks.CHECKS,
    ports,
    *memory_checks.CHECKS,
    *shm_checks.CHECKS,
    limits,
    disk_space,
    clock_synchronised,
)
