# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's instances declare, read for a preflight: refusals become findings, and what can be used is used."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .. import spec
from ..environments import environment_of
from ..finding import ERROR, OK, UNKNOWN, WARNING, Finding
from ..releases import RELEASES
from ..spec_options import instance_options, shared_options
from . import args_area
from .check import Kind
from .declared_image import container_part, in_container, release_of_image
from .instance_shape import DEVICE_UNKNOWN, instances_of
from .model_reach import homes_hidden, why_unreadable, why_unreadable_in_container
from .plain import kind_of
from .reading import CouldNotTell, Reader, Unknown, gather

# From options as a module declares them and values to the values in their types, and what is wrong with them.
Validate = Callable[[Mapping[str, Any], Mapping[str, Any]], "tuple[dict[str, Any], list[str]]"]

REFUSED = Kind(
    "declaration.refused",
    ERROR,
    "a declaration is refused",
    "The role sglang_server refuses the host before it touches anything, so nothing of it is deployed.",
    "correct the variable that the finding names in the inventory",
    "module_utils/spec.py, which the role asks too",
)
DOUBTFUL = Kind(
    "declaration.doubtful",
    WARNING,
    "a declaration has a reservation",
    "It is deployed as declared, and probably does not do what was meant.",
    "correct the variable that the finding names in the inventory, or keep it on purpose",
    "module_utils/spec.py, which the role asks too",
)
MODEL_MISSING = Kind(
    "declaration.model_missing",
    ERROR,
    "the model is not on the host",
    "SGLang takes a path that does not exist for a hub id and ends with an error about that id.",
    "put the model there, mount its file system, or correct model of the instance",
    "SGLang, utils.hf_transformers_utils",
)
MODEL_UNREADABLE = Kind(
    "declaration.model_unreadable",
    ERROR,
    "the service cannot read the model",
    "root sees the model, the service does not: its user may not pass a folder or read a file, or its unit hides the "
    "place. The server ends with PermissionError, or takes the path for a hub id.",
    "put the model where every user can read it, as /srv/models",
    "systemd.exec(5): User=, ProtectHome=, PrivateTmp=",
)
UNKNOWN_VARIABLE = Kind(
    "declaration.unknown_variable",
    WARNING,
    "a variable of the role does not exist",
    "Ansible passes over variables that no role asks for: what it was to set has its default.",
    "correct the name of the variable in the inventory",
    "roles/sglang_server/meta/argument_specs.yml",
)
NOTHING_DECLARED = Kind(
    "declaration.nothing",
    WARNING,
    "no instance is declared for the host",
    "Only the host itself can be looked at: nothing is known of releases, ports, cards or models.",
    "declare sglang_server_instances for the host",
    "",
)
DECLARATION_KINDS = (REFUSED, DOUBTFUL, MODEL_MISSING, MODEL_UNREADABLE, UNKNOWN_VARIABLE, NOTHING_DECLARED)

# What rules that take typed values raise on others.
WRONG_SHAPE = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError)
_OF_INSTANCE = re.compile(r"instance '([^']*)': (.*)", re.DOTALL)
# Where no release is declared, the rest is read against the newest one whose data is here.
NEWEST = list(RELEASES)[-1]


@dataclass
class Declaration:
    """The instances as the areas take them, and the findings about the declarations, with the instance they are of."""

    instances: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, finding: Finding, instance: str = "") -> None:
        said = finding.as_dict()
        self.findings.append({**said, "instance": instance} if instance else said)

    def say(self, kind: Kind, problems: Sequence[str]) -> None:
        """Problems as spec says them, which name the instance first."""
        for text in problems:
            match = _OF_INSTANCE.fullmatch(text)
            if match is None:
                self.add(kind.found(text, "sglang_server_instances"))
            else:
                self.add(kind.found(match[2], f"sglang_server_instances, '{match[1]}'"), match[1])


def read_declaration(
    instances: Any, defaults: Any, host: spec.Host, validate: Validate, upgrade_to: str = ""
) -> Declaration:
    """Everything that is wrong with the declarations, and each instance as far as it can be understood.

    With `upgrade_to` every instance is read as if that release were declared for it.
    """
    read = Declaration()
    for wrong, given, wanted in (
        ("sglang_server_instances is no list", instances, list),
        ("defaults is no mapping", defaults, Mapping),
    ):
        if not isinstance(given, wanted):
            read.add(REFUSED.found(wrong, f"it is {kind_of(given)}", "declare a list with one entry an instance"))
            return read
    if not instances:
        read.add(NOTHING_DECLARED.found("no instance is declared for the host", "sglang_server_instances is empty"))
        return read
    if upgrade_to:
        host = replace(host, upgrade=True)
    shared, wrong_defaults, wrong_keys = _typed(defaults, shared_options(), validate)
    for text in wrong_defaults:
        read.add(REFUSED.found(f"what holds for all instances: {text}", "sglang_server_* of the host"))
    usable: list[dict[str, Any]] = []
    for position, given in enumerate(instances):
        if not isinstance(given, Mapping):
            summary = f"instance number {position + 1} is no mapping"
            read.add(REFUSED.found(summary, f"sglang_server_instances[{position}] is {kind_of(given)}"))
            continue
        typed, wrong_here, keys = _typed(given, instance_options(), validate)
        name = str(typed.get("name") or f"number {position + 1}")
        declared_version = release_of_image({**shared, **typed}) or str(
            typed.get("version") or shared.get("version") or ""
        )
        # Neither the image nor the lock of another release is known yet.
        typed = {**typed, "version": upgrade_to, "lock": ""} if upgrade_to else typed
        for text in wrong_here:
            read.add(REFUSED.found(text, f"sglang_server_instances, '{name}'"), name)
        # What was left out is missing then, which is nothing more that is wrong.
        left_out = {key for key in keys | (wrong_keys - set(typed)) if key}
        usable.append({"typed": typed, "name": name, "left_out": left_out, "declared_version": declared_version})
    _resolve(read, usable, shared, host)
    return read


def _typed(
    given: Mapping[str, Any], options: Mapping[str, Any], validate: Validate
) -> tuple[dict[str, Any], list[str], set[str]]:
    """The values in their types without those that are wrong, what is wrong with these, and their keys.

    An unknown key that is close to a known one counts as that one.
    """
    typed: dict[str, Any] = {}
    wrong: list[str] = []
    keys: set[str] = set()
    for key, value in given.items():
        if str(key) not in options:
            near = nearest(str(key), options)
            wrong.append(f"'{key}' is no option of an instance{f'; is {near} meant?' if near else ''}")
            keys.add(near)
        elif value is not None:
            try:
                values, errors = validate({str(key): options[str(key)]}, {str(key): value})
            except WRONG_SHAPE:
                # What checks the types breaks itself on some shapes of a nested option.
                values, errors = {}, [f"'{key}' is {kind_of(value)}, which the option does not take"]
            wrong += errors
            if errors:
                keys.add(str(key))
            else:
                typed[str(key)] = values[str(key)]
    return typed, wrong, keys


def nearest(key: str, names: Iterable[str]) -> str:
    """The name that was probably meant; empty where none is near."""
    near = difflib.get_close_matches(key.replace("-", "_"), list(names), 1)
    return near[0] if near else ""


def _resolve(
    read: Declaration, usable: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], host: spec.Host
) -> None:
    """Say what spec refuses, but for what it says of keys that were left out because they are wrong."""
    outcome = _resolved([one["typed"] for one in usable], shared, host)
    resolved = {str(one.desired["instance"]): one.desired for one in outcome.instances}
    for one in usable:
        desired = resolved.get(one["name"])
        if desired is None:
            # Refused together with others: alone it may be fine.
            alone = _resolved([one["typed"]], shared, host)
            desired = alone.instances[0].desired if alone.instances else None
        instance = _as_area(one["name"], one["typed"], shared, desired, host)
        if "arguments" in one["left_out"]:
            # They say what the server runs on, and nobody knows what they are.
            instance = {**instance, "device": DEVICE_UNKNOWN, "desired": None}
        read.instances.append({**instance, "declared_version": one["declared_version"]})
    told = _told_elsewhere(read.instances)
    left_out = {one["name"]: one["left_out"] for one in usable}

    def new(texts: Sequence[str]) -> list[str]:
        return [text for text in texts if text not in told and not _follows(text, left_out)]

    read.say(REFUSED, new(outcome.problems))
    read.say(DOUBTFUL, new(outcome.warnings))


def _follows(text: str, left_out: Mapping[str, set[str]]) -> bool:
    """Whether it complains of a key that was left out."""
    match = _OF_INSTANCE.fullmatch(text)
    # An instance without a name is told by its number.
    names = [match[1]] if match and match[1] in left_out else list(left_out)
    keys = {key for name in names for key in left_out[name]}
    said = match[2] if match else text
    return any(re.search(rf"(?<![\w-]){key}(?![\w-])", said) for key in keys)


def _told_elsewhere(instances: Sequence[Mapping[str, Any]]) -> set[str]:
    """What the area arguments says of the instances, as spec says it."""
    return {
        f"instance '{instance['name']}': {spec.sentence_of(finding)}"
        for instance in instances
        for finding in _findings_on_arguments(instance)
    }


def _findings_on_arguments(instance: Mapping[str, Any]) -> list[Finding]:
    try:
        return args_area.findings_of(instance, str(instance["version"] or NEWEST))
    except WRONG_SHAPE:
        return []


def _resolved(instances: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], host: spec.Host) -> spec.Outcome:
    """As spec.resolve, for arguments and environments whose types nobody has checked."""
    try:
        return spec.resolve(instances, shared, host)
    except WRONG_SHAPE as error:
        if len(instances) == 1:
            name = instances[0].get("name") or "number 1"
            return spec.Outcome(problems=[f"instance '{name}': its values are not of the right kind: {error}"])
        alone = [_resolved([one], shared, host) for one in instances]
        problems = [problem for outcome in alone for problem in outcome.problems]
        return spec.Outcome(problems=problems, warnings=[text for outcome in alone for text in outcome.warnings])


def _as_area(
    name: str,
    typed: Mapping[str, Any],
    shared: Mapping[str, Any],
    desired: Mapping[str, Any] | None,
    host: spec.Host,
) -> dict[str, Any]:
    """An instance as every area takes it, from its desired state or else from the bare declaration."""
    merged: dict[str, Any] = {**spec.DEFAULTS, **shared, **typed}
    for key in ("arguments", "environment"):
        merged[key] = {**(shared.get(key) or {}), **(typed.get(key) or {})}
    version = str(desired["version"] if desired else merged.get("version") or release_of_image(merged))
    caches = {variable: f"{spec.CACHE_DIR}/{folder}" for variable, folder in spec.CACHES.items()}
    bare = {**caches, "HF_HOME": str(merged["hf_home"]), **merged["environment"]}
    environment = desired["environment"] if desired else bare
    arguments = desired["args"] if desired else merged["arguments"]
    lock = host.locks.get(str(merged.get("lock") or "")) or {}
    return {
        "name": name,
        "version": version,
        "runtime": str(merged["runtime"]),
        # That of an image is looked for by the image's own PATH, and is no file of the host.
        "python": ""
        if in_container(merged)
        else f"{environment_of(version or NEWEST, str(lock.get('sha256') or ''))}/bin/python",
        "user": spec.USER,
        "home": f"{spec.STATE_DIR}/{name}",
        "environment": {str(key): str(value) for key, value in environment.items()},
        "declared_arguments": dict(merged["arguments"]),
        "declared_environment": dict(merged["environment"]),
        "arguments": dict(arguments),
        "secrets": [secret for secret in spec.SECRETS if merged.get(secret)],
        "port": merged.get("port"),
        "cards": list(merged.get("cards") or []),
        "cards_shared": bool(merged.get("cards_shared")),
        "nnodes": merged.get("nnodes") or 1,
        "served_model_name": merged.get("served_model_name"),
        "model": str(merged.get("model") or ""),
        "tp": arguments.get("tp-size", 1),
        "memory_max": merged.get("memory_max"),
        "mem_fraction": merged.get("mem_fraction"),
        "memory": merged.get("memory") or {},
        "desired": desired,
        **container_part({**merged, "name": name}, desired, host.upgrade),
    }


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """The area declaration: what was found on the way here, and whether the declared models can be read."""
    findings = [*params.get("declaration_findings", ())]
    models: dict[str, str] = {}
    instances = [one for one in instances_of(params.get("instances")) if str(one.get("model") or "").startswith("/")]
    # Each on its own: a network file system that hangs costs that model alone.
    late = "its file system does not answer"
    looked = gather(
        {f"the model of instance {n + 1}": Reader(partial(_look, one), late=late) for n, one in enumerate(instances)}
    )
    for instance, found in zip(instances, looked.values()):
        if isinstance(found, Unknown):
            summary = f"could not tell whether {instance['model']} is there"
            found = MODEL_MISSING.found(summary, found.reason, found.fix or "see what the evidence names", UNKNOWN)
        name = str(instance.get("name"))
        models[name] = found.summary
        findings.append({**found.as_dict(), "instance": name})
    if not any(one["severity"] != OK for one in findings):
        findings.append(REFUSED.fine("every declaration is accepted", "sglang_server_instances").as_dict())
    return {"readings": {"models": models}, "findings": findings}


def _look(instance: Mapping[str, Any]) -> Finding:
    """Whether the model is there, and whether the service can read it."""
    path = str(instance["model"])
    found = look_for_model(path)
    if found.severity != OK:
        return found
    user = str(instance.get("user") or spec.USER)
    try:
        if in_container(instance):
            why = why_unreadable_in_container(path, user, instance.get("mounts") or ())
        else:
            why = why_unreadable(path, user, homes_hidden(instance))
    except CouldNotTell as error:
        summary = f"could not tell whether {user} can read {path}"
        return MODEL_UNREADABLE.found(summary, str(error), error.fix, severity=UNKNOWN)
    if not why:
        return found
    fix = f"see the modes on the way: `namei -l {shlex.quote(path)}`; or put the model where every user can read it"
    return MODEL_UNREADABLE.found(f"the service user {user} cannot read {path}", why, fix)


def look_for_model(path: str) -> Finding:
    """Whether the path of a model exists."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        return MODEL_MISSING.found(f"{path} is not there", f"{path}: {error.strerror}")
    except OSError as error:
        summary = f"could not tell whether {path} is there"
        return MODEL_MISSING.found(summary, f"{path}: {error.strerror or error}", severity=UNKNOWN)
    return MODEL_MISSING.fine(f"{path} is there", path)
