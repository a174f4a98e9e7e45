# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data as Python text for generated files: hanging indents, short values on one line, long lists filled."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 118


def text(value: Any, depth: int = 0) -> str:
    """The text of nested mappings, lists of words, numbers and truth values."""
    if isinstance(value, dict):
        short = "{" + ", ".join(f"{_word(key)}: {text(item, depth + 1)}" for key, item in value.items()) + "}"
        if len(short) + 4 * depth < WIDTH - 30 and "\n" not in short:
            return short
        inner = "    " * (depth + 1)
        lines = [f"{inner}{_word(key)}: {text(item, depth + 1)},\n" for key, item in value.items()]
        return "{\n" + "".join(lines) + "    " * depth + "}"
    if isinstance(value, (list, tuple)):
        return _filled([_word(item) for item in value], depth)
    return _word(value)


def _word(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _filled(words: list[str], depth: int) -> str:
    inner = "    " * (depth + 1)
    lines, line = [], inner
    for word in words:
        if len(line) + len(word) + 2 > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = inner
        line += word + ", "
    return "[\n" + "\n".join([*lines, line.rstrip()]) + "\n" + "    " * depth + "]"
