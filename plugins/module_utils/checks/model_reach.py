# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the service can read a model that root sees: its user, the modes on the way, and what its unit hides."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from . import file_systems
from .reading import CouldNotTell
from .service_view import folders_above, is_in_home, out_of_reach

# Files of a model that are looked at one by one; a folder with more is judged by these.
FILES = 2000
_READ_BY_SERVERS = (".json", ".safetensors", ".bin", ".model", ".jinja", ".py", ".txt", ".gguf")


def homes_hidden(instance: Mapping[str, Any]) -> bool:
    """As the role does: a unit that is told of a path in a home is not kept from homes."""
    values = [*(instance.get("environment") or {}).values(), *(instance.get("arguments") or {}).values()]
    desired = instance.get("desired") or {}
    paths = [str(instance.get("model") or ""), *map(str, values), *map(str, desired.get("writable_paths") or ())]
    return not any(is_in_home(path) for path in paths)


def why_unreadable(path: str, user: str, hidden: bool) -> str:
    """Why the service cannot read the model at this path; empty when it can.

    Raises CouldNotTell where an access list may say otherwise than the mode.
    """
    files = [path, *_files(path)]
    # One file of each folder stands for the way to it: a hub cache links to files elsewhere.
    ways = {os.path.dirname(os.path.realpath(file)): file for file in reversed(files)}
    for lost in out_of_reach(ways.values(), user, hidden):
        _no_access_list(lost.place)
        return f"{lost.place}: {lost.why}"
    return _refused_file(files, user)


def why_unreadable_in_container(path: str, user: str, mounts: Sequence[Mapping[str, Any]]) -> str:
    """As `why_unreadable`, for a model that is mounted: the folders above it are the container's own.

    A link that leads to a place which is not mounted leads nowhere in the container.
    """
    files = [path, *_files(path)]
    seen = [os.path.realpath(path), *(str(mount.get("source") or "") for mount in mounts)]
    for file in files:
        real = os.path.realpath(file)
        if not any(real == place or real.startswith(place.rstrip("/") + "/") for place in seen if place):
            return f"{file} is a link to {real}, which the container does not see: name the folder in mounts too"
    return _refused_file(files, user)


def _refused_file(files: Sequence[str], user: str) -> str:
    """The first file that its mode keeps from the user, with the reason; empty where there is none."""
    who = (
        file_systems.identity_of(user)
        if file_systems.user_exists(user)
        else file_systems.Identity(user, -1, ())  # made by the role: nothing belongs to it yet
    )
    for file in files:
        try:
            info = os.stat(file)
        except OSError:
            continue  # a link to nowhere, or it went meanwhile: not a question of rights
        folder = stat.S_ISDIR(info.st_mode)
        if not file_systems.allows(info, who, 5 if folder else 4):
            _no_access_list(os.path.realpath(file))
            owner = f"{file_systems.user_name(info.st_uid)}:{file_systems.group_name(info.st_gid)}"
            what = "list" if folder else "read"
            return f"{user} may not {what} {file} ({owner}, mode {stat.S_IMODE(info.st_mode):04o})"
    return ""


def _files(path: str) -> list[str]:
    """The files of a model's folder that a server reads."""
    found: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(_READ_BY_SERVERS) and not entry.is_dir():
                    found.append(entry.path)
                if len(found) >= FILES:
                    break
    except OSError:
        return []
    return sorted(found)


def _no_access_list(place: str) -> None:
    for each in (*folders_above(place), place):
        if file_systems.has_access_list(each):
            raise CouldNotTell(
                f"{each} has an access list, and its mode alone does not let the service in",
                f"`getfacl -p {shlex.quote(each)}` shows whom it lets in",
            )
