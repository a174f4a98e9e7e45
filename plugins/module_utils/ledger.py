# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger: the append-only JSON-lines record of one rollout, on the controller.

A line is written when its step ends, and is on the disk before the rollout goes on: a killed controller leaves a
ledger that says how far it came. Only ``append`` writes; everything else reads.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

SCHEMA = 1

STEPS = (
    "plan",
    "lock",
    "prefetch",
    "leave",
    "settle",
    "drain",
    "stop",
    "start",
    "verify",
    "rejoin",
    "soak",
    "done",
    "failed",
    "skipped",
)
"""Every step a line can speak of, in the order a replica goes through them."""

NOT_OVERHEAD = ("settle", "drain", "stop", "start", "verify", "soak")
"""Steps whose time is SGLang's own, or was asked for: what is left of a replica's time is the rollout's overhead."""


class LedgerError(ValueError):
    """A line that cannot be written or read; the message names the file and the way out."""


@dataclass(frozen=True)
class Line:
    """One line of the ledger. ``elapsed_s`` in seconds; ``at`` is when the step ended, UTC, ISO 8601."""

    run: str
    seq: int
    at: str
    replica: str
    host: str
    step: str
    ok: bool
    elapsed_s: float
    detail: dict[str, Any]

    def as_json(self) -> str:
        return json.dumps(
            {
                "schema": SCHEMA,
                "run": self.run,
                "seq": self.seq,
                "at": self.at,
                "replica": self.replica,
                "host": self.host,
                "step": self.step,
                "ok": self.ok,
                "elapsed_s": self.elapsed_s,
                "detail": self.detail,
            },
            sort_keys=False,
        )


def parse(text: str) -> list[Line]:
    """Read a ledger. A last line without its newline was cut off by a crash and is left out.

    Raises LedgerError for any other line that is not a ledger line: an append-only file has no reason for one.
    """
    rows = text.split("\n")
    rows.pop()  # what follows the last newline: nothing, or a line that a crash cut off
    lines = []
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            raw = json.loads(row)
            lines.append(
                Line(
                    run=str(raw["run"]),
                    seq=int(raw["seq"]),
                    at=str(raw["at"]),
                    replica=str(raw["replica"]),
                    host=str(raw["host"]),
                    step=str(raw["step"]),
                    ok=bool(raw["ok"]),
                    elapsed_s=float(raw["elapsed_s"]),
                    detail=dict(raw["detail"]),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"line {number} of the ledger is not a ledger line ({type(error).__name__}: {error}): {row[:120]!r}. "
                "The file is only ever appended to; move it away and let the rollout begin a new one."
            ) from error
    return lines


def append(
    path: str,
    run: str,
    replica: str,
    host: str,
    step: str,
    ok: bool,
    elapsed_s: float,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Append one line to the ledger at ``path`` and return its sequence number.

    The line is on the disk when this returns. Several writers may append at once (the file is locked meanwhile).
    A line that a crash left unfinished is cut off first. Raises LedgerError for an unknown step, an unreadable
    ledger, and when the disk refuses.
    """
    if step not in STEPS:
        raise LedgerError(f"{step!r} is no step of the ledger; known steps: {', '.join(STEPS)}")
    try:
        return _append(path, run, replica, host, step, ok, elapsed_s, detail)
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be written: {error}. Make room or name another directory on the controller "
            "(-e sglang_rollout_ledger_dir=DIRECTORY), then run again"
        ) from error


def _append(
    path: str,
    run: str,
    replica: str,
    host: str,
    step: str,
    ok: bool,
    elapsed_s: float,
    detail: Mapping[str, Any] | None,
) -> int:
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o755, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as handle:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX)
        handle.seek(0)
        text = handle.read()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            handle.truncate(len(whole.encode("utf-8")))
        lines = parse(whole)
        line = Line(
            run=run,
            seq=lines[-1].seq + 1 if lines else 1,
            at=datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            replica=replica,
            host=host,
            step=step,
            ok=ok,
            elapsed_s=round(float(elapsed_s), 3),
            detail=dict(detail or {}),
        )
        handle.write(line.as_json() + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    return line.seq


def read(path: str) -> list[Line]:
    """The lines of the ledger at ``path``; an absent file has none."""
    try:
        with open(path, encoding="utf-8") as handle:
            return parse(handle.read())
    except FileNotFoundError:
        return []


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def latest_attempt(lines: Iterable[Line], replica: str) -> list[Line]:
    """The lines of a replica since it last began to leave (or, when it had left before, to start)."""
    own = [line for line in lines if line.replica == replica and line.step not in ("plan", "lock", "prefetch")]
    begins = [index for index, line in enumerate(own) if line.step == "leave"]
    return own[begins[-1] :] if begins else own


def overhead_s(lines: Iterable[Line], replica: str, now: float | None = None) -> float | None:
    """Seconds a replica's latest attempt took beyond SGLang's own drain and start and the declared waits.

    Counted from the beginning of its first step to ``now`` (UNIX seconds; the end of its last step when omitted).
    None when the ledger has no step of it.
    """
    attempt = latest_attempt(lines, replica)
    if not attempt:
        return None
    begin = _seconds(attempt[0].at) - attempt[0].elapsed_s
    end = _seconds(attempt[-1].at) if now is None else now
    declared = sum(line.elapsed_s for line in attempt if line.step in NOT_OVERHEAD)
    return round(max(0.0, end - begin - declared), 3)
