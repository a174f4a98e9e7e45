# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a rollout on the controller, from what the hosts and the gateways said."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import uuid
from datetime import UTC, datetime

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import ledger, rollout, upgrade_plan
from ansible_collections.serving.sglang.plugins.plugin_utils import rollout_fleet

display = Display()

OPTIONS = {
    **rollout_fleet.OPTIONS,
    "replicas": {"type": "list", "elements": "str", "default": []},
    "only_hosts": {"type": "list", "elements": "str", "default": []},
    "only_pending": {"type": "bool", "default": False},
    "by_host": {"type": "bool", "default": False},
    "on_failure": {"type": "str", "choices": ["stop", "rollback"], "default": "stop"},
    "ledger_dir": {"type": "path", "required": True},
}


def upgrades_of(plan, fleet):
    """What the restarts of a plan change, each difference once."""
    return upgrade_plan.grouped(
        [
            (member.replica, fleet.entries[member.host, member.instance]["upgrade"])
            for wave in plan.waves
            for replica in wave
            for member in replica.members
            if fleet.entries[member.host, member.instance].get("upgrade")
        ]
    )


class ActionModule(ActionBase):
    """Compute the plan, show it, and refuse what must not begin."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        fleet = rollout_fleet.fleet_of("rollout_plan", args)
        plan = fleet.make_plan(
            f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}",
            args,
            only=args["replicas"],
            only_hosts=args["only_hosts"],
            only_pending=args["only_pending"],
            by_host=args["by_host"],
        )
        upgrades = upgrades_of(plan, fleet)
        lines = rollout.render_plan(plan) + upgrade_plan.render(upgrades)
        if args["on_failure"] == "rollback" and upgrades:
            lines.append("  on failure: that replica returns to its previous state, and the rollout stops")
        for line in lines:
            display.display(line)
        path = os.path.join(args["ledger_dir"], f"{plan.run}.jsonl")
        pid = os.getppid()  # a task runs in a child of the ansible-playbook process
        begins = bool(plan.waves) and not (plan.refusals or args["plan_only"] or self._task.check_mode)
        result = {
            "changed": False,
            "begins": begins,
            "plan": plan.as_dict(),
            "upgrades": upgrades,
            "run": plan.run,
            "lines": lines,
            "ledger": path,
            "claim": {
                "run": plan.run,
                "token": uuid.uuid4().hex,
                "owner": f"{getpass.getuser()}@{socket.gethostname()}",
                "controller": rollout_fleet.controller_id(),
                "pid": pid,
                "pid_started": rollout_fleet.process_start(pid),
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
