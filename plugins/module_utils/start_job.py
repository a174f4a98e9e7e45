# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts an instance and watches it until it serves, or until its log says why it never will."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from . import (
    cgroup,
    desired_state,
    journal,
    lifecycle,
    observe,
    pool_check,
    ports,
    served_states,
    server_log,
    start_silence,
    systemd,
)
from .desired_state import Desired
from .errors import EngineError
from .host_job import Reporter
from .server_client import ServerClient

_POLL_S = 0.5
_VERIFY_TOKENS = 8
_VERIFY_LIMIT_S = 120.0
_STOP_OF_A_DEAD_START_S = 90.0
_LINES_FOR_AN_EXPLANATION = 3000


@dataclass(frozen=True)
class StartOptions:
    instance: str
    deadline_s: float | None = None
    verify: bool = True


@dataclass(frozen=True)
class Plan:
    """What a start would do, found without touching anything."""

    desired: Desired
    unit: systemd.Unit
    state: str

    @property
    def already(self) -> bool:
        return self.state == lifecycle.UP

    @property
    def joins(self) -> bool:
        return self.state in (lifecycle.LOADING, lifecycle.STARTING)


def plan(options: StartOptions) -> Plan:
    """Every check that can be made before the start; refuses what cannot go well."""
    desired = desired_state.read(options.instance)
    unit = systemd.show(desired.unit)
    if not unit.exists:
        raise EngineError(
            "no_unit",
            f"The unit {desired.unit} is {unit.load_state} on this host. Run the role sglang_server, which writes it.",
        )
    running = observe.running_desired(desired, unit)
    readings = observe.observe(running, observe.client_of(running, unit), unit)
    state = lifecycle.classify(readings, running.release)
    if state == lifecycle.DRAINING:
        raise EngineError(
            "draining", f"Instance {options.instance} is stopping right now. Start it again when it has ended."
        )
    if state == lifecycle.PAUSED:
        raise EngineError(
            "paused",
            f"Instance {options.instance} runs and its generation is paused. Whoever paused it resumes it with "
            "POST /continue_generation; server_stop resumes it and drains it.",
        )
    if state in (lifecycle.UNHEALTHY, lifecycle.HUNG):
        raise EngineError(
            "unhealthy",
            f"Instance {options.instance} runs and is {state}: a start changes nothing. Stop it first with "
            "server_stop, then start it.",
        )
    if state in (lifecycle.STOPPED, lifecycle.RESTARTING):
        _check_port(desired)
        if desired.credentials_config and not os.path.exists(desired.credentials_config):
            raise EngineError(
                "credentials",
                f"The credentials file {desired.credentials_config} of instance {options.instance} does not exist: "
                "the unit cannot start without it. Run the role sglang_server again.",
            )
    return Plan(desired=desired, unit=unit, state=state)


def _check_port(desired: Desired) -> None:
    """A port that somebody else holds is met here: SGLang would load, log that it is up, and then die."""
    host = str(desired.raw.get("host") or "0.0.0.0")
    held = ports.conflicts(ports.listeners(desired.port), host)
    held = [listener for listener in held if listener.pid is None or not cgroup.in_slice(listener.pid, desired.slice)]
    if held:
        raise EngineError(
            "port_taken",
            f"Port {desired.port} of instance {desired.instance} is taken by {held[0].text()}. Stop that process or "
            "give the instance another port.",
            listeners=[listener.as_dict() for listener in held],
        )


def run(options: StartOptions, reporter: Reporter) -> None:
    result = reporter.result
    result.update(
        changed=False,
        already=False,
        ready_s=None,
        phases={},
        max_total_num_tokens=None,
        version=None,
        main_pid=None,
        verify={},
        warnings=[],
    )
    reporter.begin("start", "checking before the start")
    try:
        planned = plan(options)
    except EngineError as error:
        reporter.end(False, kind=error.kind, msg=error.msg)
        raise
    desired = planned.desired
    client: ServerClient
    try:
        if planned.already:
            result["already"] = True
            client = observe.client_of(observe.running_desired(desired, planned.unit), planned.unit)
            unit = planned.unit
        else:
            unit, client = _start(options, planned, reporter)
        result["main_pid"] = observe.main_pid(desired, unit)
        _facts(unit, desired, client, result)
    except EngineError as error:
        reporter.end(False, kind=error.kind, msg=error.msg, **error.facts)
        raise
    reporter.end(
        True,
        already=result["already"],
        ready_s=result["ready_s"],
        phases=result["phases"],
        max_total_num_tokens=result["max_total_num_tokens"],
    )
    if options.verify:
        _verify(desired, client, reporter)
    try:
        served_states.note_running(options.instance)
    except OSError as error:
        result["warnings"].append(f"That this state serves could not be noted for a later rollback: {error}.")


def _start(options: StartOptions, planned: Plan, reporter: Reporter) -> tuple[systemd.Unit, ServerClient]:
    desired, first = planned.desired, planned.unit
    result = reporter.result
    deadline_s = options.deadline_s or desired.start_deadline_s
    # Before the start: afterwards the first kernels are there.
    cold = planned.joins or start_silence.caches_are_cold(desired.environment)
    begun = time.monotonic()
    if first.need_daemon_reload:
        result["warnings"].append(
            f"{desired.unit} changed on disk and systemd has not read it again: the old text is started. "
            "Run the role sglang_server, which reloads it."
        )
    if planned.joins:
        first_restarts = first.restarts
    else:
        first_restarts = 0
        reporter.progress(f"starting {desired.unit}")
        result["changed"] = True
        if planned.state == lifecycle.RESTARTING:
            systemd.stop_and_wait(desired.unit, _STOP_OF_A_DEAD_START_S)
        systemd.queue_start(desired.unit)
    watch = _Watch(desired, first, first_restarts, planned.joins, cold)
    while True:
        elapsed = time.monotonic() - begun
        step = watch.look(elapsed)
        if step.ready:
            break
        if step.dead is not None:
            raise _dead(desired, watch, step.dead, result)
        if elapsed > deadline_s:
            raise _too_late(desired, watch, deadline_s, result)
        silence = watch.silence.text()
        reporter.progress(
            f"{watch.log.stage}, {elapsed:.0f} s of at most {deadline_s:.0f} s{f'; {silence}' if silence else ''}",
            stage=watch.log.stage,
            waited_s=round(elapsed, 1),
            limit_s=deadline_s,
        )
        time.sleep(_POLL_S)
    result["ready_s"] = round(time.monotonic() - begun, 2)
    watch.read_log()
    result.update(server_log.summary(watch.log))
    reporter.progress("serving; checking where it runs and what limits hold")
    _check_place(desired, watch.unit, result)
    return watch.unit, watch.client


class _Watch:
    """The unit, the endpoint and the log of one start, looked at together."""

    def __init__(
        self, desired: Desired, first: systemd.Unit, first_restarts: int, joined: bool, cold: bool = True
    ) -> None:
        self.desired = desired
        self.first = first
        self.first_restarts = first_restarts
        self.joined = joined
        self.unit = first
        self.client = ServerClient(desired.probe_url, observe.keys_of(desired, first))
        self.log = server_log.StartLog()
        self.silence = start_silence.Silence(cold)
        self.cursor: str | None = None
        self.invocation = first.invocation_id if joined else ""
        self.begun_epoch = time.time()
        self._log_read = 0.0

    def look(self, elapsed_s: float) -> lifecycle.StartStep:
        self.unit = systemd.show(self.desired.unit)
        if self.unit.invocation_id and self.unit.invocation_id != self.first.invocation_id and not self.invocation:
            self.invocation = self.unit.invocation_id
        ready = None
        if self.unit.active_state == "active" and (self.joined or self.invocation):
            ready = self.client.probe(observe.ready_path(self.desired), observe.ready_timeout_s(self.desired))
        if time.monotonic() - self._log_read >= 1.0:
            self.read_log()
        if self.invocation and self.unit.invocation_id not in ("", self.invocation):
            return lifecycle.StartStep(dead="the server died and was started again")
        return lifecycle.judge_start(self.unit, self.first, self.first_restarts, ready, elapsed_s)

    def read_log(self) -> None:
        self._log_read = time.monotonic()
        entries = journal.of_invocation(self.invocation, after=self.cursor)
        self.cursor = entries.cursor
        self.log.feed(entries.lines, self.desired.release)
        self.silence.heard(self.log.lines, self.log.last)

    def all_lines(self) -> list[str]:
        journal.flush()
        if self.invocation:
            return journal.of_invocation(self.invocation, last=_LINES_FOR_AN_EXPLANATION).lines
        return journal.of_unit(self.desired.unit, self.begun_epoch, last=200).lines


def _dead(desired: Desired, watch: _Watch, why: str, result: dict[str, Any]) -> EngineError:
    """The error of a start that came to nothing; its unit is stopped, so that systemd does not try again by halves."""
    lines = watch.all_lines()
    explanation = server_log.explain(lines)
    stopped = systemd.stop_and_wait(desired.unit, _STOP_OF_A_DEAD_START_S)
    result["log_tail"] = server_log.tail(lines)
    result["explanation"] = None if explanation is None else explanation.text()
    after = "" if stopped else f" The unit did not stop within {_STOP_OF_A_DEAD_START_S:g} s."
    said = (
        "Its log does not say why; see `journalctl -u " + desired.unit + "`."
        if explanation is None
        else f"Its log says: {explanation.text()}"
    )
    return EngineError(
        "start_failed",
        f"Instance {desired.instance} did not start: {why}. {said}{after}",
        cause=None if explanation is None else explanation.kind,
    )


def _too_late(desired: Desired, watch: _Watch, deadline_s: float, result: dict[str, Any]) -> EngineError:
    """The error of a start that takes too long. It is left to go on: the next start joins it where it is."""
    lines = watch.all_lines()
    result["log_tail"] = server_log.tail(lines)
    last = result["log_tail"][-1] if result["log_tail"] else "nothing"
    silence = watch.silence.text()
    meaning = f"{silence[:1].upper()}{silence[1:]}. " if silence else ""
    return EngineError(
        "start_deadline",
        f"Instance {desired.instance} was not ready after {deadline_s:.0f} s (start.deadline_s). It is still at: "
        f"{watch.log.stage}; its last line: {last} {meaning}The unit runs on; start it again to go on watching, or "
        "raise the deadline: a first start that compiles kernels takes minutes.",
        stage=watch.log.stage,
    )


def _check_place(desired: Desired, unit: systemd.Unit, result: dict[str, Any]) -> None:
    """The main process must be in its slice, the kernel must hold the limits asked for, the port must be its own."""
    problems: list[str] = []
    try:
        held = cgroup.held_for(_main_process(desired, unit), desired.slice)
        result["memory"] = {
            "cgroup_version": held.version,
            "memory_max_bytes": held.memory_max_bytes,
            "memory_high_bytes": held.memory_high_bytes,
            "memory_swap_max_bytes": held.memory_swap_max_bytes,
            "current_bytes": held.current_bytes,
        }
        problems += [mismatch.text() for mismatch in cgroup.compare(desired.limits, held)]
    except EngineError as error:
        if desired.limits.any or error.kind == "limit_mismatch":
            problems.append(error.msg)
        else:
            result["warnings"].append(error.msg)
    if problems:
        systemd.stop_and_wait(desired.unit, _STOP_OF_A_DEAD_START_S)
        raise EngineError(
            "limit_mismatch",
            f"Instance {desired.instance} started, its memory limits do not hold, and it was stopped again. "
            + " ".join(problems),
            mismatches=problems,
        )
    foreign = [
        listener
        for listener in ports.listeners(desired.port)
        if listener.pid is not None and not cgroup.in_slice(listener.pid, desired.slice)
    ]
    if foreign:
        systemd.stop_and_wait(desired.unit, _STOP_OF_A_DEAD_START_S)
        raise EngineError(
            "port_taken",
            f"Port {desired.port} answered while instance {desired.instance} started, but {foreign[0].text()} holds "
            "it, not the instance. The instance was stopped.",
        )


def _main_process(desired: Desired, unit: systemd.Unit) -> int:
    """The process that the limits must hold for. A container that is elsewhere is in none of the slice's groups."""
    pid = observe.main_pid(desired, unit)
    if not pid:
        container = desired.container or {}
        raise EngineError(
            "limit_mismatch",
            f"No container runs in {desired.slice}: its memory limits do not hold for the server. See where "
            f"{container.get('engine')} put it: `systemd-cgls` and `{container.get('engine')} inspect "
            f"{container.get('name')}`, and run the role sglang_server again if the engine's settings have changed.",
        )
    return pid


def _facts(unit: systemd.Unit, desired: Desired, client: ServerClient, result: dict[str, Any]) -> None:
    """The release that really runs, and the pool of a server that was up already."""
    if desired.rank > 0:
        return
    try:
        loads = client.loads()
    except EngineError as error:
        result["warnings"].append(f"The server is ready and does not tell its load: {error.msg}")
        return
    result["version"] = loads.version
    if result["max_total_num_tokens"] is None and loads.max_total_num_tokens:
        result["max_total_num_tokens"] = loads.max_total_num_tokens
    if loads.version is not None and loads.version != desired.version and not result["already"]:
        raise EngineError(
            "wrong_version",
            f"Instance {desired.instance} was started and the server says it is {loads.version}; the desired state "
            f"says {desired.version}. It is left running and out of the gateway: look at what its environment or image "
            "holds.",
        )


def _verify(desired: Desired, client: ServerClient, reporter: Reporter) -> None:
    """A real request, answered with real tokens."""
    reporter.begin("verify", "waiting for the answer to a request")
    begun = time.monotonic()
    try:
        facts = _ask(desired, client)
    except EngineError as error:
        failure = EngineError(
            "verify_failed",
            f"Instance {desired.instance} is ready and does not answer a request as it should: {error.msg} "
            "It is left running and out of the gateway; see its log.",
            cause=error.kind,
        )
        reporter.result["verify"] = {"ok": False, "msg": error.msg}
        reporter.end(False, kind=failure.kind, msg=failure.msg)
        raise failure from error
    fits, said = pool_check.compare(desired.raw.get("memory"), reporter.result.get("max_total_num_tokens"))
    if not fits:
        failure = EngineError("verify_failed", f"Instance {desired.instance} answers, but {said}.", cause="pool")
        reporter.result["verify"] = {"ok": False, "msg": said}
        reporter.end(False, kind=failure.kind, msg=failure.msg)
        raise failure
    if said:
        reporter.result["warnings"].append(f"Instance {desired.instance}: {said}.")
    facts["answered_after_s"] = round(time.monotonic() - begun, 2)
    reporter.result["verify"] = {"ok": True, **facts}
    reporter.end(True, **facts)


def _ask(desired: Desired, client: ServerClient) -> dict[str, Any]:
    if desired.rank > 0:
        return {"by": "none", "reason": "a rank above 0 answers no requests itself"}
    if desired.disaggregated:
        # Half of a pair cannot answer by itself; the health check sends a request with a stand-in for the other half.
        probe = client.probe("/health_generate", desired.release.health_timeout_s)
        if not probe.ok:
            raise EngineError("verify_failed", f"/health_generate answered {probe.code or probe.problem}.")
        return {"by": "health_generate"}
    if client.model_info().get("is_generation", True):
        text = None if desired.skips_tokenizer else "The capital of France is"
        return {"by": "generate", **client.generate(text, _VERIFY_TOKENS, _VERIFY_LIMIT_S)}
    return {"by": "embeddings", **client.embed(desired.served_name, "The capital of France is", _VERIFY_LIMIT_S)}
