# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remember on the host how far a rollout came with an instance, and write the end of a replica to the ledger."""

from __future__ import annotations

import time

from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import ledger, rollout_failure
from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction

display = Display()


# What the ledger calls the step at which a record is written.
STEPS = {"leaving": "leave", "done": "done", "failed": "failed", "rolled_back": "failed"}


class ActionModule(CarefulAction):
    """Run the module of the same name; a lost connection is a failure that ``rescue`` sees."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        target = self.pop_ledger(args)
        begin = self.clock()
        result.update(self.run_module_carefully("serving.sglang.rollout_record", args, task_vars))
        step = args.get("step")
        if target and result.get("failed"):
            result["failed_at"] = rollout_failure.at(target["replica"], target["host"], STEPS.get(step, str(step)))
        if not target or self._task.check_mode or step not in ("done", "failed", "rolled_back"):
            return result
        ok = step == "done" and not result.get("failed")
        detail = {key: result[key] for key in ("serving", "why", "msg") if result.get(key) not in (None, "")}
        if target.get("reason"):
            detail["reason"] = target["reason"]
        try:
            overhead = ledger.overhead_s(ledger.read(target["path"]), target["replica"], now=time.time())
        except (OSError, ledger.LedgerError):
            overhead = None  # what is wrong with the ledger is said when the line is written
        if overhead is not None:
            detail["overhead_s"] = overhead
            result["overhead_s"] = overhead
        self.write_ledger(result, target, "done" if ok else "failed", ok, self.clock() - begin, detail)
        return result
