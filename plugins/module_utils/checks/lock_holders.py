# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes hold a lock file: by having it open, or by a lock of the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .cache_directories import BY_EXISTENCE, BY_KERNEL
from .reading import CouldNotTell, Reading, Unknown, read_text

Key = tuple[int, int]

_PROC_LOCK = re.compile(r"^\d+: (?:FLOCK|POSIX|OFDLCK)\s+\S+\s+\S+\s+(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.M)


@dataclass(frozen=True)
class Lock:
    """A lock file in a cache. torch's is named `lock` and locks by being there; the others lock through the kernel."""

    path: str
    kind: str
    age_s: float
    holders: Reading[tuple[int, ...]]

    @property
    def text(self) -> str:
        return f"{self.path} ({self.age_s / 3600:.1f} h old)"


def kind_of(name: str) -> str | None:
    """What kind of lock a file of this name is; None when it is none."""
    if name == "lock":
        return BY_EXISTENCE
    return BY_KERNEL if name.endswith(".lock") else None


def kernel_locks(text: str) -> dict[Key, set[int]]:
    """Holders by file, from the text of /proc/locks."""
    found: dict[Key, set[int]] = {}
    for match in _PROC_LOCK.finditer(text):
        key = (os.makedev(int(match[2], 16), int(match[3], 16)), int(match[4]))
        found.setdefault(key, set()).add(int(match[1]))
    return found


def holders(files: Mapping[Key, str], proc: str = "/proc") -> dict[Key, Reading[tuple[int, ...]]]:
    """The processes that hold each file. Where some processes may not be looked into, nobody is not an answer."""
    if not files:
        return {}
    found: dict[Key, set[int]] = {key: set() for key in files}
    try:
        for key, pids in kernel_locks(read_text(f"{proc}/locks")).items():
            if key in found:
                found[key] |= {pid for pid in pids if pid > 0}
        hidden = _open_files(found, {os.path.basename(path) for path in files.values()}, proc)
    except (CouldNotTell, OSError) as error:
        return {key: Unknown(f"the processes of the host cannot be read: {error}") for key in files}
    if hidden or os.geteuid() != 0:
        reason = f"{hidden} processes of other users cannot be looked into: run as root"
        return {key: tuple(sorted(pids)) if pids else Unknown(reason) for key, pids in found.items()}
    return {key: tuple(sorted(pids)) for key, pids in found.items()}


def _open_files(found: dict[Key, set[int]], names: Collection[str], proc: str) -> int:
    """Add who has the files open. Returns how many processes could not be looked into."""
    hidden = 0
    for pid in os.listdir(proc):
        if not pid.isdigit():
            continue
        try:
            with os.scandir(f"{proc}/{pid}/fd") as entries:
                for entry in entries:
                    _look(entry.path, int(pid), found, names)
        except PermissionError:
            hidden += 1
        except OSError:
            continue  # it ended meanwhile
    return hidden


def _look(link: str, pid: int, found: dict[Key, set[int]], names: Collection[str]) -> None:
    try:
        # A container may know the file under another path, by the same name.
        if os.path.basename(os.readlink(link)) not in names:
            return
        info = os.stat(link)
    except OSError:
        return
    key = (info.st_dev, info.st_ino)
    if key in found:
        found[key].add(pid)
