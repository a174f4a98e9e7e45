# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one table of all checks, and the page that is made of it."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import table
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import Check, Kind
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, UNKNOWN, WARNING

CHECKOUT = Path(__file__).resolve().parents[5]
SOURCES = sorted((CHECKOUT / "plugins").rglob("*.py"))
CHECKS = [pytest.param(check, id=f"{area}-{check.name}") for area, some in table.AREAS.items() for check in some]


def findings_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("findings_page", CHECKOUT / "tools" / "findings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_two_kinds_have_one_id() -> None:
    twice = [name for name, count in Counter(kind.id for kind in table.all_kinds()).items() if count > 1]
    assert not twice, "an ignore list could not tell them apart"
    assert set(table.KINDS) == {kind.id for kind in table.all_kinds()}


@pytest.mark.parametrize("kind", table.all_kinds(), ids=lambda kind: kind.id)
def test_a_kind_is_written_for_a_person(kind: Kind) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", kind.id), "ids are stable: <topic>.<fault>"
    assert kind.severity in (WARNING, ERROR, UNKNOWN)
    assert kind.title
    assert kind.meaning
    assert kind.fix
    assert not kind.title.endswith("."), "a title is no sentence"


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_has_a_kind(check: Check[object]) -> None:
    assert check.kinds
    assert re.fullmatch(r"[a-z][a-z0-9_]+", check.name), "the name stands in findings: a function and no lambda"


def test_every_area_is_looked_at() -> None:
    assert set(table.AREAS) <= set(table.EXAMINERS)
    assert {"arguments", "toolchain", "caches", "host", "container"} <= set(table.AREAS)


def test_no_check_stands_in_the_table_twice() -> None:
    checks = [check for some in table.AREAS.values() for check in some]
    assert len({id(check) for check in checks}) == len(checks)


def test_every_id_that_the_code_uses_is_in_the_table() -> None:
    """Findings are made of kinds, or by their id: whichever way, the page and the ignore list know it."""
    made = re.compile(r"\b(?:Finding|Kind)\(\s*\"([a-z]+\.[a-z0-9_]+)\"")
    used = {name: path.name for path in SOURCES for name in made.findall(path.read_text(encoding="utf-8"))}
    assert len(used) > 100, "the expression finds no more what it is for"
    missing = {name: where for name, where in used.items() if name not in table.KINDS}
    assert not missing


def test_ids_that_are_put_together_are_in_the_table() -> None:
    put_together = re.compile(r"\b(?:Finding|Kind)\(\s*f\"([^\"]*)\"")
    found = {name for path in SOURCES for name in put_together.findall(path.read_text(encoding="utf-8"))}
    assert found <= {"memory.pool_{verdict}"}, "an id that is put together cannot be searched for"
    assert {f"memory.pool_{verdict}" for verdict in ("shrink", "raise", "lower", "other_lever")} <= set(table.KINDS)


def test_every_kind_is_used() -> None:
    """A kind that no code refers to is a promise that nobody keeps."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    defined = re.findall(r"^(\w+) = Kind\(\s*\"([a-z]+\.[a-z0-9_]+)\"", text, re.M)
    unused = [name for variable, name in defined if len(re.findall(rf"\b{variable}\b", text)) < 2]
    assert not unused


def test_the_page_of_all_findings_is_up_to_date() -> None:
    page = findings_page()
    fresh = page.text_of(table.all_kinds())
    assert page.PAGE.read_text(encoding="utf-8") == fresh, "run tools/findings_page.py"
    assert all(f"### {name}\n" in fresh for name in table.KINDS)


def test_a_topic_that_nobody_describes_is_refused() -> None:
    page = findings_page()
    with pytest.raises(SystemExit, match="strange"):
        page.text_of([Kind("strange.thing", ERROR, "a", "b", "c")])


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    kind = Kind("host.x", ERROR, "a <b> of sgl_kernel", "`a <b> c_d` stays", "rm *")
    text = findings_page().text_of([kind])
    assert "a &lt;b> of sgl_kernel." in text
    assert "`a <b> c_d` stays." in text
    assert "rm \\*." in text
