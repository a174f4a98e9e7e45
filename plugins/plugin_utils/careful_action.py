# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the action plugins of a rollout share: a lost connection is a failure, and steps are written to the ledger."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.serving.sglang.plugins.module_utils import ledger, rollout_failure


class CarefulAction(ActionBase):
    """An action that reports a lost connection as failed, with ``lost_connection: true``.

    Ansible takes a host that became unreachable out of the play and skips ``rescue`` and ``always`` for it: a
    rollout could then neither put back what it took out nor say where it stopped. A failure it can handle.
    """

    def run_module_carefully(self, module_name, module_args, task_vars):
        """Run a module on the task's (delegated) host; never raises for a connection that fails."""
        try:
            result = self._execute_module(module_name=module_name, module_args=module_args, task_vars=task_vars)
        except AnsibleConnectionFailure as error:
            return self.lost_connection(task_vars, str(error))
        if result.pop("unreachable", False):
            return self.lost_connection(task_vars, result.get("msg", ""))
        return result

    def lost_connection(self, task_vars, reason):
        """The result that stands for a host that cannot be reached."""
        return {
            "failed": True,
            "changed": False,
            "lost_connection": True,
            "msg": (
                f"{self.host_name(task_vars)} cannot be reached ({reason.strip()}). What runs there goes on: "
                "jobs on a host do not depend on the connection. Run the same playbook again once the host answers; "
                "it continues from what it finds there."
            ),
        }

    def host_name(self, task_vars):
        """The inventory name of the host that the task works on."""
        delegated = self._task.delegate_to
        return delegated or task_vars.get("inventory_hostname", "the host")

    @staticmethod
    def checked_target(target):
        """``target`` if it says where a ledger line belongs (path, run, replica, host), else AnsibleError."""
        missing = [key for key in ("path", "run", "replica", "host") if not target.get(key)]
        if missing:
            raise AnsibleError(f"ledger: {', '.join(missing)} missing; it takes path, run, replica and host")
        return target

    def pop_ledger(self, args):
        """Take the option ``ledger`` out of a task's arguments: where this action writes its steps, or None."""
        target = args.pop("ledger", None)
        return self.checked_target(target) if target else None

    @staticmethod
    def write_ledger(result, target, step, ok, elapsed_s, detail=None):
        """Append a step to the ledger that ``pop_ledger`` returned; nothing when there is none.

        A ledger that cannot be written fails the ``result``, which keeps what else it says: what was done was done.
        A result that has failed says where, for the message that ends the rollout.
        """
        if not target:
            return
        detail = {**(target.get("detail") or {}), **(detail or {})}
        try:
            ledger.append(target["path"], target["run"], target["replica"], target["host"], step, ok, elapsed_s, detail)
        except ledger.LedgerError as error:
            said = [result["msg"]] if result.get("failed") and result.get("msg") else []
            result.update(failed=True, msg=" ".join([*said, f"Step {step!r} was taken, but {error}."]))
        if result.get("failed"):
            result.setdefault("failed_at", rollout_failure.at(target["replica"], target["host"], step))

    @staticmethod
    def clock():
        """Seconds of a clock that no time correction moves."""
        return time.monotonic()
