# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory part of each instance's desired state: made once, and kept until something that it rests on changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import fraction_plan, gpu_readings, gpu_report
from .desired_state import path_of
from .fraction_choice import inputs_key
from .fraction_plan import AUTO, Options
from .machine import Readings
from .model_config import ModelError
from .model_files import LONGEST_CONFIG, open_regular

# Options of the planner that an instance may declare under `memory`.
OPTIONS = (
    "kind",
    "wanted_tokens",
    "neighbours_may_take_gib",
    "host_reserve_gib",
    "needed_outside_gib",
    "weights_gib",
    "draft_model",
    "proven",
)
# Arguments that every instance has and that no memory follows from.
_WITHOUT_BEARING = ("host", "port", "served-model-name", "enable-metrics")


@dataclass(frozen=True)
class Planned:
    """The memory parts by instance, or why there are none."""

    parts: Mapping[str, Mapping[str, Any]]
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()


def plan_instances(
    desired: Sequence[Mapping[str, Any]],
    wishes: Mapping[str, Mapping[str, Any]],
    again: bool = False,
    read: Callable[[], Readings] = gpu_readings.read,
) -> Planned:
    """The memory part of each instance. `wishes` holds `mem_fraction` and `memory` as declared, by instance."""
    parts: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    warnings: list[str] = []
    readings: Readings | None = None
    for one in desired:
        name, wish = str(one["instance"]), wishes.get(str(one["instance"])) or {}
        readings = readings if readings is not None else read()
        policy = wish.get("mem_fraction")
        policy = AUTO if policy is None else policy
        options = {key: value for key, value in (wish.get("memory") or {}).items() if value is not None}
        key = _key(one, policy, options, readings)
        earlier = None if again else _earlier(name)
        if earlier is not None and earlier.get("inputs_key") == key:
            parts[name] = earlier
            continue
        part, problem = _plan(one, policy, options, readings, key)
        parts[name] = part
        if problem and policy != AUTO:
            problems.append(f"instance '{name}': mem_fraction {policy}: {problem}")
        if policy != AUTO:
            warnings += [f"instance '{name}': {text}" for text in part.get("warnings", ())]
    return Planned(parts, problems, warnings)


def _plan(
    desired: Mapping[str, Any], policy: Any, options: Mapping[str, Any], readings: Readings, key: str
) -> tuple[dict[str, Any], str]:
    part: dict[str, Any] = {"policy": policy, "inputs_key": key, "argument": None, "fraction": None}
    try:
        if not desired["model"]["local"]:
            raise ValueError("the model is no folder on this host, so nothing can be read before it is there")
        result = fraction_plan.plan(plan_options(desired, policy, options, readings))
    except ValueError as error:
        return {**part, "problem": str(error), "prediction": None, "lines": [], "binding": False}, str(error)
    prediction = result["prediction"]
    part.update(
        argument=None if policy == AUTO else result["fraction"],
        fraction=result["fraction"],
        source=result["source"],
        kind=result["kind"]["kind"],
        lines=result["lines"],
        reasons=[{**reason, "value": round(reason["value"], 4)} for reason in result["reasons"]],
        window={name: result["window"][name] for name in ("feasible", "low", "high")},
        prediction=None if prediction is None else _brief(prediction),
        binding=_binding(result, desired),
        warnings=result["warnings"],
        problem=None,
    )
    return part, _refusal(part, result)


def _refusal(part: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Why a start is not worth trying: there is no fraction, or the one that was given leads to no pool."""
    prediction = result["prediction"]
    if part["fraction"] is None or (prediction is not None and not prediction["feasible"]):
        return "; ".join(result["lines"])
    return ""


def _brief(prediction: Mapping[str, Any]) -> dict[str, Any]:
    names = ("max_total_num_tokens", "max_running_requests", "longest_prompt_tokens", "token_bytes", "page_size")
    return {name: prediction[name] for name in names}


def _binding(result: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    """Whether a pool far below the prediction means trouble: only where the prediction rests on something."""
    return bool(result["feasible"] and not result["model"]["unverified"] and platform_of(desired) == "cuda")


def platform_of(desired: Mapping[str, Any]) -> str:
    """What an instance runs on: cuda, cpu or another device."""
    device = str(desired["args"].get("device") or "cuda").partition(":")[0]
    on_cpu = str(desired["environment"].get("SGLANG_USE_CPU_ENGINE", "0")) == "1"
    return "cpu" if device == "cpu" or on_cpu else device


def plan_options(desired: Mapping[str, Any], policy: Any, options: Mapping[str, Any], readings: Readings) -> Options:
    """What the planner is asked for an instance: its desired state, and what it declares about its memory."""
    return Options(
        model=desired["model"]["path"],
        version=desired["version"],
        arguments={name: value for name, value in desired["args"].items() if name != "mem-fraction-static"}
        if policy != AUTO
        else desired["args"],
        environment={str(name): str(value) for name, value in desired["environment"].items()},
        policy=policy,
        readings=gpu_report.with_owners(readings, str(desired["instance"])),
        cards=list(desired["cards"]),
        platform=platform_of(desired),
        **{name: value for name, value in options.items() if name in OPTIONS},
    )


def _key(desired: Mapping[str, Any], policy: Any, options: Mapping[str, Any], readings: Readings) -> str:
    """What the part rests on. Free memory and who else runs are not among it."""
    cards = [[card.index, card.uuid, card.name, card.total_mib] for card in readings.cards]
    card = {"cards": cards, "of": list(desired["cards"]), "host": readings.host.total_bytes if not cards else None}
    model = {"path": desired["model"]["path"], "files": _fingerprint(str(desired["model"]["path"]))}
    environment = {name: value for name, value in desired["environment"].items() if name.startswith("SGLANG_")}
    asked = {"policy": policy, "options": dict(options), "environment": environment}
    arguments = {name: value for name, value in desired["args"].items() if name not in _WITHOUT_BEARING}
    return inputs_key(card, model, arguments, str(desired["version"]), asked)


def _fingerprint(folder: str) -> str:
    """The configuration and the sizes of the weights."""
    digest = hashlib.sha256()
    # What is no file or has no end says nothing here; the plan says what is wrong with it.
    with contextlib.suppress(OSError, ModelError):
        with open_regular(os.path.join(folder, "config.json")) as stream:
            digest.update(stream.read(LONGEST_CONFIG))
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                digest.update(f"{name} {os.path.getsize(os.path.join(folder, name))}\n".encode())
    return digest.hexdigest()[:16]


def _earlier(instance: str) -> dict[str, Any] | None:
    """The memory part of the desired-state file that is on the host."""
    try:
        with open(path_of(instance), encoding="utf-8") as stream:
            part = json.load(stream).get("memory")
    except (OSError, ValueError, AttributeError):
        return None
    return part if isinstance(part, dict) else None
