# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the plans of a rollout and of a rollback share: the fleet as it was read, and who this controller is."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from dataclasses import dataclass, field
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.serving.sglang.plugins.module_utils import rollout

OPTIONS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "readings": {"type": "list", "elements": "dict", "required": True},
    "gateways": {"type": "list", "elements": "str", "default": []},
    "gateway_readings": {"type": "list", "elements": "dict", "default": []},
    "max_unavailable": {"type": "str", "default": "1"},
    "min_serving": {"type": "int", "default": 1},
    "accept_not_serving": {"type": "list", "elements": "str", "default": []},
    "continue_unfinished": {"type": "bool", "default": True},
    "lock_stale_s": {"type": "float", "default": 120.0},
    "plan_only": {"type": "bool", "default": False},
}
"""What both take."""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.readline().strip()
    except OSError:
        return ""


def controller_id() -> str:
    """A name for this controller's process table: equal only where a process number means the same process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    parts = (_first_line("/etc/machine-id"), socket.gethostname(), namespace)
    return hashlib.sha256("|".join(parts).encode("utf-8")).hexdigest()[:16]


def process_start(pid: int) -> str:
    """When a process started, as the process table prints it; empty when there is no such process."""
    try:
        found = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
        )
        return found.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass
        return "unknown"


def still_runs(lock: dict[str, Any]) -> bool:
    """Whether the process that took a lock on this controller is still there (and not another with its number)."""
    started = process_start(lock["pid"])
    return bool(started) and lock.get("pid_started") in (started, "unknown")


@dataclass
class Fleet:
    """What was read of the servers and of the gateways, and what could not be."""

    members: list[rollout.Member] = field(default_factory=list)
    entries: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    locks: dict[str, dict[str, Any]] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    gateways: dict[str, dict[str, bool]] = field(default_factory=dict)
    lost_gateways: list[str] = field(default_factory=list)

    def make_plan(self, new_run: str, args: dict[str, Any], **others: Any) -> rollout.Plan:
        """The plan over this fleet, with the options that both plans take and ``others``."""
        own = controller_id()
        locks = self.locks.values()
        alive = [lock["pid"] for lock in locks if lock.get("controller") == own and still_runs(lock)]
        try:
            return rollout.make_plan(
                self.members,
                new_run=new_run,
                unreachable=self.unreachable,
                unreadable=self.unreadable,
                locks={host: rollout.lock_of(lock) for host, lock in self.locks.items()},
                gateway_workers=self.gateways,
                unreachable_gateways=self.lost_gateways,
                max_unavailable=args["max_unavailable"],
                min_serving=args["min_serving"],
                continue_unfinished=args["continue_unfinished"],
                stale_s=args["lock_stale_s"],
                own_controller=own,
                alive=alive,
                accept_not_serving=args["accept_not_serving"],
                **others,
            )
        except rollout.PlanError as error:
            raise AnsibleError(str(error)) from error


def fleet_of(action: str, args: dict[str, Any]) -> Fleet:
    """The fleet from the results of ``rollout_info`` and ``gateway_info``, which may have failed."""
    if len(args["hosts"]) != len(args["readings"]) or len(args["gateways"]) != len(args["gateway_readings"]):
        raise AnsibleError(f"{action}: hosts and readings (gateways and gateway_readings) must match one to one")
    fleet = Fleet()
    for host, reading in zip(args["hosts"], args["readings"], strict=True):
        if not reading or reading.get("unreachable"):
            fleet.unreachable.append(host)
        elif reading.get("failed"):
            fleet.unreadable.append(f"the state of {host}: {reading.get('msg', 'no message')}")
        else:
            found, problems = rollout.members_of(host, reading)
            fleet.members += found
            fleet.unreadable += problems
            fleet.entries.update({(host, info["instance"]): info for info in reading.get("instances") or []})
            if reading.get("lock"):
                fleet.locks[host] = reading["lock"]
    for gateway, reading in zip(args["gateways"], args["gateway_readings"], strict=True):
        if not reading or reading.get("unreachable"):
            fleet.lost_gateways.append(gateway)
        elif reading.get("failed"):
            fleet.unreadable.append(f"the workers of gateway {gateway}: {reading.get('msg', 'no message')}")
        else:
            fleet.gateways[gateway] = {worker["url"]: bool(worker["is_healthy"]) for worker in reading["workers"]}
    return fleet
