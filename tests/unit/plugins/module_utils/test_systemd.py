# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units as `systemctl show` prints them."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.systemd import Unit, parse_show, parse_span

RUNNING = """\
Id=sglang-main.service
LoadState=loaded
ActiveState=active
SubState=running
Result=success
MainPID=149
ExecMainCode=0
ExecMainStatus=0
InvocationID=886182dcb6cf4974b9f75eb3fe288606
NRestarts=0
ActiveEnterTimestampMonotonic=1663226518
TimeoutStopUSec=2min 30s
Slice=sglang-main.slice
ControlGroup=/sglang.slice/sglang-main.slice/sglang-main.service
NeedDaemonReload=no
ConditionResult=yes
UnitFileState=enabled
"""


def test_a_running_unit():
    unit = parse_show(RUNNING)
    assert unit.running
    assert not unit.stopped
    assert unit.exists
    assert unit.main_pid == 149
    assert unit.exit_code is None
    assert unit.timeout_stop_s == 150
    assert unit.active_since_s == pytest.approx(1663.226518)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("ExecMainCode=1\nExecMainStatus=0", 0),
        ("ExecMainCode=1\nExecMainStatus=3", 3),
        ("ExecMainCode=2\nExecMainStatus=9", -9),
        ("ExecMainCode=3\nExecMainStatus=11", -11),
        ("ExecMainCode=0\nExecMainStatus=0", None),
        ("", None),
    ],
)
def test_exit_codes(lines, code):
    assert parse_show(lines).exit_code == code


@pytest.mark.parametrize(
    ("active", "sub", "job", "running", "stopped", "restarting"),
    [
        ("active", "running", 0, True, False, False),
        ("activating", "start-pre", 12, True, False, False),
        ("activating", "auto-restart", 0, False, False, True),
        ("activating", "auto-restart-queued", 0, False, False, True),
        ("deactivating", "stop-sigterm", 7, False, False, False),
        ("inactive", "dead", 0, False, True, False),
        ("inactive", "dead", 9, False, False, False),
        ("failed", "failed", 0, False, True, False),
    ],
)
def test_states(active, sub, job, running, stopped, restarting):
    unit = Unit(id="u", active_state=active, sub_state=sub, job=job)
    assert (unit.running, unit.stopped, unit.restarting) == (running, stopped, restarting)


def test_a_unit_that_is_not_there():
    unit = parse_show("Id=x.service\nLoadState=not-found\nActiveState=inactive\n")
    assert not unit.exists
    assert unit.stopped


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2min 30s", 150),
        ("1h 5min", 3900),
        ("500ms", 0.5),
        ("1d", 86400),
        ("90", 90e-6),
        ("infinity", None),
        ("", None),
        ("soon", None),
    ],
)
def test_time_spans(text, seconds):
    assert parse_span(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["", "garbage", "=\n==\n", "MainPID=x\nNRestarts=\nTimeoutStopUSec=?"])
def test_what_is_not_understood_reads_as_nothing(text):
    unit = parse_show(text)
    assert unit.main_pid == 0
    assert unit.exit_code is None
