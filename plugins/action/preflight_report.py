# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the report of a preflight on the controller, from what the hosts returned."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.serving.sglang.plugins.module_utils import whole_file
from ansible_collections.serving.sglang.plugins.module_utils.checks import ignore_list, preflight_report
from ansible_collections.serving.sglang.plugins.module_utils.checks.table import KINDS
from ansible_collections.serving.sglang.plugins.module_utils.redaction import visible
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


# What the terminal of the controller is called. A worker of Ansible has no terminal, so these go through its display.
SCREENS = {
    **dict.fromkeys(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"), False),
    **dict.fromkeys(("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"), True),
}


def writable(path):
    """Where a file is to be written: links are followed. What is no file and what has no folder is refused."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        what = os.stat(target).st_mode if os.path.lexists(target) else None
    except OSError as error:
        raise AnsibleError(f"the report cannot be written to {path}: {error.strerror or error}") from error
    if what is not None and stat.S_ISDIR(what):
        raise AnsibleError(f"the report cannot be written to {path}: it is a folder. Name a file in it")
    if what is not None and not stat.S_ISREG(what):
        raise AnsibleError(
            f"the report cannot be written to {path}: it is a device, a pipe or a socket. Name a file, or /dev/stdout"
        )
    if not os.path.isdir(folder):
        raise AnsibleError(
            f"the report cannot be written to {path}: there is no folder {folder}. Correct the path, or make the folder"
        )
    return target


def write(path, text):
    """Write a file so that a reader sees the old one or the new one, and never half of it."""
    if path in SCREENS:
        display.display(text.rstrip("\n"), stderr=SCREENS[path])
        return
    try:
        whole_file.replace(writable(path), text, 0o644)
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
            raise AnsibleError("\n- ".join(["The ignore list is refused.", *map(visible, dict.fromkeys(problems))]))
        now = datetime.now(UTC)
        results = dict(zip(hosts, args["results"], strict=True))
        report = preflight_report.make(results, ignores, now.date(), args["strict"], plain_release(args["upgrade_to"]))
        report["at"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        for line in ["", *preflight_report.lines(report), ""]:
            display.display(line)
        for path, text in (
            (args["json_path"], lambda: preflight_report.as_json(report)),
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
