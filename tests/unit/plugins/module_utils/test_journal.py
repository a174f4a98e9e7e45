# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal as `journalctl -o json` prints it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.journal import decode_message, parse


def entry(message, cursor="c"):
    return json.dumps({"MESSAGE": message, "__CURSOR": cursor})


def test_messages_and_the_last_cursor():
    entries = parse("\n".join([entry("one", "c1"), entry("two", "c2")]))
    assert entries.messages == ["one", "two"]
    assert entries.cursor == "c2"


def test_an_empty_journal():
    assert parse("").messages == []
    assert parse("").cursor is None


def test_a_line_cut_short_is_left_out():
    entries = parse(entry("one", "c1") + "\n" + entry("two", "c2")[:-5])
    assert entries.messages == ["one"]
    assert entries.cursor == "c1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([76, 111, 97, 100, 13, 255], "Load\r\ufffd"),
        (["first", [115]], "first\ns"),
        ({"odd": 1}, ""),
    ],
)
def test_messages_of_every_form(value, text):
    assert decode_message(value) == text


def test_a_progress_bar_counts_by_its_last_state():
    bar = "Loading: 0%|\rLoading: 50%|\rLoading: 100%|\r"
    assert parse(entry(list(bar.encode()))).lines == ["Loading: 100%|"]


def test_a_message_of_several_lines():
    assert parse(entry("Traceback:\n  File\nValueError: x")).lines == ["Traceback:", "  File", "ValueError: x"]


@given(st.text())
def test_no_output_breaks_the_reader(text):
    assert isinstance(parse(text).messages, list)
