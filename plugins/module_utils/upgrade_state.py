# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what the next restart of an instance would change, and what a rollback would bring back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import previous_state, upgrade_plan
from .errors import EngineError
from .previous_state import Found


def _state(text: str | None) -> dict[str, Any] | None:
    try:
        data = json.loads(text or "")
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def before_restart(found: Found, live: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state that the next start of an instance replaces: what runs, or what served before a start that failed.

    None where what is on disk is what served last. ``live`` is the entry of ``server_info``.
    """
    if live.get("restart_pending"):
        return _state(found.running)
    up = live.get("state") == "up" and live.get("ready")
    if up or found.disk_served or found.previous is None or found.previous.by == previous_state.ROLLBACK:
        return None
    return found.previous.desired


def of_found(found: Found, live: Mapping[str, Any]) -> dict[str, Any]:
    """``upgrade`` and ``previous`` of an instance, from what its host has of it."""
    disk = _state(found.disk)
    result: dict[str, Any] = {"upgrade": upgrade_plan.difference(before_restart(found, live), disk), "previous": None}
    kept = found.previous
    if kept is not None:
        now = _state(found.running) if live.get("restart_pending") else disk
        container = kept.desired.get("container") or {}
        result["previous"] = {
            "version": kept.desired.get("version"),
            "image": container.get("image"),
            "kept_at": kept.kept_at,
            "by": kept.by,
            "same": kept.desired == disk,
            # Its files alone have to be put back: no restart is needed.
            "runs": bool(live.get("restart_pending")) and kept.text == found.running,
            "difference": upgrade_plan.difference(now, kept.desired),
        }
    return result


def read(instance: str, live: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an instance of this host; what cannot be read is in ``previous_error``."""
    try:
        return of_found(previous_state.read(instance), live)
    except EngineError as error:
        return {"upgrade": None, "previous": None, "previous_error": error.msg}
