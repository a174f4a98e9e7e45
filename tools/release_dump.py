# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print what SGLang's own argument parser, YAML reader and registry of variables say, as JSON.

Run by release_data.py with an interpreter in which the release can be imported; no GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

PROBE = "probe-of-a-plugin"
# Their choices come from registries that a plugin may add to, or from a variable, and not from a list of choices.
WIDENED_OTHERWISE = ("reasoning-parser", "sampling-backend", "tool-call-parser")

# SGLang's functions that read a word, by what such a word is.
TYPES = {
    "json_list_type": "strict_json",
    "loads": "json",
    "nullable_str": "str",
    "parse_cuda_graph_backend_arg": "str",
    "parse_cuda_graph_config_arg": "graph_config",
}


def build() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.dest != "help"]


def name_of(action: argparse.Action) -> str:
    return action.option_strings[0][2:]


def is_switch(action: argparse.Action) -> bool:
    return isinstance(action, argparse.BooleanOptionalAction)


def kind_of(action: argparse.Action) -> str:
    if is_switch(action):
        return "switch"
    if action.nargs == 0:
        return "flag"
    if action.nargs in ("+", "*"):
        return "values"
    return "optional" if action.nargs == "?" else "value"


def type_of(action: argparse.Action) -> str:
    given = "str" if action.type is None else getattr(action.type, "__name__", str(action.type))
    return TYPES.get(given, given)


def plain(value: Any) -> Any:
    """A default that can stand in a Python file."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, (bool, int, float, str, list, dict)) else str(value)


def deprecation(action: argparse.Action) -> str | None:
    """What to use instead, empty when nothing is named; None for a flag that is not deprecated."""
    said = action.help or ""
    if not type(action).__name__.startswith("Deprecated") and not said.lower().lstrip("( ").startswith("deprecated"):
        return None
    named = getattr(action, "new_flag", None)
    if named:
        return str(named)
    match = re.search(r"[Uu]se '?(--[\w<>{},=-]+)", said)
    return match.group(1).rstrip(",.") if match else ""


def row_of(action: argparse.Action) -> dict[str, Any]:
    kind, name = kind_of(action), name_of(action)
    row: dict[str, Any] = {"kind": kind}
    if kind not in ("flag", "switch") and type_of(action) != "str":
        row["type"] = type_of(action)
    if action.nargs in ("+", "*"):
        row["nargs"] = action.nargs
    default = plain(action.default)
    if default is not (False if kind == "flag" else None):
        row["default"] = default
    if action.choices is not None:
        row["choices"] = sorted(action.choices, key=str)
    others = [word[2:] for word in action.option_strings[1:] if not (is_switch(action) and word == "--no-" + name)]
    if others:
        row["aliases"] = others
    instead = deprecation(action)
    if instead is not None:
        row["deprecated"] = instead
    return row


def widened() -> set[str]:
    """The flags whose choices a plugin can add to: those that show a choice added as a plugin adds it."""
    from sglang.srt.arg_groups import choices

    for name in dir(choices):
        if name.startswith("add_") and name.endswith("_choices"):
            getattr(choices, name)([PROBE])
    return {name_of(action) for action in options(build()) if action.choices is not None and PROBE in action.choices}


def yaml_exceptions(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What a configuration file makes of a key, where it is not what the kind of the flag lets one expect.

    One expects that a "flag" takes true and false, that a "switch" is refused, and that the rest takes values.
    """
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    merger = ConfigArgumentMerger(parser)
    found: dict[str, str] = {}
    for action in options(parser):
        expected = {"flag": "boolean", "switch": "refused"}.get(kind_of(action), "value")
        for word in action.option_strings:
            key = word[2:]
            field = key.replace("-", "_")
            what = "refused" if field in merger.unsupported_actions else "value"
            if what == "value" and field in merger.store_true_actions:
                what = "boolean"
            if what != expected:
                found[key] = what
    return found


def variables() -> dict[str, dict[str, Any]]:
    from sglang.srt import environ

    found = {}
    for name, field in vars(environ.Envs).items():
        if not isinstance(field, environ.EnvField):
            continue
        kind = type(field).__name__.removeprefix("Env").removesuffix("WithAlias").lower()
        row: dict[str, Any] = {"type": kind}
        default = "computed" if callable(field.default) else plain(field.default)
        if default is not None:
            row["default"] = default
        former = getattr(field, "deprecated_name", None)
        if former:
            row["former"] = former
        found[name] = row
    return found


def retired() -> dict[str, str]:
    from sglang.srt import environ

    found = {}
    for name, entry in environ._DEPRECATED_ENVS.items():
        instead = f"use {entry.replacement} instead. " if entry.replacement else ""
        found[name] = (instead + (entry.note or "")).strip()
    return found


def main() -> int:
    import sglang

    parser = build()
    flags = {name_of(action): row_of(action) for action in options(parser)}
    exceptions = yaml_exceptions(parser)
    for name in sorted(widened() | set(WIDENED_OTHERWISE)):
        if flags.get(name, {}).get("choices"):
            flags[name]["open"] = True
    from sglang.srt.model_executor import cuda_graph_config

    graphs = {str(phase): sorted(keys) for phase, keys in cuda_graph_config.ALLOWED_KEYS_PER_PHASE.items()}
    dump = {
        "from": sglang.__file__,
        "flags": flags,
        "yaml": exceptions,
        "graph_keys": graphs,
        "variables": variables(),
        "retired": retired(),
    }
    # SGLang logs to stdout on some ways of importing it: the reader looks for this line.
    print("\nDUMP " + json.dumps(dump))
    return 0


if __name__ == "__main__":
    sys.exit(main())
