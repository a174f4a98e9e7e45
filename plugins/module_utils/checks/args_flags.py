# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules on single arguments: is there such a flag in the release that will run, and does it take this value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from ..argument_words import is_choice, word_of, words_of, wrong_shape, wrong_word
from ..finding import ERROR, WARNING, Finding
from ..flag_table import Flag, FlagTable
from ..redaction import redact_text
from ..release_rows import release_key
from ..server_flags import ALIASES, FLAGS
from .args_declared import (
    ARGUMENTS,
    COMMAND_LINE,
    CONFIG,
    SECRET_ARGUMENTS,
    Declared,
    Given,
    is_secret_key,
    plain_key,
    shown_name,
)
from .check import Kind, check

# What an instance declares outside of `arguments`, and how.
OWNED = {
    "host": "host",
    "port": "port",
    "model-path": "model",
    "api-key": "api_key",
    "admin-api-key": "admin_api_key",
}
# Flags that were gone before the oldest release that there is data for, and what does their work now.
GONE_BEFORE = {
    "cuda-graph-max-bs": ("cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill"),
    "cuda-graph-bs": ("cuda-graph-bs-decode", "cuda-graph-bs-prefill"),
}

# What a shell would do something else with than show it.
_NOT_PASTED = re.compile(r"[|&<>$`\\*]|\.\.\.")
# In the place of a secret.
HIDDEN = "…"
_LONGEST_NAME = 100
_PARSER = "srt/server_args.py: ServerArgs.add_cli_args, prepare_server_args; run with SGLang's own parser"

SPELLING = Kind(
    "args.spelling",
    ERROR,
    "an argument that is not written by the flag's full name",
    "Aliases, underscores and --no- forms do not all mean the same on the command line and in a configuration file, "
    "and two spellings of one flag are not seen as the same: the later one wins.",
    "write the full name of the flag, with hyphens and without dashes in front",
    _PARSER,
)
OWNED_ELSEWHERE = Kind(
    "args.owned",
    ERROR,
    "an argument that the instance declares elsewhere",
    "The address, the model and the keys are needed outside of the command line too; given twice they can differ.",
    "declare it as the option of the instance",
)
SECRET = Kind(
    "args.secret",
    ERROR,
    "a secret among the arguments",
    "It would stand on the command line, in the unit and in the desired-state file, for every user of the host.",
    "give the keys as api_key and admin_api_key; use a key file without a password",
    "ps shows the words of every process",
)
UNKNOWN_FLAG = Kind(
    "args.unknown",
    ERROR,
    "an argument that this release does not have",
    "The server ends with exit code 2 at once.",
    "write the right name, or leave the argument out",
    _PARSER,
)
ABBREVIATED = Kind(
    "args.abbreviated",
    ERROR,
    "an abbreviated argument",
    "The parser takes the beginning of a flag's name for the flag as long as only one begins so. A release that adds "
    "another one makes the same line ambiguous, and the server ends with exit code 2.",
    "write the full name of the flag",
    _PARSER,
)
REMOVED = Kind(
    "args.removed",
    ERROR,
    "an argument that this release has no more",
    "The server ends with exit code 2 at once.",
    "write what took its place, or leave the argument out",
    "the flags of the releases, and a public report on --cuda-graph-max-bs",
)
SHAPE = Kind(
    "args.shape",
    ERROR,
    "an argument with a value where none belongs, or without one",
    "The server ends with exit code 2 at once, or takes the next word for something else.",
    "give true or false to a flag, one value or a list to the others",
    _PARSER,
)
TYPE = Kind(
    "args.type",
    ERROR,
    "an argument whose value is of the wrong type",
    "The server ends with exit code 2 at once.",
    "give a value of the type that the flag reads",
    _PARSER + "; srt/utils/common.py: human_readable_int",
)
CHOICE = Kind(
    "args.choice",
    ERROR,
    "an argument whose value is not one of its choices",
    "The server ends with exit code 2 at once, unless a plugin adds the choice.",
    "give one of the choices",
    _PARSER + "; plugins add choices through srt/arg_groups/choices.py",
)
EMPTY = Kind(
    "args.empty",
    WARNING,
    "an argument with an empty text",
    "The server takes the empty text for the value, which is hardly meant.",
    "leave the argument out, or give null",
)
DEPRECATED = Kind(
    "args.deprecated",
    WARNING,
    "an argument that is deprecated",
    "It still works, with a warning in the log, and a later release ends with exit code 2.",
    "write what takes its place",
    "srt/arg_groups/argparse_actions.py; the help texts and the comments of ServerArgs.add_cli_args",
)


_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "human_readable_int": "a whole number as 32000, 32k (32000) or 32Ki (32768)",
    "json": "JSON, in quotes",
    "strict_json": "JSON, in quotes",
    "graph_config": "{decode: {max_bs: 64}}",
}


def pasted(name: str, value: object) -> str:
    """The line of `arguments` that gives a flag this value."""
    if isinstance(value, bool):
        return f"{name}: {str(value).lower()}"
    text = value if isinstance(value, str) else word_of(value)
    if _NOT_PASTED.search(text) or not text.isprintable():
        return f"give the same value under the name {name}"
    # JSON is YAML too.
    return f"{name}: {value}" if isinstance(value, (str, int, float)) else f"{name}: {word_of(value)}"


def right_name(key: str, table: FlagTable) -> str:
    """The flag that a spelling stands for, with dashes, underscores and aliases undone."""
    return table.canonical(plain_key(key))


def _suggested(name: str, one: Given, table: FlagTable) -> str:
    """The line to write instead, by the right name. Never a secret, and never what would be refused in turn."""
    if one.where == ARGUMENTS and name in OWNED:
        value = HIDDEN if name in SECRET_ARGUMENTS or one.secret else one.meant
        return f"{OWNED[name]}: {value}"
    if name in SECRET_ARGUMENTS and one.where != CONFIG:
        return "leave it out"
    return pasted(name, HIDDEN if one.secret or is_secret_key(name, table) else one.meant)


@check(OWNED_ELSEWHERE)
def owned_elsewhere(declared: Declared) -> Iterator[Finding]:
    for one in declared.given:
        right = right_name(one.key, declared.table)
        if one.where != ARGUMENTS:
            continue
        if right in OWNED:
            yield OWNED_ELSEWHERE.found(
                f"{one.named}: declare it as '{OWNED[right]}' of the instance, not in arguments",
                f"arguments: {one.shown}",
                f"{OWNED[right]}: …",
            )
        elif right == "config":
            yield OWNED_ELSEWHERE.found(
                f"{one.named}: the configuration file is made from api_key and admin_api_key; give every other "
                "argument in arguments",
                f"arguments: {one.shown}",
                "give what the file holds in arguments",
            )


@check(SECRET)
def secrets_in_arguments(declared: Declared) -> Iterator[Finding]:
    for one in declared.given:
        right = right_name(one.key, declared.table)
        if one.where == CONFIG or right not in SECRET_ARGUMENTS or (one.where == ARGUMENTS and right in OWNED):
            continue
        yield SECRET.found(
            f"{one.named} is a secret and would stand on the command line, in the unit and in the desired-state file, "
            "for every user of the host to read; it is not supported",
            f"{one.where}: {one.shown} (the value is not shown)",
            severity=WARNING if one.where == COMMAND_LINE else ERROR,
        )


@check(SPELLING)
def spelled_in_full(declared: Declared) -> Iterator[Finding]:
    for one in declared.given:
        # A configuration file has rules of its own for underscores and aliases; a command line may have aliases.
        if one.where != ARGUMENTS and one.key in declared.table.spellings():
            continue
        if one.where == CONFIG and "_" in one.key:
            continue
        if one.where == ARGUMENTS and right_name(one.key, declared.table) in (*OWNED, "config"):
            continue
        right = _other_spelling(one, declared.table)
        if right:
            yield SPELLING.found(
                f"{one.named}: write it '{right}' (the flag's full name, hyphens, no dashes in front)",
                declared.evidence(f"{one.where}: {one.shown}"),
                right if ": " in right else _suggested(right, one, declared.table),
            )


def _other_spelling(one: Given, table: FlagTable) -> str | None:
    """How an argument is written right; None when it is, or when there is no such flag."""
    if one.key in table.rows:
        return None
    right = right_name(one.key, table)
    if right in table.rows:
        return right
    name = right[3:]
    if right.startswith("no-") and table.kinds.get(name) in ("switch", "flag"):
        return f"{name}: false"
    # Dashes or underscores, and the beginning of a name: --tp, max_running.
    names = begun(right, table)
    return names[0] if right != one.key and right and len(names) == 1 else None


def _is_unknown(one: Given, declared: Declared) -> bool:
    table = declared.table
    if one.key in table.rows or one.key in table.spellings() or one.key.startswith("config="):
        return False
    return _other_spelling(one, table) is None


def begun(key: str, table: FlagTable) -> list[str]:
    """The flags whose words begin with `key`."""
    return sorted({name for word, name in table.spellings().items() if word.startswith(key)})


def _words_begun(key: str, table: FlagTable) -> int:
    return sum(word.startswith(key) for word in table.spellings())


def elsewhere(key: str, version: str) -> str | None:
    """Another release that has this flag: the newest older one, else the oldest newer one."""
    having = sorted((one for one in FLAGS if key in FLAGS[one] or key in ALIASES[one]), key=release_key)
    older = [release for release in having if release_key(release) < release_key(version)]
    return older[-1] if older else next(iter(having), None)


def _was_removed(key: str, table: FlagTable) -> str | None:
    """The last release that had the flag; empty when that is before all that there is data for."""
    if key in GONE_BEFORE:
        return ""
    other = elsewhere(key, table.version)
    return other if other is not None and release_key(other) < release_key(table.version) else None


@check(REMOVED)
def removed(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    for one in declared.given:
        last = _was_removed(one.key, table)
        if last is None or one.key in table.spellings():
            continue
        instead = GONE_BEFORE.get(one.key, ())
        there = (
            f"SGLang {last} still had it" if last else "it is gone since before SGLang " + min(FLAGS, key=release_key)
        )
        hint = f"; did you mean {_quoted(instead)}?" if instead else ""
        yield REMOVED.found(
            f"{one.named} is no flag of SGLang {table.version} any more ({there}){hint}",
            declared.evidence(f"{one.where}: {one.shown}"),
            " or ".join(instead) or "leave it out",
            severity=WARNING if table.assumed else ERROR,
        )


@check(ABBREVIATED)
def abbreviated(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    for one in declared.given:
        names = begun(one.key, table)
        if (
            not _is_unknown(one, declared)
            or _words_begun(one.key, table) != 1
            or _was_removed(one.key, table) is not None
        ):
            continue
        yield ABBREVIATED.found(
            f"{one.named} is the beginning of a flag: did you mean {_quoted(names)}? The parser takes it as long as no "
            "other flag begins so",
            declared.evidence(f"{one.where}: {one.shown}"),
            _suggested(names[0], one, table),
        )


@check(UNKNOWN_FLAG)
def unknown(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    for one in declared.given:
        if not _is_unknown(one, declared) or _was_removed(one.key, table) is not None:
            continue
        if _words_begun(one.key, table) == 1:
            continue
        plain = plain_key(one.key)
        near = [name for name in begun(plain, table) if plain][:3]
        near = near or difflib.get_close_matches(plain[:_LONGEST_NAME].lower(), table.rows, 3)
        newer = elsewhere(one.key, table.version)
        hint = f"; did you mean {_quoted(near)}?" if near else ""
        hint = f"; it comes with SGLang {newer}" if newer else hint
        said = f"no flag of SGLang {table.version}"
        said += (
            ", the nearest release that is known here" if table.assumed else ": the server would end with exit code 2"
        )
        yield UNKNOWN_FLAG.found(
            f"{one.named} is {said}{hint}",
            declared.evidence(f"{one.where}: {one.shown}"),
            _suggested(near[0], one, table) if near and not newer else "leave it out",
            severity=WARNING if table.assumed else ERROR,
        )
    for word in declared.stray[:1]:
        yield UNKNOWN_FLAG.found(
            f"the command line begins with {redact_text(shown_name(word))!r}, which belongs to no flag: the server "
            "would end with exit code 2",
            declared.evidence(f"{COMMAND_LINE}: {len(declared.stray)} word(s) before the first flag"),
            "give the words after the name of the program, from the first flag on",
        )
    for key in declared.left_out:
        if _is_no_flag(key, table):
            yield UNKNOWN_FLAG.found(
                f"argument '{shown_name(key)}' is no flag of SGLang {table.version}; it does nothing, for it is null "
                "or empty",
                declared.evidence(f"{ARGUMENTS}: {shown_name(key)}: null"),
                "leave it out",
                severity=WARNING,
            )


def _is_no_flag(key: str, table: FlagTable) -> bool:
    right = right_name(key, table)
    known = right in table.spellings() or right in OWNED or right == "config" or elsewhere(right, table.version)
    return not known and right not in GONE_BEFORE and len(begun(right, table)) != 1


def _quoted(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


@check(SHAPE)
def shaped(declared: Declared) -> Iterator[Finding]:
    for one, flag in declared.flags():
        # How a configuration file is named and what it may hold has rules of its own.
        own = one.where == CONFIG or (one.where == COMMAND_LINE and one.key == "config")
        wrong = None if own else wrong_shape(flag, one.value)
        if wrong:
            yield SHAPE.found(f"{one.named} {wrong}", declared.evidence(one.seen))


def values_of(declared: Declared) -> Iterator[tuple[Given, Flag, str]]:
    """Every word that a flag is given, where the shape of the value is right."""
    for one, flag in declared.flags():
        if one.value is None or not flag.takes_words:
            continue
        if one.where == CONFIG and isinstance(one.value, bool):
            yield one, flag, word_of(one.value)
        elif one.where == CONFIG or not wrong_shape(flag, one.value):
            for word in words_of(flag, one.value):
                yield one, flag, word


@check(TYPE)
def typed(declared: Declared) -> Iterator[Finding]:
    for one, flag, word in values_of(declared):
        wrong = wrong_word(flag, word, declared.table.graph_keys)
        if wrong:
            expected = _EXPECTED.get(flag.type, "an adapter as NAME=PATH")
            yield TYPE.found(f"{one.named}: {wrong}", declared.evidence(one.seen), f"{flag.name}: {expected}")


@check(CHOICE)
def chosen(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    for one, flag, word in values_of(declared):
        if wrong_word(flag, word, table.graph_keys) or is_choice(flag, word):
            continue
        choices = [word_of(choice) for choice in flag.choices or ()]
        near = difflib.get_close_matches(word, choices, 1)
        shown = (
            ", ".join(choices) if len(choices) <= 12 else f"{len(choices)} values, as {', '.join(near or choices[:3])}"
        )
        why = ""
        if flag.open_choices:
            why = "; a plugin can add it, and then it is right"
        elif table.assumed:
            why = "; another release may have it"
        yield CHOICE.found(
            f"{one.named}: {word!r} is not one of its choices ({shown}){why}",
            declared.evidence(one.seen),
            f"{flag.name}: {near[0]}" if near else f"{flag.name}: one of {', '.join(choices)}",
            severity=WARNING if flag.open_choices or table.assumed else ERROR,
        )


@check(EMPTY)
def empty(declared: Declared) -> Iterator[Finding]:
    for one, flag, word in values_of(declared):
        if word == "" and flag.type == "str" and is_choice(flag, word):
            yield EMPTY.found(
                f"{one.named} is empty: the server takes the empty text for its value", f"{one.where}: {one.shown}: ''"
            )


def _instead(text: str) -> str:
    """What to use instead, without what a shell would take for a redirection: <dp-size> is DP-SIZE."""
    return re.sub("<([^>]*)>", lambda match: match[1].upper(), text)


@check(DEPRECATED)
def deprecated(declared: Declared) -> Iterator[Finding]:
    for one, flag in declared.flags():
        if flag.deprecated is None or one.value is False:
            continue
        text = f"{one.named} is deprecated"
        if flag.deprecated:
            text += f": use {flag.deprecated}"
        if flag.removed_after:
            text += f"; it is announced to be removed after {flag.removed_after}"
        yield DEPRECATED.found(text, declared.evidence(one.seen), _instead(flag.deprecated or ""))


CHECKS = (
    owned_elsewhere,
    secrets_in_arguments,
    spelled_in_full,
    removed,
    abbreviated,
    unknown,
    shaped,
    typed,
    chosen,
    empty,
    deprecated,
)
