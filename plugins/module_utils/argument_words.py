# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One argument as SGLang's parser reads it: the words it becomes, and what the parser would say of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .flag_table import Flag

_NEGATIVE_NUMBER = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")
_WITH_SUFFIX = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")


def word_of(value: Any) -> str:
    """The word that a value becomes on the command line."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    if isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def taken_for_flag(word: str) -> bool:
    """What argparse does with a word that begins with a dash, unless it is a plain number."""
    if not word.startswith("-") or word == "-" or _NEGATIVE_NUMBER.fullmatch(word):
        return False
    # A text with a space in it is no flag to argparse, but for the one short flag, -h.
    return " " not in word or word.startswith("-h") or (word.startswith("--") and "=" in word)


def wrong_shape(flag: Flag, value: Any) -> str | None:
    """Why a value cannot be given to this kind of flag at all."""
    if not flag.takes_words:
        return None if isinstance(value, bool) else f"takes no value: give true or false, not {value!r}"
    if value is True and (flag.kind == "optional" or flag.nargs == "*"):
        return None
    if isinstance(value, bool):
        return f"takes a value, not {str(value).lower()}"
    if not isinstance(value, (list, tuple)):
        return None
    if flag.kind != "values":
        hint = " (give the JSON as text, in quotes)" if flag.type in ("json", "strict_json") else ""
        return f"takes one value, not a list{hint}"
    for item in value:
        if item is None or isinstance(item, bool):
            return f"{item!r} in its list is not a value"
        if taken_for_flag(word_of(item)):
            return f"{word_of(item)!r} in its list would be taken for a flag"
    return None


def words_of(flag: Flag, value: Any) -> list[str]:
    """The words after the flag. The shape of the value is right."""
    if not flag.takes_words or isinstance(value, bool):
        return []
    if isinstance(value, (list, tuple)):
        return [word_of(item) for item in value]
    return [word_of(value)]


def wrong_word(flag: Flag, word: str, graph_keys: Mapping[str, Sequence[str]]) -> str | None:
    """Why the parser does not take this word for the type of the flag."""
    if flag.type == "int":
        return None if _reads(int, word) else f"{word!r} is no whole number"
    if flag.type == "float":
        return None if _reads(float, word) else f"{word!r} is no number"
    if flag.type == "human_readable_int":
        return _wrong_count(word)
    if flag.type in ("json", "strict_json"):
        return _wrong_json(word, strict=flag.type == "strict_json")
    if flag.type == "graph_config":
        return _wrong_graphs(word, graph_keys)
    if flag.name == "lora-paths":
        return _wrong_adapter(word)
    return None


def is_choice(flag: Flag, word: str) -> bool:
    """Whether the word is one of the choices, where there are any."""
    if flag.choices is None:
        return True
    value: Any = word
    if flag.type in ("int", "float"):
        value = int(word) if flag.type == "int" else float(word)
    return value in flag.choices


def _reads(read: Any, word: str) -> bool:
    try:
        read(word)
    except ValueError:
        return False
    return True


def _wrong_count(word: str) -> str | None:
    """The numbers that people write: 32k is 32000, 32Ki is 32768. Their letters are case-sensitive."""
    match = _WITH_SUFFIX.fullmatch(word.strip())
    if match:
        number, suffix = match.groups()
        if "." in number and suffix.endswith("i"):
            return f"{word!r} has a fraction before {suffix}: write a whole number, or the suffix {suffix[0]}"
        return None
    if _reads(int, word.strip()):
        return None
    other = {"K": "k", "KI": "Ki", "m": "M", "g": "G", "t": "T"}.get(word.strip().lstrip("0123456789."), "")
    meant = word.strip().rstrip("KkIiMmGgTt") + other
    hint = f" (did you mean {meant}?)" if other else ""
    return f"{word!r} is no number as 32000, 32k (32000) or 32Ki (32768){hint}"


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _wrong_json(word: str, strict: bool) -> str | None:
    try:
        json.loads(word, parse_constant=_refused_constant if strict else None)
    except ValueError as error:
        return f"{word!r} is no JSON: {error}"
    return None


def _wrong_graphs(word: str, graph_keys: Mapping[str, Sequence[str]]) -> str | None:
    try:
        settings = json.loads(word)
    except ValueError as error:
        return f"{word!r} is no JSON: {error}"
    if not isinstance(settings, dict):
        return f"{word!r} is no mapping of phases"
    for phase, its in settings.items():
        if phase not in graph_keys:
            return f"{phase!r} is no phase: {', '.join(graph_keys)}"
        if not isinstance(its, dict):
            return f"{phase!r} is no mapping of settings"
        for key in its:
            if key not in graph_keys[phase]:
                return f"{key!r} is no setting of {phase}: {', '.join(graph_keys[phase])}"
        if its.get("backend") == "tc_piecewise":
            return f"the backend tc_piecewise of {phase} is gone: breakable, full, or disabled"
    return None


def _wrong_adapter(word: str) -> str | None:
    text = word.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        adapter = json.loads(text)
    except ValueError as error:
        return f"{word!r} is no JSON: {error}"
    missing = [key for key in ("lora_name", "lora_path") if key not in adapter]
    return f"{word!r} lacks {' and '.join(missing)}" if missing else None
