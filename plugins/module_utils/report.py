# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables for people: the state of a fleet and of its gateways, and what a rollout did, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import ledger

NOTHING = "-"

NAMED = 8
"""How many hosts or instances are named in one line."""

TIMED_STEPS = ("leave", "settle", "drain", "stop", "start", "verify", "rejoin", "soak")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Align rows below their headings; numbers to the right, everything else to the left."""
    cells = [[NOTHING if value is None or value == "" else str(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[column]) for row in cells) and bool(cells) for column in range(len(headings))]
    widths = [max([len(heading)] + [len(row[column]) for row in cells]) for column, heading in enumerate(headings)]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.rjust(width) if right else value.ljust(width) for value, width, right in zip(values, widths, numeric)
        ]
        return "  ".join(parts).rstrip()

    return [line(list(headings)), "  ".join("-" * width for width in widths)] + [line(row) for row in cells]


def _is_number(text: str) -> bool:
    return text == NOTHING or text.replace(".", "", 1).isdigit()


def _trouble(reading: Mapping[str, Any]) -> str:
    if not reading:
        return "not read"
    if reading.get("unreachable"):
        return "unreachable"
    if reading.get("failed"):
        return str(reading.get("msg", "cannot be read"))
    return ""


def _notes(info: Mapping[str, Any], record: Mapping[str, Any] | None, lock: Mapping[str, Any] | None) -> list[str]:
    """What a person should know about an instance beside its state."""
    notes = [str(info["error"])] if info.get("error") else []
    if info.get("restart_pending"):
        notes.append("restart pending")
    if record and record.get("step") not in (None, "done"):
        notes.append(f"rollout {record.get('run')} left it unfinished ({record.get('step')})")
    if lock:
        notes.append(f"claimed by rollout {lock.get('run')} of {lock.get('owner')}, {lock.get('age_s', 0):.0f} s ago")
    return notes


def fleet(readings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each instance of each host, from what ``rollout_info`` returned (an empty dict: not read)."""
    rows: list[list[Any]] = []
    for host, reading in readings.items():
        trouble = _trouble(reading)
        if trouble:
            rows.append([host, None, None, trouble] + [None] * 6)
            continue
        records = reading.get("records") or {}
        for info in reading.get("instances") or []:
            rows.append(
                [
                    host,
                    info["instance"],
                    info.get("replica"),
                    info.get("state"),
                    info.get("version"),
                    info.get("running"),
                    info.get("waiting"),
                    info.get("max_total_num_tokens"),
                    None if info.get("token_usage") is None else f"{100 * float(info['token_usage']):.0f}",
                    "; ".join(_notes(info, records.get(info["instance"]), reading.get("lock"))),
                ]
            )
        if not reading.get("instances"):
            rows.append([host, None, None, "no instance deployed"] + [None] * 6)
    headings = ("host", "instance", "replica", "state", "version", "running", "waiting", "pool", "used %", "note")
    return table(headings, rows)


def gateways(readings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each worker of each gateway, from what ``gateway_info`` returned (an empty dict: not read)."""
    rows: list[list[Any]] = []
    for host, reading in readings.items():
        trouble = _trouble(reading)
        if trouble:
            rows.append([host, None, trouble, None])
            continue
        for worker in reading.get("workers") or []:
            state = "healthy" if worker.get("is_healthy") else worker.get("status") or "unhealthy"
            rows.append([host, worker.get("url"), state, worker.get("load")])
        if not reading.get("workers"):
            rows.append([host, None, "no workers", None])
    return table(("gateway", "worker", "state", "load"), rows)


def _some(names: Sequence[str]) -> str:
    """Names that still fit in one line with others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _faults(
    readings: Mapping[str, Mapping[str, Any]], routes: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, str]]:
    """Each thing that needs attention, as what it is and where it is."""
    for host, reading in (*readings.items(), *routes.items()):
        trouble = _trouble(reading)
        if trouble:
            yield "could not be read", f"{host} ({trouble.splitlines()[0]})"
    served: dict[str, str] = {}
    for host, reading in readings.items():
        for info in reading.get("instances") or []:
            name = f"{host}/{info['instance']}"
            record = (reading.get("records") or {}).get(info["instance"]) or {}
            if info.get("error"):
                yield "could not be read", f"{name} ({str(info['error']).splitlines()[0]})"
            if info.get("state") not in (None, "up"):
                yield f"{info['state']}", name
            elif not info.get("ready") and not info.get("error"):
                yield "not ready", name
            elif info.get("worker_url") and not (info.get("desired") or {}).get("rank"):
                served[str(info["worker_url"])] = name
            if info.get("restart_pending"):
                yield "restart pending", name
            if record.get("step") not in (None, "done"):
                yield f"left unfinished by rollout {record.get('run')}", name
        lock = reading.get("lock")
        if lock:
            yield f"claimed by rollout {lock.get('run')} of {lock.get('owner')}", f"{host} ({lock['age_s']:.0f} s ago)"
    for host, reading in routes.items():
        if _trouble(reading):
            continue
        workers = {str(worker.get("url")): worker for worker in reading.get("workers") or []}
        for url, worker in workers.items():
            if not worker.get("is_healthy"):
                yield f"not healthy for gateway {host}", url
        for url, name in served.items():
            if url not in workers:
                yield f"serves and is not in gateway {host}", name


def attention(readings: Mapping[str, Mapping[str, Any]], routes: Mapping[str, Mapping[str, Any]]) -> str:
    """One line about a fleet: what could not be read and what needs attention, or that nothing does.

    ``readings`` is what ``rollout_info`` returned for each server's host, ``routes`` what ``gateway_info`` returned for
    each gateway's.
    """
    found: dict[str, list[str]] = {}
    for what, where in _faults(readings, routes):
        found.setdefault(what, []).append(where)
    if found:
        return "Needs attention: " + "; ".join(f"{what}: {_some(where)}" for what, where in found.items())
    count = sum(len(reading.get("instances") or []) for reading in readings.values())
    return f"Nothing needs attention: everything was read, and {count} of {count} instances serve as declared"


def rollout(lines: Sequence[ledger.Line]) -> list[str]:
    """One line for each replica that a rollout moved: the seconds of each step, and what was seen of its drain."""
    replicas = list(dict.fromkeys(line.replica for line in lines if line.step in (*TIMED_STEPS, "done", "failed")))
    rows = []
    for replica in replicas:
        attempt = ledger.latest_attempt(lines, replica)
        seconds: dict[str, float] = {}
        for line in attempt:
            seconds[line.step] = seconds.get(line.step, 0.0) + line.elapsed_s
        facts = {key: value for line in attempt for key, value in line.detail.items()}
        end: str | None = next((line.step for line in reversed(attempt) if line.step in ("done", "failed")), None)
        if end == "failed" and facts.get("rolled_back"):
            end = "rolled back"
        drain_lines = facts.get("drain_lines")
        rows.append(
            [replica]
            + [f"{seconds[step]:.1f}" if step in seconds else None for step in TIMED_STEPS]
            + [
                facts.get("running", facts.get("running_at_leave")),
                facts.get("exit_code"),
                len(drain_lines) if isinstance(drain_lines, list) else drain_lines,
                facts.get("overhead_s"),
                end or "unfinished",
            ]
        )
    headings = ("replica", *TIMED_STEPS, "running", "exit", "drain lines", "overhead", "end")
    return table(headings, rows)
