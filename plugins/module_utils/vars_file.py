# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One variable of a YAML file, changed as text: comments, order, quotes and line ends of the rest stay.

Only what is read for certain is changed: a variable at the left margin with one word as its value. Anything else is
refused with what to write by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import EngineError

# A value that one line holds whole: quoted, or one plain word. What YAML gives a meaning of its own does not match.
_REST = re.compile(
    r"""(?P<space>[ ]*)(?P<value>"[^"\\]*"|'(?:[^']|'')*'|[A-Za-z0-9._/~][^\s#]*)?(?P<tail>[ ]*(?:[ ]#.*)?\r?)"""
)
_NOTHING = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True)
class Place:
    """Where a variable stands in a text: between `start` and `end` is its value, with its quotes."""

    line: int
    start: int
    end: int
    value: str
    quote: str = ""


def find_variable(text: str, variable: str, path: str, wanted: str) -> Place:
    """The variable in a file's text. Raises EngineError; `wanted` is what it then says to write by hand."""
    if text.startswith("$ANSIBLE_VAULT;"):
        raise _refused(path, "it is encrypted by ansible-vault", variable, wanted, "with ansible-vault edit, ")
    name = re.escape(variable)
    key = re.compile(rf"""(?:{name}|"{name}"|'{name}')[ ]*:(?=[ \r]|$)""")
    lines = text.split("\n")
    here = [number for number, line in enumerate(lines) if key.match(line)]
    if not here:
        deeper = [str(number + 1) for number, line in enumerate(lines) if key.match(line.lstrip(" -{,"))]
        if deeper:
            what = f"{variable} stands inside another structure there (line {', '.join(deeper)})"
            raise _refused(path, what, variable, wanted, "in its place, ")
        raise _refused(path, f"{variable} is not in it", variable, wanted, "at the left margin, ")
    if len(here) > 1:
        numbers = ", ".join(str(number + 1) for number in here)
        what = f"{variable} is in it {len(here)} times (lines {numbers}), and the last one counts"
        raise _refused(path, what, variable, wanted, "once, ")
    return _place(lines, here[0], key, variable, path, wanted)


def _place(lines: list[str], at: int, key: re.Pattern[str], variable: str, path: str, wanted: str) -> Place:
    line = lines[at]
    matched = key.match(line)
    rest = line[matched.end() :] if matched else ""
    found = _REST.fullmatch(rest)
    where = f"line {at + 1}"
    if found is None:
        what = f"the value of {variable} ({where}) is no single word"
        if "{{" in rest:
            what = f"the value of {variable} ({where}) is computed by a template"
        raise _refused(path, what, variable, wanted, "instead of it, ")
    value = found["value"] or ""
    if "{{" in value:
        what = f"the value of {variable} ({where}) is computed by a template"
        raise _refused(path, what, variable, wanted, "instead of it, ")
    below = next((each for each in lines[at + 1 :] if each.strip() and not each.lstrip().startswith("#")), "")
    if below[:1] in (" ", "\t") or (not value and re.match(r"-(?:\s|$)", below)):
        what = f"the value of {variable} ({where}) goes on in the lines below it"
        raise _refused(path, what, variable, wanted, "instead of it, ")
    offset = sum(len(each) + 1 for each in lines[:at]) + len(line) - len(rest)
    start = offset + len(found["space"])
    quote = value[0] if value[:1] in ("'", '"') else ""
    plain = value[1:-1].replace("''", "'") if quote == "'" else value[1:-1] if quote else value
    if not quote and plain in _NOTHING:
        plain = ""
    return Place(at + 1, start, start + len(value), plain, quote)


def with_value(text: str, place: Place, value: str) -> str:
    """The text with another value at that place, in the quotes that were there."""
    # A registry by its IPv6 address begins with a bracket, which a plain word of YAML does not.
    quote = place.quote or ("" if value[:1].isalnum() else '"')
    before, after = text[: place.start], text[place.end :]
    space = " " if before.endswith(":") else ""
    gap = " " if after.startswith("#") else ""
    return f"{before}{space}{quote}{value}{quote}{gap}{after}"


def line_at(text: str, place: Place) -> str:
    """The line of the variable alone, for a diff: what stands beside it in the file may be secret."""
    return text.split("\n")[place.line - 1].rstrip("\r") + "\n"


def _refused(path: str, what: str, variable: str, wanted: str, how: str) -> EngineError:
    return EngineError(
        "image.vars_file",
        f"{path} is not edited: {what}. Next step: write {how}by hand: {variable}: {wanted}",
        pin=wanted,
    )
