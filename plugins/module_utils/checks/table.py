# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one table of all checks: adding a check is adding its function to an area's CHECKS, and its test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..cuda_home import KINDS as CUDA_HOME_KINDS
from . import (
    args_area,
    args_checks,
    cache_checks,
    cache_readings,
    container_checks,
    container_readings,
    declaration,
    host_checks,
    host_readings,
    memory_area,
    toolchain_checks,
    toolchain_readings,
)
from .check import Check, Kind
from .declaration import DECLARATION_KINDS
from .memory_kinds import MEMORY_KINDS
from .preflight_kinds import PREFLIGHT_KINDS

# The checks of each area, in the order in which they are reported.
AREAS: dict[str, tuple[Check[Any], ...]] = {
    "arguments": args_checks.CHECKS,
    "toolchain": toolchain_checks.CHECKS,
    "caches": cache_checks.CHECKS,
    "host": host_checks.CHECKS,
    "container": container_checks.CHECKS,
}

# What looks at an area: from the parameters of a preflight to readings and findings.
EXAMINERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "declaration": declaration.examine,
    "arguments": args_area.examine,
    "memory": memory_area.examine,
    "toolchain": toolchain_readings.examine,
    "caches": cache_readings.examine_caches,
    "host": host_readings.examine,
    "container": container_readings.examine,
}

# Kinds that are found by other code than a Check.
_OTHER_KINDS: tuple[Kind, ...] = (*CUDA_HOME_KINDS, *DECLARATION_KINDS, *MEMORY_KINDS, *PREFLIGHT_KINDS)


def all_kinds() -> list[Kind]:
    """Every kind once. A test sees that no two have the same id: an ignore list could not tell them apart."""
    of_checks = (kind for checks in AREAS.values() for check in checks for kind in check.kinds)
    return list({id(kind): kind for kind in (*of_checks, *_OTHER_KINDS)}.values())


KINDS: dict[str, Kind] = {kind.id: kind for kind in all_kinds()}
