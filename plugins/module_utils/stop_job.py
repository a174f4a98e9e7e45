# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stops an instance so that nothing is lost: settle what state it is in, drain it, end it, prove it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from . import desired_state, journal, lifecycle, observe, server_log, systemd
from .desired_state import Desired
from .errors import EngineError
from .host_job import Reporter
from .server_client import ServerClient

_POLL_S = 0.5
_RESUME_LIMIT_S = 10.0
_ABORT_LIMIT_S = 30.0
_MARGIN_S = 20.0
_KILL_LIMIT_S = 20.0
_LINES_OF_A_DRAIN = 5000


@dataclass(frozen=True)
class StopOptions:
    instance: str
    drain_timeout_s: float | None = None
    on_timeout: str | None = None
    drain: bool = True
    kill: bool = False


@dataclass(frozen=True)
class Plan:
    """What a stop would do, found without touching anything."""

    desired: Desired  # what the running server was started from
    unit: systemd.Unit
    state: str
    running: int | None
    client: ServerClient | None

    @property
    def already(self) -> bool:
        return self.state == lifecycle.STOPPED


def plan(options: StopOptions) -> Plan:
    desired = desired_state.read(options.instance)
    unit = systemd.show(desired.unit)
    if not unit.running and unit.active_state != "deactivating":
        state = lifecycle.classify(lifecycle.Readings(unit=unit), desired.release)
        return Plan(desired=desired, unit=unit, state=state, running=None, client=None)
    running = observe.running_desired(desired, unit)
    client = observe.client_of(running, unit)
    readings = observe.observe(running, client, unit)
    state = lifecycle.classify(readings, running.release)
    return Plan(desired=running, unit=unit, state=state, running=readings.busy, client=client)


def reported_state(state: str) -> str:
    """The state in the words of the module's result."""
    return lifecycle.STARTING if state == lifecycle.LOADING else state


class _Stop:
    """One stop: its policy, what was found, what was done so far."""

    def __init__(self, options: StopOptions, planned: Plan, reporter: Reporter) -> None:
        self.options = options
        self.desired = planned.desired
        self.unit = planned.unit
        self._client = planned.client
        self.state = planned.state
        self.reporter = reporter
        self.result = reporter.result
        self.policy = options.on_timeout or planned.desired.drain_on_timeout
        self.limit_s = planned.desired.drain_timeout_s if options.drain_timeout_s is None else options.drain_timeout_s
        self.rises = 0
        self.gave_up = False  # what ran was ended on purpose, or could not be drained and had to go

    @property
    def client(self) -> ServerClient:
        """The server's API; only asked of a server that has one, which a stopped one has not."""
        if self._client is None:
            raise AssertionError("a server without an API is not drained")
        return self._client

    # -- before the signal

    def revive(self) -> None:
        """Resumes a paused server and probes an unhealthy one, so that SIGTERM does not lose what it has."""
        self.reporter.progress(f"the server is {self.state}: resuming its generation and probing its health")
        release = self.desired.release
        try:
            self.client.continue_generation()
            self.result["changed"] = True
        except EngineError as error:
            if error.kind == "unauthorized":
                raise
            self.result["warnings"].append(f"Resuming the generation failed: {error.msg}")
        path = observe.ready_path(self.desired)
        end = time.monotonic() + 2.0
        ready = self.client.probe(path)
        while not ready.ok and time.monotonic() < end:
            time.sleep(_POLL_S)
            ready = self.client.probe(path)
        if ready.ok:
            # Only the pause kept it from being ready.
            self.result["state_found"] = lifecycle.PAUSED
            return
        probe = self.client.probe("/health_generate", release.health_timeout_s)
        end = time.monotonic() + _RESUME_LIMIT_S
        ready = self.client.probe(path)
        while probe.ok and not ready.ok and time.monotonic() < end:
            time.sleep(_POLL_S)
            ready = self.client.probe(path)
        if ready.ok:
            return
        answer = probe.code if probe.code is not None else probe.problem
        if self.policy == "fail":
            raise EngineError(
                "unhealthy",
                f"Instance {self.desired.instance} is unhealthy and stays so: its health check answered {answer} "
                f"after {probe.elapsed_s:.0f} s. Nothing was signalled: SIGTERM would lose what it runs. Look at it "
                "first, or stop it with on_timeout=abort, which gives up what it runs.",
                state=self.state,
            )
        self._give_up("its health check fails")

    def _give_up(self, why: str) -> None:
        """Ends what runs through the API, counted; the operator's policy says so."""
        self.gave_up = True
        busy = None
        try:
            busy = self.client.loads().busy
        except EngineError as error:
            self.result["warnings"].append(f"How many requests were given up cannot be told: {error.msg}")
        try:
            self.client.abort_all()
        except EngineError as error:
            self.result["warnings"].append(f"Aborting what runs failed: {error.msg}")
        self.result["aborted"] = (self.result["aborted"] or 0) + (busy or 0)
        self.result["changed"] = True
        self.result["warnings"].append(
            f"{busy if busy is not None else 'An unknown number of'} requests aborted: {why}."
        )

    def drain(self) -> None:
        """Waits until nothing runs or waits; on timeout the policy decides, before any signal."""
        watch = lifecycle.DrainWatch(limit_s=self.limit_s)
        begun = time.monotonic()
        trouble: EngineError | None = None
        while True:
            elapsed = time.monotonic() - begun
            try:
                watch.add(self.client.loads(), time.time())
                trouble = None
            except EngineError as error:
                if error.kind == "unauthorized":
                    raise
                trouble = error
                watch.zeros = 0
            self.result["running_at_leave"] = watch.running_at_leave
            self.result["waiting_at_leave"] = watch.waiting_at_leave
            self.rises = watch.rises
            if watch.drained:
                trouble = self._silence(watch)
                if trouble is None and watch.drained:
                    return
            if trouble is not None and systemd.show(self.desired.unit).stopped:
                raise EngineError(
                    "died",
                    f"Instance {self.desired.instance} ended by itself while it was drained; "
                    f"{watch.running} requests ran at the last reading. See `journalctl -u {self.desired.unit}`.",
                )
            if elapsed >= self.limit_s and watch.zeros == 0:
                self._drain_timeout(watch, elapsed, trouble)
                return
            text = watch.text(elapsed) if trouble is None else f"its scheduler does not answer ({trouble.kind})"
            self.reporter.progress(
                text,
                running=watch.running,
                waiting=watch.waiting,
                limit_s=self.limit_s,
                requests_still_arrive=watch.rises > 0,
            )
            time.sleep(_POLL_S)

    def _silence(self, watch: lifecycle.DrainWatch) -> EngineError | None:
        """Why the zeros that were read prove nothing: the scheduler that published them does not answer any more.

        `/v1/loads` reads shared memory, which stays as it was when the scheduler stands still. `/server_info` waits
        for the scheduler; after its answer the figures are read once more.
        """
        try:
            self.client.server_info()
            watch.add(self.client.loads(), time.time())
        except EngineError as error:
            if error.kind not in ("timeout", "broken"):
                return None  # it answered, only not with what was asked for: a release without this endpoint
            watch.zeros = 0
            return error
        return None

    def _drain_timeout(self, watch: lifecycle.DrainWatch, elapsed: float, trouble: EngineError | None) -> None:
        if self.policy == "abort":
            self._give_up(f"the drain timeout of {self.limit_s:.0f} s passed")
            self._await_idle()
            return
        if trouble is not None:
            reading = f"its scheduler may hang, so that what runs cannot be told: {trouble.msg}"
        elif watch.stalled:
            reading = (
                f"{watch.running} running and {watch.waiting} waiting, and its scheduler reported nothing for "
                f"{watch.report_age_s:.0f} s: it may hang"
            )
        else:
            reading = f"{watch.running} running and {watch.waiting} waiting"
            if watch.rises:
                reading += "; requests still arrive here: take it out of whatever sends them"
        raise EngineError(
            "drain_timeout",
            f"Instance {self.desired.instance} did not drain within {self.limit_s:.0f} s: {reading}. Nothing was "
            "signalled and it goes on serving. Raise drain.timeout_s, or stop it with on_timeout=abort.",
            running=watch.running,
            waiting=watch.waiting,
            stalled=watch.stalled,
            elapsed_s=round(elapsed, 1),
        )

    def _await_idle(self) -> None:
        """After an abort the requests end within a step or two of the scheduler."""
        end = time.monotonic() + _ABORT_LIMIT_S
        while time.monotonic() < end:
            try:
                if self.client.loads().busy == 0:
                    return
            except EngineError:
                return
            time.sleep(_POLL_S)

    # -- the signal and after

    def stop(self, served: bool) -> None:
        unit_name, release = self.desired.unit, self.desired.release
        first = systemd.show(unit_name)
        log = server_log.DrainLog()
        if first.active_state == "deactivating":
            # Its drain began before us.
            entries = journal.of_invocation(first.invocation_id, last=_LINES_OF_A_DRAIN)
            log.feed(entries.lines, release)
            cursor = entries.cursor
        else:
            cursor = journal.of_invocation(first.invocation_id, last=1).cursor
            systemd.queue_stop(unit_name)
        self.result["changed"] = True
        grace_s = first.timeout_stop_s if first.timeout_stop_s is not None else self.desired.grace_period_s
        begun = time.monotonic()
        aborted_late = False
        unit = first
        while True:
            elapsed = time.monotonic() - begun
            entries = journal.of_invocation(first.invocation_id, after=cursor)
            cursor = entries.cursor
            log.feed(entries.lines, release)
            unit = systemd.show(unit_name)
            if unit.stopped:
                break
            remaining = "" if log.remaining is None else f", {log.remaining} requests remain"
            self.reporter.progress(
                f"SIGTERM sent {elapsed:.0f} s ago{remaining}, SIGKILL not before {grace_s:.0f} s",
                remaining=log.remaining,
                limit_s=grace_s,
            )
            if (
                self.policy == "abort"
                and served
                and not aborted_late
                and (log.remaining or 0) > 0
                and elapsed > grace_s - release.tail_s
            ):
                aborted_late = True
                self._give_up("the grace period ends")
            if elapsed > grace_s + _MARGIN_S:
                unit = self._past_grace(log, grace_s)
                break
            time.sleep(_POLL_S)
        journal.flush()
        log.feed(journal.of_invocation(first.invocation_id, after=cursor).lines, release)
        self._judge(unit, log, served)

    def _past_grace(self, log: server_log.DrainLog, grace_s: float) -> systemd.Unit:
        if not self.options.kill:
            raise EngineError(
                "stop_timeout",
                f"Instance {self.desired.instance} still runs {grace_s + _MARGIN_S:.0f} s after SIGTERM, past its "
                f"grace period of {grace_s:.0f} s; {log.remaining} requests remained at the last count. Stop it with "
                "kill=true to end it, losing them.",
                remaining=log.remaining,
            )
        systemd.kill(self.desired.unit)
        self.result["killed"] = True
        end = time.monotonic() + _KILL_LIMIT_S
        unit = systemd.show(self.desired.unit)
        while not unit.stopped and time.monotonic() < end:
            time.sleep(_POLL_S)
            unit = systemd.show(self.desired.unit)
        return unit

    def _judge(self, unit: systemd.Unit, log: server_log.DrainLog, served: bool) -> None:
        release = self.desired.release
        verdict = lifecycle.judge_stop(unit, log, release, served)
        self.result.update(
            exit_code=unit.exit_code,
            drain_lines=log.lines,
            remaining_at_signal=log.most_remaining if log.begun else None,
            arrived_during_drain=log.arrived_during_drain,
            clean=verdict.clean,
        )
        self.result["warnings"] += list(verdict.notes)
        if verdict.clean:
            return
        problems = "; ".join(verdict.problems)
        if self.gave_up or self.result["killed"]:
            self.result["warnings"].append(f"The stop was not clean: {problems}.")
            return
        raise EngineError(
            "unclean_stop",
            f"Instance {self.desired.instance} is stopped, and that nothing was lost is not proved: {problems}.",
            exit_code=unit.exit_code,
            expected_exit_code=release.clean_exit_code,
        )


def _warnings(desired: Desired) -> list[str]:
    warnings: list[str] = []
    if desired.tokenizer_workers > 1:
        warnings.append(
            f"tokenizer-worker-num is {desired.tokenizer_workers}: on SIGTERM the first of the server's workers that "
            "is idle ends the schedulers while others still have requests, and the server may never exit. Only a "
            "drain that reached zero before the signal is safe."
        )
    if desired.release.forces_shutdown(desired.environment):
        warnings.append(
            f"The instance is started with {desired.release.force_shutdown_variable}: SIGTERM ends it at once and "
            "loses what runs, and then it waits until its clients have closed their connections."
        )
    return warnings


def run(options: StopOptions, reporter: Reporter) -> None:
    result = reporter.result
    result.update(
        changed=False,
        already=False,
        state_found=None,
        running_at_leave=None,
        waiting_at_leave=None,
        aborted=0,
        killed=False,
        clean=None,
        exit_code=None,
        drain_lines=[],
        warnings=[],
    )
    reporter.begin("drain", "looking at the instance")
    try:
        planned = plan(options)
        result["state_found"] = reported_state(planned.state)
        result["already"] = planned.already
        result["version"] = planned.desired.version
        stop = _Stop(options, planned, reporter)
        todo = lifecycle.treatment(planned.state)
        if not planned.already:
            result["warnings"] += _warnings(planned.desired)
        if todo.resume or todo.probe:
            stop.revive()
        if todo.drain and not stop.gave_up:
            if options.drain:
                stop.drain()
            else:
                _count(stop)
    except EngineError as error:
        reporter.end(False, kind=error.kind, msg=error.msg, **error.facts)
        raise
    reporter.end(
        True,
        state_found=result["state_found"],
        running_at_leave=result["running_at_leave"],
        waiting_at_leave=result["waiting_at_leave"],
        aborted=result["aborted"],
        rises=stop.rises,
        skipped=not options.drain,
    )
    reporter.begin("stop", "sending SIGTERM" if todo.stop else todo.why)
    try:
        if todo.stop:
            stop.stop(served=todo.drain or planned.state == lifecycle.DRAINING)
    except EngineError as error:
        reporter.end(False, kind=error.kind, msg=error.msg, drain_lines=result["drain_lines"], **error.facts)
        raise
    reporter.end(
        True,
        already=result["already"],
        exit_code=result["exit_code"],
        clean=result["clean"],
        drain_lines=result["drain_lines"],
    )


def _count(stop: _Stop) -> None:
    """What runs and waits, for the record, where no drain is wanted."""
    try:
        loads = stop.client.loads()
    except EngineError as error:
        stop.result["warnings"].append(f"What runs cannot be told: {error.msg}")
        return
    stop.result["running_at_leave"], stop.result["waiting_at_leave"] = loads.running, loads.waiting
