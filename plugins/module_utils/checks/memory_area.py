# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The area memory of a preflight: whether weights and pool of each declared instance fit on the cards of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .. import fraction_plan, gpu_readings, host_memory_reader
from ..finding import UNKNOWN, Finding
from ..instance_memory import plan_options, platform_of
from ..kv_cell import WillNotStart
from ..machine import ERROR, Host, Readings
from ..model_config import ModelError
from .instance_shape import instances_of
from .memory_kinds import DOUBTFUL, MODEL_BROKEN, NO_POOL, NOT_PREDICTED
from .reading import Reader, Unknown, gather

# Within the limit of the area, and with time for the plans after it.
SMI_LIMIT_S = 1.2
CARDS_S = 1.4
PLAN_S = 1.8


def _read() -> Readings:
    return gpu_readings.read(smi_limit_s=SMI_LIMIT_S)


def _read_machine(read: Callable[[], Readings], read_host: Callable[[], Host]) -> Readings:
    """The machine; without its cards, and with the reason, where they do not answer."""
    late = "NVML or nvidia-smi does not answer"
    cards: Any = gather({"the cards": Reader(read, CARDS_S, late)})["the cards"]
    return _without_cards(read_host, cards.reason) if isinstance(cards, Unknown) else cards


def _without_cards(read_host: Callable[[], Host], reason: str = "") -> Readings:
    problems = ({"source": "nvidia-smi", "status": ERROR, "text": reason},) if reason else ()
    return Readings("none", (), read_host(), problems=problems)


def examine(
    params: Mapping[str, Any],
    read: Callable[[], Readings] = _read,
    read_host: Callable[[], Host] = host_memory_reader.read,
) -> dict[str, Any]:
    """Plan the memory of every instance that was resolved; `readings` has the prediction of each by its name.

    Each is planned on its own: a model on a file system that hangs costs that instance alone.
    """
    findings: list[dict[str, Any]] = []
    plans: dict[str, Any] = {}
    instances = [one for one in instances_of(params.get("instances")) if one.get("desired")]
    if not instances:
        return {"readings": {"plans": plans}, "findings": findings}
    on_cards = any(_runs_on_cards(one) for one in instances)
    readings = _read_machine(read, read_host) if on_cards else _without_cards(read_host)
    planned = gather(
        {
            f"the model of instance {number + 1}": Reader(functools.partial(_examine_one, one, readings), PLAN_S)
            for number, one in enumerate(instances)
        }
    )
    for instance, result in zip(instances, planned.values()):
        name = str(instance.get("name"))
        if isinstance(result, Unknown):
            summary = f"could not tell whether the memory suffices for {name}"
            lost = NOT_PREDICTED.found(summary, result.reason, result.fix or _SEE_MODEL, severity=UNKNOWN)
            result = {"unknown": result.reason}, [lost.as_dict()]
        plan, found = result
        plans[name] = plan
        findings += [{**one, "instance": name} for one in found]
    return {"readings": {"plans": plans}, "findings": findings}


_SEE_MODEL = "see what the evidence names, and run again"


def _runs_on_cards(instance: Mapping[str, Any]) -> bool:
    try:
        return platform_of(instance["desired"]) != "cpu"
    except (AttributeError, KeyError, TypeError):
        return True  # what it says cannot be understood


def _unpredicted(name: str, error: ValueError) -> Finding:
    """Why nothing can be said: what is broken for ever is an error, everything else is not known."""
    if isinstance(error, ModelError) and error.broken:
        return MODEL_BROKEN.found(f"the model of {name} cannot be loaded", str(error), error.fix)
    fix = error.fix if isinstance(error, ModelError) else ""
    summary = f"could not tell whether the memory suffices for {name}"
    return NOT_PREDICTED.found(summary, str(error), fix or _SEE_MODEL, severity=UNKNOWN)


def _examine_one(instance: Mapping[str, Any], readings: Readings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    name, desired = str(instance.get("name")), instance["desired"]
    policy = instance.get("mem_fraction")
    options = {key: value for key, value in (instance.get("memory") or {}).items() if value is not None}
    path = desired["model"]["path"]
    if not desired["model"]["local"]:
        reason = f"model {path} is a hub id: nothing can be read before it is on the host"
        finding = NOT_PREDICTED.found(f"the pool of {name} is not predicted", reason)
        return {"unknown": reason}, [finding.as_dict()]
    try:
        asked = plan_options(desired, fraction_plan.AUTO if policy is None else policy, options, readings)
        if asked.platform == "cuda" and not readings.cards:
            raise ValueError("; ".join(["no card could be asked", *(one["text"] for one in readings.problems)]))
        result = fraction_plan.plan(asked)
    except WillNotStart as error:
        return {"lines": [str(error)]}, [NO_POOL.found(f"{name} does not start", str(error)).as_dict()]
    except ValueError as error:
        return {"unknown": str(error)}, [_unpredicted(name, error).as_dict()]
    # On a processor the plan is a rough guess, and nothing is compiled by nvcc: only its clear refusals are said.
    on_card = result["capacity"]["platform"] != "cpu"
    found = [one for one in result["findings"] if on_card or one["id"] == "memory.host_limit"]
    evidence = "; ".join(result["lines"])
    prediction = result["prediction"]
    if result["feasible"] is None:
        found.append(NOT_PREDICTED.found(f"the pool of {name} is not predicted", evidence).as_dict())
    elif result["fraction"] is None or (prediction is not None and not prediction["feasible"]):
        found.append(NO_POOL.found(f"{name} finds no memory for its pool", evidence).as_dict())
    else:
        found.append(NO_POOL.fine(f"the memory of {name} suffices", evidence).as_dict())
    if on_card:
        found += [DOUBTFUL.found(f"{name}: {text}", evidence).as_dict() for text in result["warnings"]]
    said = {key: result[key] for key in ("fraction", "source", "lines")}
    said["kind"] = result["kind"]["kind"]
    said["max_total_num_tokens"] = (prediction or {}).get("max_total_num_tokens")
    return said, found
