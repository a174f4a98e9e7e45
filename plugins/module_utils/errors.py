# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one error type of the engine: what happened, in which kind, and what to do about it."""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """A failure with a stable `kind`, a message for people and the facts behind it."""

    def __init__(self, kind: str, msg: str, **facts: Any) -> None:
        super().__init__(msg)
        self.kind = kind
        self.msg = msg
        self.facts = facts

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "msg": self.msg, **({"facts": self.facts} if self.facts else {})}
