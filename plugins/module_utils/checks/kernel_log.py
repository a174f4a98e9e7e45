# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the kernel said about the cards since this boot: Xid lines, and those of the switches (SXid)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .reading import CouldNotTell, read_text, run_command

# What of a long log is read. A kernel that says more than this is read from its end.
_LINES = 20000

# What to do about an Xid.
NOTE = "note"  # a program ended: says nothing about the card
PROGRAM = "program"  # as a rule a program's fault
RESET_LATER = "reset_later"  # the card goes on working and wants a reset some time
RESET = "reset"  # the card wants a reset
REBOOT = "reboot"  # the host wants a reboot, or the card a hand
SERIOUS = (RESET, REBOOT)


@dataclass(frozen=True)
class Meaning:
    text: str
    action: str


# From NVIDIA's catalogue of Xids: what each means for an operator.
MEANINGS: dict[int, Meaning] = {
    8: Meaning("the card stopped working on a program's commands", PROGRAM),
    13: Meaning("a kernel of the program made the graphics engine fail", PROGRAM),
    31: Meaning("a program accessed memory that it does not have", PROGRAM),
    43: Meaning("a program was stopped on the card", NOTE),
    45: Meaning("the card cleaned up after a program that ended", NOTE),
    48: Meaning("a double-bit ECC error: contents of the card's memory are lost", RESET),
    61: Meaning("the card's microcontroller met a breakpoint", RESET),
    62: Meaning("the card's microcontroller halted", RESET),
    63: Meaning("a faulty row or page was put on the list; it is replaced at the next reset", RESET_LATER),
    64: Meaning("a faulty row or page could not be replaced: there is no spare left or the record failed", REBOOT),
    69: Meaning("a program used the graphics engine wrongly", PROGRAM),
    74: Meaning("an error on NVLink, or of the switch at its other end", RESET),
    79: Meaning("the card has fallen off the bus", REBOOT),
    92: Meaning("many corrected single-bit ECC errors: the memory wears out", PROGRAM),
    94: Meaning("an uncorrectable ECC error, contained: the program that met it had to end", RESET_LATER),
    95: Meaning("an uncorrectable ECC error, not contained: every program on the card is affected", RESET),
    109: Meaning("the card did not switch between programs in time", RESET),
    110: Meaning("a security fault of the card", RESET),
    119: Meaning("the card's system processor (GSP) does not answer", RESET),
    120: Meaning("the card's system processor (GSP) failed", RESET),
    136: Meaning("training of an NVLink failed", RESET),
    140: Meaning("an ECC error that was not recovered", RESET),
    143: Meaning("the card could not be initialised", RESET),
    **{number: Meaning("an error on NVLink", RESET) for number in range(144, 151)},
    154: Meaning("the driver says what the card needs to recover", NOTE),
}


@dataclass(frozen=True)
class Xid:
    """One line of the kernel about a card (or a switch: `switch`), and how long ago it was; None: not told."""

    number: int
    bus: str
    text: str
    age_s: float | None = None
    switch: bool = False
    fatal: bool = False

    @property
    def meaning(self) -> Meaning:
        if self.switch:
            return Meaning("an error of an NVSwitch", RESET if self.fatal else NOTE)
        if self.number == 154:
            return _recovery(self.text)
        return MEANINGS.get(self.number, Meaning("not in this collection's table", PROGRAM))

    @property
    def name(self) -> str:
        return f"{'SXid' if self.switch else 'Xid'} {self.number}"


@dataclass(frozen=True)
class KernelLog:
    """The lines about cards of one source. `whole`: it reaches back to this boot; `lines` that were read in all."""

    source: str
    lines: int
    whole: bool
    xids: tuple[Xid, ...] = ()
    reaches_back_s: float | None = None
    no_memory_lines: int = 0


_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:,\s*(?P<text>.*))?$")
_SXID = re.compile(
    r"nvidia-nvswitch\S*: SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:,\s*(?P<text>.*))?$"
)
_SINCE_BOOT = re.compile(r"^\[\s*(\d+\.\d+)\] ")
_SINCE_EPOCH = re.compile(r"^(\d{9,}\.\d+) ")
_ACTION = re.compile(r"recovery action changed from \S+ \((?P<old>[^)]*)\) to \S+ \((?P<new>[^)]*)\)")
# What the server's own command line may look like in a line is of no use to the reader, so lines are cut.
_LONGEST = 200


def _recovery(text: str) -> Meaning:
    match = _ACTION.search(text)
    if match is None:
        return MEANINGS[154]
    action = match.group("new")
    if action.lower() == "none":
        return Meaning("the driver says that the card has recovered", NOTE)
    return Meaning(f"the driver says what the card needs: {action}", REBOOT if "reboot" in action.lower() else RESET)


def parse_kernel_log(text: str, source: str, now_s: float | None = None, uptime_s: float | None = None) -> KernelLog:
    """The lines about cards in what `dmesg` or `journalctl -k -o short-unix` printed."""
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise CouldNotTell(f"{source} printed no line")
    found: list[Xid] = []
    no_memory = 0
    whole = False
    oldest: float | None = None
    for line in lines:
        age = _age(line, now_s, uptime_s)
        oldest = age if oldest is None else oldest
        whole = whole or ("Linux version " in line and found == [] and no_memory == 0)
        no_memory += "NV_ERR_NO_MEMORY" in line
        for pattern, switch in ((_XID, False), (_SXID, True)):
            match = pattern.search(line.rstrip())
            if match:
                said = (match.group("text") or "")[:_LONGEST]
                fatal = switch and re.search(r"(?<!non-)\bfatal\b", said, re.IGNORECASE) is not None
                found.append(Xid(int(match.group("number")), _bus(match.group("bus")), said, age, switch, fatal))
    return KernelLog(source, len(lines), whole, tuple(found), oldest, no_memory)


def _age(line: str, now_s: float | None, uptime_s: float | None) -> float | None:
    match = _SINCE_BOOT.match(line)
    if match and uptime_s is not None:
        return max(0.0, uptime_s - float(match.group(1)))
    match = _SINCE_EPOCH.match(line)
    if match and now_s is not None:
        return max(0.0, now_s - float(match.group(1)))
    return None


def _bus(text: str) -> str:
    """A bus address as the kernel's log and NVML both can be compared by: 0000:3b:00 without the function."""
    return text.partition(".")[0].lower()


def same_bus(logged: str, nvml: str) -> bool:
    """Whether an address of the log (0000:3b:00) is that of a card as NVML writes it (00000000:3B:00.0)."""
    return bool(logged) and _bus(nvml).endswith(logged[-7:]) and _domain(logged) == _domain(_bus(nvml))


def _domain(bus: str) -> int:
    words = bus.split(":")
    try:
        return int(words[0], 16) if len(words) > 2 else 0
    except ValueError:
        return 0


def read_dmesg() -> KernelLog:
    output = run_command(["dmesg"], 2.0)
    if output.code != 0:
        raise CouldNotTell(f"dmesg ended with {output.code}: {output.said}")
    return parse_kernel_log(output.stdout, "dmesg", uptime_s=_uptime())


def read_journal() -> KernelLog:
    """The kernel's lines that the journal keeps of this boot; it forgets less than the kernel's own ring."""
    command = ["journalctl", "-k", "-b", "0", "-o", "short-unix", "-q", "--no-pager", "-n", str(_LINES)]
    output = run_command(command, 2.2)
    if output.code != 0:
        raise CouldNotTell(f"journalctl -k ended with {output.code}: {output.said}")
    return parse_kernel_log(output.stdout, "journalctl -k", now_s=time.time())


def _uptime() -> float:
    text = read_text("/proc/uptime")
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        raise CouldNotTell(f"/proc/uptime holds no number: {text[:40]!r}") from None


def together(logs: Iterable[KernelLog]) -> tuple[Xid, ...]:
    """The events of all sources, each once: both sources hold the same lines, with times that differ by a little."""
    longest: dict[tuple[int, str, str], list[Xid]] = {}
    for log in logs:
        mine: dict[tuple[int, str, str], list[Xid]] = {}
        for xid in log.xids:
            mine.setdefault((xid.number, xid.bus, xid.text), []).append(xid)
        for key, events in mine.items():
            if len(events) > len(longest.get(key, [])):
                longest[key] = events
    return tuple(xid for events in longest.values() for xid in events)
