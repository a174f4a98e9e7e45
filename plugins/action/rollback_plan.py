# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a rollback on the controller, from what the hosts and the gateways said."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import rollback
from ansible_collections.serving.sglang.plugins.plugin_utils import rollout_fleet

display = Display()

OPTIONS = {
    **rollout_fleet.OPTIONS,
    "replicas": {"type": "list", "elements": "str", "default": []},
    "only_hosts": {"type": "list", "elements": "str", "default": []},
    "undo": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Choose what is brought back, show it, and refuse what the rollout would refuse once the files are changed."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        fleet = rollout_fleet.fleet_of("rollback_plan", args)
        choice = rollback.choose(
            fleet.members, fleet.entries, replicas=args["replicas"], hosts=args["only_hosts"], undo=args["undo"]
        )
        # Looked at before a file is changed. What comes back may be out of service: that is why it comes back. Where
        # nothing is restarted, only that all was read and nobody else is at work is asked.
        wanted = (
            {"accept_not_serving": [*args["accept_not_serving"], *choice.restart]}
            if choice.restart
            else {"accept_not_serving": [member.replica for member in fleet.members], "min_serving": 0}
        )
        plan = fleet.make_plan("rollback", {**args, **wanted}, only=choice.restart)
        refusals = [*choice.refusals, *plan.refusals]
        groups = rollback.changes_of(choice, fleet.members, fleet.entries)
        lines = rollback.render(choice, fleet.members, groups, args["undo"])
        for line in lines:
            display.display(line)
        if refusals:
            return {
                "failed": True,
                "changed": False,
                "msg": "\n- ".join(["The rollback does not begin; nothing was touched.", *refusals]),
            }
        restore = {}
        for host, instance in choice.restore:
            restore.setdefault(host, []).append(instance)
        return {
            "changed": False,
            "begins": bool(choice.restore or choice.restart) and not args["plan_only"],
            "restore": restore,
            "restart": list(choice.restart),
            "replicas": sorted(
                {m.replica for m in fleet.members if (m.host, m.instance) in choice.restore} | set(choice.restart)
            ),
            "changes": groups,
            "accept_claims": list(plan.break_tokens),
            "lines": lines,
        }
