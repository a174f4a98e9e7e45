# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between two releases in their flags and variables, and what of that meets the arguments in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .argument_words import is_choice, words_of, wrong_shape, wrong_word
from .environment_names import RETIRED, VARIABLES
from .flag_table import Flag, flag_of, flags_of

FLAG = "flag"
VARIABLE = "variable"

ADDED = "added"
REMOVED = "removed"
DEPRECATED = "deprecated"
NO_LONGER_DEPRECATED = "no longer deprecated"
# A variable that SGLang only warns about any more; its opposite is that the registry has it again.
RETIRED_NOW = "retired"
NO_LONGER_RETIRED = "no longer retired"
DEFAULT = "default"
CHOICES = "choices"
KIND = "kind"
TYPE = "type"
ALIASES = "aliases"
_OPPOSITE = {
    ADDED: REMOVED,
    REMOVED: ADDED,
    DEPRECATED: NO_LONGER_DEPRECATED,
    NO_LONGER_DEPRECATED: DEPRECATED,
    RETIRED_NOW: NO_LONGER_RETIRED,
    NO_LONGER_RETIRED: RETIRED_NOW,
}

ERROR = "error"
WARNING = "warning"
INFO = "info"


@dataclass(frozen=True)
class Change:
    """One thing that is otherwise. `before` and `after` are what it was and is; None where there is nothing."""

    what: str
    name: str
    change: str
    before: Any = None
    after: Any = None

    def reversed(self) -> Change:
        return Change(self.what, self.name, _OPPOSITE.get(self.change, self.change), self.after, self.before)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """All changes from one release to another. The data may be that of near releases: `assumed` says of which."""

    from_release: str
    to_release: str
    changes: tuple[Change, ...]
    assumed: tuple[str, ...] = ()

    def reversed(self) -> Difference:
        changes = tuple(sorted((change.reversed() for change in self.changes), key=_order))
        return Difference(self.to_release, self.from_release, changes, self.assumed)


@dataclass(frozen=True)
class Effect:
    """What a change does to the arguments in use. `in_use` says whether it is set, or a default that is not set."""

    change: Change
    in_use: str
    severity: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {**self.change.as_dict(), "in_use": self.in_use, "severity": self.severity, "text": self.text}


def plain_release(text: str) -> str:
    """A release as people and tags write it, v0.5.23, by its number."""
    return text.strip().lstrip("vV")


def difference(before: str, after: str) -> Difference:
    """What the release `after` has otherwise than the release `before`."""
    old, new = flags_of(before), flags_of(after)
    changes = [
        *_flag_changes(old.rows, new.rows),
        *_variable_changes(VARIABLES[old.version], VARIABLES[new.version]),
        *_retired_changes(RETIRED[old.version], RETIRED[new.version]),
    ]
    assumed = [f"{table.asked}: data of {table.version}" for table in (old, new) if table.assumed]
    return Difference(before, after, tuple(sorted(changes, key=_order)), tuple(sorted(set(assumed))))


def _order(change: Change) -> tuple[str, str, str]:
    return change.what, change.name, min(change.change, _OPPOSITE.get(change.change, change.change))


def _flag_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in {*old, *new}:
        before = flag_of(name, old[name]) if name in old else None
        after = flag_of(name, new[name]) if name in new else None
        if before is None or after is None:
            row = old.get(name) or new.get(name)
            change = ADDED if before is None else REMOVED
            yield Change(FLAG, name, change, None if before is None else row, None if after is None else row)
        elif before != after:
            yield from _changes_of_flag(before, after)


def _changes_of_flag(before: Flag, after: Flag) -> Iterator[Change]:
    name = before.name
    if before.deprecated != after.deprecated or before.removed_after != after.removed_after:
        change = NO_LONGER_DEPRECATED if after.deprecated is None else DEPRECATED
        yield Change(FLAG, name, change, _deprecation(before), _deprecation(after))
    if (before.kind, before.nargs) != (after.kind, after.nargs):
        yield Change(FLAG, name, KIND, _kind(before), _kind(after))
    if before.type != after.type:
        yield Change(FLAG, name, TYPE, before.type, after.type)
    if before.default != after.default:
        yield Change(FLAG, name, DEFAULT, before.default, after.default)
    if (before.choices, before.open_choices) != (after.choices, after.open_choices):
        yield Change(FLAG, name, CHOICES, _choices(before), _choices(after))
    if before.aliases != after.aliases:
        yield Change(FLAG, name, ALIASES, list(before.aliases), list(after.aliases))


def _kind(flag: Flag) -> str:
    return flag.kind if flag.nargs is None else f"{flag.kind} ({flag.nargs})"


def _choices(flag: Flag) -> list[Any] | None:
    if flag.choices is None:
        return None
    return [*flag.choices, "(a plugin can add others)"] if flag.open_choices else list(flag.choices)


def _deprecation(flag: Flag) -> str | None:
    if flag.deprecated is None:
        return None
    use = f"use {flag.deprecated}" if flag.deprecated else "no replacement is named"
    return f"{use}; to be removed after {flag.removed_after}" if flag.removed_after else use


def _variable_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in {*old, *new}:
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            yield Change(VARIABLE, name, ADDED if before is None else REMOVED, before, after)
            continue
        # Of a variable that the registry does not have, type and default are not known.
        parts = (
            () if "unregistered" in {**before, **after} else (("type", TYPE), ("default", DEFAULT), ("former", ALIASES))
        )
        for part, change in parts:
            if before.get(part) != after.get(part):
                yield Change(VARIABLE, name, change, before.get(part), after.get(part))
        if _reading(before) != _reading(after):
            yield Change(VARIABLE, name, KIND, _reading(before), _reading(after))


def _reading(row: Mapping[str, Any]) -> str:
    return ", ".join(part for part in ("unregistered", "direct", "unread") if row.get(part)) or "registered"


def _retired_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in {*old, *new}:
        if old.get(name) != new.get(name):
            change = RETIRED_NOW if name in new else NO_LONGER_RETIRED
            yield Change(VARIABLE, name, change, old.get(name), new.get(name))


# --- for the arguments in use ---------------------------------------------------------------------------------------


def for_arguments(
    found: Difference, arguments: Mapping[str, Any], environment: Mapping[str, Any]
) -> tuple[Effect, ...]:
    """The changes that meet what is set, and the defaults that hold because nothing is set; the worst first."""
    table = flags_of(found.to_release)
    effects = []
    for change in found.changes:
        in_use = arguments if change.what == FLAG else environment
        is_set = in_use.get(change.name) is not None and in_use.get(change.name) != []
        if change.what == VARIABLE:
            effect = _effect_on_variable(change, is_set, table.version)
        else:
            flag = table.flag(change.name)
            effect = _effect_on_flag(change, flag, is_set, arguments.get(change.name), table.graph_keys)
        if effect is not None:
            effects.append(effect)
    rank = {ERROR: 0, WARNING: 1, INFO: 2}
    return tuple(sorted(effects, key=lambda effect: (rank[effect.severity], _order(effect.change))))


def _effect_on_flag(
    change: Change, flag: Flag | None, is_set: bool, value: Any, graph_keys: Mapping[str, list[str]]
) -> Effect | None:
    said = "set" if is_set else "default"

    def effect(severity: str, text: str) -> Effect:
        return Effect(change, said, severity, text)

    if change.change == DEFAULT:
        if is_set:
            return effect(INFO, "its default changes, which does not matter: it is set")
        return effect(WARNING, f"it is not set: {_shown(change.before)} becomes {_shown(change.after)}")
    if not is_set:
        return None
    if change.change == REMOVED:
        return effect(ERROR, "the server would end with exit code 2: leave it out")
    if change.change == DEPRECATED:
        return effect(WARNING, f"it still works, with a warning: {change.after}")
    if flag is None or change.change in (ADDED, NO_LONGER_DEPRECATED, ALIASES):
        return effect(INFO, f"{change.change}; nothing to do")
    wrong = wrong_shape(flag, value)
    words = [] if wrong else words_of(flag, value)
    wrong = wrong or next((text for word in words if (text := wrong_word(flag, word, graph_keys))), None)
    if wrong:
        return effect(ERROR, f"the value that is set does not fit any more: it {wrong}")
    lost = [word for word in words if not is_choice(flag, word)]
    if lost:
        severity = WARNING if flag.open_choices else ERROR
        return effect(severity, f"{', '.join(lost)} is no choice any more")
    if change.change == KIND and value is False:
        return effect(WARNING, f"false was leaving it out; it becomes --no-{change.name}")
    return effect(INFO, "the value that is set still fits")


def _effect_on_variable(change: Change, is_set: bool, version: str) -> Effect | None:
    said = "set" if is_set else "default"
    if change.change == DEFAULT and not is_set:
        text = f"it is not set: {_shown(change.before)} becomes {_shown(change.after)}"
        return Effect(change, said, WARNING, text)
    if not is_set:
        return None
    if change.change in (REMOVED, RETIRED_NOW):
        note = f": {change.after}" if change.change == RETIRED_NOW and change.after else ""
        return Effect(change, said, WARNING, f"it does nothing any more{note}")
    if change.change == KIND and "unread" in str(change.after):
        return Effect(change, said, WARNING, "it does nothing any more: no code of the package reads it")
    if change.change == NO_LONGER_RETIRED and change.name not in VARIABLES[version]:
        return Effect(change, said, WARNING, "it does nothing, and SGLang does not even warn of it any more: remove it")
    if change.change == TYPE:
        return Effect(change, said, WARNING, f"it is set: see that its value is a {change.after}")
    return Effect(change, said, INFO, f"{change.change}; it is set")


def _shown(value: Any) -> str:
    return (
        "unset (the server chooses)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


# --- as text --------------------------------------------------------------------------------------------------------


def counts(found: Difference) -> dict[str, int]:
    """How many changes of each sort there are."""
    result: dict[str, int] = {}
    for change in found.changes:
        key = f"{change.what}s {change.change}"
        result[key] = result.get(key, 0) + 1
    return dict(sorted(result.items()))


_WITH_VALUES = (DEFAULT, CHOICES, KIND, TYPE, ALIASES)
COLUMNS = ("severity", "name", "change", "before", "after", "in_use", "text")


def table_rows(effects: Iterable[Effect]) -> list[dict[str, str]]:
    """One row of text for each effect, by the names in COLUMNS."""
    rows = []
    for effect in effects:
        change = effect.change
        name = f"--{change.name}" if change.what == FLAG else change.name
        before, after = _cells(change)
        cells = (effect.severity, name, change.change, before, after, effect.in_use, effect.text)
        rows.append(dict(zip(COLUMNS, cells)))
    return rows


def lines(found: Difference, effects: Iterable[Effect]) -> list[str]:
    """The effects as lines for people, and what else differs in a word."""
    text = []
    shown = list(effects)
    for row in table_rows(shown):
        becomes = (
            f" ({row['before'] or 'nothing'} -> {row['after'] or 'nothing'})" if row["change"] in _WITH_VALUES else ""
        )
        text.append(f"{row['severity']:<7} {row['name']}: {row['change']}{becomes}: {row['text']}")
    others = len(found.changes) - len(shown)
    if others:
        text.append(f"{others} other changes do not meet what is declared")
    if found.assumed:
        text.append(f"assumed, for want of data: {'; '.join(found.assumed)}")
    return text


def _cells(change: Change) -> tuple[str, str]:
    """What it was and is. Of choices only those that are gone and new."""
    if change.change == CHOICES and isinstance(change.before, list) and isinstance(change.after, list):
        gone = [f"-{item}" for item in change.before if item not in change.after]
        new = [f"+{item}" for item in change.after if item not in change.before]
        return " ".join(gone), " ".join(new)
    if change.change in (ADDED, REMOVED):
        return "" if change.before is None else "there", "" if change.after is None else "there"
    return _cell(change.before), _cell(change.after)


def _cell(value: Any) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
