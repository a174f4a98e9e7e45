# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down what each run changed, or in check mode would change, so that the two can be compared."""

from __future__ import annotations

import json
import os
import pathlib

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: changes
type: aggregate
short_description: Write down what a run changed
description:
  - One file for each run in the folder that the variable SGLANG_CHANGES names, called by its playbook, C(check) or
    C(run), and a number.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[list[str]] = []
        self.playbook = ""

    def v2_playbook_on_start(self, playbook) -> None:
        self.playbook = pathlib.Path(playbook._file_name).stem

    def _note(self, result, item: str = "") -> None:
        values = getattr(result, "result", None) or result._result
        host = getattr(result, "host", None) or result._host
        task = getattr(result, "task", None) or result._task
        if values.get("changed"):
            self.changes.append([host.get_name(), task.get_name(), item])

    def v2_runner_on_ok(self, result) -> None:
        values = getattr(result, "result", None) or result._result
        if "results" not in values:
            self._note(result)

    def v2_runner_item_on_ok(self, result) -> None:
        values = getattr(result, "result", None) or result._result
        self._note(result, str(values.get("_ansible_item_label", "")))

    def v2_playbook_on_stats(self, stats) -> None:
        folder = pathlib.Path(os.environ["SGLANG_CHANGES"])
        folder.mkdir(exist_ok=True)
        kind = f"{self.playbook}-{'check' if context.CLIARGS.get('check') else 'run'}"
        number = len(list(folder.glob(f"{kind}-*.json"))) + 1
        (folder / f"{kind}-{number}.json").write_text(json.dumps(sorted(self.changes), indent=1) + "\n")
