# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the memory of the host: what is available, what is pinned, and the limit that really holds."""

from __future__ import annotations

import contextlib
import os
import re

from . import cgroup
from .machine import Host

_NODES = "/sys/devices/system/node"


def read(slice_name: str = "sglang.slice") -> Host:
    """The memory of this host, with the tightest limit above an instance's slice."""
    values = parse_meminfo(_text("/proc/meminfo"))
    limit, current, source = limit_above(slice_name)
    return Host(
        total_bytes=values.get("MemTotal", 0),
        available_bytes=values.get("MemAvailable", 0),
        free_bytes=values.get("MemFree"),
        cached_bytes=values.get("Cached"),
        shared_bytes=values.get("Shmem"),
        locked_bytes=values.get("Mlocked"),
        swap_total_bytes=values.get("SwapTotal"),
        swap_free_bytes=values.get("SwapFree"),
        limit_bytes=limit,
        limit_current_bytes=current,
        limit_source=source,
        shm_bytes=_shm_bytes(),
        numa_node_bytes=numa_nodes(),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        match = re.match(r"(?:Node \d+ )?([A-Za-z_()0-9]+):\s+(\d+)(?: kB)?\s*$", line)
        if match:
            found[match.group(1)] = int(match.group(2)) * (1024 if line.rstrip().endswith("kB") else 1)
    return found


def limit_above(slice_name: str) -> tuple[int | None, int | None, str]:
    """The tightest memory limit from the slice, or from this process' own group, up to the root."""
    try:
        version, own = cgroup.memory_path(_text("/proc/self/cgroup"))
        mount = cgroup.memory_mount(_text("/proc/self/mountinfo"), version)
    except Exception:
        return None, None, ""
    start = os.path.join(mount.point, slice_name)
    if not os.path.isdir(start):
        start = os.path.join(mount.point, own.lstrip("/"))
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    tightest: int | None = None
    current: int | None = None
    source = ""
    directory = start
    while directory.startswith(mount.point):
        limit = cgroup.parse_limit(_text(os.path.join(directory, names[0])) or None)
        if limit is not None and (tightest is None or limit < tightest):
            tightest, source = limit, os.path.join(directory, names[0])
            used = _text(os.path.join(directory, names[1])).strip()
            current = int(used) if used.isdigit() else None
        if directory == mount.point:
            break
        directory = os.path.dirname(directory)
    return tightest, current, source


def numa_nodes() -> tuple[int, ...]:
    """The memory of each NUMA node."""
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_NODES)):
            if re.fullmatch(r"node\d+", name):
                total = parse_meminfo(_text(f"{_NODES}/{name}/meminfo")).get("MemTotal")
                if total:
                    found.append(total)
    return tuple(found)


def _shm_bytes() -> int | None:
    try:
        usage = os.statvfs("/dev/shm")
    except OSError:
        return None
    return usage.f_frsize * usage.f_blocks


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
