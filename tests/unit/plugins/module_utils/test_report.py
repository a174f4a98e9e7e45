# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables: what they say of hosts that answered, failed, or could not be reached."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.module_utils import ledger, report


def test_columns_are_aligned_numbers_to_the_right():
    lines = report.table(("name", "n"), [("a", 1), ("bcd", 22), ("e", None)])
    assert lines == ["name  n", "----  --", "a      1", "bcd   22", "e      -"] or lines == [
        "name   n",
        "----  --",
        "a      1",
        "bcd   22",
        "e      -",
    ]


def test_a_fleet_shows_every_host_whatever_it_answered():
    info = {
        "instance": "main",
        "replica": "r1",
        "state": "up",
        "version": "0.5.22",
        "running": 3,
        "waiting": 0,
        "max_total_num_tokens": 65536,
        "token_usage": 0.256,
        "restart_pending": True,
    }
    text = "\n".join(
        report.fleet(
            {
                "h1": {"instances": [info, {"instance": "bad", "error": "not JSON"}]},
                "h2": {"unreachable": True},
                "h3": {},
                "h4": {"instances": []},
                "h5": {"failed": True, "msg": "no python"},
            }
        )
    )
    for words in ("65536", "26", "restart pending", "not JSON", "unreachable", "not read", "no instance", "no python"):
        assert words in text


def test_a_fleet_shows_what_a_rollout_left():
    info = {"instance": "main", "replica": "r1", "state": "up"}
    reading = {
        "instances": [info],
        "records": {"main": {"run": "R7", "step": "leaving", "at": 1.0}},
        "lock": {"run": "R8", "owner": "ann@laptop", "age_s": 31.2},
    }
    text = "\n".join(report.fleet({"h1": reading}))
    assert "rollout R7 left it unfinished (leaving)" in text
    assert "claimed by rollout R8 of ann@laptop, 31 s ago" in text
    reading["records"]["main"]["step"] = "done"
    assert "R7" not in "\n".join(report.fleet({"h1": reading}))


def test_gateways():
    workers = [{"url": "http://a:1", "is_healthy": True, "load": 2}, {"url": "http://b:1", "status": "draining"}]
    text = "\n".join(
        report.gateways({"gw": {"workers": workers}, "gw2": {"workers": []}, "gw3": {"unreachable": True}})
    )
    for words in ("healthy", "draining", "no workers", "unreachable"):
        assert words in text


def line(step, elapsed_s, replica="r1", **detail):
    return ledger.Line("run", 1, "2026-11-29T10:00:00.000Z", replica, "h1", step, True, elapsed_s, detail)


def test_a_rollout_as_a_table():
    lines = [
        line("plan", 0, replica="-"),
        line("leave", 1.5, running=3),
        line("drain", 4.25, running_at_leave=1),
        line("stop", 6, exit_code=0, drain_lines=["a", "b"]),
        line("done", 0.5, overhead_s=5.5),
        line("leave", 1.5, replica="r2"),
    ]
    rows = report.rollout(lines)
    assert len(rows) == 4
    assert rows[2].split() == ["r1", "1.5", "-", "4.2", "6.0", "-", "-", "-", "-", "3", "0", "2", "5.5", "done"]
    assert rows[3].split()[-1] == "unfinished"


UP = {"instance": "main", "state": "up", "ready": True, "worker_url": "http://a:1", "desired": {"rank": 0}}
ROUTED = {"workers": [{"url": "http://a:1", "is_healthy": True}]}


def test_nothing_needs_attention():
    line = report.attention({"h1": {"instances": [UP], "lock": None}}, {"gw": ROUTED})
    assert line == "Nothing needs attention: everything was read, and 1 of 1 instances serve as declared"
    assert report.attention({}, {}).startswith("Nothing needs attention")


def test_everything_that_needs_attention_is_in_one_line():
    reading = {
        "instances": [
            {**UP, "restart_pending": True},
            {**UP, "instance": "slow", "ready": False},
            {**UP, "instance": "off", "state": "stopped"},
            {**UP, "instance": "lost", "worker_url": "http://b:2"},
            {"instance": "bad", "error": "not JSON\nat all"},
        ],
        "records": {"off": {"run": "R7", "step": "leaving"}, "main": {"run": "R6", "step": "done"}},
        "lock": {"run": "R8", "owner": "ann@laptop", "age_s": 900.4},
    }
    routes = {"workers": [*ROUTED["workers"], {"url": "http://c:3", "is_healthy": False}]}
    line = report.attention(
        {"h1": reading, "h2": {"unreachable": True}, "h3": {}},
        {"gw": routes, "gw2": {"failed": True, "msg": "refused\nreally"}},
    )
    assert line == (
        "Needs attention: could not be read: h2 (unreachable), h3 (not read), gw2 (refused), h1/bad (not JSON); "
        "restart pending: h1/main; not ready: h1/slow; stopped: h1/off; left unfinished by rollout R7: h1/off; "
        "claimed by rollout R8 of ann@laptop: h1 (900 s ago); not healthy for gateway gw: http://c:3; "
        "serves and is not in gateway gw: h1/lost"
    )


def test_a_large_fleet_stays_one_line():
    line = report.attention({f"h{number}": {"unreachable": True} for number in range(1000)}, {})
    assert line.endswith("h7 (unreachable) and 992 more")
