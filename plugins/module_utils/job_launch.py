# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts a host job, or joins the one that runs, and follows it to its end."""

# A host job runs this too, where there is no AnsibleModule.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Any

from . import host_job, job_main, whole_file
from .errors import EngineError
from .host_job import Decision, Look, Status

_PACKAGE = "sglang_host_job"
_APPEAR_LIMIT_S = 20.0
_FOLLOW_POLL_S = 0.5


def _source(module_name: str) -> str:
    """The text of a module, from a file or from the archive that Ansible ships a module in."""
    spec = importlib.util.find_spec(module_name)
    loader = None if spec is None else spec.loader
    text = loader.get_source(module_name) if loader is not None and hasattr(loader, "get_source") else None
    if text is None:
        raise EngineError("internal", f"The source of {module_name} cannot be read, so no host job can be made of it.")
    return str(text)


_OWN_IMPORT = re.compile(r"^from \.(?P<module>\w*) import (?:\((?P<lines>[^)]*)\)|(?P<line>.*))$", re.MULTILINE)


def _siblings(text: str) -> set[str]:
    """The modules of its own package that a module imports at its top."""
    names: set[str] = set()
    for match in _OWN_IMPORT.finditer(text):
        listed = match.group("lines") or match.group("line") or ""
        names |= {match.group("module")} if match.group("module") else set(re.findall(r"\w+", listed))
    return names


def sources() -> dict[str, str]:
    """Every module that the job needs, by its file name: the program and whatever it imports of its own package."""
    package = job_main.__name__.rpartition(".")[0]
    wanted, found = ["job_main"], {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _source(f"{package}.{name}")
            wanted += sorted(_siblings(found[name]))
    return found


def _install_code(instance: str) -> str:
    """Writes the copy, under a name made from its content: another launcher may be using it at the same moment."""
    texts = {"__init__": "", **sources()}
    mark = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    base = host_job.code_path(instance)
    target = os.path.join(base, mark)
    os.makedirs(base, mode=0o755, exist_ok=True)
    if not os.path.isdir(target):
        unfinished = tempfile.mkdtemp(dir=base, prefix=".")
        os.chmod(unfinished, 0o755)
        package = os.path.join(unfinished, _PACKAGE)
        os.mkdir(package)
        for name, text in texts.items():
            with open(os.path.join(package, f"{name}.py"), "w", encoding="utf-8") as handle:
                handle.write(text)
        try:
            os.rename(unfinished, target)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)  # somebody else was quicker
    for name in os.listdir(base):
        if name != mark and not name.startswith("."):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)
    return target


def unit_state(instance: str) -> str:
    """What systemd says about the job's unit, in one word."""
    done = subprocess.run(
        ["systemctl", "is-active", host_job.unit_of(instance)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def look(instance: str, job_id: str | None, seen: bool) -> Look:
    state = unit_state(instance)
    return host_job.look(host_job.read_status_text(instance), state, host_job.boot_id(), job_id, seen)


def current(instance: str, kind: str, request: str) -> Decision:
    return host_job.decide(look(instance, None, False), kind, request)


def launch(kind: str, instance: str, request: str, options: dict[str, Any]) -> Decision:
    """Starts the job, or joins the one of the same kind that runs; refuses beside one of the other kind."""
    decision = current(instance, kind, request)
    if decision.action != "launch":
        return decision
    job_id = uuid.uuid4().hex
    code = _install_code(instance)
    whole_file.replace(
        host_job.request_path(instance, job_id),
        json.dumps({"id": job_id, "job": kind, "instance": instance, "request": request, "options": options}),
        0o600,
    )
    unit, instance_unit = host_job.unit_of(instance), f"sglang-{instance}.service"
    command = [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit}",
        "--slice=system.slice",
        f"--description=serving.sglang: {kind} of instance {instance}",
        "--property=Type=exec",
        "--property=KillMode=mixed",
        "--property=TimeoutStopSec=10",
        # A reference without any effect of its own: it keeps systemd from forgetting what the instance ended with.
        f"--property=PropagatesReloadTo={instance_unit}",
        f"--setenv=PYTHONPATH={code}",
        "--setenv=LC_ALL=C.UTF-8",
        sys.executable,
        "-m",
        f"{_PACKAGE}.job_main",
        host_job.request_path(instance, job_id),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        with contextlib.suppress(OSError):
            os.unlink(host_job.request_path(instance, job_id))
        again = current(instance, kind, request)
        if again.action in ("join", "refuse"):
            return again  # somebody else was quicker
        raise EngineError(
            "job_launch",
            f"The host job {unit} could not be started: {(done.stderr or done.stdout).strip()[:400]}",
        )
    return Decision("launch", _await_status(instance, job_id))


def _await_status(instance: str, job_id: str) -> Status:
    end = time.monotonic() + _APPEAR_LIMIT_S
    rounds = 0
    while time.monotonic() < end:
        rounds += 1
        # The unit is asked first and seldom: a job that ended in between has written its status.
        gone = rounds % 10 == 0 and unit_state(instance) in ("failed", "inactive", "unknown")
        with contextlib.suppress(EngineError):
            status = host_job.parse_status(host_job.read_status_text(instance) or "")
            if status.id == job_id:
                return status
        if gone:
            break
        time.sleep(0.05)
    raise EngineError(
        "job_launch",
        f"The host job {host_job.unit_of(instance)} wrote no status. See `journalctl -u {host_job.unit_of(instance)}`.",
    )


def follow(instance: str, kind: str, job_id: str) -> dict[str, Any]:
    """Waits for the end of a job and returns its outcome."""
    while True:
        seen = look(instance, job_id, True)
        if seen.state == "ended" and seen.status is not None:
            return host_job.outcome(seen.status)
        if seen.state == "lost":
            return host_job.lost_outcome(instance, kind, seen)
        time.sleep(_FOLLOW_POLL_S)
