# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings that are known and accepted for a while: who said so, why, and until when. Pure."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .plain import kind_of

NAME = "sglang_preflight_ignore"
_KEYS = ("id", "reason", "until", "host", "instance")
# What an entry could hide that nobody has looked at.
_NEVER = {
    "preflight.host_unreachable": "leave a host that is switched off out of the run: --limit '!HOST'",
}


@dataclass(frozen=True)
class Ignore:
    """One entry. It holds through the day `until`. An empty `host` or `instance` stands for every one."""

    id: str
    reason: str
    until: datetime.date
    host: str = ""
    instance: str = ""

    def covers(self, finding: Mapping[str, Any], host: str) -> bool:
        return (
            finding.get("id") == self.id
            and self.host in ("", host)
            and self.instance in ("", str(finding.get("instance") or ""))
        )

    def expired(self, today: datetime.date) -> bool:
        return self.until < today

    def as_dict(self) -> dict[str, str]:
        where = {key: value for key, value in (("host", self.host), ("instance", self.instance)) if value}
        return {"id": self.id, "reason": self.reason, "until": self.until.isoformat(), **where}


def read_ignores(entries: Any, ids: Collection[str]) -> tuple[list[Ignore], list[str]]:
    """The entries, and what is wrong with those that are refused, with what to write instead."""
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return [], [f"{NAME} is {kind_of(entries)}; it is a list of entries with id, reason and until"]
    ignores: list[Ignore] = []
    problems: list[str] = []
    for position, entry in enumerate(entries):
        where = f"{NAME}[{position}]"
        if not isinstance(entry, Mapping):
            problems.append(f"{where} is {kind_of(entry)}; an entry has id, reason and until")
            continue
        wrong, until = _wrong(entry, ids)
        if wrong or until is None:
            named = f" ({entry['id']})" if entry.get("id") else ""
            problems += [f"{where}{named}: {text}" for text in wrong]
            continue
        ignores.append(
            Ignore(
                str(entry["id"]),
                str(entry["reason"]).strip(),
                until,
                str(entry.get("host") or ""),
                str(entry.get("instance") or ""),
            )
        )
    return ignores, problems


def _wrong(entry: Mapping[str, Any], ids: Collection[str]) -> tuple[list[str], datetime.date | None]:
    wrong: list[str] = []
    for key in entry:
        if key not in _KEYS:
            wrong.append(f"'{key}' is no key of an entry{_near(str(key), _KEYS)}; they are {', '.join(_KEYS)}")
    name = str(entry.get("id") or "")
    if not name:
        wrong.append("id is missing: the id of the finding as the report prints it")
    elif name in _NEVER:
        wrong.append(f"it cannot be ignored; {_NEVER[name]}")
    elif name not in ids:
        wrong.append(f"there is no finding '{name}'{_near(name, sorted(ids))}; docs/findings.md lists them all")
    if not str(entry.get("reason") or "").strip():
        wrong.append("reason is missing: say why the finding is acceptable, for whoever reads it at night")
    until = entry.get("until")
    if until in (None, ""):
        wrong.append("until is missing: the last day on which it is ignored, as 2027-01-31")
        return wrong, None
    day = _day(until)
    if day is None:
        wrong.append(f"until is '{until}', expected a day as 2027-01-31")
    return wrong, day


def _day(value: Any) -> datetime.date | None:
    """YAML makes a date of a bare 2027-01-31, and JSON leaves it a text."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return datetime.date(value.year, value.month, value.day)
    try:
        return datetime.date.fromisoformat(str(value).strip())
    except ValueError:
        return None


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; is {near[0]} meant?" if near else ""


def apply(
    findings: Sequence[Mapping[str, Any]], host: str, ignores: Sequence[Ignore], today: datetime.date
) -> tuple[list[dict[str, Any]], set[Ignore]]:
    """The findings of a host, each that is not ok with what the list says of it, and the entries that met one."""
    marked: list[dict[str, Any]] = []
    met: set[Ignore] = set()
    for finding in findings:
        said = {**finding, "ignored": None, "expired": None}
        if finding.get("severity") != "ok":
            covering = [one for one in ignores if one.covers(finding, host)]
            met.update(covering)
            holding = [one for one in covering if not one.expired(today)]
            if holding:
                said["ignored"] = holding[0].as_dict()
            elif covering:
                said["expired"] = covering[0].as_dict()
        marked.append(said)
    return marked, met
