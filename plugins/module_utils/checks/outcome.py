# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outcome of a preflight: clean, differs or unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..finding import ERROR, OK, UNKNOWN, WARNING

CLEAN = "clean"
DIFFERS = "differs"


def outcome_of(findings: Iterable[Mapping[str, Any]], strict: bool = False) -> str:
    """Whether a start is expected to succeed. Warnings say no such thing, and count only when that is wanted."""
    severities = {str(one.get("severity")) for one in findings if not one.get("ignored")}
    if ERROR in severities or (strict and WARNING in severities):
        return DIFFERS
    # A severity that is none of ours is no clean bill either.
    return UNKNOWN if severities - {OK, WARNING} else CLEAN
