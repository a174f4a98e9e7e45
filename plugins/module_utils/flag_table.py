# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flags of a release: those of the release itself, or of the nearest one that we have data for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .release_rows import nearest
from .server_flags import ALIASES, FLAGS, GRAPH_KEYS, KINDS, YAML_EXCEPTIONS

# What a configuration file makes of a key.
YAML_BOOLEAN = "boolean"
YAML_REFUSED = "refused"
YAML_VALUE = "value"


@dataclass(frozen=True)
class Flag:
    """One flag. `kind` says how it is given: flag, switch (with a --no- form), value, optional, values.

    `deprecated` is what to use instead, empty where nothing is named and None for a flag that is not deprecated.
    `open_choices` says that a plugin can add choices.
    """

    name: str
    kind: str
    type: str = "str"
    nargs: str | None = None
    default: Any = None
    choices: tuple[Any, ...] | None = None
    open_choices: bool = False
    aliases: tuple[str, ...] = ()
    deprecated: str | None = None
    removed_after: str | None = None

    @property
    def takes_words(self) -> bool:
        return self.kind in ("value", "optional", "values")


def flag_of(name: str, row: Mapping[str, Any]) -> Flag:
    """A flag out of its row."""
    kind = row["kind"]
    choices = row.get("choices")
    return Flag(
        name=name,
        kind=kind,
        type=row.get("type", "bool" if kind in ("flag", "switch") else "str"),
        nargs=row.get("nargs"),
        default=row.get("default", False if kind == "flag" else None),
        choices=None if choices is None else tuple(choices),
        open_choices=bool(row.get("open")),
        aliases=tuple(row.get("aliases", ())),
        deprecated=row.get("deprecated"),
        removed_after=row.get("removed_after"),
    )


def row_of(flag: Flag) -> dict[str, Any]:
    """The row of a flag, without what is usual."""
    row: dict[str, Any] = {"kind": flag.kind}
    if flag.type != ("bool" if flag.kind in ("flag", "switch") else "str"):
        row["type"] = flag.type
    if flag.nargs is not None:
        row["nargs"] = flag.nargs
    if flag.default is not (False if flag.kind == "flag" else None):
        row["default"] = flag.default
    if flag.choices is not None:
        row["choices"] = list(flag.choices)
    if flag.aliases:
        row["aliases"] = list(flag.aliases)
    if flag.deprecated is not None:
        row["deprecated"] = flag.deprecated
    if flag.removed_after is not None:
        row["removed_after"] = flag.removed_after
    if flag.open_choices:
        row["open"] = True
    return row


@dataclass(frozen=True)
class FlagTable:
    """The flags of `version`; `assumed` when they stand in for those of `asked`."""

    asked: str
    version: str
    kinds: Mapping[str, str]
    aliases: Mapping[str, str]
    rows: Mapping[str, Mapping[str, Any]]

    @property
    def assumed(self) -> bool:
        return self.asked != self.version

    @property
    def graph_keys(self) -> Mapping[str, list[str]]:
        """The settings of cuda-graph-config, by phase."""
        return GRAPH_KEYS[self.version]

    def flag(self, name: str) -> Flag | None:
        """The flag of this name, which is not an alias."""
        row = self.rows.get(name)
        return None if row is None else flag_of(name, row)

    def canonical(self, spelling: str) -> str:
        """The name that another spelling stands for; the spelling itself where it stands for none."""
        return self.aliases.get(spelling, spelling)

    def spellings(self) -> Mapping[str, str]:
        """Every word that the parser knows, without its dashes, and the flag that it belongs to."""
        return _spellings(self.version)

    def in_yaml(self, spelling: str) -> str:
        """What a configuration file makes of this spelling of a flag: boolean, refused, or value."""
        exception = YAML_EXCEPTIONS[self.version].get(spelling)
        if exception is not None:
            return exception
        kind = self.kinds[self.spellings()[spelling]]
        return {"flag": YAML_BOOLEAN, "switch": YAML_REFUSED}.get(kind, YAML_VALUE)


@cache
def _spellings(version: str) -> Mapping[str, str]:
    found = {name: name for name in KINDS[version]}
    found.update(ALIASES[version])
    found.update({f"no-{name}": name for name, kind in KINDS[version].items() if kind == "switch"})
    return found


def flags_of(version: str) -> FlagTable:
    """The flags of this version, or of the nearest one that there is data for."""
    known = nearest(version, KINDS)
    return FlagTable(version, known, KINDS[known], ALIASES[known], FLAGS[known])
