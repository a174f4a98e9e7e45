# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The status of a host job: how it is written, read, joined and judged.

A start with its watch, or a drain with its stop, is one transient systemd unit per instance. It outlives the
connection and the controller; whoever comes next finds it by the unit's name and its status file.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from . import whole_file
from .errors import EngineError
from .redaction import redact

JOBS_DIR = "/run/sglang/jobs"
KINDS = ("start", "stop")
HEARTBEAT_S = 1.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

OPTIONS: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "wait": {"type": "bool", "default": True},
    "request": {"type": "str", "default": ""},
    "reconnect_s": {"type": "float", "default": 60},
    "ledger": {
        "type": "dict",
        "options": {
            "path": {"type": "path", "required": True},
            "run": {"type": "str", "required": True},
            "replica": {"type": "str", "required": True},
            "host": {"type": "str", "required": True},
        },
    },
    "touch": {"type": "list", "elements": "str", "default": []},
}
"""What every module takes whose work is a host job, as its argument_spec says it (doc fragment host_job)."""


def unit_of(instance: str) -> str:
    return f"sglang-job-{instance}.service"


def status_path(instance: str) -> str:
    return f"{JOBS_DIR}/{instance}.json"


def request_path(instance: str, job_id: str) -> str:
    return f"{JOBS_DIR}/{instance}.{job_id}.request.json"


def code_path(instance: str) -> str:
    return f"{JOBS_DIR}/{instance}.code"


def boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Status:
    """A status file as it was read."""

    job: str
    instance: str
    id: str
    request: str
    state: str
    step: str
    started_at: str
    updated_at: str
    boot_id: str
    pid: int
    progress: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def text(self) -> str:
        return str(self.progress.get("text") or self.step)


def parse_status(text: str) -> Status:
    """The text of a status file; one that is not whole or not ours is an error, never a guess."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise EngineError("job_status", f"The job's status file is not valid JSON ({error}).") from error
    if not isinstance(data, dict) or data.get("schema") != 1:
        raise EngineError("job_status", "The job's status file has another schema than 1.")
    if data.get("job") not in KINDS or data.get("state") not in ("running", "done", "failed"):
        raise EngineError("job_status", "The job's status file names no known job and state.")
    error_part = data.get("error")
    steps = data["steps"] if isinstance(data.get("steps"), list) else []
    return Status(
        job=data["job"],
        instance=str(data.get("instance") or ""),
        id=str(data.get("id") or ""),
        request=str(data.get("request") or ""),
        state=data["state"],
        step=str(data.get("step") or ""),
        started_at=str(data.get("started_at") or ""),
        updated_at=str(data.get("updated_at") or ""),
        boot_id=str(data.get("boot_id") or ""),
        pid=data["pid"] if isinstance(data.get("pid"), int) else 0,
        progress=data["progress"] if isinstance(data.get("progress"), dict) else {},
        steps=[step for step in steps if isinstance(step, dict)],
        result=data["result"] if isinstance(data.get("result"), dict) else {},
        error=error_part if isinstance(error_part, dict) else None,
    )


def read_status_text(instance: str) -> str | None:
    try:
        with open(status_path(instance), encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def last_jobs() -> dict[str, str]:
    """The id of the last job of each instance on this host, whether it runs or has ended."""
    try:
        names = sorted(os.listdir(JOBS_DIR))
    except FileNotFoundError:
        return {}
    found = {}
    for name in names:
        instance, end, rest = name.partition(".json")
        if not end or rest or "." in instance:
            continue  # a request, or a file that is just being replaced
        with contextlib.suppress(EngineError, OSError):
            found[instance] = parse_status(read_status_text(instance) or "").id
    return found


# --- judging what was read ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What one look at a job says: `waiting` to appear, `running`, `ended`, or `lost` with the reason."""

    state: str
    status: Status | None = None
    reason: str = ""


def look(text: str | None, unit_state: str, current_boot: str, job_id: str | None, seen: bool) -> Look:
    """Judges a job from its unit's state (read first) and its status file (read second).

    `job_id`: the job that is followed, None for whichever is there. `seen`: it has been seen before.
    """
    alive = unit_state in ("active", "activating", "reloading", "deactivating")
    if text is None or not text.strip():
        if seen:
            return Look("lost", reason="its status file is gone: the host was restarted, or somebody cleared /run")
        return Look("waiting")
    try:
        status = parse_status(text)
    except EngineError as error:
        return Look("running" if alive else "lost", reason=error.msg)
    if job_id is not None and status.id != job_id:
        if seen:
            return Look("lost", status, "another job has taken its place")
        return Look("waiting")
    if status.ended:
        return Look("ended", status)
    if current_boot and status.boot_id and status.boot_id != current_boot:
        return Look("lost", status, f"the host was restarted while it ran (it was at step {status.step!r})")
    if not alive:
        return Look(
            "lost",
            status,
            f"its unit is {unit_state or 'gone'} while its status says running at step {status.step!r} since "
            f"{status.updated_at}: it was killed from outside",
        )
    return Look("running", status)


@dataclass(frozen=True)
class Decision:
    """What to do about a job that is there: `launch` a new one, `join` it, take its `finished` result, or `refuse`."""

    action: str
    status: Status | None = None
    msg: str = ""


def decide(seen: Look, kind: str, request: str) -> Decision:
    status = seen.status
    if seen.state == "running" and status is not None:
        if status.job == kind:
            return Decision("join", status)
        who = f" for {status.request}" if status.request else ""
        return Decision(
            "refuse",
            status,
            f"A {status.job} of instance {status.instance} runs on this host since {status.started_at}{who} "
            f"({status.text}); a {kind} has to wait for its end. See {status_path(status.instance)}, or "
            f"`systemctl status {unit_of(status.instance)}`.",
        )
    if seen.state == "running":
        return Decision("refuse", None, f"A job runs on this host and its status cannot be read: {seen.reason}")
    if seen.state == "ended" and status is not None and request and status.job == kind and status.request == request:
        return Decision("finished", status)
    return Decision("launch")


def outcome(status: Status) -> dict[str, Any]:
    """The module result of an ended job."""
    result: dict[str, Any] = {
        "changed": False,
        **status.result,
        "instance": status.instance,
        "steps": status.steps,
        "job": {
            "id": status.id,
            "request": status.request,
            "started_at": status.started_at,
            "ended_at": status.updated_at,
            "unit": unit_of(status.instance),
        },
    }
    if status.state == "failed":
        error = status.error or {}
        result["failed"] = True
        result["kind"] = str(error.get("kind") or "internal")
        result["msg"] = str(error.get("msg") or "The job failed without a message.")
    return result


def lost_outcome(instance: str, kind: str, seen: Look) -> dict[str, Any]:
    """The module result of a job that ended without saying how."""
    return {
        "failed": True,
        "changed": True,
        "kind": "job_lost",
        "instance": instance,
        "steps": seen.status.steps if seen.status is not None else [],
        "msg": (
            f"The {kind} of instance {instance} did not come to an end: {seen.reason}. What the instance does now is "
            f"told by server_info; see `journalctl -u {unit_of(instance)}`, then run again."
        ),
    }


# --- writing -----------------------------------------------------------------------------------------------------


class Reporter:
    """Writes a job's status after every change, and its heartbeat in between."""

    def __init__(self, kind: str, instance: str, job_id: str, request: str, secrets: tuple[str, ...] = ()) -> None:
        self.secrets = secrets
        self.result: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._step_begun = time.monotonic()
        self._data: dict[str, Any] = {
            "schema": 1,
            "job": kind,
            "instance": instance,
            "id": job_id,
            "request": request,
            "pid": os.getpid(),
            "started_at": utc_now(),
            "boot_id": boot_id(),
            "state": "running",
            "step": "",
            "progress": {"text": "beginning"},
            "steps": [],
            "result": {},
            "error": None,
        }
        self._path = status_path(instance)
        self._write()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with self._lock:
            self._data["updated_at"] = utc_now()
            self._data["result"] = self.result
            text = json.dumps(redact(self._data, self.secrets), ensure_ascii=False)
            whole_file.replace(self._path, text + "\n", 0o644)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            try:
                self._write()
            except (OSError, RuntimeError):
                continue  # the result is being changed, or /run is full: the next beat tries again

    @property
    def step_elapsed_s(self) -> float:
        return round(time.monotonic() - self._step_begun, 2)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self._data["steps"])

    def begin(self, step: str, text: str) -> None:
        self._step_begun = time.monotonic()
        self._data["step"] = step
        self.progress(text)

    def progress(self, text: str, **figures: Any) -> None:
        fresh = {"text": text, "elapsed_s": self.step_elapsed_s, **figures}
        changed = fresh["text"] != self._data["progress"].get("text")
        self._data["progress"] = fresh
        if changed:
            self._write()

    def end(self, ok: bool, **detail: Any) -> None:
        """Ends the current step."""
        self._data["steps"].append(
            {
                "step": self._data["step"],
                "ok": ok,
                "elapsed_s": self.step_elapsed_s,
                "at": utc_now(),
                "detail": detail,
            }
        )
        self._write()

    def finish(self, error: dict[str, Any] | None) -> None:
        self._stop.set()
        self._data["state"] = "done" if error is None else "failed"
        self._data["error"] = error
        self._data["progress"] = {**self._data["progress"], "text": "done" if error is None else "failed"}
        self._write()
