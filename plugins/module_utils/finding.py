# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One result of a check: what it is, how bad it is, what it was seen from, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OK = "ok"
WARNING = "warning"
ERROR = "error"
# What a check needs could not be read: neither a fault nor a clean bill.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """`id` is stable and documented in docs/findings.md; `severity` is ok, warning, error, or unknown."""

    id: str
    severity: str
    summary: str
    evidence: str = ""
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
