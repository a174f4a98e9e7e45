# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads units with `systemctl show` and queues starts and stops; decides nothing."""

# A host job runs this too, where there is no AnsibleModule.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import EngineError

_PROPERTIES = (
    "Id",
    "LoadState",
    "UnitFileState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "InvocationID",
    "NRestarts",
    "Job",
    "ActiveEnterTimestampMonotonic",
    "TimeoutStopUSec",
    "Slice",
    "ControlGroup",
    "NeedDaemonReload",
    "ConditionResult",
    "SendSIGKILL",
)
_SPANS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "month": 2629800.0,
    "y": 31557600.0,
}
# CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2), as `ExecMainCode` reports them.
_EXITED, _KILLED, _DUMPED = 1, 2, 3


def parse_span(text: str) -> float | None:
    """A time span as systemd prints it (`2min 30s`) in seconds; None for infinity or what is not one."""
    total = 0.0
    words = text.split()
    if not words or text.strip() == "infinity":
        return None
    for word in words:
        number = word.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = word[len(number) :] or "us"
        try:
            total += float(number) * _SPANS[unit]
        except (KeyError, ValueError):
            return None
    return total


@dataclass(frozen=True)
class Unit:
    """One reading of a unit."""

    id: str
    load_state: str = "not-found"
    active_state: str = "inactive"
    sub_state: str = "dead"
    result: str = "success"
    main_pid: int = 0
    exec_main_code: int = 0
    exec_main_status: int = 0
    invocation_id: str = ""
    restarts: int = 0
    job: int = 0
    active_since_s: float | None = None
    timeout_stop_s: float | None = None
    slice: str = ""
    control_group: str = ""
    need_daemon_reload: bool = False
    condition_result: bool = True
    unit_file_state: str = ""

    @property
    def exists(self) -> bool:
        return self.load_state == "loaded"

    @property
    def stopped(self) -> bool:
        """Nothing of it runs and nothing is queued."""
        return self.active_state in ("inactive", "failed") and self.job == 0

    @property
    def running(self) -> bool:
        return self.active_state in ("active", "reloading") or (
            self.active_state == "activating" and not self.restarting
        )

    @property
    def restarting(self) -> bool:
        """The server died and systemd waits before it starts it again."""
        return self.active_state == "activating" and self.sub_state.startswith("auto-restart")

    @property
    def exit_code(self) -> int | None:
        """What the main process last ended with, a signal as a negative number; None when it has not ended."""
        if self.exec_main_code == _EXITED:
            return self.exec_main_status
        if self.exec_main_code in (_KILLED, _DUMPED):
            return -self.exec_main_status
        return None


def parse_show(text: str) -> Unit:
    """The output of `systemctl show`."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name] = value
    return Unit(
        id=values.get("Id", ""),
        load_state=values.get("LoadState", "not-found"),
        active_state=values.get("ActiveState", "inactive"),
        sub_state=values.get("SubState", "dead"),
        result=values.get("Result", "success"),
        main_pid=_number(values.get("MainPID")),
        exec_main_code=_number(values.get("ExecMainCode")),
        exec_main_status=_number(values.get("ExecMainStatus")),
        invocation_id=values.get("InvocationID", ""),
        restarts=_number(values.get("NRestarts")),
        job=_number(values.get("Job")),
        active_since_s=_number(values.get("ActiveEnterTimestampMonotonic")) / 1e6 or None,
        timeout_stop_s=parse_span(values.get("TimeoutStopUSec", "")),
        slice=values.get("Slice", ""),
        control_group=values.get("ControlGroup", ""),
        need_daemon_reload=values.get("NeedDaemonReload") == "yes",
        condition_result=values.get("ConditionResult", "yes") != "no",
        unit_file_state=values.get("UnitFileState", ""),
    )


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}


def run(command: Sequence[str], timeout_s: float = 30.0) -> str:
    """Runs a systemd tool and returns its output; a failure says what the tool said."""
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            env=_environment(),
        )
    except FileNotFoundError as error:
        raise EngineError(
            "no_systemd", f"{command[0]} is not on this host. Instances run as systemd units; systemd is needed."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            "systemd", f"`{' '.join(command)}` did not end within {timeout_s:g} s: is systemd itself healthy?"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise EngineError("systemd", f"`{' '.join(command)}` ended with {done.returncode}: {said[:400]}")
    return done.stdout


def show(unit: str) -> Unit:
    return parse_show(run(["systemctl", "show", unit, f"--property={','.join(_PROPERTIES)}"]))


def queue_start(unit: str) -> None:
    """Queues the start; forgets earlier failures first, so that the start limit counts from now."""
    with contextlib.suppress(EngineError):  # a unit that never failed is not known to systemd yet
        run(["systemctl", "reset-failed", unit])
    run(["systemctl", "start", "--no-block", unit])


def queue_stop(unit: str) -> None:
    run(["systemctl", "stop", "--no-block", unit])


def kill(unit: str) -> None:
    """SIGKILL to everything in the unit's group."""
    run(["systemctl", "kill", "--signal=SIGKILL", unit])


def since_epoch(unit: Unit) -> float | None:
    """When the unit became active, as seconds since the epoch."""
    if unit.active_since_s is None or unit.active_state not in ("active", "deactivating", "reloading"):
        return None
    return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - unit.active_since_s)


def stop_and_wait(unit: str, limit_s: float) -> bool:
    """Stops a unit that is of no use any more and waits; False when it still runs after the limit."""
    queue_stop(unit)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if show(unit).stopped:
            return True
        time.sleep(0.5)
    return False
