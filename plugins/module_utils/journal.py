# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a unit's journal, from a cursor on."""

# A host job runs this too, where there is no AnsibleModule.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import systemd
from .errors import EngineError
from .server_log import text_lines


@dataclass(frozen=True)
class Entries:
    """Messages, oldest first, and the cursor after the last of them."""

    messages: list[str] = field(default_factory=list)
    cursor: str | None = None

    @property
    def lines(self) -> list[str]:
        return text_lines(self.messages)


def decode_message(value: Any) -> str:
    """A journal message: text, bytes as numbers when it holds unprintable characters, null when it is too long."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if all(isinstance(item, int) and 0 <= item < 256 for item in value):
            return bytes(value).decode("utf-8", "replace")
        return "\n".join(decode_message(item) for item in value)
    return ""


def parse(text: str) -> Entries:
    """The output of `journalctl -o json`; a line cut short by a rotation is left out."""
    messages: list[str] = []
    cursor: str | None = None
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            messages.append(decode_message(entry.get("MESSAGE")))
            cursor = entry.get("__CURSOR") or cursor
    return Entries(messages=messages, cursor=cursor)


def _read(matches: Sequence[str], after: str | None, last: int | None) -> Entries:
    command = ["journalctl", "--no-pager", "--quiet", "-o", "json", "--output-fields=MESSAGE"]
    if after is not None:
        command.append(f"--after-cursor={after}")
    if last is not None:
        command.append(f"--lines={last}")
    try:
        entries = parse(systemd.run([*command, *matches]))
    except EngineError as error:
        if after is not None and "cursor" in error.msg.lower():
            return _read(matches, None, last)
        raise
    return Entries(entries.messages, entries.cursor or after)


def of_invocation(invocation_id: str, after: str | None = None, last: int | None = None) -> Entries:
    """What one run of a unit wrote, and what systemd wrote about it."""
    if not invocation_id:
        return Entries(cursor=after)
    matches = [f"_SYSTEMD_INVOCATION_ID={invocation_id}", "+", f"INVOCATION_ID={invocation_id}"]
    return _read(matches, after, last)


def first_of_invocation(invocation_id: str, count: int) -> Entries:
    """The first entries of one run of a unit, without reading the rest of a journal that may be very long."""
    if not invocation_id:
        return Entries()
    command = ["journalctl", "--no-pager", "--quiet", "-o", "json", "--output-fields=MESSAGE"]
    lines: list[str] = []
    with subprocess.Popen(
        [*command, f"_SYSTEMD_INVOCATION_ID={invocation_id}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if len(lines) >= count:
                break
        process.kill()
    return parse("".join(lines))


def flush() -> None:
    """Waits until everything that was written to the journal so far can be read."""
    with contextlib.suppress(EngineError):  # what is readable is read all the same
        systemd.run(["journalctl", "--sync"], timeout_s=10)


def of_unit(unit: str, since_epoch: float, last: int) -> Entries:
    """The entries of a unit since a moment, whichever run wrote them."""
    return _read([f"--unit={unit}", f"--since=@{int(since_epoch)}"], None, last)
