# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which desired states of an instance have served: noted when a start of one ended well, the latest last.

The copy under /run says what was started last, also when it never became ready, and a reboot clears it. What is worth
a way back is only what has answered.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from . import desired_state, whole_file

DIRECTORY = "/var/lib/sglang/rollout/served"

KEPT = 8
"""How many states are remembered: the way back is one step, and a few more tell an old state that is declared again."""


def path_of(instance: str) -> str:
    return os.path.join(DIRECTORY, f"{instance}.json")


def digest(text: str) -> str:
    """What a state is remembered by: the text of its file."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def parse(text: str) -> list[dict[str, Any]] | None:
    """The states noted in a file; None where it cannot be told, so that nothing is concluded from it."""
    try:
        data = json.loads(text)
        return [{**state, "sha256": str(state["sha256"])} for state in data["states"]]
    except (ValueError, KeyError, TypeError):
        return None


def read(instance: str) -> list[str] | None:
    """The digests of the states that served, the latest last; None when nothing was ever noted."""
    try:
        with open(path_of(instance), encoding="utf-8") as handle:
            states = parse(handle.read())
    except (OSError, UnicodeDecodeError):
        return None
    return None if states is None else [state["sha256"] for state in states]


def with_one_more(states: Sequence[dict[str, Any]], text: str, at: str) -> list[dict[str, Any]]:
    """The states with one that serves now at their end, each once."""
    mark = digest(text)
    return [*(state for state in states if state["sha256"] != mark), {"sha256": mark, "at": at}][-KEPT:]


def note(instance: str, text: str) -> bool:
    """Remember that a state serves. False when it was the latest already."""
    path = path_of(instance)
    try:
        with open(path, encoding="utf-8") as handle:
            states = parse(handle.read()) or []
    except (OSError, UnicodeDecodeError):
        states = []
    if states and states[-1]["sha256"] == digest(text):
        return False
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    _write(path, with_one_more(states, text, now))
    return True


def begin(instance: str) -> None:
    """Note of a new instance that nothing of it has served: no note at all is left by an older release of this."""
    if not os.path.exists(path_of(instance)):
        _write(path_of(instance), [])


def _write(path: str, states: Sequence[dict[str, Any]]) -> None:
    content = {"schema": 1, "states": list(states)}
    whole_file.replace(path, json.dumps(content, sort_keys=True) + "\n", 0o644, sync=True)


def note_running(instance: str) -> bool:
    """Remember that what the instance was started from serves; nothing where its unit left no copy of it."""
    try:
        with open(desired_state.running_path_of(instance), encoding="utf-8") as handle:
            text = handle.read()
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    return note(instance, text)
