# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts together everything that can be told about an instance without touching it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

from . import cgroup, desired_state, job_launch, lifecycle, observe, ports, systemd
from .desired_state import Desired
from .errors import EngineError
from .server_client import ServerClient

# The resolved arguments that say how a server was sized and how it is spoken to.
_ARGUMENTS = (
    "model_path",
    "served_model_name",
    "host",
    "port",
    "mem_fraction_static",
    "max_total_tokens",
    "max_running_requests",
    "max_queued_requests",
    "context_length",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "page_size",
    "attention_backend",
    "sampling_backend",
    "tp_size",
    "dp_size",
    "pp_size",
    "nnodes",
    "node_rank",
    "tokenizer_worker_num",
    "disaggregation_mode",
    "enable_metrics",
    "api_key",
    "admin_api_key",
)
_NOTHING: dict[str, Any] = {
    "replica": None,
    "error": None,
    "state": "unknown",
    "ready": False,
    "unit": None,
    "main_pid": None,
    "since": None,
    "endpoint": None,
    "worker_url": None,
    "version": None,
    "model": None,
    "arguments": None,
    "max_total_num_tokens": None,
    "token_usage": None,
    "running": None,
    "waiting": None,
    "slice": None,
    "listeners": [],
    "restart_pending": None,
    "desired": None,
    "job": None,
}


def of_instance(instance: str) -> dict[str, Any]:
    """The live state of one instance; an instance that cannot be read has its error in the entry."""
    entry: dict[str, Any] = {"instance": instance, **_NOTHING, "job": job_of(instance)}
    try:
        desired = desired_state.read(instance)
        entry.update(replica=desired.replica, desired=_desired(desired))
        unit = systemd.show(desired.unit)
        entry.update(_unit(unit), restart_pending=desired_state.restart_pending(instance, unit.running))
        running = observe.running_desired(desired, unit)
        entry["worker_url"] = running.raw.get("worker_url")
        entry["listeners"] = [listener.as_dict() for listener in ports.listeners(running.port)]
        entry["main_pid"] = observe.main_pid(running, unit) or None
        if entry["main_pid"]:
            entry["slice"] = _slice(entry["main_pid"], running)
        if not unit.exists:
            entry["state"] = "absent"
            return entry
        client = observe.client_of(running, unit)
        readings = observe.observe(running, client, unit)
        entry["state"] = lifecycle.classify(readings, running.release)
        entry["ready"] = bool(readings.ready is not None and readings.ready.ok)
        entry["endpoint"] = {
            "url": running.probe_url,
            "path": observe.ready_path(running),
            "status": None if readings.ready is None else readings.ready.code,
            "problem": None if readings.ready is None else readings.ready.problem,
        }
        if readings.ready is not None and readings.ready.code is not None and running.rank == 0:
            _ask(entry, client)
    except EngineError as error:
        entry["error"] = error.msg
    return entry


def _ask(entry: dict[str, Any], client: ServerClient) -> None:
    """What the server itself tells. One answer that does not come costs its own fields only."""
    try:
        loads = client.loads()
        entry.update(
            version=loads.version,
            running=loads.running,
            waiting=loads.waiting,
            token_usage=round(loads.token_usage, 4),
            max_total_num_tokens=loads.max_total_num_tokens or None,
        )
    except EngineError as error:
        entry["error"] = error.msg
        if error.kind == "unauthorized":
            return
    try:
        model = client.model_info()
        entry["model"] = {
            "path": model.get("model_path"),
            "served_name": model.get("served_model_name"),
            "generates": model.get("is_generation"),
            "architectures": model.get("architectures"),
        }
        info = client.server_info()
        entry["arguments"] = {name: info[name] for name in _ARGUMENTS if name in info}
        if entry["max_total_num_tokens"] is None:
            entry["max_total_num_tokens"] = info.get("max_total_num_tokens")
        entry["version"] = entry["version"] or info.get("version")
    except EngineError as error:
        entry["error"] = error.msg


def _unit(unit: systemd.Unit) -> dict[str, Any]:
    since = systemd.since_epoch(unit)
    return {
        "unit": {
            "name": unit.id,
            "load": unit.load_state,
            "active": unit.active_state,
            "sub": unit.sub_state,
            "result": unit.result,
            "restarts": unit.restarts,
            "enabled": unit.unit_file_state,
            "exit_code": unit.exit_code,
            "need_daemon_reload": unit.need_daemon_reload,
            "timeout_stop_s": unit.timeout_stop_s,
        },
        "since": None
        if since is None
        else datetime.fromtimestamp(since, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def _slice(pid: int, desired: Desired) -> dict[str, Any]:
    try:
        held = cgroup.held_for(pid, desired.slice)
    except EngineError as error:
        return {"name": desired.slice, "error": error.msg}
    return {
        "name": desired.slice,
        "cgroup_version": held.version,
        "memory_current_bytes": held.current_bytes,
        "memory_max_bytes": held.memory_max_bytes,
        "memory_high_bytes": held.memory_high_bytes,
        "memory_swap_max_bytes": held.memory_swap_max_bytes,
        "oom_kills": held.oom_kills,
        "mismatches": [mismatch.text() for mismatch in cgroup.compare(desired.limits, held)],
    }


def _desired(desired: Desired) -> dict[str, Any]:
    return {
        "version": desired.version,
        "model_path": desired.model_path,
        "served_name": desired.served_name,
        "port": desired.port,
        "worker_url": desired.raw.get("worker_url"),
        "cards": desired.raw.get("cards"),
        "rank": desired.rank,
        "nnodes": desired.nnodes,
        "drain_timeout_s": desired.drain_timeout_s,
        "on_timeout": desired.drain_on_timeout,
        "grace_period_s": desired.grace_period_s,
        "start_deadline_s": desired.start_deadline_s,
    }


def job_of(instance: str) -> dict[str, Any] | None:
    seen = job_launch.look(instance, None, False)
    if seen.status is None:
        return None if seen.state == "waiting" else {"state": seen.state, "reason": seen.reason}
    status = seen.status
    return {
        "id": status.id,
        "job": status.job,
        "request": status.request,
        "state": "lost" if seen.state == "lost" else status.state,
        "reason": seen.reason or None,
        "step": status.step,
        "text": status.text,
        "started_at": status.started_at,
        "updated_at": status.updated_at,
        "error": status.error,
    }


def of_host(only: str | None) -> list[dict[str, Any]]:
    """All instances of this host, asked at the same time: one that hangs costs the others nothing."""
    names = [only] if only else desired_state.instances()
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=min(8, len(names))) as pool:
        return list(pool.map(of_instance, names))
