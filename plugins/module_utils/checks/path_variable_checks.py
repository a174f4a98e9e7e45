# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the variables that hold directories hold what SGLang and the loader make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from . import toolchain_kinds as kinds
from .check import Check, check
from .path_variables import DIRECTORY, FILE, GIVEN_DIRECTORIES, MISSING, UNREADABLE, PathVariable
from .reading import known
from .toolchain_readings import Toolchain


@check(kinds.SEPARATOR)
def lists_in_directories(readings: Toolchain) -> Iterator[Finding]:
    """A separator where one directory is expected."""
    for variable in _variables(readings):
        if _is_wrong_list(variable):
            good = [entry.text for entry in variable.entries if entry.state == DIRECTORY]
            where = "at its start" if variable.value.startswith(":") else "at its end"
            if not variable.value.startswith(":") and not variable.value.endswith(":"):
                where = "in it"
            yield kinds.SEPARATOR.found(
                f"{variable.name} is not a directory: it has a list separator {where}",
                f"{variable.name}={variable.value}",
                f"{variable.name}: {good[0] if good else variable.value.strip(':').split(':')[0]}",
            )


@check(kinds.EMPTY_ENTRY)
def empty_entries(readings: Toolchain) -> Iterator[Finding]:
    """A list that starts or ends with a separator, or has two in a row."""
    for variable in _variables(readings):
        if variable.is_list and variable.value and any(not entry.text for entry in variable.entries):
            kept = ":".join(entry.text for entry in variable.entries if entry.text)
            yield kinds.EMPTY_ENTRY.found(
                f"{variable.name} has an empty entry, which stands for the current directory",
                f"{variable.name}={variable.value}",
                f"{variable.name}: {kept}" if kept else f"remove {variable.name} from the environment of the instance",
            )


@check(kinds.UNEXPANDED)
def unexpanded(readings: Toolchain) -> Iterator[Finding]:
    """~ and $NAME, which only a shell expands."""
    for variable, text in _texts(readings):
        if _needs_a_shell(text):
            yield kinds.UNEXPANDED.found(
                f"{variable.name} holds {text!r}, which nobody expands: systemd takes it literally",
                f"{variable.name}={variable.value}",
                f"{variable.name}: the path in full",
            )


@check(kinds.RELATIVE)
def relative_paths(readings: Toolchain) -> Iterator[Finding]:
    """A path that does not start at the root."""
    for variable, text in _texts(readings):
        if text and not text.startswith("/") and not _needs_a_shell(text):
            yield kinds.RELATIVE.found(
                f"{variable.name} holds the relative path {text!r}",
                f"{variable.name}={variable.value}",
                f"{variable.name}: the path from the root",
                WARNING if variable.is_list else ERROR,
            )


@check(kinds.NOT_DIRECTORY)
def no_directories(readings: Toolchain) -> Iterator[Finding]:
    """A file where a directory is expected, or nothing where one must be. CUDA's root has its own check."""
    for variable in _variables(readings):
        if variable.name in ("CUDA_HOME", "CUDA_PATH"):
            continue
        if variable.is_list:
            for entry in variable.entries:
                if entry.state == FILE and not entry.text.endswith((".zip", ".egg", ".whl")):
                    summary = f"{variable.name} has an entry that is no directory: {entry.text}"
                    evidence = f"{entry.text}: a file; {variable.name}={variable.value}"
                    fix = f"remove {entry.text} from {variable.name}, or name its directory"
                    yield kinds.NOT_DIRECTORY.found(summary, evidence, fix, WARNING)
        elif _is_wrong_list(variable) or not variable.value.startswith("/"):
            continue
        elif variable.whole == FILE or (variable.whole == MISSING and variable.name in GIVEN_DIRECTORIES):
            what = "a file" if variable.whole == FILE else "not there"
            fix = f"install -d {variable.value}" if variable.whole == MISSING else f"{variable.name}: a directory"
            summary = f"{variable.name} names {variable.value}, which is {what}"
            yield kinds.NOT_DIRECTORY.found(summary, f"{variable.name}={variable.value}: {what}", fix)
        elif variable.whole == UNREADABLE:
            summary = f"could not tell whether {variable.name} names a directory"
            yield kinds.NOT_DIRECTORY.found(summary, f"{variable.value} cannot be read", severity=UNKNOWN)


def _variables(readings: Toolchain) -> tuple[PathVariable, ...]:
    return known(readings.variables)


def _is_wrong_list(variable: PathVariable) -> bool:
    return not variable.is_list and ":" in variable.value and variable.whole != DIRECTORY


def _texts(readings: Toolchain) -> Iterator[tuple[PathVariable, str]]:
    """Each path of each variable: the entries of a list, or the whole text."""
    for variable in _variables(readings):
        if variable.is_list:
            yield from ((variable, entry.text) for entry in variable.entries if entry.text)
        elif variable.value and not _is_wrong_list(variable):
            yield variable, variable.value


def _needs_a_shell(text: str) -> bool:
    return text.startswith("~") or re.search(r"\$(\w|\{)", text) is not None


VARIABLE_CHECKS: tuple[Check[Toolchain], ...] = (
    lists_in_directories,
    empty_entries,
    unexpanded,
    relative_paths,
    no_directories,
)
