# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of data by release, kept as those of the oldest release and what each later one changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Rows = dict[str, Any]
_RELEASE = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)*(?:\.?(?:a|b|rc|post|dev)[0-9]+)*(?:\+[A-Za-z0-9.]+)?")
_LONGEST = 64
_DIGITS = 9


def release_key(release: str) -> tuple[int, ...]:
    """What releases are ordered by: the numbers of the version."""
    return tuple(_number(part) for part in re.findall(r"[0-9]+", release.split("+")[0])[:3])


def _number(digits: str) -> int:
    """Bounded: Python refuses to read a number of thousands of digits."""
    return int(digits) if len(digits) <= _DIGITS else 10**_DIGITS


def is_release(text: str) -> bool:
    """Whether this can be the version of a release: 0.5.22, 0.5.22.post1, 0.6.0rc1, 0.5.22+cu129."""
    return len(text) <= _LONGEST and bool(_RELEASE.fullmatch(text))


def nearest(release: str, known: Iterable[str]) -> str:
    """The release itself, or the newest known one that is not newer, or the oldest known one."""
    ordered = sorted(known, key=release_key)
    if release in ordered:
        return release
    not_newer = [one for one in ordered if release_key(one) <= release_key(release)]
    return not_newer[-1] if not_newer else ordered[0]


def by_release(oldest: str, rows: Rows, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Rows]:
    """The rows of every release. `changes` are in the order of the releases; None stands for a row that is gone."""
    found = {oldest: rows}
    for release, changed in changes.items():
        rows = {**rows, **changed}
        rows = {name: row for name, row in rows.items() if row is not None}
        found[release] = rows
    return found


def changes_between(rows: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the later rows of the rows: the rows that are new or other, and None for those that are gone."""
    changed = {name: row for name, row in later.items() if name not in rows or rows[name] != row}
    gone = {name: None for name in rows if name not in later}
    return {name: {**changed, **gone}[name] for name in sorted({*changed, *gone})}
