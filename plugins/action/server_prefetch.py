# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring images and models to a host, and write that step to the ledger of a rollout for each replica there."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction

STEP = "prefetch"
PART = ("kind", "name", "state", "bytes", "seconds", "commit")


class ActionModule(CarefulAction):
    """Run the module of the same name; a lost connection is a failure like any other."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        targets = [self.checked_target(target) for target in args.pop("ledger", None) or []]
        begin = self.clock()
        result.update(self.run_module_carefully("serving.sglang.server_prefetch", args, task_vars))
        if self._task.check_mode:
            return result
        for target in targets:
            self.write_ledger(
                result, target, STEP, not result.get("failed"), self.clock() - begin, self._detail(result, target)
            )
        return result

    @staticmethod
    def _detail(result, target):
        """What was brought for the replica, and what went wrong on its host."""
        parts = [
            {key: part[key] for key in PART if part.get(key) not in (None, "")}
            for instance in result.get("instances") or []
            if instance.get("replica") == target["replica"]
            for part in instance["parts"]
        ]
        detail = {key: result[key] for key in ("kind", "msg", "lost_connection") if result.get(key)}
        return {"parts": parts, **detail}
