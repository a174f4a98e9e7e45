# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a rollout on the controller, from what the hosts and the gateways said."""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import socket
import subprocess
import uuid
from datetime import UTC, datetime

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import ledger, rollout

display = Display()


def _first_line(path):
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.readline().strip()
    except OSError:
        return ""


def controller_id():
    """A name for this controller's process table: equal only where a process number means the same process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    parts = (_first_line("/etc/machine-id"), socket.gethostname(), namespace)
    return hashlib.sha256("|".join(parts).encode("utf-8")).hexdigest()[:16]


def process_start(pid):
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


def still_runs(lock):
    """Whether the process that took a lock on this controller is still there (and not another with its number)."""
    started = process_start(lock["pid"])
    return bool(started) and lock.get("pid_started") in (started, "unknown")


OPTIONS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "readings": {"type": "list", "elements": "dict", "required": True},
    "gateways": {"type": "list", "elements": "str", "default": []},
    "gateway_readings": {"type": "list", "elements": "dict", "default": []},
    "max_unavailable": {"type": "str", "default": "1"},
    "min_serving": {"type": "int", "default": 1},
    "replicas": {"type": "list", "elements": "str", "default": []},
    "only_hosts": {"type": "list", "elements": "str", "default": []},
    "only_pending": {"type": "bool", "default": False},
    "accept_not_serving": {"type": "list", "elements": "str", "default": []},
    "continue_unfinished": {"type": "bool", "default": True},
    "by_host": {"type": "bool", "default": False},
    "lock_stale_s": {"type": "float", "default": 120.0},
    "ledger_dir": {"type": "path", "required": True},
    "plan_only": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Compute the plan, show it, and refuse what must not begin."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        if len(args["hosts"]) != len(args["readings"]) or len(args["gateways"]) != len(args["gateway_readings"]):
            raise AnsibleError("rollout_plan: hosts and readings (gateways and gateway_readings) must match one to one")

        unreachable, unreadable, members, locks = [], [], [], {}
        for host, reading in zip(args["hosts"], args["readings"], strict=True):
            if not reading or reading.get("unreachable"):
                unreachable.append(host)
            elif reading.get("failed"):
                unreadable.append(f"the state of {host}: {reading.get('msg', 'no message')}")
            else:
                found, problems = rollout.members_of(host, reading)
                members += found
                unreadable += problems
                if reading.get("lock"):
                    locks[host] = reading["lock"]

        gateways, lost_gateways = {}, []
        for gateway, reading in zip(args["gateways"], args["gateway_readings"], strict=True):
            if not reading or reading.get("unreachable"):
                lost_gateways.append(gateway)
            elif reading.get("failed"):
                unreadable.append(f"the workers of gateway {gateway}: {reading.get('msg', 'no message')}")
            else:
                gateways[gateway] = {worker["url"]: bool(worker["is_healthy"]) for worker in reading["workers"]}

        own = controller_id()
        pid = os.getppid()  # a task runs in a child of the ansible-playbook process
        alive = [lock["pid"] for lock in locks.values() if lock.get("controller") == own and still_runs(lock)]
        new_run = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        try:
            plan = rollout.make_plan(
                members,
                new_run=new_run,
                unreachable=unreachable,
                unreadable=unreadable,
                locks={host: rollout.lock_of(lock) for host, lock in locks.items()},
                gateway_workers=gateways,
                unreachable_gateways=lost_gateways,
                max_unavailable=args["max_unavailable"],
                min_serving=args["min_serving"],
                only=args["replicas"],
                only_hosts=args["only_hosts"],
                only_pending=args["only_pending"],
                accept_not_serving=args["accept_not_serving"],
                continue_unfinished=args["continue_unfinished"],
                by_host=args["by_host"],
                stale_s=args["lock_stale_s"],
                own_controller=own,
                alive=alive,
            )
        except rollout.PlanError as error:
            raise AnsibleError(str(error)) from error

        lines = rollout.render_plan(plan)
        for line in lines:
            display.display(line)
        path = os.path.join(args["ledger_dir"], f"{plan.run}.jsonl")
        begins = bool(plan.waves) and not (plan.refusals or args["plan_only"] or self._task.check_mode)
        result = {
            "changed": False,
            "begins": begins,
            "plan": plan.as_dict(),
            "run": plan.run,
            "lines": lines,
            "ledger": path,
            "claim": {
                "run": plan.run,
                "token": uuid.uuid4().hex,
                "owner": f"{getpass.getuser()}@{socket.gethostname()}",
                "controller": own,
                "pid": pid,
                "pid_started": process_start(pid),
            },
        }
        if plan.refusals:
            reasons = "\n- ".join(plan.refusals)
            return {
                "failed": True,
                "changed": False,
                "begins": False,
                "msg": f"The rollout does not begin; nothing was touched.\n- {reasons}",
            }
        if begins:
            try:
                ledger.append(
                    path, plan.run, "-", "-", "plan", True, 0.0, {"lines": lines, "continues": plan.continues}
                )
            except ledger.LedgerError as error:
                raise AnsibleError(f"The rollout does not begin; nothing was touched: {error}") from error
            display.display(f"  ledger: {path}")
        return result
