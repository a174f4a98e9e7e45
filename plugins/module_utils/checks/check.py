# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a check is, and how checks are run: never a crash, never a clean bill for what could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..finding import ERROR, OK, UNKNOWN, WARNING, Finding
from .reading import CouldNotTell

R = TypeVar("R")


@dataclass(frozen=True)
class Kind:
    """One thing that a check can find. What docs/findings.md says of it, so it is written for a person.

    `id` is stable: people put it on ignore lists. `severity` is the worst one that it can have. `title` names the fault
    in a few words, `meaning` says what happens if it stays, `fix` what to do in general (the finding itself carries the
    line that fits the host). `source` says how we know: file and function in SGLang, a measurement, a public report.
    """

    id: str
    severity: str
    title: str
    meaning: str
    fix: str
    source: str = ""

    def found(self, summary: str, evidence: str, fix: str = "", severity: str = "") -> Finding:
        """This fault on this host. `evidence` holds path, version and value as they were read."""
        return Finding(self.id, severity or self.severity, summary, evidence, fix or self.fix)

    def fine(self, summary: str, evidence: str = "") -> Finding:
        """It was looked for and is not there."""
        return Finding(self.id, OK, summary, evidence)


@dataclass(frozen=True)
class Check(Generic[R]):
    """A function from the readings of an area to findings, with every kind that it can find."""

    look: Callable[[R], Iterable[Finding]]
    kinds: tuple[Kind, ...]

    @property
    def name(self) -> str:
        return self.look.__name__

    def run(self, readings: R) -> list[Finding]:
        """The findings; one of severity unknown when a reading that it needs is missing, or when it breaks."""
        found: list[Finding] = []
        try:
            found.extend(self.look(readings))
        except CouldNotTell as error:
            found.append(self._unknown(f"could not tell: {self.kinds[0].title}", str(error), error.fix))
        except Exception as error:
            # A reading that nobody thought of is no reason to lose all the other findings of the host.
            what = f"{self.name} broke on what it read: {type(error).__name__}: {error}"
            found.append(self._unknown(f"could not tell: {self.kinds[0].title}", what))
        if not found:
            found.append(self.kinds[0].fine(f"not found: {self.kinds[0].title}"))
        return found

    def _unknown(self, summary: str, reason: str, fix: str = "") -> Finding:
        fix = fix or "make this readable and run again, or put the finding on the ignore list with the reason"
        return Finding(self.kinds[0].id, UNKNOWN, summary, reason, fix)


def check(*kinds: Kind) -> Callable[[Callable[[R], Iterable[Finding]]], Check[R]]:
    """Make a check of a function from readings to findings. One that finds nothing is reported as fine."""

    def made(look: Callable[[R], Iterable[Finding]]) -> Check[R]:
        return Check(look, kinds)

    return made


def run_checks(checks: Sequence[Check[R]], readings: R) -> list[Finding]:
    """All findings of an area, in the order of the table."""
    return [finding for each in checks for finding in each.run(readings)]


SEVERITIES = (OK, WARNING, UNKNOWN, ERROR)


def worst(findings: Iterable[Finding]) -> str:
    """The worst severity of them; ok when there is none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)


def as_dicts(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [finding.as_dict() for finding in findings]
