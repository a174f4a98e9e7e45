# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follows a host job from the controller: shows its progress, and keeps looking when the connection is lost.

The modules server_start and server_stop begin a job on the host. Their action plugins run them without waiting and
then read the job's status file over the connection until the job has ended.
"""

from __future__ import annotations

import re
import shlex
import time
import uuid
from typing import Any, Protocol

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import host_job, ledger, rollout_failure

display = Display()

POLL_S = 0.5
REPEAT_S = 10.0
# After so many answers in a row that are none, nobody waits for a better one.
UNREADABLE_LOOKS = 60
# Between two attempts to reach a host again.
RETRY_S = 2.0
FIRST_STEPS = {"start": "start", "stop": "drain"}
_MARK = "--sglang-job--"
_SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\b")


class Shell(Protocol):
    """Runs a command on the managed host; raises AnsibleConnectionFailure when it cannot be reached."""

    def __call__(self, command: str) -> str: ...


class LostConnection(Exception):
    """The host could not be reached for longer than allowed."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(reason)
        self.seconds = seconds
        self.reason = reason


def look_command(instance: str, touch: list[str]) -> str:
    """One cheap command that tells everything about a job. The unit is asked before the file, so that a job that ends
    in between is never taken for one that was killed."""
    parts = [
        f"systemctl is-active {shlex.quote(host_job.unit_of(instance))} 2>/dev/null",
        "cat /proc/sys/kernel/random/boot_id",
        f"echo {_MARK}",
        f"cat {shlex.quote(host_job.status_path(instance))} 2>/dev/null",
    ]
    if touch:
        parts.append("touch -c -- " + " ".join(shlex.quote(path) for path in touch) + " 2>/dev/null")
    return "; ".join([*parts, "true"])


def parse_look(output: str, job_id: str | None, seen: bool) -> host_job.Look:
    """What that command printed, judged."""
    head, mark, text = output.partition(_MARK)
    words = head.split()
    if not mark or len(words) != 2:
        return host_job.Look("running" if seen else "waiting", reason=f"the host answered {output[:200]!r}")
    return host_job.look(text, words[0], words[1], job_id, seen)


def _without_time(text: str) -> str:
    """A progress text without its seconds: what is left changes only when something happens."""
    return _SECONDS.sub("", text)


class Follower:
    """Follows one job of one instance."""

    def __init__(
        self,
        shell: Shell,
        kind: str,
        instance: str,
        host: str,
        touch: list[str],
        reconnect_s: float,
        line: dict[str, Any] | None,
        reset: Any = None,
    ) -> None:
        self.shell = shell
        self.kind = kind
        self.instance = instance
        self.host = host
        self.touch = touch
        self.reconnect_s = reconnect_s
        self.line = line
        self.reset = reset
        self._shown_text = ""
        self._shown_at = 0.0
        self._written = 0
        # Where the job was when it was last seen, and where it begins.
        self.step = FIRST_STEPS.get(kind, kind)

    def say(self, text: str, force: bool = False) -> None:
        """Shows a text when it is new, and every few seconds as a sign of life."""
        now = time.monotonic()
        if force or _without_time(text) != _without_time(self._shown_text) or now - self._shown_at >= REPEAT_S:
            display.display(f"[{self.host}] {self.kind} {self.instance}: {text}")
            self._shown_text, self._shown_at = text, now

    def look(self, job_id: str | None, seen: bool) -> host_job.Look:
        """One look at the job, over however many attempts the connection needs."""
        command = look_command(self.instance, self.touch)
        lost_at: float | None = None
        while True:
            try:
                return parse_look(self.shell(command), job_id, seen)
            except AnsibleConnectionFailure as error:
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at >= self.reconnect_s:
                    raise LostConnection(now - lost_at, str(error)) from error
                self.say(
                    f"connection lost {now - lost_at:.0f} s ago, looking for the host again for at most "
                    f"{self.reconnect_s:.0f} s; what was begun goes on there"
                )
                if self.reset is not None:
                    self.reset()
                time.sleep(RETRY_S)

    def record(self, status: host_job.Status) -> None:
        """Appends the steps that were not seen before to the rollout's ledger."""
        for index, step in enumerate(status.steps):
            if index < self._written:
                continue
            self._written = index + 1
            if self.line is None or self._recorded(status.id, step):
                continue
            detail = step.get("detail")
            ledger.append(
                self.line["path"],
                self.line["run"],
                self.line["replica"],
                self.line["host"],
                str(step.get("step")),
                bool(step.get("ok")),
                float(step.get("elapsed_s") or 0.0),
                {**(detail if isinstance(detail, dict) else {}), "job": status.id},
            )

    def _recorded(self, job_id: str, step: dict[str, Any]) -> bool:
        """True when an earlier run of the controller wrote this step of this job already."""
        if self.line is None:
            raise AssertionError("without a ledger nothing is recorded")
        return any(
            line.run == self.line["run"]
            and line.replica == self.line["replica"]
            and line.step == step.get("step")
            and line.detail.get("job") == job_id
            for line in ledger.read(self.line["path"])
        )

    def follow(self, job_id: str) -> dict[str, Any]:
        """Waits for the end of a job and returns the result of the task."""
        unreadable = 0
        while True:
            seen = self.look(job_id, True)
            if seen.status is not None and seen.status.id == job_id:
                self.step = seen.status.step or self.step
                self.record(seen.status)
            unreadable = unreadable + 1 if seen.status is None else 0
            if unreadable >= UNREADABLE_LOOKS:
                seen = host_job.Look("lost", reason=f"its status cannot be read: {seen.reason}")
            if seen.state == "ended" and seen.status is not None:
                return host_job.outcome(seen.status)
            if seen.state == "lost":
                return host_job.lost_outcome(self.instance, self.kind, seen)
            if seen.status is not None:
                self.say(f"{seen.status.step}: {seen.status.text}")
            time.sleep(POLL_S)

    def unwritten_result(self, error: ledger.LedgerError) -> dict[str, Any]:
        return {
            "failed": True,
            "changed": True,
            "kind": "ledger",
            "instance": self.instance,
            "steps": [],
            "msg": f"The {self.kind} of instance {self.instance} goes on on {self.host}, but {error}.",
        }

    def lost_result(self, lost: LostConnection, begun: bool) -> dict[str, Any]:
        unit, path = host_job.unit_of(self.instance), host_job.status_path(self.instance)
        if begun:
            what = (
                f"The {self.kind} of instance {self.instance} goes on there: see `systemctl status {unit}` and {path} "
                "on the host, or run this again, which joins it."
            )
        else:
            what = (
                f"Whether the {self.kind} of instance {self.instance} was begun there is not known: see "
                f"`systemctl status {unit}` on the host."
            )
        how = f"Host {self.host} could not be reached for {lost.seconds:.0f} s"
        if lost.seconds < 1:
            how = f"The connection to host {self.host} broke"
        return {
            "failed": True,
            "changed": begun,
            "lost_connection": True,
            "kind": "lost_connection",
            "instance": self.instance,
            "steps": [],
            "msg": f"{how} ({lost.reason.strip()}). {what}",
        }


class HostJobAction(ActionBase):
    """The common part of the action plugins of server_start and server_stop."""

    KIND = ""
    TRANSFERS_FILES = False
    _requires_connection = True
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = dict(self._task.args)
        name = self._task.resolved_action or self._task.action
        # The module checks its options itself; what this plugin needs of them is checked when it is used.
        if self._task.check_mode or not isinstance(args.get("instance"), str):
            result.update(self._execute_module(module_name=name, module_args=args, task_vars=task_vars))
            return result
        options = self._options(args)
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname") or self._play_context.remote_addr)
        follower = Follower(
            self._shell_command,
            self.KIND,
            args["instance"],
            host,
            options["touch"],
            options["reconnect_s"],
            options["ledger"],
            self._reset_connection,
        )
        self._do(name, args, options, follower, task_vars, result)
        line = options["ledger"]
        if result.get("failed") and line:
            step = rollout_failure.last_step(result.get("steps") or [], follower.step)
            result["failed_at"] = rollout_failure.at(line["replica"], line["host"], step)
        return result

    def _do(
        self,
        name: str,
        args: dict[str, Any],
        options: dict[str, Any],
        follower: Follower,
        task_vars: dict[str, Any],
        result: dict[str, Any],
    ) -> None:
        """Begins the job or joins it, follows it, and fills the result of the task."""
        request = options["request"]
        begun = False
        try:
            if request:
                decision = host_job.decide(follower.look(None, False), self.KIND, request)
                if decision.action in ("join", "finished") and decision.status is not None:
                    begun = True
                    follower.say(f"joining the one that began at {decision.status.started_at}")
                    result.update(follower.follow(decision.status.id), joined=True)
                    return
            # With a name of its own the job is found again even when the answer of the module never arrives.
            request = request or f"task-{uuid.uuid4().hex}"
            started = self._begin(name, {**args, "wait": False, "request": request}, task_vars, follower, request)
        except LostConnection as lost:
            result.update(follower.lost_result(lost, begun))
            return
        except ledger.LedgerError as error:
            result.update(follower.unwritten_result(error))
            return
        job = started.get("job")
        if started.get("failed") or not isinstance(job, dict) or not options["wait"]:
            result.update(started)
            return
        try:
            result.update(follower.follow(str(job["id"])), joined=bool(started.get("joined")))
        except LostConnection as lost:
            result.update(follower.lost_result(lost, True))
        except ledger.LedgerError as error:
            result.update(follower.unwritten_result(error))

    def _begin(
        self, name: str, args: dict[str, Any], task_vars: dict[str, Any], follower: Follower, request: str
    ) -> dict[str, Any]:
        """Runs the module; when the connection breaks meanwhile, looks whether the job began."""
        try:
            started: dict[str, Any] = self._execute_module(module_name=name, module_args=args, task_vars=task_vars)
            if not started.get("unreachable"):
                return started
            reason = str(started.get("msg") or "unreachable")
        except AnsibleConnectionFailure as error:
            reason = str(error)
        follower.say(f"connection lost while it was begun ({reason.strip()[:120]})", force=True)
        seen = follower.look(None, False)
        if seen.status is not None and seen.status.request == request:
            return {"changed": True, "job": {"id": seen.status.id}, "instance": args["instance"]}
        raise LostConnection(0.0, reason)

    def _options(self, args: dict[str, Any]) -> dict[str, Any]:
        known = {key: args[key] for key in host_job.OPTIONS if key in args}
        checked = ArgumentSpecValidator(host_job.OPTIONS).validate(known)
        values: dict[str, Any] = checked.validated_parameters
        line = values.get("ledger")
        if isinstance(line, dict):
            missing = [key for key in ("path", "run", "replica", "host") if not line.get(key)]
            values["ledger"] = None if missing else line
        return values

    def _shell_command(self, command: str) -> str:
        done = self._low_level_execute_command(command)
        return str(done.get("stdout") or "")

    def _reset_connection(self) -> None:
        """A shared connection that is dead would be used again: begin a new one."""
        try:
            self._connection.reset()
        except Exception as error:
            display.vvv(f"resetting the connection failed: {error}")
