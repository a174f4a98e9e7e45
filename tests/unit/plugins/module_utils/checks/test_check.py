# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks: never a crash, and what could not be told never becomes ok."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks.check import (
    SEVERITIES,
    Kind,
    as_dicts,
    check,
    run_checks,
    worst,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import Reading, Unknown, known
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, UNKNOWN, WARNING, Finding

SMALL = Kind("disk.small", ERROR, "too little space", "the start fails", "make room")
SLOW = Kind("disk.slow", WARNING, "a slow disk", "a start takes long", "another disk")


@dataclass(frozen=True)
class Disk:
    free: Reading[int]
    speed: Reading[int] = 100


@check(SMALL, SLOW)
def disk(readings: Disk) -> Iterator[Finding]:
    if known(readings.free) < 10:
        yield SMALL.found(f"{known(readings.free)} GiB are free", "/data: 3 GiB", "df -h /data")
    if 1000 // known(readings.speed) > 10:
        yield SLOW.found("slow", "/data")


def test_what_is_found_carries_its_kind() -> None:
    assert disk.run(Disk(3)) == [Finding("disk.small", ERROR, "3 GiB are free", "/data: 3 GiB", "df -h /data")]
    assert SLOW.found("slow", "x").fix == "another disk"
    assert SLOW.found("slow", "x", severity=ERROR).severity == ERROR
    assert disk.name == "disk"


def test_what_is_not_found_is_said() -> None:
    assert disk.run(Disk(30)) == [Finding("disk.small", OK, "not found: too little space")]


def test_a_missing_reading_is_unknown_with_its_reason() -> None:
    (found,) = disk.run(Disk(Unknown("/data: Permission denied")))
    assert (found.id, found.severity, found.evidence) == ("disk.small", UNKNOWN, "/data: Permission denied")
    assert "too little space" in found.summary
    assert found.fix


def test_what_was_found_before_a_reading_was_missing_is_kept() -> None:
    found = disk.run(Disk(3, Unknown("garbled")))
    assert [(one.id, one.severity) for one in found] == [("disk.small", ERROR), ("disk.small", UNKNOWN)]


def test_a_check_that_breaks_is_unknown_and_says_where() -> None:
    (found,) = disk.run(Disk(30, 0))
    assert found.severity == UNKNOWN
    assert found.evidence.startswith("disk broke on what it read: ZeroDivisionError")


def test_a_check_that_returns_no_findings_at_all_is_unknown() -> None:
    (found,) = check(SMALL)(lambda _readings: None).run(Disk(30))  # type: ignore[arg-type,return-value]
    assert found.severity == UNKNOWN


def test_one_broken_check_leaves_the_others() -> None:
    fine = check(SLOW)(lambda readings: [])
    found = run_checks([disk, fine, disk], Disk("garbled"))  # type: ignore[arg-type]
    assert [one.severity for one in found] == [UNKNOWN, OK, UNKNOWN]


@given(
    st.one_of(st.integers(), st.none(), st.text(), st.builds(Unknown, st.text())), st.one_of(st.integers(), st.none())
)
def test_no_reading_makes_it_crash_or_turns_unknown_into_ok(free: object, speed: object) -> None:
    found = disk.run(Disk(free, speed))  # type: ignore[arg-type]
    assert found
    if not isinstance(free, int) or (free >= 10 and not speed):
        assert worst(found) == UNKNOWN


@pytest.mark.parametrize("severities", [some for n in (1, 2, 3) for some in itertools.permutations(SEVERITIES, n)])
def test_the_worst_of_findings(severities: tuple[str, ...]) -> None:
    found = [Finding("a.b", severity, "") for severity in severities]
    assert worst(found) == max(severities, key=[OK, WARNING, UNKNOWN, ERROR].index)


def test_the_worst_of_nothing_is_ok() -> None:
    assert worst([]) == OK


def test_findings_as_data() -> None:
    assert as_dicts([SMALL.fine("enough", "/data: 30 GiB")]) == [
        {"id": "disk.small", "severity": "ok", "summary": "enough", "evidence": "/data: 30 GiB", "fix": ""}
    ]
