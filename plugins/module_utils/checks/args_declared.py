# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is declared for a server, next to the data of the release that will run: what the rules on arguments look at."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..environment_names import RETIRED, VARIABLES
from ..flag_table import Flag, FlagTable, flags_of
from ..redaction import MASK, is_secret_option, redact, visible
from ..releases import Release, release_for

ARGUMENTS = "arguments"
CONFIG = "configuration file"
COMMAND_LINE = "command line"
_SECRET = re.compile(
    r"(?:^|_)(?:TOKEN|API_KEY|SECRET|SECRET_KEY|(?:SECRET_)?ACCESS_KEY(?:_ID)?|PASSWORD|PASSWD)$", re.IGNORECASE
)
SECRET_ARGUMENTS = ("api-key", "admin-api-key", "ssl-keyfile-password")
# So like the name of a secret that one is meant: apikey, api-keyy, admin-api-ke.
_LIKE = 0.8
_PORT = re.compile("-?[0-9]{1,9}")
_SHOWN = 60


def shown_name(name: object) -> str:
    """A name as messages show it. What stands behind a = is a value, and may be a secret."""
    text, equals, _value = str(name).partition("=")
    text = visible(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)")
    return text + ("=…" if equals else "")


def plain_key(key: str) -> str:
    """A key without dashes in front, a value behind a =, and underscores."""
    return key.partition("=")[0].lstrip("-").replace("_", "-")


def is_secret_key(key: str, table: FlagTable) -> bool:
    """Whether an argument is a secret by its name, or by the name that was probably meant."""
    name = plain_key(key).lower()
    meant = table.canonical(name)
    if meant in SECRET_ARGUMENTS or is_secret_option(name):
        return True
    if name in table.spellings():
        return False
    begun = {flag for word, flag in table.spellings().items() if word.startswith(name)} if name else set()
    return (bool(begun) and begun <= set(SECRET_ARGUMENTS)) or bool(
        difflib.get_close_matches(name, SECRET_ARGUMENTS, 1, _LIKE)
    )


@dataclass(frozen=True)
class Given:
    """One argument as it was written: the key without dashes, the value, and where it stands."""

    key: str
    value: Any
    where: str
    secret: bool = False

    @property
    def shown(self) -> str:
        """The key as messages show it."""
        return shown_name(self.key)

    @property
    def meant(self) -> Any:
        """The value, also where it was written behind a = in the key."""
        _key, equals, value = self.key.partition("=")
        return value if equals else self.value

    @property
    def named(self) -> str:
        return f"argument '{self.shown}'" + ("" if self.where == ARGUMENTS else f" of the {self.where}")

    @property
    def seen(self) -> str:
        """Where it stands, with its value where that is no secret."""
        value = MASK if self.secret else redact({self.key: self.value})[self.key]
        return f"{self.where}: {self.shown}: {'null' if value is None else repr(value)}"


@dataclass(frozen=True)
class Declared:
    """A declared server. `arguments` are without those that are left out (null, or an empty list).

    `keys` names the secrets that it is given, and `words` are those of an existing command line, as they stand there.
    """

    release: str
    table: FlagTable
    behaviour: Release
    given: tuple[Given, ...]
    environment: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    port: int | None = None
    model: str = ""
    served_name: str = ""
    nnodes: int = 1
    words: tuple[str, ...] = ()
    # Keys of `arguments` that are null or an empty list, and words of the command line before the first flag.
    left_out: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def flags(self) -> Iterator[tuple[Given, Flag]]:
        """What is given by the right name of a flag; outside of `arguments`, by an alias too."""
        for one in self.given:
            flag = self.table.flag(one.key if one.where == ARGUMENTS else self.table.canonical(one.key))
            if flag is not None:
                yield one, flag

    def whole(self, name: str, default: int) -> int:
        """The whole number that is given; the default where none is, or one that cannot be read."""
        try:
            return int(str(self.arguments.get(name, default)))
        except ValueError:
            return default

    def is_on(self, name: str) -> bool:
        return self.arguments.get(name) is True

    def variable(self, name: str) -> str | None:
        """The text of a variable that is set."""
        value = self.environment.get(name)
        return None if value is None else variable_text(value)

    def is_set(self, name: str) -> bool:
        """Whether a variable is set to what SGLang's registry takes for true."""
        return (self.variable(name) or "").lower() in ("1", "true", "yes", "y")

    @property
    def variables(self) -> Mapping[str, Any]:
        return VARIABLES[self.table.version]

    @property
    def retired(self) -> Mapping[str, str]:
        return RETIRED[self.table.version]

    def evidence(self, text: str) -> str:
        """What was seen, and by which release's data it was judged."""
        by = f"SGLang {self.table.version}"
        if self.table.assumed:
            by += f", assumed for {shown_name(self.release)}: there is no data for that release"
        return f"{text} ({by})"


def is_secret_variable(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret."""
    return bool(_SECRET.search(name))


def shown_variable(name: str, text: str) -> str:
    """A variable as it is set; a secret is not shown."""
    return f"environment: {name}={shown_value(text, name)}"


def shown_value(text: str, *names: str, hidden: str = MASK) -> str:
    """The value of a variable, unless one of its names says that it is a secret."""
    return hidden if text and any(map(is_secret_variable, names)) else text


def variable_text(value: Any) -> str:
    """SGLang's own switches read 1 and 0 everywhere, and other words only in some places."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in arguments.items() if value is not None and value != []}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _count(value: Any) -> int:
    """A number of nodes; one where none can be read."""
    try:
        return 1 if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return 1


def declared(instance: Mapping[str, Any], release: str) -> Declared:
    """What is declared by an instance.

    Keys beyond those of an instance: `config` is the content of a configuration file, `command_line` the words of an
    existing command line after the name of the program.
    """
    table = flags_of(release)
    arguments = _plain(instance.get("arguments") or {})
    given = [_given(key, value, ARGUMENTS, table) for key, value in arguments.items()]
    config = instance.get("config") or {}
    given += [_given(str(key), value, CONFIG, table) for key, value in config.items()]
    words = tuple(str(word) for word in instance.get("command_line") or ())
    on_line = read_words(words, table)
    given += [_given(key, value, COMMAND_LINE, table) for key, value in on_line.items()]
    merged: dict[str, Any] = {}
    for source in (_plain(config), on_line, arguments):
        merged.update({table.canonical(key): value for key, value in source.items()})
    keys = [key for key in ("api_key", "admin_api_key") if instance.get(key) or merged.get(key.replace("_", "-"))]
    port = merged.get("port") if instance.get("port") is None else instance["port"]
    return Declared(
        release=release,
        table=table,
        behaviour=release_for(release),
        given=tuple(given),
        environment=instance.get("environment") or {},
        keys=tuple(keys),
        port=_port(port),
        model=_text(instance.get("model") or merged.get("model-path")),
        served_name=_text(merged.get("served-model-name") or instance.get("served_model_name")),
        nnodes=_count(instance.get("nnodes")),
        words=words,
        left_out=tuple(str(key) for key in instance.get("arguments") or {} if str(key) not in arguments),
        stray=_stray(words),
        arguments=merged,
    )


def _port(value: Any) -> int | None:
    """A number, also where it is the word of a command line."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and _PORT.fullmatch(text) else None


def _given(key: str, value: Any, where: str, table: FlagTable) -> Given:
    return Given(key, value, where, is_secret_key(key, table))


def _is_flag(word: str) -> bool:
    return word.startswith("--") and len(word) > 2


def _stray(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(itertools.takewhile(lambda word: not _is_flag(word), words))


def read_words(words: Sequence[str], table: FlagTable) -> dict[str, Any]:
    """The arguments of a command line, by the names that stand there. Words that belong to no flag are left out."""
    found: dict[str, Any] = {}
    spellings = table.spellings()
    key = ""
    for word in words:
        if _is_flag(word):
            key, equals, value = word[2:].partition("=")
            found[key] = value if equals else True
        elif key:
            before = found[key]
            found[key] = word if before is True else [*(before if isinstance(before, list) else [before]), word]
    for key, value in found.items():
        flag = table.flag(spellings.get(key, key))
        if flag is not None and flag.kind == "values" and not isinstance(value, (bool, list)):
            found[key] = [value]
    return found
