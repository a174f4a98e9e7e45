# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which replicas a rollback brings back, and which replica of a failed rollout returns to its previous state.

Pure. Who put a kept state aside says in which direction an instance went last, so that a rollback that was cut off is
continued by the same call, and never swaps back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import upgrade_plan
from .rollout import DONE, ROLLED_BACK, Member, replicas_of

DEPLOYMENT = "deployment"
ROLLBACK = "rollback"
UNDO = "undo"

NAMED = 8


@dataclass(frozen=True)
class Choice:
    """What a rollback does. ``restore``: (host, instance) whose files are put back; ``restart``: replicas by name."""

    restore: tuple[tuple[str, str], ...] = ()
    restart: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    refusals: tuple[str, ...] = ()


def _is_back(previous: Mapping[str, Any] | None, undo: bool) -> bool:
    """Whether the instance went in this direction already: by a rollback, or by the taking back of one."""
    return previous is not None and previous.get("by") == (UNDO if undo else ROLLBACK)


def _nothing(info: Mapping[str, Any], undo: bool) -> str:
    """Why there is nothing to put back; empty when there is."""
    previous = info.get("previous")
    if not previous:
        return "no previous state is kept"
    if _is_back(previous, undo):
        return ""
    if undo and previous.get("by") != ROLLBACK:
        return "there is no rollback to take back"
    if previous.get("same"):
        return "its previous state is the one that is declared"
    return ""


def choose(
    members: Sequence[Member],
    entries: Mapping[tuple[str, str], Mapping[str, Any]],
    *,
    replicas: Sequence[str] = (),
    hosts: Sequence[str] = (),
    undo: bool = False,
) -> Choice:
    """Decide on the replicas of a fleet. ``entries``: what ``rollout_info`` said of each instance, by host and name.

    Without ``replicas`` and ``hosts`` it is every replica that has a previous state. One that is named and has none is
    refused. A replica that went this way before is only restarted, where an earlier call was cut off.
    """
    everything = replicas_of(members)
    refusals = []
    for option, wanted, known in (
        ("sglang_rollback_replicas", replicas, {replica.name for replica in everything}),
        ("sglang_rollback_hosts", hosts, {member.host for member in members}),
    ):
        unknown = sorted(set(wanted) - known)
        if unknown:
            refusals.append(f"{option}: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known)) or 'none'}")
    restore: list[tuple[str, str]] = []
    restart: list[str] = []
    skipped: list[tuple[str, str]] = []
    for replica in everything:
        if (replicas and replica.name not in replicas) or (
            hosts and not {m.host for m in replica.members} & set(hosts)
        ):
            continue
        infos = [(member, entries[member.host, member.instance]) for member in replica.members]
        broken = [f"{m.host}/{m.instance}: {info['previous_error']}" for m, info in infos if info.get("previous_error")]
        if broken:
            refusals.append(f"the previous state of replica {replica.name} cannot be read: {'; '.join(broken)}")
            continue
        missing = [(m, why) for m, info in infos if (why := _nothing(info, undo))]
        if missing:
            told = "; ".join(f"{member.host}/{member.instance}: {why}" for member, why in missing)
            if replica.name in replicas or len(missing) < len(infos):
                refusals.append(f"replica {replica.name} cannot be brought back: {told}")
            else:
                skipped.append((replica.name, missing[0][1]))
            continue
        own = [(m.host, m.instance) for m, info in infos if not _is_back(info["previous"], undo)]
        restore += own
        if _must_restart(infos, undo):
            restart.append(replica.name)
        elif not own:
            previous = infos[0][1]["previous"]
            skipped.append((replica.name, f"it was brought back at {previous.get('kept_at')} and serves"))
    return Choice(tuple(restore), tuple(restart), tuple(skipped), tuple(refusals))


def _must_restart(infos: Sequence[tuple[Member, Mapping[str, Any]]], undo: bool) -> bool:
    for member, info in infos:
        if not member.serving:
            return True
        if not _is_back(info["previous"], undo):
            if not info["previous"].get("runs"):
                return True
        elif member.restart_pending or (member.record and member.record.step not in (DONE, ROLLED_BACK)):
            return True
    return False


def changes_of(
    choice: Choice, members: Sequence[Member], entries: Mapping[tuple[str, str], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the replicas are changed back to, each difference once."""
    moved = set(choice.restore)
    found = []
    for member in members:
        info = entries[member.host, member.instance]
        if (member.host, member.instance) in moved:
            difference = (info.get("previous") or {}).get("difference")
        elif member.replica in choice.restart:
            difference = info.get("upgrade")
        else:
            continue
        if difference:
            found.append((member.replica, difference))
    return upgrade_plan.grouped(found)


def render(choice: Choice, members: Sequence[Member], groups: Sequence[Mapping[str, Any]], undo: bool) -> list[str]:
    """The choice as lines a person reads before anything happens."""
    what = "Taking a rollback back" if undo else "Rollback"
    files = len({member.replica for member in members if (member.host, member.instance) in set(choice.restore)})
    lines = [f"{what}: {files} replicas get their previous state back, {len(choice.restart)} are restarted"]
    lines += upgrade_plan.render(groups, "back")
    only_files = sorted(
        {m.replica for m in members if (m.host, m.instance) in set(choice.restore)} - set(choice.restart)
    )
    if only_files:
        lines.append(f"  no restart needed, they still run it: {_some(only_files)}")
    continued = sorted(
        set(choice.restart) - {m.replica for m in members if (m.host, m.instance) in set(choice.restore)}
    )
    if continued:
        lines.append(f"  continued, their files are back already: {_some(continued)}")
    by_reason: dict[str, list[str]] = {}
    for name, why in choice.skipped:
        by_reason.setdefault(why, []).append(name)
    lines += [f"  skipped: {_some(names)}: {why}" for why, names in by_reason.items()]
    if not choice.restore and not choice.restart and not choice.refusals:
        lines.append("  nothing to bring back")
    return lines


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


# --- after the failure of a rollout ---------------------------------------------------------------------------------

NEW_STATE_STEPS = ("start", "verify", "rejoin", "soak", "done")
"""Where a failure is one of the new state: the replica was stopped, and did not come back as it should."""


def targets(result: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The replicas of a wave that failed with a new state, each with its members.

    ``why_not`` is empty where one can return to its previous state. ``result`` is that of the task that failed (a loop
    or a single one), ``members`` those of the wave.
    """
    items = result.get("results") or [result]
    failed: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        where = item.get("failed_at")
        if item.get("failed") and where and where.get("step") in NEW_STATE_STEPS:
            failed.setdefault(str(where["replica"]), []).append(item)
    found = []
    for name, failures in failed.items():
        own = [dict(member) for member in members if member["replica"] == name]
        if own:
            found.append({"replica": name, "members": own, "why_not": _why_not(own, failures)})
    return found


def _why_not(own: Iterable[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]]) -> str:
    lost = [item for item in failures if item.get("lost_connection")]
    if lost:
        return f"{lost[0]['failed_at']['host']} cannot be reached"
    changed = [member for member in own if member.get("changes_state")]
    if not changed:
        return "its state was not changed by this rollout: what it was restarted with is what served before"
    without = [f"{m['host']}/{m['instance']}" for m in changed if not m.get("previous_version")]
    if without:
        return f"no previous state is kept of {', '.join(without)}"
    return ""


def outcome(target: Mapping[str, Any], failure: Mapping[str, Any] | None) -> dict[str, Any]:
    """How the return of a replica ended, from the result of the task that failed; None when it went well."""
    versions = dict.fromkeys(m["previous_version"] for m in target["members"] if m.get("changes_state"))
    result = {"replica": target["replica"], "version": ", ".join(versions), "why": target["why_not"]}
    if failure is None:
        return {**result, "ok": not target["why_not"]}
    items = [item for item in failure.get("results") or [failure] if item.get("failed")] or [failure]
    told = dict.fromkeys(str(item.get("msg") or "no message").strip() for item in items)
    return {**result, "ok": False, "why": " ".join(told)}


def told(outcomes: Sequence[Mapping[str, Any]], put_back: Sequence[Mapping[str, Any]] = ()) -> str:
    """What became of the replicas that failed, as the end of a rollout's message; empty when nothing was tried.

    ``put_back``: the results of bringing them back into the gateways.
    """
    parts = []
    for one in outcomes:
        name = one["replica"]
        if not one["ok"]:
            parts.append(f"{name} was NOT returned to its previous state: {_sentence(one['why'])}")
            continue
        text = f"{name} was returned to its previous state and serves {one['version']} again"
        out = [
            str(item["item"][1])
            for item in put_back
            if item.get("failed") and item.get("item") and item["item"][0].get("replica") == name
        ]
        if out:
            text += f", but is not back in {', '.join(out)} (its lines in the ledger say why)"
        parts.append(text + ".")
    if any(one["ok"] for one in outcomes):
        parts.append(
            "Nothing else was touched: replicas that were done before keep the new state (serving.sglang.rollback "
            "brings them back), the others wait for their restart as before. The inventory still declares the new "
            "state: correct it and deploy, then run the rollout again."
        )
    return " ".join(parts)


def _sentence(text: str) -> str:
    text = text.strip() or "no reason was given"
    return text if text[-1] in ".!?" else text + "."
