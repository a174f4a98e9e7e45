# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words of a command line and of an environment as a systemd unit file writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
# Between two lines of one setting.
CONTINUED = " \\\n    "
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def exec_word(word: str, expand: bool = False) -> str:
    """One word of ExecStart=. Nothing in it is expanded unless `expand` says that ${NAME} is meant for systemd."""
    text = word.replace("%", "%%")
    if expand:
        return text
    if _PLAIN.fullmatch(text):
        return text
    return _quoted(text.replace("$", "$$"))


def exec_line(words: Sequence[str], expand: Sequence[str] = ()) -> str:
    """ExecStart=, one word a line after the first three so that a diff shows which argument changed."""
    head = " ".join(exec_word(word, word in expand) for word in words[:3])
    return CONTINUED.join([head, *exec_groups(words[3:], expand)])


def exec_groups(words: Sequence[str], expand: Sequence[str] = ()) -> list[str]:
    """The words with a flag and its values together."""
    groups: list[str] = []
    for raw in words:
        word = exec_word(raw, raw in expand)
        if raw.startswith("--") or not groups:
            groups.append(word)
        else:
            groups[-1] += " " + word
    return groups


def environment_line(name: str, value: str) -> str:
    """The value of one Environment= line. systemd expands specifiers there, but no variables."""
    text = f"{name}={value}".replace("%", "%%")
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def path_word(path: str) -> str:
    """A path of ReadWritePaths= and its like."""
    text = path.replace("%", "%%")
    return text if _PLAIN.fullmatch(text) else _quoted(text)
