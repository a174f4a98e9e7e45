# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules server_start and server_stop do, from their options to their result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from . import host_job, job_launch, lifecycle, observe, rollout_state, start_job, stop_job
from .desired_state import INSTANCE_NAME
from .errors import EngineError


def _failed(error: EngineError, instance: str) -> dict[str, Any]:
    return {"failed": True, "changed": False, "instance": instance, "kind": error.kind, "msg": error.msg, "steps": []}


def _job(status: host_job.Status) -> dict[str, Any]:
    return {
        "id": status.id,
        "request": status.request,
        "started_at": status.started_at,
        "unit": host_job.unit_of(status.instance),
        "state": status.state,
    }


@contextlib.contextmanager
def _claimed(instance: str) -> Iterator[None]:
    """What a host that a rollout holds means for who wants to begin a job there."""
    try:
        yield
    except rollout_state.LockHeld as held:
        holder = held.holder
        raise EngineError(
            "claimed",
            f"Instance {instance} was left alone: rollout {holder.get('run')} of {holder.get('owner')} is moving this "
            f"host, last sign of life {holder.get('age_s', 0):.0f} s ago. Wait until it has ended, then run again. If "
            "its controller is gone, run the rollout again: it continues at once.",
        ) from held
    except rollout_state.StateError as error:
        raise EngineError("claimed", f"Whether a rollout is moving this host cannot be read: {error}.") from error


def _run(kind: str, params: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    instance, request = params["instance"], params["request"]
    if not INSTANCE_NAME.match(instance):
        raise EngineError("bad_instance", f"Instance name {instance!r} does not match {INSTANCE_NAME.pattern}.")
    if os.geteuid() != 0:
        raise EngineError(
            "not_root", f"The {kind} of an instance needs root on the host, this is user {os.geteuid()}: set become."
        )
    given = {name: value for name, value in options.items() if value is not None}
    with contextlib.ExitStack() as held:
        if params.get("unless_claimed"):
            held.enter_context(_claimed(instance))
            held.enter_context(rollout_state.unclaimed(params["stale_claims"]))
        decision = job_launch.launch(kind, instance, request, given)
    if decision.action == "refuse":
        raise EngineError("busy", decision.msg)
    status = decision.status
    if status is None:
        raise AssertionError("a job that is launched, joined or finished has a status")
    joined = decision.action != "launch"
    if decision.action == "finished":
        return {**host_job.outcome(status), "joined": True}
    if not params["wait"]:
        return {"changed": True, "instance": instance, "job": _job(status), "joined": joined, "steps": status.steps}
    return {**job_launch.follow(instance, kind, status.id), "joined": joined}


def run_start(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    instance = params["instance"]
    options = {"deadline_s": params["deadline_s"], "verify": params["verify"]}
    try:
        if not check_mode:
            return _run("start", params, options)
        if params["unless_claimed"]:
            with _claimed(instance):
                rollout_state.refuse_claimed(params["stale_claims"])
        decision = job_launch.current(instance, "start", params["request"])
        if decision.action == "refuse":
            raise EngineError("busy", decision.msg)
        plan = start_job.plan(start_job.StartOptions(instance=instance))
    except EngineError as error:
        return _failed(error, instance)
    return {
        "changed": not plan.already and not plan.joins,
        "instance": instance,
        "already": plan.already,
        "state_found": plan.state,
        "main_pid": observe.main_pid(plan.desired, plan.unit) or None,
        "steps": [],
    }


def run_stop(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    instance = params["instance"]
    options = {name: params[name] for name in ("drain_timeout_s", "on_timeout", "drain", "kill")}
    try:
        if not check_mode:
            return _run("stop", params, options)
        decision = job_launch.current(instance, "stop", params["request"])
        if decision.action == "refuse":
            raise EngineError("busy", decision.msg)
        plan = stop_job.plan(stop_job.StopOptions(instance=instance))
    except EngineError as error:
        return _failed(error, instance)
    return {
        "changed": not plan.already,
        "instance": instance,
        "already": plan.already,
        "state_found": stop_job.reported_state(plan.state),
        "treatment": lifecycle.treatment(plan.state).why,
        "running_at_leave": plan.running,
        "steps": [],
    }
