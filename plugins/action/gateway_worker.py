# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a worker into a gateway or out of it, and write that step to the ledger of a rollout."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction

STEPS = {"present": "rejoin", "absent": "leave"}
DETAILS = ("worker_url", "last_seen", "workers_file_changed", "kind", "msg", "lost_connection")


class ActionModule(CarefulAction):
    """Run the module of the same name; a gateway's host that cannot be reached is a failure that ``rescue`` sees."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        target = self.pop_ledger(args)
        begin = self.clock()
        result.update(self.run_module_carefully("serving.sglang.gateway_worker", args, task_vars))
        if target and not self._task.check_mode:
            step = target.get("step") or STEPS.get(args.get("state") or "present", "rejoin")
            detail = {key: result[key] for key in DETAILS if result.get(key) not in (None, "")}
            self.write_ledger(result, target, step, not result.get("failed"), self.clock() - begin, detail)
        return result
