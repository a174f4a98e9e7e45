# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole preflight of one host: all areas side by side, each with its time limit."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import args_report, cuda_home, spec
from ..environments import environment_name, environment_of, locks_by_path
from ..redaction import redact, redact_text
from ..release_difference import plain_release
from . import args_area, declaration
from .outcome import outcome_of
from .preflight_kinds import NOT_LOOKED_AT
from .reading import CouldNotTell, Reader, Unknown, gather, patience, patient
from .stand_ins import without_secrets
from .table import EXAMINERS

Examine = Callable[[Mapping[str, Any]], "dict[str, Any]"]
# Longer than the limits of the readings inside an area, and short enough for a preflight of a host within 3 s.
LIMIT_S = 2.6
# An area then has more than four minutes: what has not answered by then is not only busy.
MOST_PATIENCE = 100


def look(
    params: Mapping[str, Any], examiners: Mapping[str, Examine] | None = None, limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """The findings of all areas, each with its area, the readings and the seconds of each area, and the outcome."""
    examiners = EXAMINERS if examiners is None else examiners
    elapsed: dict[str, float] = {}

    def timed(area: str, examine: Examine) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            started = time.monotonic()
            try:
                return examine(params)
            finally:
                elapsed[area] = round(time.monotonic() - started, 3)

        return run

    results = gather({area: Reader(timed(area, examine), limit_s) for area, examine in examiners.items()})
    # A copy: an area that is late may still write into it.
    took = dict(elapsed)
    findings: list[dict[str, Any]] = []
    readings: dict[str, Any] = {}
    for area, result in results.items():
        if isinstance(result, Unknown):
            readings[area] = {"unknown": redact_text(result.reason)}
            lost = NOT_LOOKED_AT.found(f"the area {area} was not looked at", result.reason, result.fix)
            findings.append({**lost.as_dict(), "area": area})
            continue
        readings[area] = redact(result["readings"])
        findings += [_without_read_secrets({**finding, "area": area}) for finding in result["findings"]]
    return {
        "findings": findings,
        "readings": readings,
        "outcome": outcome_of(findings),
        "elapsed_s": {area: took.get(area, patient(limit_s)) for area in examiners},
    }


def _without_read_secrets(finding: dict[str, Any]) -> dict[str, Any]:
    """Evidence is quoted from the machine: command lines and files of others may be in it."""
    return {**finding, "evidence": redact_text(str(finding.get("evidence") or ""))}


def preflight(params: Mapping[str, Any], validate: declaration.Validate) -> dict[str, Any]:
    """What the module preflight_info returns: its options as they were given, and how to bring values into types."""
    factor, wrong = _patience(params.get("patience"))
    with patience(factor):
        return _preflight(params, validate, wrong)


def _preflight(params: Mapping[str, Any], validate: declaration.Validate, wrong: Sequence[str]) -> dict[str, Any]:
    params = {**params, **without_secrets({key: params.get(key) for key in ("instances", "defaults")})}
    release = plain_release(str(params.get("upgrade_to") or ""))
    name = str(params.get("host_name") or "")
    locks = {} if release else locks_by_path(params.get("locks"))
    homes = _cuda_homes(params, release, locks)
    gpus, wrong_gpus = _gpus(params.get("gpus"), validate)
    host = spec.Host(
        name=name,
        address=str(params.get("address") or name),
        gpus=gpus,
        cuda_homes=homes,
        locks=locks,
    )
    problem = str(params.get("declaration_problem") or "")
    try:
        if problem:
            raise CouldNotTell(problem)
        read = declaration.read_declaration(
            params.get("instances"), params.get("defaults"), host, validate, upgrade_to=release
        )
    except Exception as error:
        # The declarations are raw. What nobody thought of in them is no reason not to look at the host.
        read = declaration.Declaration()
        what = problem or f"{type(error).__name__}: {error}"
        read.add(declaration.REFUSED.found("the declarations could not be understood", what))
    where = "the variables of the host in the inventory"
    wrong = [*wrong, *wrong_gpus, *_texts(params.get("variable_problems"))]
    for text in [*wrong, *_interpreter(params, read.instances)]:
        read.add(declaration.REFUSED.found(text, where))
    for text in _texts(params.get("unknown_variables")):
        read.add(declaration.UNKNOWN_VARIABLE.found(text, where))
    area_params = {
        "instances": read.instances,
        "declaration_findings": read.findings,
        "newest": declaration.NEWEST,
        # What is declared and could not be understood may want cards.
        "only_declared": not problem and params.get("instances") == [],
    }
    return {**look(area_params), "upgrade": upgrades(read.instances, release) if release else {}}


GPUS = {
    "type": "list",
    "elements": "dict",
    "options": {"index": {"type": "int", "required": True}, "uuid": {"type": "str", "required": True}},
}


def _gpus(given: Any, validate: declaration.Validate) -> tuple[list[dict[str, Any]], list[str]]:
    if not given:
        return [], []
    try:
        values, errors = validate({"sglang_server_gpus": GPUS}, {"sglang_server_gpus": given})
    except declaration.WRONG_SHAPE:
        values, errors = {}, ["it has another shape"]
    if errors:
        return [], [f"sglang_server_gpus is no list with index and uuid of each card: {errors[-1]}"]
    return list(values["sglang_server_gpus"]), []


def _patience(given: Any) -> tuple[float, list[str]]:
    """The factor on the limits of the readings, and what is wrong with what was given for it."""
    if given is None:
        return 1.0, []
    try:
        factor = float(given)
    except (TypeError, ValueError):
        factor = math.nan
    if isinstance(given, bool) or not 1 <= factor <= MOST_PATIENCE:
        said = f"sglang_preflight_patience is {given!r}, expected a number from 1 to {MOST_PATIENCE}; it was taken as 1"
        return 1.0, [said]
    return factor, []


def _texts(given: Any) -> list[str]:
    return [str(text) for text in given] if isinstance(given, (list, tuple)) else []


def _interpreter(params: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the interpreter is there that environments are made with, where one is still to be made."""
    python = params.get("python")
    missing = sorted(
        {
            str(one["version"])
            for one in instances
            if one["version"] and one["python"] and not os.path.exists(one["python"])
        }
    )
    if not isinstance(python, str) or not python or not missing or shutil.which(python):
        return []
    return [
        f"sglang_server_python is {python}, which is no program on this host, and the environment of "
        f"{', '.join(missing)} is still to be made with it"
    ]


def upgrades(instances: Sequence[Mapping[str, Any]], release: str) -> dict[str, Any]:
    """What the release changes for the arguments in use, by instance."""
    found: dict[str, Any] = {}
    for instance in instances:
        before = str(instance["declared_version"])
        said: dict[str, Any] = {"from": before or "no declared release", "to": release, "changes": []}
        try:
            if not before:
                raise ValueError("no release is declared")
            change = args_report.upgrade(args_area.declared_by(instance), plain_release(before), release)
            said.update({key: change[key] for key in ("from", "to", "assumed", "changes", "lines")})
        except declaration.WRONG_SHAPE as error:
            said["lines"] = [f"could not be compared: {error}"]
        found[str(instance["name"])] = said
    return found


def _cuda_homes(params: Mapping[str, Any], release: str, locks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The toolkit that a deployment would name to each environment: what is declared, or what it has made."""
    wish = str(params.get("cuda_home") or "auto")
    given = [params.get("defaults"), *(params["instances"] if isinstance(params.get("instances"), list) else ())]
    versions = {str(one.get("version")) for one in given if isinstance(one, Mapping) and one.get("version")}
    hashes = {"", *(str(lock.get("sha256") or "") for lock in locks.values())}
    homes: dict[str, str] = {}
    for version in {release} if release else versions:
        for lock in hashes:
            path = wish if wish.startswith("/") else f"{environment_of(version, lock)}/{cuda_home.DIRECTORY}"
            if wish.startswith("/") or (wish == "auto" and os.path.isdir(path)):
                homes[environment_name(version, lock)] = path
    return homes
