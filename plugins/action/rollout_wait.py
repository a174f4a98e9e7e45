# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait between two steps of a rollout, with a sign of life for its lock and a line in its ledger."""

from __future__ import annotations

import shlex
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction

display = Display()

SIGN_OF_LIFE_S = 20.0


OPTIONS = {
    "seconds": {"type": "float", "required": True},
    "step": {"type": "str", "choices": ["settle", "soak"], "required": True},
    "touch": {"type": "list", "elements": "path", "default": []},
}


class ActionModule(CarefulAction):
    """Settle after leaving the gateway, soak after rejoining."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        self._task.args = dict(self._task.args)
        targets = [self.checked_target(target) for target in self._task.args.pop("ledger", [])]
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        begin = self.clock()
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "nothing to wait for in check mode"}
        where = ", ".join(target["replica"] for target in targets) or self.host_name(task_vars)
        display.display(f"  {where} {args['step']}: {args['seconds']:g} s")
        while True:
            self._sign_of_life(args["touch"])
            left = args["seconds"] - (self.clock() - begin)
            if left <= 0:
                break
            time.sleep(min(left, SIGN_OF_LIFE_S))
        elapsed = self.clock() - begin
        result = {"changed": False, "elapsed_s": round(elapsed, 3)}
        for target in targets:
            self.write_ledger(result, target, args["step"], True, elapsed, {"asked_s": args["seconds"]})
        return result

    def _sign_of_life(self, paths):
        """Touch the lock; a host that does not answer just now is met by the next step, which says so."""
        if not paths:
            return
        try:
            self._low_level_execute_command("touch -c " + " ".join(shlex.quote(path) for path in paths), sudoable=True)
        except AnsibleConnectionFailure as error:
            display.vvv(f"no sign of life given: {error}")
