# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the text of a fix has to be: a command alone, or prose whose commands stand alone in backticks."""

from __future__ import annotations

import functools
import re
import subprocess

# What begins a command, where a word of its own follows.
_PROGRAMS = (
    "ansible ansible-playbook apt apt-get chgrp chmod chown chronyc df dmesg dnf docker du find fuser install "
    "journalctl lsof mkdir mount nvidia-ctk nvidia-smi pip podman python rm rmdir ss swapoff sysctl "
    "systemctl timedatectl umount usermod zypper"
)
_COMMAND = re.compile(rf"(?:[\w./-]*/)?(?:{_PROGRAMS.replace(' ', '|')})(?: -m)? [-\w'/.]")
# Words that are verbs too are commands only with an option, a path or a quote after them.
_VERBS = re.compile(r"(?:find|install|mount|python|docker|podman|pip|df|du) (?![-/'])")
_PROSE = re.compile(r", | \(|; |: \w| \b(?:or|and|then|to|the|with|it|in|of)\b ")
# A line of the inventory or of a configuration, and a flag of the server: their values are what they are.
_SETTING = re.compile(r"""["']?[\w-]+["']?: |--|[A-Za-z]\w+=""")
_SCRIPT = re.compile(r"\w+=\$\(")
# A shell would do something else with these than show them.
_META = re.compile(r"[|&<>$`\\*]|\.\.\.")


def fix_problem(fix: str) -> str:
    """What is wrong with the text of a fix; empty when nothing is."""
    if not fix:
        return ""
    if fix.count("`") % 2 and not _SETTING.match(fix):
        return f"a backtick is left open: {fix}"
    for command in re.findall(r"`([^`]*)`", fix):
        if problem := shell_problem(command):
            return f"no command that a shell takes ({problem}): {command}"
    prose = re.sub(r"`[^`]*`", "", fix)
    if prose == fix and _SETTING.match(fix) and not _SCRIPT.match(fix):
        prose = fix.partition("; ")[2]
    if prose == fix and (_SCRIPT.match(fix) or (_begins_with_command(fix) and not _PROSE.search(_unquoted(fix)))):
        problem = shell_problem(fix)
        return f"no command that a shell takes ({problem}): {fix}" if problem else ""
    if found := _META.search(prose):
        return f"{found.group()!r} stands in prose, where a shell would take it: {fix}"
    if found := next((each for each in _COMMAND.finditer(prose) if _is_command(prose, each)), None):
        return f"a command ({found.group()}…) stands in prose without backticks: {fix}"
    return ""


@functools.cache
def shell_problem(command: str) -> str:
    if command.startswith("-"):
        command = f"program {command}"
    done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, timeout=10, check=False)
    return done.stderr.strip() if done.returncode else ""


def _unquoted(command: str) -> str:
    return re.sub(r"'[^']*'", "''", command)


def _begins_with_command(fix: str) -> bool:
    found = _COMMAND.match(fix)
    return found is not None and not _VERBS.match(fix)


def _is_command(prose: str, found: re.Match[str]) -> bool:
    before = prose[: found.start()]
    if re.search(r"[\w./-]$", before) or _VERBS.match(prose, found.start()):
        return False
    # "a plain systemctl stop does not" names a command and is none.
    return re.match(r"systemctl stop (?:of|does) ", prose[found.start() :]) is None
