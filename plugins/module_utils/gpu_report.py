# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module gpu_info returns: the readings, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from . import gpu_readings, machine, memory_findings
from .machine import Readings
from .memory_releases import memory_release_for


def report(params: Mapping[str, Any]) -> dict[str, Any]:
    """Read the host and conclude."""
    instance = params.get("instance")
    slice_name = f"sglang.slice/sglang-{instance}.slice" if instance else "sglang.slice"
    readings = gpu_readings.read(slice_name)
    if instance:
        readings = with_owners(readings, instance)
    return conclude(readings, params)


def with_owners(readings: Readings, instance: str) -> Readings:
    """Mark the processes that run in the instance's own slice."""
    group = f"/sglang-{instance}.slice"
    cards = tuple(
        replace(card, processes=tuple(replace(one, ours=group in _group(one.pid)) for one in card.processes))
        for card in readings.cards
    )
    return replace(readings, cards=cards)


def _group(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def conclude(readings: Readings, params: Mapping[str, Any]) -> dict[str, Any]:
    """The readings with the kind, the capacity and the findings."""
    release = memory_release_for(str(params.get("version") or ""))
    environment = {str(key): str(value) for key, value in (params.get("environment") or {}).items()}
    kind = machine.kind_of(readings, shared=bool(params.get("shared")))
    capacity = machine.capacity_of(readings, str(params.get("platform") or "cuda"), release, environment)
    found = [memory_findings.foreign_memory(readings.cards)] if kind.kind == "shared" else []
    if kind.kind == "unified":
        found += memory_findings.unified_memory(readings.host, None)
    return {
        **machine.as_dict(readings),
        "kind": asdict(kind),
        "capacity": asdict(capacity),
        "findings": [finding.as_dict() for finding in found if finding is not None],
    }
