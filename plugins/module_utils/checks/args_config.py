# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules on SGLang's configuration file, `--config FILE`: how it is named, and what its keys are made into."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..argument_words import is_choice, taken_for_flag, word_of, wrong_word
from ..finding import ERROR, WARNING, Finding
from ..flag_table import YAML_BOOLEAN, YAML_REFUSED, flags_of
from ..redaction import redact
from ..release_rows import release_key
from ..server_flags import FLAGS
from .args_declared import CONFIG, Declared, Given
from .check import Kind, check

_READER = "srt/utils/server_args_config_parser.py: ConfigArgumentMerger; run with both releases"

_PLAIN = re.compile(r"[A-Za-z0-9-]+")

EQUALS = Kind(
    "args.config_equals",
    ERROR,
    "--config=FILE as one word",
    "SGLang overlooks the file without a word: the server starts with its defaults, without the keys.",
    "write two words: --config FILE",
    _READER,
)
NAME = Kind(
    "args.config_name",
    ERROR,
    "a configuration file that is not read",
    "The server ends with exit code 1 at once.",
    "give one file whose name ends in .yaml or .yml",
    _READER,
)
UNDERSCORE = Kind(
    "args.config_underscore",
    ERROR,
    "a key with underscores in the configuration file",
    "It becomes a flag that does not exist, and the server ends with exit code 2.",
    "write the key with hyphens",
    _READER,
)
ALIAS = Kind(
    "args.config_alias",
    ERROR,
    "another spelling of a flag without a value in the configuration file",
    "The reader knows only some spellings of a flag that takes no value. For the others it writes the word true or "
    "false behind it, and the server ends with exit code 2.",
    "write the full name of the flag",
    _READER,
)
REFUSED = Kind(
    "args.config_refused",
    ERROR,
    "a flag that a configuration file may not hold",
    "The server ends with exit code 1: unsupported config option.",
    "give it on the command line",
    _READER,
)
NULL = Kind(
    "args.config_null",
    ERROR,
    "a key without a value in the configuration file",
    "It becomes the text None: an error for a number, and a wrong value for a text.",
    "leave the key out",
    _READER,
)
VALUE = Kind(
    "args.config_value",
    ERROR,
    "a value that a configuration file cannot carry",
    "What it becomes on the command line is no value of the flag, and the server ends with exit code 2.",
    "leave the key out, or give the argument on the command line",
    _READER,
)


@check(EQUALS)
def named_with_equals(declared: Declared) -> Iterator[Finding]:
    keys = [f"--{one.key}" for one in declared.given if one.key.startswith("config=")]
    for word in (*declared.words, *keys):
        if word.startswith("--config="):
            file = word.partition("=")[2]
            yield EQUALS.found(f"'{word}' is overlooked by SGLang without a word", word, f"--config {file}")


def _line(declared: Declared) -> str:
    return " ".join(redact(list(declared.words)))


@check(NAME)
def named_right(declared: Declared) -> Iterator[Finding]:
    places = [place for place, word in enumerate(declared.words) if word == "--config"]
    if len(places) > 1:
        yield NAME.found("--config is given more than once", _line(declared))
    for place in places[:1]:
        if place + 1 == len(declared.words):
            yield NAME.found("no file is named after --config", _line(declared))
        elif not declared.words[place + 1].lower().endswith((".yaml", ".yml")):
            file = declared.words[place + 1]
            yield NAME.found(f"the configuration file '{file}' ends neither in .yaml nor in .yml", f"--config {file}")


def _keys(declared: Declared) -> Iterator[Given]:
    return (one for one in declared.given if one.where == CONFIG)


@check(UNDERSCORE)
def underscores(declared: Declared) -> Iterator[Finding]:
    for one in _keys(declared):
        if "_" in one.key:
            right = one.shown.replace("_", "-")
            yield UNDERSCORE.found(
                f"{one.named}: write it '{right}': the key becomes the flag --{one.shown}, which does not exist",
                declared.evidence(f"{one.where}: {one.shown}"),
                f"{right}: {'…' if one.secret else word_of(one.value)}"
                if _PLAIN.fullmatch(right)
                else "write the full name of a flag, with hyphens",
            )


def _read_elsewhere(key: str, declared: Declared) -> str | None:
    """The newest earlier release that takes the key as a truth value."""
    for release in sorted(FLAGS, key=release_key, reverse=True):
        table = flags_of(release)
        if release_key(release) < release_key(declared.table.version) and key in table.spellings():
            return release if table.in_yaml(key) == YAML_BOOLEAN else None
    return None


@check(REFUSED)
def refused(declared: Declared) -> Iterator[Finding]:
    spellings = declared.table.spellings()
    for one in _keys(declared):
        if one.key not in spellings or declared.table.in_yaml(one.key) != YAML_REFUSED:
            continue
        before = _read_elsewhere(one.key, declared)
        also = f"; SGLang {before} still takes it" if before else ""
        yield REFUSED.found(
            f"{one.named} may not stand there with SGLang {declared.table.version}{also}",
            declared.evidence(one.seen),
            f"--{one.key}" if one.value is not False else f"--no-{one.key}",
            severity=WARNING if declared.table.assumed else ERROR,
        )


@check(ALIAS)
def aliases(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    spellings = table.spellings()
    for one in _keys(declared):
        name = spellings.get(one.key)
        if name is None or table.kinds[name] not in ("flag", "switch"):
            continue
        if table.in_yaml(one.key) == "value":
            yield ALIAS.found(
                f"{one.named}: write it '{name}': the reader does not know that it takes no value",
                declared.evidence(one.seen),
                f"{name}: {word_of(one.value)}",
            )


@check(NULL)
def null(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    for one in _keys(declared):
        if one.value is not None:
            continue
        flag = table.flag(table.canonical(one.key))
        is_text = flag is not None and not wrong_word(flag, "None", table.graph_keys) and is_choice(flag, "None")
        yield NULL.found(
            f"{one.named} is empty: it becomes the text None",
            f"{one.where}: {one.shown}: null",
            severity=WARNING if is_text and flag is not None and flag.takes_words else ERROR,
        )


@check(VALUE)
def carried(declared: Declared) -> Iterator[Finding]:
    table = declared.table
    spellings = table.spellings()
    for one in _keys(declared):
        name = spellings.get(one.key)
        if name is None or one.value is None or table.in_yaml(one.key) == YAML_REFUSED:
            continue
        wrong = _wrong_value(table.in_yaml(one.key) == YAML_BOOLEAN, table.kinds[name], one)
        if wrong:
            yield VALUE.found(f"{one.named}: {wrong}", declared.evidence(one.seen))


def _wrong_value(boolean: bool, kind: str, one: Given) -> str | None:
    value = one.value
    if boolean:
        return None if isinstance(value, bool) or value == [] else f"takes true or false, not {value!r}"
    if isinstance(value, list):
        if kind != "values" and len(value) > 1:
            return "takes one value, not a list"
        words = [str(item) for item in value]
    else:
        words = [word_of(value)]
    for word in words:
        if taken_for_flag(word):
            return f"{word!r} would be taken for a flag"
    return None


CHECKS = (named_with_equals, named_right, underscores, refused, aliases, null, carried)
