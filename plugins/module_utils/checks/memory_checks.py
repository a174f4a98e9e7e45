# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the memory of a host means for a start: guards that end processes, pages that are not to be had, swap."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .. import machine, memory_findings
from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..machine import Host
from . import driver_checks
from .check import Kind, check
from .host_readings import HostMemory, HostReadings
from .memory_kinds import MEMORY_KINDS
from .reading import CouldNotTell, Unknown, known
from .wanted import CONTAINERS, GIB

# What tells systemd-oomd to watch the groups below a unit.
_WATCHES = ("ManagedOOMSwap", "ManagedOOMMemoryPressure")
UNUSUAL_SHARE = 0.25
# Names that a guard sees: the main process, the scheduler and the detokenizer of a server.
SERVER_NAMES = ("python3", "sglang::schedul", "sglang::detoken")


def kind_of(known_id: str) -> Kind:
    """A kind that other memory rules find too."""
    return next(kind for kind in MEMORY_KINDS if kind.id == known_id)


FOREIGN = kind_of("memory.foreign_process")
GUARD = Kind(
    "memory.guard_daemon",
    ERROR,
    "a memory guard would end the fastest growing process",
    "While it loads, a server is the fastest growing process of the host: the guard kills it with memory to spare, and "
    "the server's log says nothing of it.",
    "exempt the servers, or stop the guard; the slice of each instance has limits of its own",
    "earlyoom, nohang, systemd-oomd: their documentation",
)
HUGE_PAGES = Kind(
    "memory.huge_pages",
    WARNING,
    "huge pages keep memory that a server cannot use",
    "Reserved huge pages are no part of what is available: neither weights nor caches can lie in them.",
    "`sysctl -w vm.nr_hugepages=0`, and remove it from /etc/sysctl.d, unless another program of this host uses them",
    "Linux: hugetlbpage",
)
PINNED = kind_of("memory.pinned_pages")
SWAP = Kind(
    "memory.swap_on_unified",
    WARNING,
    "swap is on and the card shares the host's memory",
    "When the memory is full the host swaps instead of ending a process, and answers nobody for minutes.",
    "`swapoff -a`, and remove it from /etc/fstab; where it is zram, `systemctl mask --now dev-zram0.swap`",
    "field reports on GB10",
)


@check(GUARD)
def memory_guards(readings: HostReadings) -> Iterable[Finding]:
    running = _guards_running(readings)
    if not running:
        yield GUARD.fine("no memory guard runs")
        return
    severity = ERROR if _unified(readings) else WARNING
    for name, evidence in running.items():
        if name == "earlyoom":
            yield _earlyoom(readings, evidence, severity)
        elif name == "systemd-oomd" and isinstance(readings.services, Unknown):
            summary = "systemd-oomd runs, and whether it watches the slices of the servers could not be told"
            yield Finding(GUARD.id, UNKNOWN, summary, f"{evidence}; {readings.services.reason}", GUARD.fix)
        elif name == "systemd-oomd":
            yield _oomd(readings, evidence, severity)
        else:
            yield GUARD.found(
                f"{name} runs on this host",
                evidence,
                f"`systemctl disable --now {name}`; or exempt the servers in /etc/nohang/nohang.conf: "
                "@BADNESS_ADJ_RE_CGROUP_V2 -1000 /// ^/sglang.slice/",
                severity=severity,
            )


def _guards_running(readings: HostReadings) -> dict[str, str]:
    """The guards by name, with what shows that they run. Raises where neither source could be read."""
    found: dict[str, str] = {}
    services, processes = readings.services, readings.processes
    if isinstance(services, Unknown) and isinstance(processes, Unknown):
        raise CouldNotTell(f"{services.reason}; {processes.reason}")
    if not isinstance(processes, Unknown):
        found.update(dict.fromkeys(processes.guards, "a process of this name runs"))
    if not isinstance(services, Unknown):
        for guard in ("earlyoom", "nohang", "nohang-desktop", "systemd-oomd"):
            service = services.get(f"{guard}.service")
            if service is not None and service.active:
                found.pop("nohang" if guard == "nohang-desktop" else "", None)
                found[guard] = f"{guard}.service is active"
    return found


def _unified(readings: HostReadings) -> bool:
    gpus = readings.gpus
    return not isinstance(gpus, Unknown) and any(machine.is_integrated(card) for card in gpus.cards)


def _earlyoom(readings: HostReadings, evidence: str, severity: str) -> Finding:
    arguments = readings.earlyoom
    avoid = ""
    if isinstance(arguments, Unknown):
        evidence += f"; its arguments could not be read: {arguments.reason}"
    else:
        evidence += f"; /etc/default/earlyoom: {arguments or 'no arguments'}"
        match = re.search(r"--avoid[ =](?:'([^']*)'|\"([^\"]*)\"|(\S+))", arguments)
        avoid = next((group for group in match.groups() if group), "") if match else ""
    if avoid and _meets_all(avoid):
        return GUARD.fine("earlyoom runs and avoids the processes of a server", evidence)
    return GUARD.found(
        "earlyoom runs and would end a server that loads",
        evidence,
        "`systemctl disable --now earlyoom`; or add to EARLYOOM_ARGS in /etc/default/earlyoom: "
        "`--avoid '(^|/)(python3|sglang::.*)$'`, then `systemctl restart earlyoom`",
        severity=severity,
    )


def _meets_all(pattern: str) -> bool:
    try:
        return all(re.search(pattern, name) for name in SERVER_NAMES)
    except re.error:
        return False


def _oomd(readings: HostReadings, evidence: str, severity: str) -> Finding:
    """systemd-oomd ends groups below a unit that says so, and spares those that are to be omitted."""
    services = known(readings.services)
    above = [name for name in ("-.slice", "sglang.slice") if name in services]
    chains = [(each.name, [*above, each.slice, each.unit]) for each in readings.wanted] or [("", above)]
    native = {each.name for each in readings.wanted if each.runtime not in CONTAINERS}
    exposed: dict[str, list[str]] = {}
    fixes: list[str] = []
    for name, chain in chains:
        units = [services[each] for each in chain if each in services]
        killing = [(unit.name, what) for unit in units for what in _WATCHES if unit.values.get(what) == "kill"]
        # A container has groups of its own below the unit's, which the unit's preference does not reach.
        own = units[-1] if name in native and units and units[-1].exists else None
        if not killing or (own is not None and own.values.get("ManagedOOMPreference") == "omit"):
            continue
        exposed[name] = [f"{unit} {what}=kill" for unit, what in killing]
        if own is not None:
            fixes.append(f"systemctl set-property {own.name} ManagedOOMPreference=omit")
        else:
            fixes += [f"systemctl set-property -- {unit} {what}=auto" for unit, what in killing]
    if not exposed:
        return GUARD.fine("systemd-oomd runs and is not told to watch the slices of the servers", evidence)
    named = ", ".join(f"instance '{name}'" for name in exposed if name) or "what runs in sglang.slice"
    said = ", ".join(dict.fromkeys(each for found in exposed.values() for each in found))
    fix = "; ".join(dict.fromkeys(fixes))
    return GUARD.found(f"systemd-oomd runs and may end {named}", f"{evidence}; {said}", fix, severity=severity)


@check(HUGE_PAGES)
def huge_pages(readings: HostReadings) -> Iterable[Finding]:
    memory = known(readings.memory)
    held = f"{memory.huge_pages / GIB:.2f} of {memory.total / GIB:.1f} GiB are huge pages"
    if memory.huge_pages >= max(0.1 * memory.total, GIB):
        yield HUGE_PAGES.found(held, f"/proc/meminfo: Hugetlb {memory.huge_pages}, free {memory.huge_pages_free} bytes")
    else:
        yield HUGE_PAGES.fine(held)


@check(PINNED)
def pinned_pages(readings: HostReadings) -> Iterable[Finding]:
    memory = known(readings.memory)
    if _unified(readings):
        found = [each for each in memory_findings.unified_memory(_host(memory), None) if each.id == PINNED.id]
        yield from found
        if found:
            return
    pinned = max(memory.shared, memory.locked)
    said = f"shared {memory.shared / GIB:.2f}, locked {memory.locked / GIB:.2f} of {memory.total / GIB:.1f} GiB"
    if pinned <= UNUSUAL_SHARE * memory.total:
        yield PINNED.fine(said)
        return
    yield PINNED.found(
        f"{pinned / GIB:.1f} GiB are shared or locked, not to be reclaimed; {memory.available / GIB:.1f} available",
        f"/proc/meminfo: {said}",
        "see what it is: `ls -lS /dev/shm | head; grep -H VmLck /proc/[0-9]*/status | sort -k2 -n | tail`",
        severity=WARNING,
    )


def _host(memory: HostMemory) -> Host:
    return Host(
        total_bytes=memory.total,
        available_bytes=memory.available,
        shared_bytes=memory.shared,
        locked_bytes=memory.locked,
    )


@check(SWAP)
def swap_on_unified(readings: HostReadings) -> Iterable[Finding]:
    memory = known(readings.memory)
    if memory.swap_total == 0:
        yield SWAP.fine("no swap")
        return
    said = f"/proc/meminfo: SwapTotal {memory.swap_total / GIB:.1f} GiB, {memory.swap_free / GIB:.1f} free"
    if not driver_checks.wants_cuda(readings):
        yield SWAP.fine("no card is needed", driver_checks.not_wanted(readings))
        return
    gpus = known(readings.gpus)
    if not gpus.cards:
        raise CouldNotTell("whether the card shares the host's memory is not known: no card could be asked")
    if _unified(readings):
        yield SWAP.found(f"{memory.swap_total / GIB:.1f} GiB of swap on a machine with unified memory", said)
    else:
        yield SWAP.fine("swap is on, and the cards have memory of their own", said)


@check(FOREIGN)
def foreign_memory(readings: HostReadings) -> Iterable[Finding]:
    if not driver_checks.wants_cuda(readings):
        yield FOREIGN.fine("no card is needed", driver_checks.not_wanted(readings))
        return
    if not isinstance(readings.kernel_module, Unknown):
        driver_checks.loaded_version(readings)
    gpus = known(readings.gpus)
    declared = {str(card) for each in readings.wanted if each.on_cuda for card in each.cards or ()}
    everything = not declared or any(each.on_cuda and not each.cards for each in readings.wanted)
    whole = [card for card in gpus.cards if everything or {str(card.index), card.uuid} & declared]
    if not whole:
        raise CouldNotTell("none of the declared cards could be asked")
    # Less than this is a monitor or a display, which does not compete.
    found = memory_findings.foreign_memory(
        [card for card in whole if machine.neighbours_mib(card) >= machine.NEIGHBOUR_MIB]
    )
    if found is not None:
        shared = [each.name for each in readings.wanted if each.on_cuda]
        if shared and all(each.shared for each in readings.wanted if each.on_cuda):
            yield FOREIGN.fine(f"{found.summary}, and they are declared as shared", found.evidence)
        else:
            yield found
        return
    silent = [process for card in whole for process in card.processes if process.used_mib is None and not process.ours]
    if silent:
        named = ", ".join(f"{process.name or 'a process'} (pid {process.pid})" for process in silent)
        raise CouldNotTell(f"the driver does not say how much memory these hold: {named}")
    lost = [card for card in whole if card.problem and card.memory_status != machine.NOT_SUPPORTED]
    if lost:
        raise CouldNotTell("; ".join(f"card {card.index}: {card.problem}" for card in lost))


CHECKS = (foreign_memory, memory_guards, huge_pages, pinned_pages, swap_on_unified)
