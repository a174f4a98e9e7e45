# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a server's life: in which state it is, when it is drained, whether a start or a stop went well.

Pure functions over readings. Whoever reads the machine is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .releases import Release
from .server_client import Loads, Probe
from .server_log import DrainLog, LifeSigns
from .systemd import Unit

# The states of an instance.
STOPPED = "stopped"
RESTARTING = "restarting"
LOADING = "loading"
STARTING = "starting"
UP = "up"
UNHEALTHY = "unhealthy"
PAUSED = "paused"
DRAINING = "draining"
HUNG = "hung"

# A busy scheduler reports every few steps. One that is silent for longer may hang, or computes one long step; after the
# second figure it is called hung.
SILENT_S = 20.0
HUNG_S = 60.0


@dataclass(frozen=True)
class Readings:
    """What was read about an instance at one moment. None: not asked."""

    unit: Unit
    ready: Probe | None = None
    ping: Probe | None = None
    signs: LifeSigns = field(default_factory=LifeSigns)
    report_age_s: float | None = None
    busy: int | None = None


def classify(readings: Readings, release: Release) -> str:
    """The state of an instance.

    `ready` is the answer of `/ready`, or of `/health` at a release without it.
    """
    unit, ready, signs = readings.unit, readings.ready, readings.signs
    if unit.active_state == "deactivating":
        return DRAINING
    if unit.restarting:
        return RESTARTING
    if not unit.running:
        return STOPPED
    if signs.draining:
        return DRAINING
    if ready is None or ready.problem == "refused":
        return LOADING
    if ready.problem is not None:
        return HUNG
    if ready.ok:
        stale = readings.report_age_s is not None and readings.report_age_s > HUNG_S
        return HUNG if stale and (readings.busy or 0) > 0 else UP
    if not signs.fired_up:
        return STARTING
    if release.ping_knows_pause and readings.ping is not None and readings.ping.code is not None:
        return PAUSED if readings.ping.ok else UNHEALTHY
    if signs.health_failed:
        return UNHEALTHY
    return PAUSED if signs.paused else UNHEALTHY


@dataclass(frozen=True)
class Treatment:
    """What to do with a server before it is stopped."""

    resume: bool = False  # POST /continue_generation
    probe: bool = False  # one generating health check: it revives the state of a server that is alive
    drain: bool = False  # wait until nothing runs or waits
    stop: bool = True
    why: str = ""


def treatment(state: str) -> Treatment:
    if state == STOPPED:
        return Treatment(stop=False, why="it is not running")
    if state == RESTARTING:
        return Treatment(why="it died and serves nothing; stopping keeps systemd from starting it again")
    if state in (LOADING, STARTING):
        return Treatment(why="it is still starting and serves nothing yet")
    if state == DRAINING:
        return Treatment(why="it is being stopped already; its own drain is followed")
    if state in (PAUSED, UNHEALTHY):
        # SIGTERM to an unhealthy server loses what runs, and a paused one finishes nothing. Resuming one that is not
        # paused changes nothing, and a server that was probed while paused is both.
        return Treatment(
            resume=True,
            probe=True,
            drain=True,
            why="its generation is resumed and its health probed, so that it can finish what it has",
        )
    return Treatment(drain=True, why="it serves")


@dataclass
class DrainWatch:
    """Judges a series of load readings: drained after `needed` readings in a row that say nothing runs or waits.

    The figures are published by the scheduler every few steps only and lag behind; one zero proves nothing.
    """

    limit_s: float
    needed: int = 3
    zeros: int = 0
    running: int = 0
    waiting: int = 0
    running_at_leave: int | None = None
    waiting_at_leave: int | None = None
    lowest: int | None = None
    used_tokens: int | None = None
    rises: int = 0
    report_age_s: float | None = None

    def add(self, loads: Loads, now_epoch: float) -> None:
        if self.running_at_leave is None:
            self.running_at_leave, self.waiting_at_leave = loads.running, loads.waiting
        if self.lowest is not None and loads.busy > self.lowest:
            self.rises += 1
        self.lowest = loads.busy if self.lowest is None else min(self.lowest, loads.busy)
        self.running, self.waiting = loads.running, loads.waiting
        self.report_age_s = None if loads.published_at is None else max(0.0, now_epoch - loads.published_at)
        # A long prompt that is computed in pieces is neither running nor waiting: its tokens grow.
        still = self.used_tokens in (None, loads.used_tokens)
        self.used_tokens = loads.used_tokens
        self.zeros = self.zeros + 1 if loads.busy == 0 and still else 0

    @property
    def drained(self) -> bool:
        return self.zeros >= self.needed

    @property
    def stalled(self) -> bool:
        """Requests are there, and the scheduler has reported nothing for long: it may hang."""
        return self.running + self.waiting > 0 and (self.report_age_s or 0.0) > SILENT_S

    def text(self, elapsed_s: float) -> str:
        text = f"{self.running} running, {self.waiting} waiting, {elapsed_s:.0f} s of at most {self.limit_s:.0f} s"
        if self.stalled:
            text += f"; the scheduler last reported {self.report_age_s:.0f} s ago and may hang"
        elif self.rises:
            text += "; requests still arrive"
        return text


@dataclass(frozen=True)
class StopVerdict:
    """Whether a stop proved that nothing was lost."""

    clean: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge_stop(unit: Unit, log: DrainLog, release: Release, served: bool) -> StopVerdict:
    """Judges a stop from what the unit ended with and what the server said while it ended.

    `served`: it was up, so that a drain was due. A server that was still starting owes none.
    """
    code = unit.exit_code
    problems: list[str] = []
    notes: list[str] = []
    if unit.result == "timeout":
        limit = "" if unit.timeout_stop_s is None else f" of {unit.timeout_stop_s:g} s"
        problems.append(
            f"the grace period{limit} passed and systemd ended the server with SIGKILL; "
            f"{_requests(log.remaining)} at the last count"
        )
    if not served:
        return StopVerdict(clean=not problems, problems=tuple(problems), notes=tuple(notes))
    if log.forced is not None:
        problems.append(f"the server was forced to end ({log.forced}): it dropped what was running")
    if log.crashed is not None:
        problems.append(f"a process of the server crashed while it ended: {log.crashed}")
    if not log.begun:
        problems.append("the log does not show that the server received SIGTERM")
    elif not log.finished and log.forced is None:
        problems.append(f"the log does not show that nothing remained: {_requests(log.remaining)} at the last count")
    if code != release.clean_exit_code and unit.result != "timeout":
        ended = "has no exit code" if code is None else f"ended with {code}"
        assumed = " (assumed: no data for this release)" if release.assumed else ""
        problems.append(
            f"the main process {ended}; after a clean drain {release.version} ends with "
            f"{release.clean_exit_code}{assumed}"
        )
    if log.stragglers is not None:
        notes.append(
            f"schedulers did not end within {release.scheduler_exit_s} s and were killed by the server "
            f"(processes {log.stragglers}): card memory may need a moment to become free"
        )
    if log.arrived_during_drain:
        notes.append(
            f"{log.arrived_during_drain} requests arrived after SIGTERM and were served: something still sends here"
        )
    return StopVerdict(clean=not problems, problems=tuple(problems), notes=tuple(notes))


def _requests(count: int | None) -> str:
    if count is None:
        return "the number of requests is not known"
    return "1 request remained" if count == 1 else f"{count} requests remained"


@dataclass(frozen=True)
class StartStep:
    """What a reading of a starting server means: go on waiting, ready, or dead."""

    ready: bool = False
    dead: str | None = None


def judge_start(unit: Unit, first: Unit, first_restarts: int, ready: Probe | None, queued_s: float) -> StartStep:
    """One look at a starting unit. `first` is the unit before it was started, `queued_s` the time since then."""
    begun = unit.invocation_id != first.invocation_id and unit.invocation_id != ""
    if unit.restarting or unit.restarts > first_restarts:
        times = "once" if unit.restarts <= 1 else f"{unit.restarts} times"
        return StartStep(dead=f"the server died and systemd has restarted it {times}")
    if unit.active_state == "failed" and unit.job == 0:
        return StartStep(dead=f"the unit failed ({unit.result}{_ended(unit)})")
    if unit.active_state == "inactive" and unit.job == 0:
        if not unit.condition_result:
            return StartStep(dead="a condition of the unit does not hold, so systemd did not start it")
        if begun or queued_s > 5:
            return StartStep(dead=f"the unit is inactive again{_ended(unit)}")
        return StartStep()
    if unit.active_state == "deactivating":
        return StartStep(dead=f"the unit is stopping{_ended(unit)}")
    if ready is not None and ready.ok and unit.active_state == "active":
        return StartStep(ready=True)
    return StartStep()


def _ended(unit: Unit) -> str:
    code = unit.exit_code
    if code is None:
        return ""
    return f", the main process ended with signal {-code}" if code < 0 else f", the main process ended with {code}"
