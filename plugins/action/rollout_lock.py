# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claim a host for a rollout, and write to its ledger whether the claim holds."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction


class ActionModule(CarefulAction):
    """Run the module of the same name; a lost connection is a failure like any other."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        target = self.pop_ledger(args)
        begin = self.clock()
        result.update(self.run_module_carefully("serving.sglang.rollout_lock", args, task_vars))
        if target and not self._task.check_mode:
            detail = {"msg": result["msg"]} if result.get("failed") else {"broke": bool(args.get("break_tokens"))}
            self.write_ledger(result, target, "lock", not result.get("failed"), self.clock() - begin, detail)
        return result
