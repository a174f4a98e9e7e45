# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the keys and types of a declaration, one short line each: whose, which key, what was given, what
it takes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Option = Mapping[str, Any]
Fits = Callable[[Option, Any], bool]
"""Whether a value can be taken for an option; who calls knows the rules of conversion."""

_WORDS = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "text",
}
_SHOWN = 60


def problems(declared: Any, options: Mapping[str, Option], fits: Fits, prefix: str = "") -> Iterator[str]:
    """Every key of `declared` that is unknown and every value that does not fit, in the order of the declaration."""
    if not isinstance(declared, Mapping):
        yield f"it is {_shown(declared)}, expected a mapping of its keys"
        return
    for key, value in declared.items():
        name = f"{prefix}{key}"
        option = options.get(key)
        if option is None:
            near = difflib.get_close_matches(str(key), options, n=1)
            yield f"{name} is unknown" + (f", perhaps {prefix}{near[0]} is meant" if near else "")
        elif value is None:
            continue
        elif option.get("options") and isinstance(value, Mapping):
            yield from problems(value, option["options"], fits, f"{name}.")
        elif option.get("options") and isinstance(value, list):
            for number, element in enumerate(value):
                if isinstance(element, Mapping):
                    yield from problems(element, option["options"], fits, f"{name}[{number}].")
                else:
                    yield f"{name}[{number}] is {_shown(element)}, expected a mapping of its keys"
        elif not fits({part: said for part, said in option.items() if part != "options"}, value):
            given = f"of type {type(value).__name__}" if option.get("no_log") else _shown(value)
            yield f"{name} is {given}, expected {_wanted(option)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _wanted(option: Option) -> str:
    if option.get("choices"):
        return "one of " + ", ".join(str(choice) for choice in option["choices"])
    words = _WORDS.get(str(option.get("type")), str(option.get("type")))
    elements = _WORDS.get(str(option.get("elements")))
    return f"{words}, each {elements}" if elements else words
