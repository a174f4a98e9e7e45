# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a host that no instance declares, against the argument specification of the role."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import declared_types
from .declaration import nearest

PREFIX = "sglang_server_"
# What the playbook itself leaves on a host.
_REGISTERED = ("sglang_server_preflight",)
# They may hold a password of an index or a proxy.
_NOT_SHOWN = ("sglang_server_pip_arguments", "sglang_server_pip_environment", "sglang_server_flashinfer_jit_index")
_EXACT: dict[str, Any] = {"list": (list, tuple), "dict": Mapping}


def refused(values: Mapping[str, Any], options: Mapping[str, Any], fits: declared_types.Fits) -> list[str]:
    """What the role would refuse, or take for something else than was meant."""

    def as_they_are(option: Mapping[str, Any], value: Any) -> bool:
        # The role uses the values as they stand: text for a list would be a list of its letters.
        kind = str(option.get("type"))
        right = isinstance(value, _EXACT[kind]) if kind in _EXACT else not isinstance(value, (Mapping, list, tuple))
        return right and fits(option, value)

    shown = {name: {**option, "no_log": True} if name in _NOT_SHOWN else option for name, option in options.items()}
    found = list(declared_types.problems({k: v for k, v in values.items() if k in options}, shown, as_they_are))
    wish = values.get("sglang_server_cuda_home")
    if isinstance(wish, str) and wish not in ("auto", "none") and not wish.startswith("/"):
        near = nearest(wish, ("auto", "none"))
        meant = f"; is {near} meant?" if near else ""
        found.append(
            f"sglang_server_cuda_home is {wish!r}, expected auto, none or the absolute path of a toolkit{meant}"
        )
    return found


def unknown(names: Iterable[str], specs: Mapping[str, Any]) -> list[str]:
    """Variables with the prefix of the role that it does not have, each with the one that was probably meant."""
    known = {*_REGISTERED, *(name for spec in specs.values() for name in spec.get("options") or {})}
    found = []
    for name in sorted(str(name) for name in names):
        if re.fullmatch(rf"{PREFIX}\w+", name) and name not in known:
            near = nearest(name[len(PREFIX) :], (each[len(PREFIX) :] for each in sorted(known)))
            meant = f"; is {PREFIX}{near} meant?" if near else ""
            found.append(f"{name} is no variable of the role sglang_server{meant}")
    return found
