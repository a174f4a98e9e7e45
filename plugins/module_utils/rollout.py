# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a rollout: which replicas, in which waves, and why it must not begin.

Pure: it decides on what the hosts and the gateways said, and reads nothing itself. The unit of a rollout is the
replica, whether one instance or several on several hosts; hosts only say where its members run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

DONE = "done"

ROLLED_BACK = "rolled_back"
"""A replica that failed with a new state and serves its previous one again."""

_ENDED = (DONE, ROLLED_BACK)

LEAVE = "leave"
"""A replica goes through every step."""

START = "start"
"""An earlier, interrupted run has already stopped (and maybe started) the replica: it only has to come back."""


class PlanError(ValueError):
    """An option of the plan that cannot be used; the message says which value is wrong and what it takes."""


@dataclass(frozen=True)
class Record:
    """How far a run came with an instance, as the host remembers it. ``at`` in UNIX seconds of that host's clock."""

    run: str
    step: str
    at: float


@dataclass(frozen=True)
class Lock:
    """A rollout's claim on a host. ``age_s``: seconds since its holder's last sign of life, by the host's clock."""

    run: str
    token: str
    owner: str
    controller: str
    pid: int
    age_s: float


@dataclass(frozen=True)
class Member:
    """One instance of a replica, as found before the rollout.

    ``worker_url`` is where gateways reach what runs, ``next_worker_url`` where they will after a restart.
    ``changes_state``: the next start brings another desired state than the one that served. ``previous_version``: the
    release of the state that a rollback would put back; empty when there is none.
    """

    replica: str
    rank: int
    host: str
    instance: str
    worker_url: str
    serving: bool
    state: str
    active_since: float | None = None
    restart_pending: bool = False
    record: Record | None = None
    why_not_serving: str = ""
    next_worker_url: str = ""
    changes_state: bool = False
    previous_version: str = ""


@dataclass(frozen=True)
class Replica:
    """All members that serve one copy of a model, the first rank first."""

    name: str
    members: tuple[Member, ...]
    resume: str = LEAVE
    why: str = ""

    @property
    def serving(self) -> bool:
        return all(member.serving for member in self.members)


@dataclass(frozen=True)
class Plan:
    """What a rollout will do. ``refusals`` is empty when it may begin; ``waves`` holds replicas that leave together."""

    run: str
    continues: bool
    waves: tuple[tuple[Replica, ...], ...]
    skipped: tuple[tuple[str, str], ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    break_tokens: tuple[str, ...] = ()
    max_unavailable: int = 1
    serving: int = 0
    total: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The plan as data; a wave has its number and its members, each with ``resume`` and ``head`` (first rank)."""
        plan = asdict(self)
        plan["waves"] = [
            {
                "number": number,
                "replicas": [replica.name for replica in wave],
                "members": [
                    dict(asdict(member), resume=replica.resume, head=member is replica.members[0])
                    for replica in wave
                    for member in replica.members
                ],
            }
            for number, wave in enumerate(self.waves, start=1)
        ]
        return plan


def lock_of(raw: Mapping[str, Any]) -> Lock:
    """A lock as a host reported it (see ``rollout_state.read_lock``)."""
    return Lock(
        run=str(raw.get("run", "?")),
        token=str(raw.get("token", "?")),
        owner=str(raw.get("owner", "?")),
        controller=str(raw.get("controller", "")),
        pid=int(raw.get("pid", 0)),
        age_s=float(raw.get("age_s", 0.0)),
    )


def _seconds(since: str | None) -> float | None:
    """UNIX seconds of a time as ``server_info`` gives it (ISO 8601, UTC)."""
    return datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp() if since else None


def _why(info: Mapping[str, Any]) -> str:
    unit = info.get("unit") or {}
    result = unit.get("result")
    parts = [str(info["error"])] if info.get("error") else []
    if result and result != "success":
        parts.append(f"its unit ended with result {result}, exit code {unit.get('exit_code')}")
    return "; ".join(parts)


def _previous_version(info: Mapping[str, Any]) -> str:
    previous = info.get("previous") or {}
    # What a rollback has put aside is no way back: it is what the way back led away from.
    if not previous or previous.get("same") or previous.get("by") == "rollback":
        return ""
    return str(previous.get("version") or "")


def members_of(host: str, reading: Mapping[str, Any]) -> tuple[list[Member], list[str]]:
    """(instances, what cannot be read) of one host, from what ``rollout_info`` returned for it."""
    members: list[Member] = []
    problems: list[str] = []
    records = reading.get("records") or {}
    for info in reading.get("instances") or []:
        desired = info.get("desired")
        if not desired:
            problems.append(f"{host}/{info.get('instance', '?')}: {info.get('error') or 'no desired state'}")
            continue
        raw = records.get(info["instance"])
        # A server whose scheduler stands still is ready all the same; that it did not tell is in the error.
        serving = info["state"] == "up" and bool(info.get("ready")) and not info.get("error")
        members.append(
            Member(
                replica=str(info["replica"]),
                rank=int(desired.get("rank") or 0),
                host=host,
                instance=str(info["instance"]),
                worker_url=str(info.get("worker_url") or desired["worker_url"]),
                next_worker_url=str(desired["worker_url"]),
                changes_state=bool(info.get("upgrade")),
                previous_version=_previous_version(info),
                serving=serving,
                state=str(info["state"]),
                active_since=_seconds(info.get("since")),
                restart_pending=bool(info.get("restart_pending")),
                record=Record(run=str(raw["run"]), step=str(raw["step"]), at=float(raw["at"])) if raw else None,
                why_not_serving="" if serving else _why(info),
            )
        )
    return members, problems


def max_unavailable_of(value: str | int, total: int) -> int:
    """Replicas that may be away at once: a count, or a percentage of the fleet, rounded down but never below one.

    Raises PlanError for anything else, and for less than one.
    """
    text = str(value).strip()
    match = re.fullmatch(r"(\d+)\s*(%?)", text)
    if not match or int(match.group(1)) < 1:
        raise PlanError(
            f"sglang_rollout_max_unavailable: {value!r} is neither a count of replicas (1, 2, ...) "
            "nor a percentage (25%)"
        )
    number = int(match.group(1))
    if not match.group(2):
        return number
    if number > 100:
        raise PlanError(f"sglang_rollout_max_unavailable: {value!r} is more than the whole fleet; take 100% at most")
    return max(1, total * number // 100)


def replicas_of(members: Sequence[Member]) -> list[Replica]:
    """Group instances into replicas, in the order in which their first member was given."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.replica, []).append(member)
    return [
        Replica(name=name, members=tuple(sorted(group, key=lambda member: member.rank)))
        for name, group in groups.items()
    ]


def _unfinished_run(members: Sequence[Member]) -> str | None:
    """The run that left something unfinished on a host, the latest when there are several.

    One that returned a replica to its previous state goes on as long as a replica waits for its restart.
    """
    ended = (DONE,) if any(member.restart_pending for member in members) else (DONE, ROLLED_BACK)
    open_records = [member.record for member in members if member.record and member.record.step not in ended]
    if not open_records:
        return None
    return max(open_records, key=lambda record: record.at).run


def _resume(replica: Replica, run: str, must_be_stopped: bool) -> str:
    """Where a continued run takes a replica up again.

    It only has to come back when every member was taken out by this run (its record says so) and has since been
    stopped, or stopped and started again (active only since after the record was written) with what is declared now.
    ``must_be_stopped``: something is still to be done meanwhile, so one that was started since has to leave again.
    """
    for member in replica.members:
        record = member.record
        if not record or record.run != run or record.step in _ENDED or member.restart_pending:
            return LEAVE
        stopped = member.state == "stopped"
        started_since = member.active_since is not None and member.active_since > record.at
        if not stopped and (must_be_stopped or not started_since):
            return LEAVE
    return START


def stale_tokens(locks: Iterable[Lock], stale_s: float) -> list[str]:
    """The claims without a sign of life for longer than ``stale_s`` on any of the hosts that carry them."""
    ages: dict[str, float] = {}
    for lock in locks:
        ages[lock.token] = min(lock.age_s, ages.get(lock.token, lock.age_s))
    return [token for token, age_s in ages.items() if age_s > stale_s]


def _claims(
    locks: Mapping[str, Lock], stale_s: float, own_controller: str, alive: Sequence[int]
) -> tuple[list[str], list[str], list[str]]:
    """(refusals, notes, tokens that may be broken) for the locks found on the hosts.

    A claim is as fresh as the freshest sign of life on any host that carries it. One of a process on this
    controller that no longer exists is stale at once.
    """
    by_token: dict[str, list[tuple[str, Lock]]] = {}
    for host, lock in locks.items():
        by_token.setdefault(lock.token, []).append((host, lock))
    refusals, notes, broken = [], [], []
    for token, held in by_token.items():
        lock = min((lock for _host, lock in held), key=lambda lock: lock.age_s)
        where = ", ".join(sorted(host for host, _lock in held)[:5]) + (" ..." if len(held) > 5 else "")
        whose = (
            f"rollout {lock.run} of {lock.owner} (process {lock.pid}), last sign of life {lock.age_s:.0f} s ago, "
            f"on {where}"
        )
        dead = lock.controller == own_controller and lock.pid not in alive
        if dead:
            notes.append(f"taking over the lock of {whose}: that process is gone from this controller")
            broken.append(token)
        elif lock.age_s > stale_s:
            notes.append(f"taking over the lock of {whose}: older than {stale_s:.0f} s (sglang_rollout_lock_stale_s)")
            broken.append(token)
        else:
            refusals.append(
                f"another rollout holds the lock: {whose}. Wait until it has ended; if it is certain that nobody "
                f"runs it any more, it counts as stale after {stale_s:.0f} s without a sign of life"
            )
    return refusals, notes, broken


def _not_serving(replica: Replica) -> str:
    return "; ".join(
        f"{member.host}/{member.instance} is {member.state}"
        + (f" ({member.why_not_serving})" if member.why_not_serving else "")
        for member in replica.members
        if not member.serving
    )


def _cut_into_waves(group_of: dict[str, str], pending: Sequence[Replica], limit: int) -> list[tuple[Replica, ...]]:
    """Cut replicas into waves of at most ``limit``; replicas of one group (a host, in maintenance) stay together."""
    waves: list[list[Replica]] = []
    units: dict[str, list[Replica]] = {}
    for replica in pending:
        units.setdefault(group_of.get(replica.name, replica.name), []).append(replica)
    for unit in units.values():
        if waves and len(waves[-1]) + len(unit) <= limit:
            waves[-1].extend(unit)
        else:
            waves.append(list(unit))
    return [tuple(wave) for wave in waves]


def make_plan(
    members: Sequence[Member],
    *,
    new_run: str,
    unreachable: Sequence[str] = (),
    unreadable: Sequence[str] = (),
    locks: Mapping[str, Lock] | None = None,
    gateway_workers: Mapping[str, Mapping[str, bool]] | None = None,
    unreachable_gateways: Sequence[str] = (),
    max_unavailable: str | int = 1,
    min_serving: int = 1,
    only: Sequence[str] = (),
    only_hosts: Sequence[str] = (),
    only_pending: bool = False,
    accept_not_serving: Sequence[str] = (),
    continue_unfinished: bool = True,
    by_host: bool = False,
    stale_s: float = 120.0,
    own_controller: str = "",
    alive: Sequence[int] = (),
) -> Plan:
    """Plan a rollout over ``members``, the whole fleet as it was found.

    ``gateway_workers`` maps each gateway to its workers (URL -> healthy); a serving replica that a gateway does
    not call healthy counts as not serving. ``only`` and ``only_hosts`` choose what is rolled; everything else
    still counts for ``min_serving`` and for the health of the fleet. ``by_host`` keeps all replicas of a host in
    one wave (maintenance). A refusal never depends on order: all of them are found and returned at once. While another
    rollout is at work, that is the refusal: what it has taken out is no sign of a fleet that lacks something.
    """
    refusals: list[str] = []
    notes: list[str] = []
    everything = replicas_of(members)
    total = len(everything)
    limit = max_unavailable_of(max_unavailable, total)

    if unreachable:
        refusals.append(
            f"unreachable: {', '.join(sorted(unreachable))}. Nothing was touched. Bring the host back, or leave it "
            "aside if it is out of service: -e 'sglang_rollout_hosts=sglang_servers:!HOST'"
        )
    if unreachable_gateways:
        refusals.append(
            f"gateway unreachable: {', '.join(sorted(unreachable_gateways))}. A worker cannot leave a gateway "
            "that does not answer; bring it back, or take it out of the group sglang_gateways"
        )
    refusals.extend(f"cannot read {problem}" for problem in unreadable)
    lock_refusals, lock_notes, broken = _claims(locks or {}, stale_s, own_controller, alive)
    refusals += lock_refusals
    notes += lock_notes

    # What another rollout is moving just now is neither unfinished nor out of order: nothing is judged beside it.
    moving = bool(lock_refusals)
    run = (_unfinished_run(members) if continue_unfinished and not moving else None) or new_run
    continues = run != new_run
    if continues:
        notes.append(f"continuing run {run}, which was not finished")

    names = {replica.name for replica in everything}
    for option, wanted, known in (
        ("sglang_rollout_replicas", only, names),
        ("sglang_rollout_accept_not_serving", accept_not_serving, names),
        ("hosts", only_hosts, {member.host for member in members}),
    ):
        unknown = sorted(set(wanted) - known)
        if unknown:
            refusals.append(f"{option}: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known)) or 'none'}")
    if not everything and not unreadable and not unreachable:
        refusals.append("no instance is deployed on these hosts; run the deploy playbook first")

    def in_gateways(replica: Replica) -> str:
        head = replica.members[0]
        out = [
            f"{gateway} {'calls it unhealthy' if head.worker_url in workers else 'does not have it'}"
            for gateway, workers in sorted((gateway_workers or {}).items())
            if not workers.get(head.worker_url, False)
        ]
        return f"{head.worker_url}: " + ", ".join(out) if out else ""

    unfinished = {
        replica.name
        for replica in everything
        if any(m.record and m.record.run == run and m.record.step not in _ENDED for m in replica.members)
    }
    serving = 0
    healthy: dict[str, bool] = {}
    for replica in everything:
        trouble = _not_serving(replica) if not replica.serving else in_gateways(replica)
        healthy[replica.name] = not trouble
        serving += not trouble
        if trouble and not moving and replica.name not in unfinished and replica.name not in accept_not_serving:
            refusals.append(
                f"replica {replica.name} is not serving: {trouble}. A rollout takes healthy capacity away, so it does "
                "not begin on a fleet that already lacks some: repair it, or name it in "
                "sglang_rollout_accept_not_serving"
            )

    if moving:
        return Plan(
            run=run,
            continues=False,
            waves=(),
            skipped=(),
            refusals=tuple(refusals),
            notes=(),
            max_unavailable=limit,
            serving=serving,
            total=total,
        )

    chosen: list[Replica] = []
    skipped: list[tuple[str, str]] = []
    for replica in everything:
        hosts = {member.host for member in replica.members}
        if (only and replica.name not in only) or (only_hosts and not hosts & set(only_hosts)):
            skipped.append((replica.name, "not chosen"))
            continue
        pending = any(member.restart_pending for member in replica.members)
        done = continues and all(m.record and m.record.run == run and m.record.step == DONE for m in replica.members)
        returned = continues and any(
            m.record and m.record.run == run and m.record.step == ROLLED_BACK for m in replica.members
        )
        if done and healthy[replica.name] and not pending:
            skipped.append((replica.name, f"done earlier in run {run}"))
        elif returned and healthy[replica.name] and not pending:
            skipped.append((replica.name, f"returned to its previous state in run {run}, and no restart is pending"))
        elif only_pending and not pending and replica.name not in unfinished:
            skipped.append((replica.name, "no restart pending"))
        else:
            resume = _resume(replica, run, by_host) if replica.name in unfinished else LEAVE
            why = (
                "left unfinished by an earlier run"
                if replica.name in unfinished
                else ("restart pending" if pending else "")
            )
            chosen.append(Replica(name=replica.name, members=replica.members, resume=resume, why=why))
    # What is away already comes back before anything else leaves; then what was begun is ended.
    chosen.sort(key=lambda replica: (healthy[replica.name], replica.name not in unfinished))

    group_of = {replica.name: replica.members[0].host for replica in chosen} if by_host else {}
    waves = _cut_into_waves(group_of, chosen, limit)
    for wave in waves:
        away = [replica.name for replica in wave if healthy[replica.name]]
        # What is away already costs nothing more.
        if away and serving - len(away) < min_serving:
            refusals.append(
                f"{serving} of {total} replicas serve; with {', '.join(away)} away {serving - len(away)} would be "
                f"left, sglang_rollout_min_serving is {min_serving}. Lower sglang_rollout_max_unavailable, add a "
                "replica, or accept the outage by lowering sglang_rollout_min_serving"
            )
            break
    return Plan(
        run=run,
        continues=continues,
        waves=tuple(waves),
        skipped=tuple(skipped),
        refusals=tuple(refusals),
        notes=tuple(notes),
        break_tokens=tuple(broken),
        max_unavailable=limit,
        serving=serving,
        total=total,
    )


def render_plan(plan: Plan) -> list[str]:
    """The plan as lines a person reads before anything happens; refusals are said as the failure they are."""
    lines = [
        f"Rollout {plan.run}: {plan.serving} of {plan.total} replicas serve, "
        f"at most {plan.max_unavailable} away at once"
    ]
    lines += [f"  {'if it began' if plan.refusals else 'note'}: {note}" for note in plan.notes]
    for number, wave in enumerate(plan.waves, start=1):
        for replica in wave:
            where = ", ".join(f"{member.host}/{member.instance}" for member in replica.members)
            first = "leave, drain, stop, start" if replica.resume == LEAVE else "start (already stopped)"
            why = f" [{replica.why}]" if replica.why else ""
            lines.append(f"  wave {number}: {replica.name} on {where}: {first}, verify, rejoin{why}")
    lines += [f"  skipped: {name}: {why}" for name, why in plan.skipped]
    if not plan.waves and not plan.refusals:
        lines.append("  nothing to do")
    return lines
