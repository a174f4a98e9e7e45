# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which process listens on a TCP port of this host."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Any

from .redaction import visible

_LISTEN = "0A"
_WILDCARDS = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class Listener:
    """A listening socket and, where it can be told, the process that holds it.

    `command` is the name of its program alone: the arguments of a process that is not ours may hold secrets.
    """

    address: str
    port: int
    inode: int
    pid: int | None = None
    command: str = ""
    owner: str = ""

    def text(self) -> str:
        named = ", ".join(part for part in (self.command, f"of {self.owner}" if self.owner else "") if part)
        who = f"process {self.pid} ({named})" if self.pid else "a process that cannot be told"
        return f"{who} on {self.address}:{self.port}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "port": self.port,
            "pid": self.pid,
            "command": self.command,
            "owner": self.owner,
        }


def _address(text: str) -> str:
    """An address of /proc/net/tcp: 32-bit words in the machine's byte order (little-endian here)."""
    if len(text) == 8:
        return ".".join(str(byte) for byte in reversed(bytes.fromhex(text)))
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, 32, 8)]
    raw = b"".join(words)
    if raw == bytes(16):
        return "::"
    if raw == bytes(15) + b"\x01":
        return "::1"
    if raw[:12] == bytes(10) + b"\xff\xff":
        return ".".join(str(byte) for byte in raw[12:])
    return ":".join(raw[at : at + 2].hex() for at in range(0, 16, 2))


def parse_proc_net(text: str, port: int) -> list[Listener]:
    """The listening sockets on a port in the text of /proc/net/tcp or tcp6."""
    found: list[Listener] = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _colon, number = fields[1].partition(":")
        if int(number, 16) == port:
            found.append(Listener(address=_address(address), port=port, inode=int(fields[9])))
    return found


def _owner(inode: int) -> int | None:
    wanted = f"socket:[{inode}]"
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            for descriptor in os.scandir(f"/proc/{name}/fd"):
                if os.readlink(descriptor.path) == wanted:
                    return int(name)
        except OSError:
            continue
    return None


def command_of(pid: int) -> str:
    """The name of a process's program. Never its arguments, and nothing that a terminal would obey."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as handle:
            return visible(handle.read().rstrip("\n"))
    except OSError:
        return ""


def owner_of(pid: int) -> str:
    """The user that a process belongs to."""
    try:
        number = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    try:
        return visible(pwd.getpwuid(number).pw_name)
    except KeyError:
        return f"user {number}"


def held_by(listener: Listener, pid: int) -> Listener:
    """The listener with the process that holds it."""
    return Listener(listener.address, listener.port, listener.inode, pid, command_of(pid), owner_of(pid))


def listeners(port: int) -> list[Listener]:
    """Everything on this host that listens on a port."""
    found: list[Listener] = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as handle:
                found += parse_proc_net(handle.read(), port)
        except OSError:
            continue
    named: list[Listener] = []
    for listener in found:
        pid = _owner(listener.inode)
        named.append(listener if pid is None else held_by(listener, pid))
    return named


def conflicts(found: list[Listener], host: str) -> list[Listener]:
    """The listeners that keep a server from binding `host`: a wildcard meets every address."""
    if host in _WILDCARDS:
        return found
    local = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    return [listener for listener in found if listener.address in _WILDCARDS or listener.address in local]
