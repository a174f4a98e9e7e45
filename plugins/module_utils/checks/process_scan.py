# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One walk through /proc: who listens on a port, who uses a segment of /dev/shm, which memory guards run."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from ..ports import Listener, held_by, parse_proc_net
from .reading import CouldNotTell, read_first, read_text

PROC = "/proc"
SHM = "/dev/shm"
TABLES = ("net/tcp", "net/tcp6")
# Daemons that end a process before the kernel would.
GUARDS = ("earlyoom", "nohang", "systemd-oomd")

Segment = tuple[int, int]


@dataclass(frozen=True)
class Held:
    """A listening socket with the process that holds it, and the control group of that process."""

    listener: Listener
    group: str = ""


@dataclass(frozen=True)
class ShmFile:
    """A file in /dev/shm. `users` are the processes that map it or hold it open."""

    name: str
    bytes: int
    age_s: float
    owner: int
    users: tuple[int, ...] = ()


@dataclass(frozen=True)
class ProcessScan:
    """What the walk found. `hidden` is why some processes could not be looked into; empty when all could."""

    listeners: tuple[Held, ...] = ()
    shm: tuple[ShmFile, ...] = ()
    guards: tuple[str, ...] = ()
    alive: frozenset[int] = field(default_factory=frozenset)
    hidden: str = ""


def scan(ports: Collection[int], now_s: float) -> ProcessScan:
    """Walk once through all processes."""
    listeners = _listening(ports)
    files = _shm_files(now_s)
    sockets = {each.inode: each for each in listeners}
    segments = dict(files)
    holders: dict[int, int] = {}
    users: dict[Segment, set[int]] = {}
    guards: set[str] = set()
    alive: set[int] = set()
    denied = 0
    for name in os.listdir(PROC):
        if not name.isdigit():
            continue
        pid = int(name)
        alive.add(pid)
        guards.update(_guard(pid))
        if not sockets and not segments:
            continue
        try:
            _descriptors(pid, sockets, holders, segments, users)
            if segments:
                _maps(pid, segments, users)
        except PermissionError:
            denied += 1
        except OSError:
            continue  # it ended meanwhile
    return ProcessScan(
        listeners=tuple(_held(each, holders.get(each.inode)) for each in listeners),
        shm=tuple(
            ShmFile(file.name, file.bytes, file.age_s, file.owner, tuple(sorted(users.get(key, ()))))
            for key, file in files
        ),
        guards=tuple(sorted(guards)),
        alive=frozenset(alive),
        hidden=_hidden(denied),
    )


def _hidden(denied: int) -> str:
    if denied:
        return f"{denied} processes cannot be looked into" + ("" if os.geteuid() == 0 else ": run as root")
    if os.geteuid() != 0:
        return "only root sees all processes (hidepid), and this ran as another user"
    return ""


def _listening(ports: Collection[int]) -> list[Listener]:
    if not ports:
        return []
    found: list[Listener] = []
    for table in TABLES:
        text = read_first(f"{PROC}/{table}")
        if text is None:
            if table == TABLES[0]:
                raise CouldNotTell(f"{PROC}/{table} is not there")
            continue  # a kernel without IPv6
        for port in sorted(set(ports)):
            try:
                found += parse_proc_net(text, port)
            except ValueError:
                raise CouldNotTell(f"{PROC}/{table} cannot be understood") from None
    return found


def _held(listener: Listener, pid: int | None) -> Held:
    if pid is None:
        return Held(listener)
    try:
        group = read_text(f"{PROC}/{pid}/cgroup")
    except CouldNotTell:
        group = ""
    return Held(held_by(listener, pid), group)


def _shm_files(now_s: float) -> list[tuple[Segment, ShmFile]]:
    found: list[tuple[Segment, ShmFile]] = []
    try:
        entries = list(os.scandir(SHM))
    except OSError:
        return found  # its size is read elsewhere, and says why it cannot be
    for entry in entries:
        try:
            if not entry.is_file(follow_symlinks=False):
                continue
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it went meanwhile
        age = now_s - max(info.st_mtime, info.st_ctime)
        file = ShmFile(entry.name, info.st_blocks * 512, age, info.st_uid)
        found.append(((info.st_dev, info.st_ino), file))
    return found


def _guard(pid: int) -> tuple[str, ...]:
    """The guard that a process is, by its name or, for a script, by its command line."""
    try:
        with open(f"{PROC}/{pid}/comm", encoding="utf-8", errors="replace") as handle:
            name = handle.read().strip()
        if name in GUARDS:
            return (name,)
        if name.startswith("python"):
            with open(f"{PROC}/{pid}/cmdline", encoding="utf-8", errors="replace") as handle:
                words = [os.path.basename(word) for word in handle.read(400).split("\0")[:3]]
            return tuple(guard for guard in GUARDS if guard in words)
    except OSError:
        return ()
    return ()


def _descriptors(
    pid: int,
    sockets: Collection[int],
    holders: dict[int, int],
    segments: Collection[Segment],
    users: dict[Segment, set[int]],
) -> None:
    with os.scandir(f"{PROC}/{pid}/fd") as entries:
        for entry in entries:
            try:
                target = os.readlink(entry.path)
                if sockets and target.startswith("socket:["):
                    inode = int(target[8:-1])
                    if inode in sockets:
                        holders.setdefault(inode, pid)
                elif segments and "/shm/" in target:
                    # Only these: to ask after a file of a hung network mount would hang too.
                    info = os.stat(entry.path)
                    if (info.st_dev, info.st_ino) in segments:
                        users.setdefault((info.st_dev, info.st_ino), set()).add(pid)
            except (FileNotFoundError, ValueError):
                continue


_MAP = re.compile(r"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +/", re.MULTILINE)


def _maps(pid: int, segments: Collection[Segment], users: dict[Segment, set[int]]) -> None:
    """By device and inode: a container with the host's IPC names the same file otherwise."""
    with open(f"{PROC}/{pid}/maps", encoding="utf-8", errors="replace") as handle:
        text = handle.read()
    # A server maps thousands of files: only where one of the numbers stands are its lines taken apart.
    if not any(f" {inode} " in text for _device, inode in segments):
        return
    for match in _MAP.finditer(text):
        key = (os.makedev(int(match.group(1), 16), int(match.group(2), 16)), int(match.group(3)))
        if key in segments:
            users.setdefault(key, set()).add(pid)
