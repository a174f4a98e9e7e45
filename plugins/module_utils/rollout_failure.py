# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stopped a rollout, for a person on call: which replica, on which host, at which step, what was seen, what to do.

The actions of a rollout say with each failure where they were, as ``failed_at`` with the keys replica, host and step,
the step in the words of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_DEPLOY = "Correct what is declared and run the deploy playbook, or repair the host."
WAYS_OUT = {
    "drain_timeout": "A rollout takes both from sglang_rollout_drain_timeout_s and sglang_rollout_drain_on_timeout.",
    "start_deadline": "A rollout takes the deadline from sglang_rollout_start_deadline_s.",
    "start_failed": _DEPLOY,
    "limit_mismatch": _DEPLOY,
    "wrong_version": _DEPLOY,
    "verify_failed": _DEPLOY,
}
"""What the message of a module cannot know: how what it asks for is done in a rollout. By kind of failure."""

GATEWAY_STEPS = ("leave", "rejoin")


def at(replica: str, host: str, step: str) -> dict[str, str]:
    """The place of a failure, as the result of an action carries it."""
    return {"replica": replica, "host": host, "step": step}


def last_step(steps: Sequence[Mapping[str, Any]], otherwise: str) -> str:
    """The step at which a host job failed, from the steps it has ended; ``otherwise`` when it ended none badly."""
    return next((str(step["step"]) for step in reversed(steps) if not step.get("ok")), otherwise)


def describe(result: Mapping[str, Any], task_name: str, members: Sequence[Mapping[str, Any]], ledger_path: str) -> str:
    """The message of a rollout that a failed task has stopped, from the task's result (a loop or a single one).

    A task of the operator's carries no ``failed_at``: it is told by its name, with the whole wave of ``members``.
    """
    items = result.get("results") or []
    failed = [item for item in items if item.get("failed") or item.get("unreachable")] or [result]
    told = dict.fromkeys(_one(item, task_name, members) for item in failed)
    return (
        f"The rollout stopped at {' And at '.join(told)} The other replicas go on serving. Once the cause is removed, "
        f"run the same command again: it continues from here. Ledger: {ledger_path}"
    )


def describe_prefetch(
    results: Mapping[str, Mapping[str, Any]], members: Sequence[Mapping[str, Any]], ledger_path: str
) -> str:
    """The message of a rollout whose hosts could not get everything, from the results of server_prefetch by host.

    Empty when all of it is there. Hosts without a replica in the rollout have no result.
    """
    troubles = []
    for host in dict.fromkeys(str(member["host"]) for member in members):
        result = results.get(host) or {}
        if result and not result.get("failed") and not result.get("unreachable"):
            continue
        seen = str(result.get("msg") or f"{host} became unreachable. Run again when it answers").strip()
        replicas = ", ".join(dict.fromkeys(str(each["replica"]) for each in members if each["host"] == host))
        troubles.append(f"{replicas} on {host}, at the step prefetch: {seen}" + ("" if seen[-1] in ".!?" else "."))
    if not troubles:
        return ""
    return (
        f"The rollout does not begin; no replica was touched. {' '.join(troubles)} Once the cause is removed, run the "
        f"same command again. Ledger: {ledger_path}"
    )


def _one(item: Mapping[str, Any], task_name: str, members: Sequence[Mapping[str, Any]]) -> str:
    seen = str(item.get("msg") or "no message").strip()
    if seen[-1] not in ".!?":
        seen += "."
    where = item.get("failed_at")
    if not where:
        wave = ", ".join(dict.fromkeys(f"{member['replica']} on {member['host']}" for member in members))
        return f"{wave}, at the task {task_name!r}: {seen}"
    parts = [f"{where['replica']} on {where['host']}, at the step {where['step']}: {seen}"]
    kind = str(item.get("kind") or "")
    if kind == "timeout" and where["step"] in GATEWAY_STEPS:
        parts.append(f"How long a gateway may take is sglang_rollout_{where['step']}_timeout_s.")
    elif kind in WAYS_OUT:
        parts.append(WAYS_OUT[kind])
    return " ".join(parts)
