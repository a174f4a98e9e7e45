# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words in unit files: what systemd reads back is what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.unit_words import (
    environment_line,
    exec_line,
    exec_word,
    path_word,
)

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)


def systemd_reads(text: str, variables: bool) -> list[str]:
    """systemd's own rules (systemd.syntax, systemd.service) for the quoting that is used here."""
    result: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\n":
            position += 1
            continue
        word, quoted = "", False
        while position < len(text) and (quoted or text[position] not in " \t\n"):
            letter = text[position]
            if letter == '"':
                quoted = not quoted
            elif letter == "\\":
                position += 1
                word += {"n": "\n", "t": "\t", "r": "\r"}.get(text[position], text[position])
            else:
                word += letter
            position += 1
        word = word.replace("%%", "%")
        result.append(word.replace("$$", "$") if variables else word)
    return result


@given(words)
def test_a_word_stays_one_word(word: str) -> None:
    assert systemd_reads(exec_word(word), variables=True) == [word]
    assert "\n" not in exec_word(word)


@given(words.filter(lambda text: "\n" not in text))
def test_an_environment_variable_keeps_its_value(value: str) -> None:
    assert systemd_reads(environment_line("NAME", value), variables=False) == [f"NAME={value}"]


@given(st.lists(words.filter(lambda text: not text.startswith("--")), max_size=5))
def test_a_command_line_stays_its_words(rest: list[str]) -> None:
    line = exec_line(["/bin/python", "-m", "module", *rest])
    assert systemd_reads(line.replace("\\\n", " "), variables=True) == ["/bin/python", "-m", "module", *rest]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--port", "--port"),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
        (";", '";"'),
    ],
)
def test_nothing_in_a_word_is_expanded(word: str, text: str) -> None:
    assert exec_word(word) == text


def test_only_what_is_meant_for_systemd_is_expanded() -> None:
    assert exec_word("${CREDENTIALS_DIRECTORY}/config.yml", expand=True) == "${CREDENTIALS_DIRECTORY}/config.yml"


def test_each_argument_has_its_line() -> None:
    line = exec_line(["/bin/python", "-m", "module", "--port", "1", "--flag", "--list", "a", "b"])
    assert line.split(" \\\n    ") == ["/bin/python -m module", "--port 1", "--flag", "--list a b"]


def test_paths() -> None:
    assert path_word("/var/cache/sglang") == "/var/cache/sglang"
    assert path_word("/mnt/my models/50%") == '"/mnt/my models/50%%"'
