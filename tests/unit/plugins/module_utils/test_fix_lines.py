# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each fix is one that can be pasted, or says in words what to do. conftest.py sees to those of all other tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.table import KINDS

sys.path.insert(0, str(Path(__file__).parent))
from fix_lines import fix_problem


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_fix_of_each_kind(kind: str) -> None:
    assert fix_problem(KINDS[kind].fix) == ""


@pytest.mark.parametrize(
    "fix",
    [
        "apt-get install -y g++",
        "`apt-get install -y python3.11-dev`; or set sglang_server_python to another interpreter",
        "see what fills it: `du -xh --max-depth=2 / | sort -h | tail`",
        "install the headers of /opt/python",
        "CUDA_HOME: /usr/local/cuda-13.0",
        "install a C compiler, or set CC in the environment of the instance",
        "/opt/e/bin/python -m pip install 'ninja>=1'",
        "upgrade the driver to 580 or newer",
    ],
)
def test_fixes_that_can_be_followed(fix: str) -> None:
    assert fix_problem(fix) == ""


@pytest.mark.parametrize(
    "fix",
    [
        "apt-get install -y python3.11-dev, or set sglang_server_python to another interpreter",
        "see what fills it: du -xsh /var/cache/sglang/*",
        "systemctl restart docker, then look again",
        "make room or mount a larger disk: df -h /var; the figures can be set",
        "`apt-get install -y python3.11-dev",
        "`echo 'open`",
        "write a && b",
        "/opt/e/bin/python -m pip install 'ninja",
    ],
)
def test_fixes_that_a_shell_takes_for_something_else(fix: str) -> None:
    assert fix_problem(fix) != ""
