# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's command line: what may be given in `arguments`, and the one function that renders it.

Keys are flag names without the dashes in front. true is the flag, false leaves it out (or is its --no- form, where it
has one), null leaves it out, a list is several words, a mapping is one word of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .argument_words import word_of
from .flag_table import flags_of

MODULE = "sglang.launch_server"
# systemd sets the variable for a unit with LoadCredential=; the server reads its keys from the file, not from words.
CREDENTIALS_CONFIG = "${CREDENTIALS_DIRECTORY}/config.yml"

_NEGATIVE_NUMBER = re.compile(r"-[0-9]+(?:\.[0-9]+)?")
_FIRST = ("model-path", "served-model-name", "revision", "host", "port")


def render(args: Mapping[str, Any], version: str) -> list[str]:
    """The words after `python -m sglang.launch_server`: what names the server first, the others by name."""
    kinds = flags_of(version).kinds
    names = [name for name in _FIRST if name in args] + sorted(name for name in args if name not in _FIRST)
    words: list[str] = []
    for name in names:
        words += _render_one(name, args[name], kinds.get(name, "value"))
    return words


def command_line(python: str, args: Mapping[str, Any], version: str, config_path: str = "") -> list[str]:
    """The whole command line of a server, without its secrets, which are in the file `config_path`."""
    # Two words: SGLang overlooks --config=FILE without a word.
    config = ["--config", config_path] if config_path else []
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
        return [flag, *(word_of(item) for item in value)]
    word = word_of(value)
    if _needs_equals(word):
        return [f"{flag}={word}"]
    return [flag, word]


def _needs_equals(word: str) -> bool:
    """Whether argparse could take the word for a flag, if it stood alone."""
    return word.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(word)
