# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The YAML that programs write: blocks of mappings and lists with plain or quoted words. Anything else is refused.

CDI specifications are YAML, and a managed host need not have PyYAML. What this reads it reads as PyYAML does; what it
refuses is no error of the file.
"""

from __future__ import annotations

import json
import re
from typing import Any, Union

_KEY = re.compile(r"""(?P<key>"(?:[^"\\]|\\.)*"|[A-Za-z0-9_./][A-Za-z0-9_./-]*):(?: +(?P<rest>.*))?""")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
# Words that YAML reads as something else than text, of which only the first three are decided here.
_NAMED = {"true": True, "false": False, "null": None}
_AMBIGUOUS = re.compile(
    r"(?i)~|yes|no|on|off|y|n|true|false|null|[-+.0-9][-+._0-9a-fox:]*|[-+]?\.(?:inf|nan)|\d{4}-\d.*|=|<<"
)
_PLAIN_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_FORBIDDEN_START = tuple("&*!|>%@`{[]},?\"'#")

_Line = tuple[int, str]
Value = Union[None, bool, int, str, list[Any], dict[str, Any]]


class NotThisSubset(ValueError):
    """The text is YAML that is not read here, or no YAML. Says the line."""


def parse(text: str) -> Value:
    """The one document of a text."""
    lines: list[_Line] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip(" \r")
        if line == "---" and not lines:
            continue
        body = line.lstrip(" ")
        if not line.isprintable() or body in ("---", "..."):
            raise NotThisSubset(f"line {number}: {body[:40]!r}")
        if not body or body.startswith("#"):
            continue
        lines.append((len(line) - len(body), body))
    if not lines:
        return None
    value, rest = _block(lines, 0, lines[0][0])
    if rest != len(lines):
        raise NotThisSubset(f"{lines[rest][1][:40]!r} is indented otherwise than what it belongs to")
    return value


def _block(lines: list[_Line], at: int, indent: int) -> tuple[Value, int]:
    body = lines[at][1]
    if body == "-" or body.startswith("- "):
        return _list(lines, at, indent)
    if _KEY.fullmatch(body):
        return _mapping(lines, at, indent)
    return _scalar(body), at + 1


def _list(lines: list[_Line], at: int, indent: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while at < len(lines) and lines[at][0] == indent and (lines[at][1] == "-" or lines[at][1].startswith("- ")):
        body = lines[at][1][1:]
        inner = body.lstrip(" ")
        if not inner:
            at += 1
            if at < len(lines) and lines[at][0] > indent:
                value, at = _block(lines, at, lines[at][0])
                items.append(value)
            else:
                items.append(None)
            continue
        # What stands behind the dash is a block of its own, as far in as it stands.
        deeper = indent + 1 + len(body) - len(inner)
        lines[at] = (deeper, inner)
        value, at = _block(lines, at, deeper)
        items.append(value)
        if at < len(lines) and lines[at][0] > indent:
            raise NotThisSubset(f"{lines[at][1][:40]!r} goes on a word over several lines")
    return items, at


def _mapping(lines: list[_Line], at: int, indent: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at][0] == indent:
        match = _KEY.fullmatch(lines[at][1])
        if match is None:
            break
        key = str(_scalar(match["key"])) if match["key"].startswith('"') else _key(match["key"])
        if key in found:
            raise NotThisSubset(f"the key {key!r} stands twice")
        rest = (match["rest"] or "").strip()
        at += 1
        if rest:
            found[key] = _scalar(rest)
            if at < len(lines) and lines[at][0] > indent:
                raise NotThisSubset(f"{lines[at][1][:40]!r} goes on a word over several lines")
            continue
        deeper = at < len(lines) and lines[at][0] > indent
        # A list may stand as far out as the key that it belongs to.
        level = at < len(lines) and lines[at][0] == indent and (lines[at][1] == "-" or lines[at][1].startswith("- "))
        if deeper or level:
            found[key], at = _block(lines, at, lines[at][0])
        else:
            found[key] = None
    return found, at


def _key(text: str) -> str:
    if _AMBIGUOUS.fullmatch(text):
        raise NotThisSubset(f"the key {text!r} may be no text")
    return text


def _scalar(text: str) -> Value:
    if text in ("[]", "{}"):
        return [] if text == "[]" else {}
    if text.startswith('"'):
        return _double_quoted(text)
    if text.startswith("'"):
        if len(text) < 2 or not text.endswith("'") or "'" in text[1:-1].replace("''", ""):
            raise NotThisSubset(f"{text[:40]!r}")
        return text[1:-1].replace("''", "'")
    if text in _NAMED:
        return _NAMED[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _PLAIN_VERSION.fullmatch(text):
        return text
    if (
        text.startswith(_FORBIDDEN_START)
        or text.startswith(("- ", "? ", ": "))
        or text in ("-", "?", ":")
        or text.endswith(":")
        or ": " in text
        or " #" in text
        or _AMBIGUOUS.fullmatch(text)
    ):
        raise NotThisSubset(f"{text[:40]!r}")
    return text


def _double_quoted(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        raise NotThisSubset(f"{text[:40]!r}") from None
    if not isinstance(value, str):
        raise NotThisSubset(f"{text[:40]!r}")
    return value
