# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one table of all checks: adding a check is adding its function to an area's CHECKS, and its test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import args_area, args_checks, cache_checks, cache_readings, declaration, host_checks, host_readings, memory_area
from .check import Check, Kind
from .declaration import DECLARATION_KINDS
from .memory_kinds import MEMORY_KINDS
from .preflight_kinds import PREFLIGHT_KINDS

# The checks of each area, in the order in which they are reported.
AREAS: dict[str, tuple[Check[Any], ...]] = {
    "arguments": args_checks.CHECKS,
    "caches": cache_checks.CHECKS,
    "host": host_checks.CHECKS,
}

# What looks at an area: from the parameters of a preflight to readings and findings.
EXAMINERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "declaration": declaration.examine,
    "arguments": args_area.examine,
    "memory": memory_area.examine,
    "caches": cache_readings.examine_caches,
    "host": host_readings.examine,
}

# Kinds that are found by other code than a Check.
_OTHER_KINDS: tuple[Kind, ...] = (*DECLARATION_KINDS, *MEMORY_KINDS, *PREFLIGHT_KINDS)


def kinds_of(areas: Mapping[str, Iterable[Check[Any]]], others: Iterable[Kind]) -> dict[str, Kind]:
    """All kinds by their id. Two kinds of one id are a fault of the code, for an ignore list could not tell them."""
    kinds: dict[str, Kind] = {}
    for kind in [*(kind for checks in areas.values() for check in checks for kind in check.kinds), *others]:
        if kinds.setdefault(kind.id, kind) is not kind:
            raise ValueError(f"two kinds of finding have the id {kind.id}")
    return kinds


KINDS = kinds_of(AREAS, _OTHER_KINDS)
