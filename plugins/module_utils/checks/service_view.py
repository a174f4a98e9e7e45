# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the service can get at a path that root can: its user, and what its unit hides from it."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .reading import CouldNotTell

# The unit has a /tmp of its own, and homes are hidden unless the instance names a path in one.
TEMPORARY = {"/tmp": "PrivateTmp= of the unit hides it", "/var/tmp": "PrivateTmp= of the unit hides it"}
HOMES = dict.fromkeys(("/home", "/root", "/run/user"), "ProtectHome= of the unit hides it")


@dataclass(frozen=True)
class OutOfReach:
    """A path that the service cannot get at, and why. `place` is where it really lies."""

    path: str
    place: str
    why: str


def is_in_home(path: str) -> bool:
    return _hidden(path, HOMES) != ""


def out_of_reach(paths: Iterable[str], user: str, homes_hidden: bool = True) -> tuple[OutOfReach, ...]:
    """Those of the paths that are there and that the service cannot reach. Raises CouldNotTell for an unknown mode."""
    hidden = {**TEMPORARY, **(HOMES if homes_hidden else {})}
    try:
        account = pwd.getpwnam(user)
        owner, groups = account.pw_uid, set(os.getgrouplist(user, account.pw_gid))
    except KeyError:
        # Made by the role: nothing belongs to it yet.
        owner, groups = -1, set()
    found = []
    for path in dict.fromkeys(paths):
        if os.path.exists(path):
            place = os.path.realpath(path)
            why = _hidden(place, hidden) or _closed(place, owner, groups)
            if why:
                found.append(OutOfReach(path, place, why))
    return tuple(found)


def _hidden(place: str, hidden: Mapping[str, str]) -> str:
    return next((why for folder, why in hidden.items() if (place + "/").startswith(folder + "/")), "")


def _closed(place: str, owner: int, groups: set[int]) -> str:
    for folder in folders_above(place):
        try:
            status = os.stat(folder)
        except OSError as error:
            raise CouldNotTell(f"{folder}: {error.strerror or error}") from None
        mode = status.st_mode
        allowed = mode & stat.S_IXOTH
        if status.st_uid == owner:
            allowed = mode & stat.S_IXUSR
        elif status.st_gid in groups:
            allowed = mode & stat.S_IXGRP
        if not allowed:
            return f"{folder} may not be entered (mode {stat.S_IMODE(mode):04o})"
    return ""


def folders_above(place: str) -> Iterator[str]:
    """Every directory above, from the root on."""
    parts = place.strip("/").split("/")[:-1]
    for number in range(len(parts)):
        yield "/" + "/".join(parts[: number + 1])
