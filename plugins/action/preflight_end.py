# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give a host the end that its preflight had, so that ansible-playbook ends with 0, 2 or 4."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

OPTIONS = {
    "state": {"type": "str", "choices": ["looked_at", "failed", "unreachable"], "required": True},
    "outcome": {"type": "str", "choices": ["clean", "differs", "unknown"], "required": True},
    "summary": {"type": "str", "required": True},
}


class ActionModule(ActionBase):
    """Succeed, fail, or be unreachable, without connecting to anything."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        if args["state"] == "unreachable":
            # It was unreachable when it was looked at; that it may be back by now tells nothing about it.
            raise AnsibleConnectionFailure("the host could not be reached, so nothing is known of it")
        return {"changed": False, "failed": args["outcome"] != "clean", "msg": args["summary"]}
