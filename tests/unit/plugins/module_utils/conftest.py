# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every fix that a test has made is one that can be followed, whatever the test itself looks at."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.finding import Finding

sys.path.insert(0, str(Path(__file__).parent))
from fix_lines import fix_problem

FIXES: set[str] = set()
MAKE = Finding.__init__


def kept(self: Finding, *arguments: Any, **named: Any) -> None:
    MAKE(self, *arguments, **named)
    FIXES.add(self.fix)


@pytest.fixture(scope="session", autouse=True)
def _findings_are_kept() -> Generator[None]:
    Finding.__init__ = kept  # type: ignore[method-assign]
    yield
    Finding.__init__ = MAKE  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    FIXES.clear()
    result = yield
    problems = [problem for fix in sorted(FIXES) if (problem := fix_problem(fix))]
    assert not problems, "\n".join(problems)
    return result
