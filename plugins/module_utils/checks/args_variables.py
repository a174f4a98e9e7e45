# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules on environment variables: those that do nothing, mislead, or belong elsewhere."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from ..environment_names import RETIRED as RETIRED_NAMES
from ..environment_names import VARIABLES
from ..finding import ERROR, WARNING, Finding
from ..release_rows import release_key
from .args_declared import Declared, is_secret_variable, shown_name, shown_value, shown_variable, variable_text
from .check import Kind, check

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_TRUE_EVERYWHERE = ("1", "true")
_FALSE_EVERYWHERE = ("0", "false")
_TRUE = (*_TRUE_EVERYWHERE, "yes", "y")
_FALSE = (*_FALSE_EVERYWHERE, "no", "n")
_REGISTRY = "srt/environ.py: Envs, EnvField"

NAME = Kind(
    "env.name", ERROR, "a variable without a proper name", "The unit cannot set it.", "write a name as MY_VARIABLE"
)
OWNED = Kind(
    "env.owned",
    ERROR,
    "a variable that the instance declares elsewhere",
    "The value is needed outside of the environment too; given twice they can differ.",
    "declare it as the option of the instance",
)
SECRET = Kind(
    "env.secret",
    ERROR,
    "a secret in the environment",
    "The unit and the desired-state file can be read by every user of the host.",
    "give the server a file to read it from instead; for Hugging Face declare hf_token",
)
SHAPE = Kind(
    "env.shape", ERROR, "a variable that is not one value", "A variable is one text.", "give one value, JSON as text"
)
UNKNOWN_NAME = Kind(
    "env.unknown",
    WARNING,
    "a variable that this release does not read",
    "It does nothing, and nobody says so.",
    "write the right name, or remove it",
    _REGISTRY + "; the names in the code of the release",
)
REMOVED = Kind(
    "env.removed",
    WARNING,
    "a variable that this release reads no more",
    "It does nothing, and nobody says so.",
    "remove it",
    _REGISTRY,
)
RETIRED = Kind(
    "env.retired",
    WARNING,
    "a retired or deprecated variable",
    "SGLang warns when it is set. Most do nothing else; some are still read, and a later release will not.",
    "remove it, or use what took its place",
    "srt/environ.py: _DEPRECATED_ENVS",
)
FORMER = Kind(
    "env.former_name",
    WARNING,
    "a variable by its former name",
    "It is still read, with a warning; the former name is announced to go.",
    "write the new name",
    "srt/environ.py: _DeprecatedEnvFallback",
)
PREFIX = Kind(
    "env.prefix",
    WARNING,
    "a variable with the old prefix SGL_",
    "SGLang copies it over the variable with the prefix SGLANG_, which may be set to something else, and warns.",
    "write the prefix SGLANG_",
    "srt/environ.py: _handle_deprecated_envs",
)
UNREAD = Kind(
    "env.unread",
    WARNING,
    "a variable that is registered and that nothing reads",
    "It does nothing, and nobody says so.",
    "remove it",
    _REGISTRY + "; no other code of the release names it",
)
VALUE = Kind(
    "env.value",
    WARNING,
    "a variable whose value cannot be read",
    "SGLang warns and takes the default instead.",
    "give a value of the type that the variable has",
    "srt/environ.py: EnvField.get",
)
BOOLEAN = Kind(
    "env.boolean",
    WARNING,
    "a truth value in words that are not read everywhere",
    "Some places read the variable without the registry. They take true and 1 only; everything else is false to them.",
    "write 1 or 0",
    "srt/utils/common.py: get_bool_env_var",
)
FORCE_ALONE = Kind(
    "env.force_shutdown_alone",
    ERROR,
    "SGLANG_FORCE_SHUTDOWN alone",
    "It is registered and nothing reads it: a stop drains as if it were not set.",
    "set both, or neither",
    "srt/managers/tokenizer_manager.py: sigterm_watchdog reads SGL_FORCE_SHUTDOWN; run with both releases",
)
FORCE = Kind(
    "env.force_shutdown",
    WARNING,
    "SGL_FORCE_SHUTDOWN",
    "Every stop loses the requests that still run, and the server stays until its clients hang up.",
    "remove it: a rollout drains the server before it stops",
    "srt/managers/tokenizer_manager.py: sigterm_watchdog; run with both releases",
)
RUST = Kind(
    "env.rust_server",
    WARNING,
    "SGLANG_RUST_SERVER",
    "The server has no handler for SIGTERM then: it dies at once and loses the requests that run.",
    "remove it, or drain the server through the gateway before every stop",
    "srt/rust_server/server.py, as read",
)


def _names(declared: Declared) -> Iterator[tuple[str, str]]:
    """The variables with their texts, without those that have no proper name or value."""
    for name, value in declared.environment.items():
        if _NAME.fullmatch(str(name)) and not isinstance(value, (dict, list)):
            yield str(name), variable_text(value)


@check(NAME)
def named(declared: Declared) -> Iterator[Finding]:
    for name in declared.environment:
        if not _NAME.fullmatch(str(name)):
            shown = shown_name(name)
            yield NAME.found(f"environment '{shown}' is not a name for a variable", f"environment: {shown}")


@check(OWNED)
def owned(declared: Declared) -> Iterator[Finding]:
    elsewhere = {
        "CUDA_VISIBLE_DEVICES": "cards",
        "HOME": "nothing: it is the instance's own directory",
        "HF_HOME": "hf_home",
        declared.behaviour.output_cap_variable: "output_cap_tokens",
    }
    for name in declared.environment:
        if name in elsewhere:
            yield OWNED.found(
                f"environment {name}: declare {elsewhere[name]}", f"environment: {name}", f"declare {elsewhere[name]}"
            )


@check(SECRET)
def secrets(declared: Declared) -> Iterator[Finding]:
    for name in declared.environment:
        shown = shown_name(name)
        seen = f"environment: {shown} (the value is not shown)"
        if name in _HUB_TOKENS:
            yield SECRET.found(
                f"environment {name} is a secret that every user of the host could read: declare hf_token",
                seen,
                "hf_token: …",
            )
        elif not str(name).startswith(("SGLANG_", "SGL_")) and is_secret_variable(str(name)):
            yield SECRET.found(
                f"environment {shown} looks like a secret, and the unit and the desired-state file can be read by "
                "every user of the host",
                seen,
                "give the server a file to read it from instead",
            )


@check(SHAPE)
def one_value(declared: Declared) -> Iterator[Finding]:
    for name, value in declared.environment.items():
        if isinstance(value, (dict, list)):
            what = "a mapping" if isinstance(value, dict) else "a list"
            shown = shown_name(name)
            yield SHAPE.found(f"environment {shown} is {what}, expected one value", f"environment: {shown}")


def _formers(declared: Declared) -> dict[str, str]:
    return {row["former"]: name for name, row in declared.variables.items() if "former" in row}


def _registered(name: str) -> str:
    """The name that SGLang reads: the old prefix is replaced when it is imported."""
    return "SGLANG_" + name[4:] if name.startswith("SGL_") else name


def _is_read(name: str, declared: Declared) -> bool:
    known = (declared.variables, declared.retired, _formers(declared))
    return any(name in names for names in known) or name == declared.behaviour.output_cap_variable


@check(UNKNOWN_NAME, REMOVED)
def read_at_all(declared: Declared) -> Iterator[Finding]:
    version = declared.table.version
    for name, text in _names(declared):
        right = _registered(name)
        # SGLANG_DIFFUSION_ belongs to another program of the package.
        if not right.startswith("SGLANG_") or right.startswith("SGLANG_DIFFUSION_"):
            continue
        if _is_read(name, declared) or _is_read(right, declared):
            continue
        near = difflib.get_close_matches(right, declared.variables, 1, 0.8)
        seen = declared.evidence(f"environment: {name}={shown_value(text, name, *near)}")
        having = sorted(
            (one for one in VARIABLES if right in VARIABLES[one] or right in RETIRED_NAMES[one]), key=release_key
        )
        if having and release_key(having[-1]) < release_key(version):
            said = f"environment {name} does nothing: SGLang {version} does not know it any more ({having[-1]} did)"
            yield REMOVED.found(said, seen)
            continue
        hint = f"; did you mean {near[0]}?" if near else ""
        hint = f"; it comes with SGLang {having[0]}" if having else hint
        yield UNKNOWN_NAME.found(
            f"environment {name} does nothing: SGLang {version} has no variable of this name{hint}",
            seen,
            f"{near[0]}={shown_value(text, name, near[0], hidden='…')}" if near and not having else "remove it",
        )


@check(UNREAD)
def read_by_nothing(declared: Declared) -> Iterator[Finding]:
    for name, text in _names(declared):
        right = _registered(name)
        # Of this one a rule of its own says what it would have to be.
        if right == "SGLANG_FORCE_SHUTDOWN" or right in declared.retired:
            continue
        if (declared.variables.get(right) or {}).get("unread"):
            yield UNREAD.found(
                f"environment {name} does nothing: SGLang {declared.table.version} registers it, and no code of the "
                "package reads it",
                declared.evidence(shown_variable(name, text)),
            )


@check(RETIRED)
def retired(declared: Declared) -> Iterator[Finding]:
    for name, text in _names(declared):
        said = declared.retired.get(name)
        if said is not None:
            # Some are still read: the registry has them too.
            what = "is deprecated and still read" if name in declared.variables else "is retired and does nothing"
            yield RETIRED.found(
                f"environment {name} {what}" + (f": {said}" if said else ""),
                declared.evidence(shown_variable(name, text)),
            )


@check(FORMER)
def former_name(declared: Declared) -> Iterator[Finding]:
    formers = _formers(declared)
    for name, text in _names(declared):
        if name in formers:
            yield FORMER.found(
                f"environment {name} is the former name of {formers[name]}",
                declared.evidence(shown_variable(name, text)),
                f"{formers[name]}={shown_value(text, name, formers[name], hidden='…')}",
            )


@check(PREFIX)
def old_prefix(declared: Declared) -> Iterator[Finding]:
    for name, text in _names(declared):
        if (
            not name.startswith("SGL_")
            or name == declared.behaviour.force_shutdown_variable
            or name in declared.variables
        ):
            continue
        right = _registered(name)
        other = declared.variable(right)
        also = (
            ""
            if other in (None, text)
            else f"; it overrides {right}={shown_value(other or '', right)}, which is set too"
        )
        yield PREFIX.found(
            f"environment {name} has the old prefix: SGLang copies it to {right} and warns{also}",
            declared.evidence(shown_variable(name, text)),
            f"{right}={shown_value(text, name, right, hidden='…')}",
        )


@check(VALUE)
def readable(declared: Declared) -> Iterator[Finding]:
    for name, text in _names(declared):
        right = _registered(name)
        row = declared.variables.get(name) or declared.variables.get(right) or {}
        kind = row.get("type", "str")
        if row.get("unregistered") or _reads(kind, text):
            continue
        expected = {"bool": "1 or 0", "int": "a whole number", "float": "a number", "json": "JSON or a file"}[kind]
        default = row.get("default")
        yield VALUE.found(
            f"environment {name}: {shown_value(text, name)!r} is not {expected}; SGLang takes its default instead "
            f"({default})",
            declared.evidence(shown_variable(name, text)),
        )


def _reads(kind: str, text: str) -> bool:
    if kind == "bool":
        return text.lower() in (*_TRUE, *_FALSE)
    try:
        if kind == "int":
            int(text)
        elif kind == "float":
            float(text)
        elif kind == "json" and text and not text.startswith(("/", ".")):
            json.loads(text)
    except ValueError:
        return False
    return True


@check(BOOLEAN)
def true_everywhere(declared: Declared) -> Iterator[Finding]:
    for name, text in _names(declared):
        row = declared.variables.get(name) or declared.variables.get(_registered(name)) or {}
        if not row.get("direct") or text.lower() in (*_TRUE_EVERYWHERE, *_FALSE_EVERYWHERE):
            continue
        number = "0" if text.lower() in _FALSE else "1"
        yield BOOLEAN.found(
            f"environment {name}: {shown_value(text, name)!r} is taken for false where SGLang reads the variable "
            "directly",
            declared.evidence(shown_variable(name, text)),
            f"{name}={number}",
        )


@check(FORCE_ALONE)
def force_shutdown_alone(declared: Declared) -> Iterator[Finding]:
    new, used = "SGLANG_FORCE_SHUTDOWN", declared.behaviour.force_shutdown_variable
    text = declared.variable(new)
    if text and new != used and not declared.variable(used):
        yield FORCE_ALONE.found(
            f"environment {new} alone has no effect: SGLang reads {used}",
            declared.evidence(f"environment: {new}={text}, {used} is not set"),
        )


@check(FORCE)
def force_shutdown(declared: Declared) -> Iterator[Finding]:
    used = declared.behaviour.force_shutdown_variable
    if declared.behaviour.forces_shutdown(dict(_names(declared))):
        yield FORCE.found(
            f"environment {used} is set: every stop loses the requests that still run",
            declared.evidence(f"environment: {used}={declared.variable(used)}"),
        )


@check(RUST)
def rust_server(declared: Declared) -> Iterator[Finding]:
    if declared.is_set("SGLANG_RUST_SERVER") or declared.is_set("SGL_RUST_SERVER"):
        yield RUST.found(
            "environment SGLANG_RUST_SERVER is set: the server dies of SIGTERM without a drain, and loses what runs",
            declared.evidence("environment: SGLANG_RUST_SERVER is true"),
        )


CHECKS = (
    named,
    owned,
    secrets,
    one_value,
    read_at_all,
    read_by_nothing,
    retired,
    former_name,
    old_prefix,
    readable,
    true_everywhere,
    force_shutdown_alone,
    force_shutdown,
    rust_server,
)
