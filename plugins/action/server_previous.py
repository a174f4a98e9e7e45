# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep or put back the previous state of an instance; in a rollout a lost connection is a failure like any other."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction


class ActionModule(CarefulAction):
    """Run the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        name = "serving.sglang.server_previous"
        if self._task.delegate_to:
            result.update(self.run_module_carefully(name, args, task_vars))
        else:
            result.update(self._execute_module(module_name=name, module_args=args, task_vars=task_vars))
        return result
