# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's command line: what may be given in `arguments`, and the one function that renders it.

Keys are flag names without the dashes in front. true is the flag, false leaves it out (or is its --no- form, where it
has one), null leaves it out, a list is several words, a mapping is one word of JSON.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .releases import release_for
from .server_flags import ALIASES, KINDS

MODULE = "sglang.launch_server"
# systemd sets the variable for a unit with LoadCredential=; the server reads its keys from the file, not from words.
CREDENTIALS_CONFIG = "${CREDENTIALS_DIRECTORY}/config.yml"

# What an instance declares outside of `arguments`, and how.
OWNED = {
    "host": "host",
    "port": "port",
    "model-path": "model",
    "api-key": "api_key",
    "admin-api-key": "admin_api_key",
}
SECRET_ARGUMENTS = ("api-key", "admin-api-key", "ssl-keyfile-password")
_NEGATIVE_NUMBER = re.compile(r"-[0-9]+(?:\.[0-9]+)?")
_FIRST = ("model-path", "served-model-name", "revision", "host", "port")


@dataclass(frozen=True)
class FlagTable:
    """The flags of a release; `assumed` when they are those of another one."""

    version: str
    kinds: Mapping[str, str]
    aliases: Mapping[str, str]
    assumed: bool


def flags_of(version: str) -> FlagTable:
    """The flags of this version, or of the nearest one that we have."""
    known = version if version in KINDS else release_for(version).version
    if known not in KINDS:
        known = min(KINDS)
    return FlagTable(known, KINDS[known], ALIASES[known], assumed=known != version)


def check_arguments(arguments: Mapping[str, Any], version: str) -> tuple[list[str], list[str]]:
    """What is wrong, and what is doubtful, with the `arguments` of an instance."""
    table = flags_of(version)
    problems: list[str] = []
    warnings: list[str] = []
    for key, value in arguments.items():
        problem = _wrong_name(key, table)
        if problem:
            problems.append(problem)
            continue
        if key not in table.kinds:
            text = _unknown(key, table)
            (warnings if table.assumed else problems).append(text)
            continue
        problem = _wrong_value(key, value, table.kinds[key])
        if problem:
            problems.append(problem)
    return problems, warnings


def render(args: Mapping[str, Any], version: str) -> list[str]:
    """The words after `python -m sglang.launch_server`: what names the server first, the others by name."""
    kinds = flags_of(version).kinds
    names = [name for name in _FIRST if name in args] + sorted(name for name in args if name not in _FIRST)
    words: list[str] = []
    for name in names:
        words += _render_one(name, args[name], kinds.get(name, "value"))
    return words


def command_line(python: str, args: Mapping[str, Any], version: str, credentials: bool) -> list[str]:
    """The whole command line of a server, without its secrets."""
    # Two words: SGLang overlooks --config=FILE without a word.
    config = ["--config", CREDENTIALS_CONFIG] if credentials else []
    return [python, "-m", MODULE, *render(args, version), *config]


def canonical(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are really given: without those that are null or an empty list."""
    return {key: value for key, value in arguments.items() if value is not None and value != []}


def _render_one(name: str, value: Any, kind: str) -> list[str]:
    flag = "--" + name
    if value is None or value == [] or (value is False and kind != "switch"):
        return []
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + name]
    if isinstance(value, (list, tuple)):
        return [flag, *(_word(item) for item in value)]
    word = _word(value)
    if _taken_for_flag(word):
        return [f"{flag}={word}"]
    return [flag, word]


def _word(value: Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    if isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _taken_for_flag(word: str) -> bool:
    """What argparse does with a word that begins with a dash, unless it is a plain number."""
    return word.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(word)


def _wrong_name(key: str, table: FlagTable) -> str | None:
    right = key.lstrip("-").replace("_", "-")
    right = table.aliases.get(right, right)
    if right in OWNED:
        return f"argument '{key}': declare it as '{OWNED[right]}' of the instance, not in arguments"
    if right == "config":
        return (
            f"argument '{key}': the configuration file is made from api_key and admin_api_key; "
            "give every other argument in arguments"
        )
    if right in SECRET_ARGUMENTS:
        return (
            f"argument '{key}' is a secret and would stand on the command line, in the unit and in the desired-state "
            "file, for every user of the host to read; it is not supported. Use a key file without a password"
        )
    if right != key:
        return f"argument '{key}': write it '{right}' (the flag's full name, hyphens, no dashes in front)"
    return None


def _unknown(key: str, table: FlagTable) -> str:
    name = key[3:] if key.startswith("no-") else key
    if name != key and table.kinds.get(name) in ("switch", "flag"):
        return f"argument '{key}': write '{name}: false'"
    full = sorted(flag for flag in table.kinds if flag.startswith(key + "-"))
    near = full[:3] or difflib.get_close_matches(key, table.kinds, 3)
    hint = f"; did you mean {', '.join(repr(flag) for flag in near)}?" if near else ""
    said = f"no flag of SGLang {table.version}"
    if table.assumed:
        return f"argument '{key}' is {said}, the nearest release that is known here{hint}"
    return f"argument '{key}' is {said}: the server would end with exit code 2{hint}"


def _wrong_value(key: str, value: Any, kind: str) -> str | None:
    if value is None or value == []:
        return None
    if kind in ("flag", "switch"):
        return (
            None if isinstance(value, bool) else f"argument '{key}' takes no value: give true or false, not {value!r}"
        )
    if kind == "optional" and value is True:
        return None
    if isinstance(value, bool):
        return f"argument '{key}' takes a value, not {str(value).lower()}"
    if isinstance(value, (list, tuple)):
        if kind != "values":
            return f"argument '{key}' takes one value, not a list"
        return _wrong_items(key, value)
    if value == "":
        return f"argument '{key}' is empty: leave it out, or give null"
    return None


def _wrong_items(key: str, items: Sequence[Any]) -> str | None:
    for item in items:
        if item is None or isinstance(item, bool):
            return f"argument '{key}': {item!r} in its list is not a value"
        word = _word(item)
        if word == "" or _taken_for_flag(word):
            return f"argument '{key}': {word!r} in its list would be taken for a flag"
    return None
