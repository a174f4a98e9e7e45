# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data by release: what is written is read back, and nothing is lost between the releases."""

from __future__ import annotations

import ast
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.environment_names import RETIRED, VARIABLES
from ansible_collections.serving.sglang.plugins.module_utils.flag_table import Flag, flag_of, flags_of, row_of
from ansible_collections.serving.sglang.plugins.module_utils.release_rows import (
    by_release,
    changes_between,
    is_release,
    nearest,
    release_key,
)
from ansible_collections.serving.sglang.plugins.module_utils.server_flags import ALIASES, FLAGS, KINDS

TOOLS = Path(__file__).resolve().parents[4] / "tools"
sys.path.insert(0, str(TOOLS))
import release_data  # noqa: E402

rows = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=3) | st.lists(st.booleans()), max_size=6)


@given(st.lists(rows, min_size=1, max_size=4))
def test_releases_read_back_as_they_were(releases: list[dict[str, Any]]) -> None:
    named = {f"1.{number}": one for number, one in enumerate(releases)}
    changes = {later: changes_between(named[earlier], named[later]) for earlier, later in pairwise(named)}
    assert by_release("1.0", releases[0], changes) == named


@pytest.mark.parametrize(
    ("asked", "found"), [("0.5.22", "0.5.22"), ("0.5.30", "0.5.23"), ("0.5.17", "0.5.22"), ("0.5.22.post1", "0.5.22")]
)
def test_nearest(asked: str, found: str) -> None:
    assert nearest(asked, ["0.5.23", "0.5.22"]) == found


@pytest.mark.parametrize("release", sorted(FLAGS))
def test_rows_read_back_as_flags(release: str) -> None:
    for name, row in FLAGS[release].items():
        assert row_of(flag_of(name, row)) == row


kinds = st.sampled_from(["flag", "switch", "value", "optional", "values"])
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=150)


@st.composite
def flags(draw: st.DrawFn) -> Flag:
    kind = draw(kinds)
    return Flag(
        name="x",
        kind=kind,
        type="bool" if kind in ("flag", "switch") else draw(st.sampled_from(["str", "int", "json"])),
        nargs=draw(st.sampled_from(["+", "*"])) if kind == "values" else None,
        default=draw(st.none() | st.booleans() | st.integers() | texts | st.lists(texts, max_size=3)),
        choices=draw(st.none() | st.lists(texts, max_size=20).map(tuple)),
        open_choices=draw(st.booleans()),
        aliases=draw(st.lists(texts.filter(bool), max_size=2).map(tuple)),
        deprecated=draw(st.none() | texts),
        removed_after=draw(st.none() | st.just("2026-12-31")),
    )


@given(flags())
def test_flags_read_back_from_their_rows_and_those_from_their_text(flag: Flag) -> None:
    row = row_of(flag)
    assert flag_of("x", row) == flag
    assert ast.literal_eval(release_data.mapping({"x": row})) == {"x": row}


@given(st.dictionaries(texts, texts, max_size=4))
def test_messages_read_back_from_their_text(messages: dict[str, str]) -> None:
    assert ast.literal_eval(release_data.mapping(messages)) == messages


def test_the_generated_files_are_what_the_tool_writes() -> None:
    present = release_data.present()
    for text, name in (
        (release_data.flags_text(present), "server_flags"),
        (release_data.variables_text(present), "environment_names"),
    ):
        assert text == (release_data.TARGETS / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("release", sorted(FLAGS))
def test_the_data_is_whole(release: str) -> None:
    table = flags_of(release)
    assert not table.assumed
    assert set(table.rows) == set(KINDS[release])
    assert all(name in table.rows for name in ALIASES[release].values())
    for name in table.rows:
        flag = table.flag(name)
        assert flag is not None
        if flag.choices is not None and isinstance(flag.default, str):
            assert flag.default in flag.choices, name
    assert VARIABLES[release]["SGLANG_FORCE_SHUTDOWN"]["unread"]
    assert not VARIABLES[release]["SGLANG_CACHE_DIR"].get("unread")
    registered = [row for row in VARIABLES[release].values() if not row.get("unregistered")]
    assert len(registered) == {"0.5.22": 684, "0.5.23": 770}[release]
    assert len(RETIRED[release]) == {"0.5.22": 15, "0.5.23": 14}[release]


def test_what_a_configuration_file_makes_of_a_key() -> None:
    older, newer = flags_of("0.5.22"), flags_of("0.5.23")
    for name in ("enable-tf32-matmul", "mm-enable-dp-encoder"):
        assert (older.in_yaml(name), newer.in_yaml(name)) == ("boolean", "refused")
    for table in (older, newer):
        assert table.in_yaml("lora-paths") == table.in_yaml("disable-cuda-graph") == "refused"
        assert table.in_yaml("tp-size") == table.in_yaml("tensor-parallel-size") == "value"
    assert newer.in_yaml("enable-hicache") == "boolean"


def test_choices_that_a_plugin_can_add_to_are_marked() -> None:
    table = flags_of("0.5.23")
    opened = {name for name in table.rows if (flag := table.flag(name)) is not None and flag.open_choices}
    assert {"attention-backend", "quantization", "load-format", "tool-call-parser", "reasoning-parser"} <= opened
    assert not opened & {"schedule-policy", "dtype", "kv-cache-dtype", "cuda-graph-backend-decode"}


def test_a_number_of_thousands_of_digits_is_ordered_too() -> None:
    assert release_key("9" * 5000) > release_key("0.5.23")
    assert nearest("0." + "9" * 5000, ["0.5.22", "0.5.23"]) == "0.5.23"


def test_what_is_a_release() -> None:
    assert all(map(is_release, ("0.5", "0.5.22", "0.5.22.post1", "0.6.0rc1", "0.5.22+cu129")))
    assert not any(map(is_release, ("", "nonsense", "v0.5.22", "5", "0.5.22\n", "0." + "9" * 5000)))
