# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How one desired state of an instance differs from another: what an upgrade, or the way back, would change.

Pure. The states hold no secrets, and what could be one by its name is masked all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import release_difference
from .redaction import MASK, is_secret_option, redact

VERSION = "version"
RUNTIME = "runtime"
IMAGE = "image"
MODEL = "model"
ARGUMENT = "argument"
ENVIRONMENT = "environment"
LIMIT = "limit"
TIME = "time"
CREDENTIALS = "credentials"
CONTAINER = "container"
OTHER = "other"
RELEASE = "release"

NAMED = 8
"""How many replicas are named in one line."""

LONGEST = 120
"""How long a value may be in one line."""

_TIMES = (("grace", "period_s"), ("drain", "timeout_s"), ("drain", "on_timeout"), ("start", "deadline_s"))
# What follows from other parts, or only says how they were computed.
_DERIVED = ("argv", "unit_revision", "version_assumed", "grace", "drain", "start", "memory", "schema")
_OWN_PARTS = ("version", "runtime", "native", "args", "environment", "limits", "credentials", "model", "container")
_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:\w*apikey|key|token|secret|pass\w*|credentials?|auth\w*)(?:$|[_-])", re.IGNORECASE
)


@dataclass(frozen=True)
class Change:
    """One thing that is otherwise. None where there is nothing."""

    part: str
    name: str
    before: Any = None
    after: Any = None
    text: str = ""

    def as_dict(self) -> dict[str, Any]:
        row = {"part": self.part, "name": self.name, "before": self.before, "after": self.after}
        return {**row, "text": self.text} if self.text else row


def _shown_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if is_secret_option(name) or _SECRET_NAME.search(name):
        return MASK
    return redact({name: value})[name]


def _rows(part: str, before: Mapping[str, Any], after: Mapping[str, Any], same: Any = None) -> Iterable[Change]:
    """What differs between two mappings. ``same`` tells values apart that differ only in the path of a release."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new or (same is not None and same(0, old) == same(1, new)):
            continue
        yield Change(part, name, _shown_value(name, old), _shown_value(name, new))


def _part(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = state.get(name)
    return dict(value) if isinstance(value, Mapping) else {}


def _image(state: Mapping[str, Any]) -> str | None:
    image = _part(state, "container").get("image")
    return None if image is None else str(image)


def _credentials(state: Mapping[str, Any]) -> list[str]:
    """Which secrets there are, never which."""
    return sorted(name for name in ("config", "hf_token") if _part(state, "credentials").get(name))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What the desired state ``after`` has otherwise than ``before``, in the order in which a person asks."""
    found: list[Change] = []
    versions = (str(before.get("version") or ""), str(after.get("version") or ""))
    for part, old, new in (
        (VERSION, *versions),
        (RUNTIME, before.get("runtime"), after.get("runtime")),
        (IMAGE, _image(before), _image(after)),
    ):
        if old != new:
            found.append(Change(part, part, old or None, new or None))

    def same(side: int, value: Any) -> Any:
        """A value without what a change of the release alone makes different in it."""
        return re.sub(rf"/opt/sglang/{re.escape(versions[side])}(?![0-9.])[^/:]*", "/opt/sglang/RELEASE", str(value))

    # Environments of one release differ by what they were locked to.
    pythons = [str((state.get("argv") or [""])[0]) for state in (before, after)]
    if versions[0] == versions[1] and pythons[0] != pythons[1]:
        found.append(Change(OTHER, "interpreter", *pythons))
    found += _rows(MODEL, _part(before, "model"), _part(after, "model"))
    found += _rows(ARGUMENT, _part(before, "args"), _part(after, "args"))
    found += _rows(ENVIRONMENT, _part(before, "environment"), _part(after, "environment"), same)
    found += _rows(LIMIT, _part(before, "limits"), _part(after, "limits"))
    for part, name in _TIMES:
        old, new = _part(before, part).get(name), _part(after, part).get(name)
        if old != new:
            found.append(Change(TIME, f"{part}.{name}", old, new))
    # The image has its own line, and the rest of what an engine is asked for follows from it.
    inside = [
        {key: value for key, value in _part(state, "container").items() if key not in ("image", "run_image")}
        for state in (before, after)
    ]
    found += _rows(CONTAINER, *inside)
    kinds = (_credentials(before), _credentials(after))
    if kinds[0] != kinds[1]:
        found.append(Change(CREDENTIALS, CREDENTIALS, ", ".join(kinds[0]) or None, ", ".join(kinds[1]) or None))
    elif _part(before, "credentials").get("fingerprint") != _part(after, "credentials").get("fingerprint"):
        found.append(Change(CREDENTIALS, CREDENTIALS, text="other values"))
    rest = [
        {key: value for key, value in state.items() if key not in (*_DERIVED, *_OWN_PARTS)} for state in (before, after)
    ]
    found += _rows(OTHER, *rest)
    if before.get("unit_revision") != after.get("unit_revision"):
        old, new = before.get("unit_revision"), after.get("unit_revision")
        found.append(Change(OTHER, "unit_revision", old, new, "the unit is written otherwise"))
    return found


def release_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[Change], tuple[str, ...]]:
    """What the other release means for the arguments in use, and of which releases the data is where it is assumed."""
    versions = (str(before.get("version") or ""), str(after.get("version") or ""))
    if versions[0] == versions[1] or not all(versions):
        return [], ()
    found = release_difference.difference(*versions)
    effects = release_difference.for_arguments(found, _part(after, "args"), _part(after, "environment"))
    rows = []
    for effect in effects:
        if effect.severity == release_difference.INFO:
            continue
        change = effect.change
        name = f"--{change.name}" if change.what == release_difference.FLAG else change.name
        text = (
            f"default of {name} changes from {_worded(change.before)} to {_worded(change.after)}"
            if change.change == release_difference.DEFAULT
            else f"{name} ({change.change}): {effect.text}"
        )
        rows.append(Change(RELEASE, change.name, change.before, change.after, text))
    return rows, found.assumed


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Two states of an instance compared, as data; None when one is missing or they differ in nothing."""
    if before is None or after is None or before == after:
        return None
    found = changes(before, after)
    of_release, assumed = release_changes(before, after)
    return {
        "from": {"version": before.get("version"), "image": _image(before), "runtime": before.get("runtime")},
        "to": {"version": after.get("version"), "image": _image(after), "runtime": after.get("runtime")},
        "changes": [change.as_dict() for change in [*found, *of_release]],
        "assumed": list(assumed),
    }


# --- for people -----------------------------------------------------------------------------------------------------


def _worded(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _line(row: Mapping[str, Any], various: bool) -> str:
    part, name, text = row["part"], row["name"], row.get("text")
    if text:
        return str(text) if part == RELEASE else f"{part} {name}: {text}" if name != part else f"{part}: {text}"
    label = f"{part}: " if name == part else f"{part} {name}: "
    if various:
        return f"{label}another value on each"
    if part in (ARGUMENT, ENVIRONMENT):
        if row["before"] is None:
            return f"{label}added, {_worded(row['after'])}"
        if row["after"] is None:
            return f"{label}left out, was {_worded(row['before'])}"
    return f"{label}{_worded(row['before'])} -> {_worded(row['after'])}"


def _shape(found: Mapping[str, Any]) -> str:
    """What groups are made by: the same release and image, and the same things that change, whatever their values."""
    rows = [[row["part"], row["name"], row["before"] is None, row["after"] is None] for row in found["changes"]]
    return json.dumps([found["from"], found["to"], rows], sort_keys=True)


def grouped(found: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Differences of many replicas, each said once: ``replicas`` and the ``lines`` that hold for all of them.

    Values that every host computed for itself, as a memory fraction, would make a group of each: they are told as
    being another on each.
    """
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name, one in found:
        groups.setdefault(_shape(one), []).append((name, one))
    result = []
    for group in groups.values():
        first = group[0][1]
        lines = []
        for index, row in enumerate(first["changes"]):
            if row["part"] == VERSION:
                continue
            various = any(
                (other["changes"][index]["before"], other["changes"][index]["after"]) != (row["before"], row["after"])
                for _name, other in group
            )
            lines.append(_line(row, various))
        assumed = sorted({text for _name, one in group for text in one["assumed"]})
        if assumed:
            lines.append(f"what the releases differ in is assumed ({', '.join(assumed)})")
        result.append(
            {
                "replicas": list(dict.fromkeys(name for name, _one in group)),
                "from": dict(first["from"]),
                "to": dict(first["to"]),
                "lines": lines,
            }
        )
    return result


def headline(group: Mapping[str, Any]) -> str:
    """The first line of a group: who, and from which release to which."""
    names = group["replicas"]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    old, new = group["from"]["version"], group["to"]["version"]
    return f"{', '.join(names[:NAMED])}{more}: " + (f"{old} -> {new}" if old != new else f"{new}, changed")


def render(groups: Sequence[Mapping[str, Any]], word: str = "changes") -> list[str]:
    """Groups as lines of a plan."""
    lines = []
    for group in groups:
        lines.append(f"  {word}: {headline(group)}")
        lines += [f"    {line}" for line in group["lines"]]
    return lines
