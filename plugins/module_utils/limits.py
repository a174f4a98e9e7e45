# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory sizes and the limits of an instance's slice."""

from __future__ import annotations

import re
from typing import Any

from .desired_state import Limits

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
# A process that meets memory_high without swap is slowed down to a stand-still long before memory_max ends it.
_CLOSE = 0.9
# systemd reads sizes into 64 bits and leaves a setting out that does not fit.
_MOST = 1 << 63
# Python alone takes a tenth of what a server takes, and that is more than this. Who writes 24 means 24G.
_LEAST = 64 << 20


def parse_size(value: Any) -> int | None:
    """A size as systemd writes it (24G, 512M, bytes; the units are powers of 1024) in bytes; None for no limit."""
    if value is None or value == "" or str(value).lower() == "infinity":
        return None
    match = _SIZE.fullmatch(str(value).strip())
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{value!r} is not a size: give bytes or a number with K, M, G or T (powers of 1024), as 24G")
    return int(float(match.group(1)) * (1 << _UNITS[match.group(2).upper()]))


def read_limits(memory_max: Any, memory_high: Any, memory_swap_max: Any) -> tuple[Limits, list[str], list[str]]:
    """The declared limits, with what is wrong and what is doubtful about them."""
    problems: list[str] = []
    values: dict[str, int | None] = {}
    for name, value in (
        ("memory_max", memory_max),
        ("memory_high", memory_high),
        ("memory_swap_max", memory_swap_max),
    ):
        try:
            values[name] = parse_size(value)
        except ValueError as error:
            values[name] = None
            problems.append(f"{name}: {error}")
        if (values[name] or 0) >= _MOST:
            problems.append(f"{name}: {value} is more than systemd takes. Give a size of host memory, as 24G")
    limits = Limits(values["memory_max"], values["memory_high"], values["memory_swap_max"])
    if limits.memory_max_bytes is not None and limits.memory_max_bytes < _LEAST:
        problems.append(f"memory_max is {memory_max}, nothing could start. Give a size of host memory, as 24G")
    warnings: list[str] = []
    high, most = limits.memory_high_bytes, limits.memory_max_bytes
    if high is not None and most is not None:
        if high > most:
            problems.append(f"memory_high ({memory_high}) is larger than memory_max ({memory_max})")
        elif high > _CLOSE * most:
            warnings.append(
                f"memory_high ({memory_high}) is above nine tenths of memory_max ({memory_max}): without swap the "
                "server stalls there instead of being ended. Leave a real distance, or leave memory_high out"
            )
    return limits, problems, warnings
