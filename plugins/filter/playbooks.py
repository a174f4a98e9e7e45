# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the playbooks: what they hand from one play to the next, and what they say."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from ansible_collections.serving.sglang.plugins.module_utils import gateway, report, rollback, rollout_failure
from ansible_collections.serving.sglang.plugins.module_utils.rollout import lock_of, stale_tokens


def readings(hosts, hostvars, name):
    """The registered variable ``name`` of each host, an empty dict where there is none."""
    return [(hostvars[host].get(name) or {}) if host in hostvars else {} for host in hosts]


def lock_failure(hosts, hostvars, name):
    """Why the hosts' locks do not all hold, from the results registered as ``name``; empty when they do."""
    troubles = []
    for host, lock in zip(hosts, readings(hosts, hostvars, name), strict=True):
        if not lock or lock.get("unreachable"):
            troubles.append(f"{host} became unreachable before it could be locked")
        elif lock.get("failed"):
            troubles.append(f"{host}: {lock.get('msg', 'no message')}")
    if not troubles:
        return ""
    return "The rollout does not begin; no replica was touched. " + " ".join(troubles)


def prefetch_failure(hosts, hostvars, name, rollout):
    """Why not everything that replicas start from is on their hosts; empty when it is."""
    return rollout_failure.describe_prefetch(
        dict(zip(hosts, readings(hosts, hostvars, name), strict=True)),
        [member for wave in rollout["plan"]["waves"] for member in wave["members"]],
        rollout["ledger"],
    )


def ledger_target(member, rollout, step=None, host=None, reason=None, seen=(), returned=()):
    """Where an action writes the steps of ``member`` in the ledger of ``rollout``.

    ``seen`` are the results of ``rollout_record`` for the members that leave: what ran there goes into the detail, and
    so does what ``returned`` says of the replica's return to its previous state.
    """
    try:
        target = {
            "path": rollout["ledger"],
            "run": rollout["run"],
            "replica": member["replica"],
            "host": host or member["host"],
        }
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(
            f"ledger_target takes a member of a wave and the result of rollout_plan: {error}"
        ) from error
    if step:
        target["step"] = step
    if reason:
        target["reason"] = reason
    for one in returned:
        if one["replica"] == member["replica"]:
            target["detail"] = {
                "rolled_back": one["ok"],
                "previous_version": one["version"],
                "rollback_why": one["why"],
            }
    for result in seen:
        if (result["member"]["host"], result["member"]["instance"]) == (member["host"], member["instance"]):
            target["detail"] = {"running": result.get("running"), "waiting": result.get("waiting")}
    return target


def failure(result, task_name, members, ledger):
    """What stopped a rollout, so that a person on call can act on it."""
    return rollout_failure.describe(result, task_name, members, ledger)


def rollback_targets(result, members):
    """The replicas of a wave that failed with a new state, from the result of the task that failed."""
    return rollback.targets(result, members)


def rollback_outcome(target, result=None):
    """How the return of one of them to its previous state ended."""
    return rollback.outcome(target, result)


def rollback_told(outcomes, put_back=None):
    """The same for people, as the end of the message of a rollout."""
    return rollback.told(outcomes, (put_back or {}).get("results") or [])


def still_serving(results):
    """The first ranks among ``results`` (a loop over members with ``rollout_record``) that serve."""
    return [
        {**item["member"], "worker_url": item["worker_url"]}
        for item in results
        if item.get("serving") and item["member"]["head"]
    ]


def worker_urls(hosts, hostvars, name):
    """The URLs of all instances that serve, from the results of ``server_info`` registered as ``name``."""
    return [
        info["worker_url"]
        for reading in readings(hosts, hostvars, name)
        for info in reading.get("instances", [])
        if info["state"] == "up" and info["ready"] and not info["desired"]["rank"]
    ]


def stale_claims(readings_of_hosts, stale_s):
    """The tokens of claims without a sign of life on any host, from results of ``rollout_info``."""
    locks = [lock_of(reading["lock"]) for reading in readings_of_hosts if reading.get("lock")]
    return stale_tokens(locks, float(stale_s))


def gateway_api(host, hostvars):
    """How the modules reach the API of the gateway on ``host``, from what the inventory says of it."""
    return gateway.api_of({name: hostvars[host].get(name) for name in gateway.API_VARIABLES})


def fleet_table(hosts, hostvars, name):
    """The state of a fleet as lines of a table, from the results of ``server_info`` registered as ``name``."""
    return report.fleet(dict(zip(hosts, readings(hosts, hostvars, name), strict=True)))


def gateway_table(hosts, hostvars, name):
    """The workers of the gateways as lines of a table, from the results of ``gateway_info`` registered as ``name``."""
    return report.gateways(dict(zip(hosts, readings(hosts, hostvars, name), strict=True)))


def attention(hosts, hostvars, name, gateways, gateway_name):
    """One line about what could not be read and what needs attention, from the results registered on the hosts."""
    return report.attention(
        dict(zip(hosts, readings(hosts, hostvars, name), strict=True)),
        dict(zip(gateways, readings(gateways, hostvars, gateway_name), strict=True)),
    )


class FilterModule:
    """Filters of the collection's playbooks."""

    def filters(self):
        return {
            "readings": readings,
            "lock_failure": lock_failure,
            "prefetch_failure": prefetch_failure,
            "ledger_target": ledger_target,
            "failure": failure,
            "rollback_targets": rollback_targets,
            "rollback_outcome": rollback_outcome,
            "rollback_told": rollback_told,
            "still_serving": still_serving,
            "worker_urls": worker_urls,
            "stale_claims": stale_claims,
            "gateway_api": gateway_api,
            "fleet_table": fleet_table,
            "gateway_table": gateway_table,
            "attention": attention,
        }
