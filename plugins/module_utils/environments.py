# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual environments of native instances: what they are called, and what a lock says is installed in one. Pure.

A lock is a requirements file with the exact version of every package. An environment bears the mark of its lock in its
name, so another lock is another environment: what servers run from is never changed, and going back is a switch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .pinned_packages import normal_name

ENVIRONMENTS_DIR = "/opt/sglang"
MARK_DIGITS = 8
# What an environment of this collection is called; anything else in the directory is somebody else's.
ENVIRONMENT_NAME = re.compile(r"[0-9]+\.[0-9][A-Za-z0-9.+]*(?:-[0-9a-f]{8})?")

# What was read of a lock, as the modules that take it tell Ansible.
LOCK_OPTIONS: dict[str, Any] = {
    "path": {"type": "str", "required": True},
    "source": {"type": "str"},
    "sha256": {"type": "str", "required": True},
    "version": {"type": "str", "default": ""},
    "hashed": {"type": "bool", "default": False},
    "packages": {"type": "int"},
    "problems": {"type": "list", "elements": "str", "default": []},
}

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(.*)", re.DOTALL)
_EXACT = re.compile(r"={2,3}\s*([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_HASH = re.compile(r"\s--hash[= ]\s*(\S+)")
_OF_THE_INDEX = (
    "-i",
    "-f",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "--find-links",
    "--trusted-host",
    "--prefer-binary",
    "--only-binary",
    "--no-binary",
    "--pre",
    "--require-hashes",
)
_MOST_PROBLEMS = 5


@dataclass(frozen=True)
class Lock:
    """What a lock says. `sha256` is of its lines without comments, so a comment makes no other environment of it."""

    sha256: str
    version: str = ""
    hashed: bool = False
    packages: int = 0
    problems: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        return {
            "sha256": self.sha256,
            "version": self.version,
            "hashed": self.hashed,
            "packages": self.packages,
            "problems": list(self.problems),
        }


def environment_name(version: str, lock_hash: str = "") -> str:
    """0.5.22 without a lock, 0.5.22-1a2b3c4d with one."""
    return f"{version}-{lock_hash[:MARK_DIGITS]}" if lock_hash else version


def environment_of(version: str, lock_hash: str = "") -> str:
    """The directory of the environment."""
    return f"{ENVIRONMENTS_DIR}/{environment_name(version, lock_hash)}"


def read_lock(text: str) -> Lock:
    """What a lock says, and everything that keeps it from being one."""
    problems: list[str] = []
    hashes: dict[str, bool] = {}
    versions: set[str] = set()
    said: list[str] = []
    for number, line in _logical_lines(text):
        said.append(line)
        if line.startswith("-"):
            option = re.split(r"[\s=]", line)[0]
            if option not in _OF_THE_INDEX:
                problems.append(
                    f"line {number}: {option} is not read in a lock. Write what it stands for into the lock"
                )
            continue
        bare, given = _HASH.sub("", f" {line}").strip(), bool(_HASH.search(f" {line}"))
        match = _REQUIREMENT.fullmatch(bare.partition(";")[0].strip())
        if match is None:
            problems.append(f"line {number}: {line[:80]!r} is no requirement")
            continue
        name, wanted = normal_name(match[1]), match[2].strip()
        hashes[name] = hashes.get(name, True) and given
        exact = _EXACT.fullmatch(wanted)
        if exact is None and not wanted.startswith("@"):
            problems.append(f"line {number}: {bare[:80]!r} names no exact version, as {match[1]}==1.2.3")
        if name == "sglang":
            versions.add(exact[1] if exact else "")
    hashed = any(hashes.values())
    bare_ones = sorted(name for name, given in hashes.items() if not given)
    if hashed and bare_ones:
        problems.append(f"{_some(bare_ones)}: without a hash, and with one hash in a lock each package needs one")
    if not versions:
        problems.append("sglang itself is not in it")
    elif len(versions) > 1:
        problems.append(f"sglang is in it as {' and '.join(sorted(versions))}")
    if len(problems) > _MOST_PROBLEMS:
        problems = [*problems[:_MOST_PROBLEMS], f"and {len(problems) - _MOST_PROBLEMS} more"]
    digest = hashlib.sha256("\n".join(said).encode()).hexdigest()
    version = next(iter(versions)) if len(versions) == 1 else ""
    return Lock(digest, version, hashed, len(hashes), tuple(problems))


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines as pip reads them, with the number of their first one: without comments, continued ones as one."""
    parts: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        start = start if parts else number
        continued = line.rstrip().endswith("\\")
        bare = re.sub(r"(?:^|\s)#.*$", "", line.rstrip().rstrip("\\") if continued else line).strip()
        if bare:
            parts.append(bare)
        if not continued:
            if parts:
                yield start, re.sub(r"\s+", " ", " ".join(parts))
            parts = []


def lock_problems(path: str, version: str, lock: Mapping[str, Any] | None) -> list[str]:
    """What is wrong with the lock that an instance of a version declares. `lock` is what was read of it."""
    if lock is None:
        return [f"lock {path} was not read"]
    problems = [f"lock {path}: {text}" for text in lock.get("problems") or ()]
    pinned = str(lock.get("version") or "")
    if pinned and version and pinned != version:
        problems.append(
            f"lock {path} has sglang {pinned} and version is {version}. Declare the version that the lock has, or the "
            "lock of that version"
        )
    return problems


def locks_by_path(locks: Any) -> dict[str, dict[str, Any]]:
    """What was read of the locks, by the path that they are declared by; what has another shape is left out."""
    given = locks if isinstance(locks, (list, tuple)) else ()
    return {str(one["path"]): dict(one) for one in given if isinstance(one, Mapping) and one.get("path")}
