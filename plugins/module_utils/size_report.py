# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a fleet as a table and as data, from what `mem_fraction` returned for each instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report import table

HEADINGS = (
    "host",
    "instance",
    "kind",
    "release",
    "fraction",
    "SGLang's",
    "window",
    "pool",
    "requests",
    "free before",
    "note",
)


def data(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each instance of each host; a host that could not be read has one with its trouble."""
    found: list[dict[str, Any]] = []
    for host, registered in results.items():
        answers = registered.get("results")
        if answers is None:
            found.append({"host": host, "instance": None, "problem": str(registered.get("msg") or "not read")})
            continue
        found += [_entry(host, answer) for answer in answers]
    return found


def _entry(host: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    item = answer.get("item") or {}
    entry: dict[str, Any] = {"host": host, "instance": item.get("name"), "model": item.get("model"), "problem": None}
    if answer.get("skipped"):
        return {**entry, "problem": "the host could not be read"}
    if answer.get("failed") or "automatic" not in answer:
        return {**entry, "problem": str(answer.get("msg") or "not computed")}
    prediction = answer.get("prediction") or {}
    return {
        **entry,
        "kind": answer["kind"]["kind"],
        "release": answer["release"],
        "assumed": answer["assumed"],
        "feasible": answer["feasible"],
        "fraction": answer["fraction"],
        "automatic": answer["automatic"]["fraction"],
        "window": answer["window"],
        "max_total_num_tokens": prediction.get("max_total_num_tokens"),
        "max_running_requests": prediction.get("max_running_requests"),
        "requests": prediction.get("requests") or {},
        "before_gib": answer["estimate"]["before_gib"],
        "lines": answer["lines"],
        "warnings": answer["warnings_found"],
        "findings": answer["findings"],
    }


def lines(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The table, and below it what each instance must be told."""
    entries = data(results)
    text = table(HEADINGS, [_row(entry) for entry in entries])
    for entry in entries:
        name = f"{entry['host']} {entry['instance'] or ''}".strip()
        if entry["problem"]:
            text.append(f"{name}: {entry['problem']}")
            continue
        text += [f"{name}: {line}" for line in entry["lines"]]
        text += [f"{name}: warning: {warning}" for warning in entry["warnings"]]
        text += [f"{name}: {one['severity']}: {one['summary']}" for one in entry["findings"]]
    return text


def _row(entry: Mapping[str, Any]) -> list[Any]:
    if entry["problem"]:
        return [entry["host"], entry["instance"], *[None] * 8, "not computed, see below"]
    bounds = entry["window"]
    requests = ", ".join(f"{count} of {tokens}" for tokens, count in entry["requests"].items())
    severities = [one["severity"] for one in entry["findings"]]
    notes = [{True: None, False: "not feasible", None: "unknown model"}[entry["feasible"]]]
    notes += [f"{count} {name}" for name in ("error", "warning") if (count := severities.count(name))]
    notes += ["assumed release"] if entry["assumed"] else []
    return [
        entry["host"],
        entry["instance"],
        entry["kind"],
        entry["release"],
        _number(entry["fraction"]),
        _number(entry["automatic"]),
        _window(bounds),
        entry["max_total_num_tokens"],
        requests,
        None if entry["before_gib"] is None else f"{entry['before_gib']:.1f} GiB",
        "; ".join(note for note in notes if note),
    ]


def _window(bounds: Mapping[str, Any]) -> str | None:
    if bounds["feasible"] is None:
        return None
    return f"{bounds['low']:.3f}-{bounds['high']:.3f}" if bounds["feasible"] else "none"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
