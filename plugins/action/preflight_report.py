# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the report of a preflight on the controller, from what the hosts returned."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils.checks import ignore_list, preflight_report
from ansible_collections.serving.sglang.plugins.module_utils.checks.table import KINDS
from ansible_collections.serving.sglang.plugins.module_utils.release_difference import plain_release

display = Display()

OPTIONS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "results": {"type": "list", "elements": "dict", "required": True},
    "ignores": {"type": "list", "elements": "raw", "default": []},
    "strict": {"type": "bool", "default": False},
    "upgrade_to": {"type": "str", "default": ""},
    "json_path": {"type": "path"},
    "junit_path": {"type": "path"},
}


def write(path, text):
    """Write a file so that a reader sees the old one or the new one, and never half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".preflight-", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise AnsibleError(f"the report cannot be written to {path}: {error.strerror or error}") from error


class ActionModule(ActionBase):
    """Print the report, write it to files, and say what becomes of each host."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=OPTIONS)
        hosts, lists = args["hosts"], args["ignores"] or [[]] * len(args["hosts"])
        if not len(hosts) == len(args["results"]) == len(lists):
            raise AnsibleError("preflight_report: hosts, results and ignores must match one to one")
        ignores, problems = {}, []
        for host, entries in zip(hosts, lists, strict=True):
            ignores[host], wrong = ignore_list.read_ignores(entries or [], KINDS)
            problems += wrong
        if problems:
            raise AnsibleError("\n- ".join(["The ignore list is refused.", *dict.fromkeys(problems)]))
        now = datetime.now(UTC)
        results = dict(zip(hosts, args["results"], strict=True))
        report = preflight_report.make(results, ignores, now.date(), args["strict"], plain_release(args["upgrade_to"]))
        report["at"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        for line in ["", *preflight_report.lines(report), ""]:
            display.display(line)
        for path, text in (
            (args["json_path"], lambda: json.dumps(report, indent=2, ensure_ascii=False) + "\n"),
            (args["junit_path"], lambda: preflight_report.junit(report)),
        ):
            if path:
                write(path, text())
        return {
            "changed": False,
            "outcome": report["outcome"],
            "summary": preflight_report.summary(report),
            "counts": report["counts"],
            "hosts": {
                host: {
                    "state": entry["state"],
                    "outcome": entry["outcome"],
                    "summary": preflight_report.host_summary(entry),
                }
                for host, entry in report["hosts"].items()
            },
        }
