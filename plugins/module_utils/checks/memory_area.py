# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The area memory of a preflight: whether weights and pool of each declared instance fit on the cards of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import fraction_plan, gpu_readings
from ..finding import UNKNOWN
from ..instance_memory import plan_options
from ..kv_cell import WillNotStart
from ..machine import Readings
from .memory_kinds import DOUBTFUL, NO_POOL, NOT_PREDICTED

# Within the limit of the area.
SMI_LIMIT_S = 2.0


def _read() -> Readings:
    return gpu_readings.read(smi_limit_s=SMI_LIMIT_S)


def examine(params: Mapping[str, Any], read: Callable[[], Readings] = _read) -> dict[str, Any]:
    """Plan the memory of every instance that was resolved; `readings` has the prediction of each by its name."""
    findings: list[dict[str, Any]] = []
    plans: dict[str, Any] = {}
    instances = [one for one in params.get("instances") or () if one.get("desired")]
    readings = read() if instances else None
    for instance in instances:
        if readings is not None:
            plan, found = _examine_one(instance, readings)
            plans[str(instance["name"])] = plan
            findings += [{**one, "instance": str(instance["name"])} for one in found]
    return {"readings": {"plans": plans}, "findings": findings}


def _examine_one(instance: Mapping[str, Any], readings: Readings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    name, desired = instance["name"], instance["desired"]
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
        summary = f"could not tell whether the memory suffices for {name}"
        return {"unknown": str(error)}, [NOT_PREDICTED.found(summary, str(error), severity=UNKNOWN).as_dict()]
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
