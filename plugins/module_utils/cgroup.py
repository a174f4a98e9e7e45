# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a process really is in the control groups, and which memory limits the kernel really holds."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .desired_state import Limits
from .errors import EngineError

# Version 1 says "no limit" with the largest multiple of a page that fits a signed 64-bit number.
_V1_UNLIMITED = 1 << 60
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Mount:
    """A mounted hierarchy: `root` of the hierarchy appears at `point`."""

    version: int
    root: str
    point: str


@dataclass(frozen=True)
class Held:
    """The kernel's own limits of a group, in bytes; None is no limit. `*_known`: there is such a limit at all."""

    version: int
    path: str
    memory_max_bytes: int | None = None
    memory_high_bytes: int | None = None
    memory_swap_max_bytes: int | None = None
    high_known: bool = True
    swap_known: bool = True
    current_bytes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True)
class Mismatch:
    """One limit that was asked for and does not hold."""

    name: str
    wanted: str
    held: str
    fix: str

    def text(self) -> str:
        return f"{self.name}: asked for {self.wanted}, the kernel holds {self.held}. {self.fix}"


def memory_path(proc_cgroup: str) -> tuple[int, str]:
    """From /proc/PID/cgroup: the version of the hierarchy that accounts memory, and the group's path in it."""
    unified: str | None = None
    for line in proc_cgroup.splitlines():
        number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return 1, path
        if number == "0" and controllers == "":
            unified = path
    if unified is None:
        raise EngineError("cgroup", "The main process is in no control group that accounts memory.")
    return 2, unified


def memory_mount(mountinfo: str, version: int) -> Mount:
    """From /proc/self/mountinfo: where that hierarchy is mounted."""
    for line in mountinfo.splitlines():
        left, _dash, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        if version == 2 and kinds[0] == "cgroup2":
            return Mount(2, fields[3], fields[4])
        if version == 1 and kinds[0] == "cgroup" and "memory" in kinds[2].split(","):
            return Mount(1, fields[3], fields[4])
    raise EngineError("cgroup", f"The memory controller (cgroup v{version}) is not mounted on this host.")


def slice_directory(path: str, slice_name: str, mount: Mount) -> str:
    """The directory of the slice's group, which must be on the process's own path."""
    parts = path.split("/")
    if slice_name not in parts:
        raise EngineError(
            "limit_mismatch",
            f"The main process runs in the control group {path}, not in {slice_name}: the instance's memory limits do "
            "not hold for it. Check Slice= in the unit and run the role sglang_server again.",
        )
    group = "/".join(parts[: parts.index(slice_name) + 1])
    if mount.root not in ("/", "") and group.startswith(mount.root):
        group = group[len(mount.root) :]
    return mount.point.rstrip("/") + "/" + group.lstrip("/")


def parse_limit(text: str | None) -> int | None:
    """The content of a limit file; None is no limit."""
    value = (text or "").strip()
    if value in ("", "max"):
        return None
    number = int(value)
    return None if number >= _V1_UNLIMITED else number


def compare(limits: Limits, held: Held) -> list[Mismatch]:
    """Every limit that was asked for and does not hold."""
    found: list[Mismatch] = []

    def check(name: str, wanted: int | None, have: int | None, fix: str) -> None:
        if wanted is None:
            return
        # The kernel rounds a limit down to whole pages.
        if have is None or not wanted - _PAGE < have <= wanted:
            found.append(Mismatch(name, _size(wanted), "no limit" if have is None else _size(have), fix))

    again = f"See {held.path}; run the role sglang_server again and restart the instance."
    check("MemoryMax", limits.memory_max_bytes, held.memory_max_bytes, again)
    check(
        "MemoryHigh",
        limits.memory_high_bytes,
        held.memory_high_bytes,
        again
        if held.high_known
        else "Control groups of version 1 have no such limit: leave it out, or boot the host with "
        "systemd.unified_cgroup_hierarchy=1.",
    )
    check(
        "MemorySwapMax",
        limits.memory_swap_max_bytes,
        held.memory_swap_max_bytes,
        again
        if held.version == 2 and held.swap_known
        else "systemd sets no swap limit on control groups of version 1: leave it out and switch swap off on this "
        "host, or boot it with systemd.unified_cgroup_hierarchy=1.",
    )
    return found


def _size(value: int) -> str:
    return f"{value} bytes ({value / 2**30:.2f} GiB)"


def _file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except OSError:
        return None


def read_held(directory: str, version: int) -> Held:
    """The limit files of one group."""
    if not os.path.isdir(directory):
        raise EngineError("cgroup", f"The control group's directory {directory} does not exist.")
    if version == 2:
        swap = _file(f"{directory}/memory.swap.max")
        return Held(
            version=2,
            path=directory,
            memory_max_bytes=parse_limit(_file(f"{directory}/memory.max")),
            memory_high_bytes=parse_limit(_file(f"{directory}/memory.high")),
            memory_swap_max_bytes=parse_limit(swap),
            swap_known=swap is not None,
            current_bytes=parse_limit(_file(f"{directory}/memory.current")),
            oom_kills=_event(_file(f"{directory}/memory.events"), "oom_kill"),
        )
    maximum = parse_limit(_file(f"{directory}/memory.limit_in_bytes"))
    both = parse_limit(_file(f"{directory}/memory.memsw.limit_in_bytes"))
    return Held(
        version=1,
        path=directory,
        memory_max_bytes=maximum,
        memory_swap_max_bytes=both - maximum if both is not None and maximum is not None else None,
        high_known=False,
        swap_known=os.path.exists(f"{directory}/memory.memsw.limit_in_bytes"),
        current_bytes=parse_limit(_file(f"{directory}/memory.usage_in_bytes")),
        oom_kills=_event(_file(f"{directory}/memory.oom_control"), "oom_kill"),
    )


def _event(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def of_process(pid: int) -> str:
    """The text of /proc/PID/cgroup."""
    text = _file(f"/proc/{pid}/cgroup")
    if text is None:
        raise EngineError("cgroup", f"Process {pid} is gone: its control group cannot be read.")
    return text


def held_for(pid: int, slice_name: str) -> Held:
    """What the kernel holds for the slice that this process must be in."""
    version, path = memory_path(of_process(pid))
    mount = memory_mount(_file("/proc/self/mountinfo") or "", version)
    return read_held(slice_directory(path, slice_name, mount), version)


def in_slice(pid: int, slice_name: str) -> bool:
    """True when the process belongs to the slice: to its unit, or to a container that an engine put there."""
    return _is_in(_file(f"/proc/{pid}/cgroup") or "", slice_name)


def _is_in(proc_cgroup: str, slice_name: str) -> bool:
    """From /proc/PID/cgroup: whether the group that accounts the memory is in the slice."""
    try:
        return slice_name in memory_path(proc_cgroup)[1].split("/")
    except EngineError:
        return False


def is_first_of_a_container(status: str) -> bool:
    """From /proc/PID/status: whether the process is number 1 in a process namespace below the reader's."""
    for line in status.splitlines():
        name, _colon, numbers = line.partition(":")
        if name == "NSpid":
            return len(numbers.split()) > 1 and numbers.split()[-1] == "1"
    return False


def first_of_container(slice_name: str) -> int:
    """The first process of the container in a slice, by its number on the host; 0 when there is none.

    The kernel is asked and not the engine: where the process really is, is what is to be found out.
    """
    for name in os.listdir("/proc"):
        if (
            name.isdigit()
            and in_slice(int(name), slice_name)
            and is_first_of_a_container(_file(f"/proc/{name}/status") or "")
        ):
            return int(name)
    return 0
