# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""server_start, server_stop and server_info with a real SGLang under a real systemd.

The tests stand in an order that costs few starts; each begins what it needs by itself.
"""

from __future__ import annotations

import os
import signal
import time

import pytest


def test_a_port_that_is_taken_is_met_before_the_start(host):
    host.shell("systemd-run --unit=squatter --quiet python3 -m http.server 30000 --bind 127.0.0.1; sleep 1")
    try:
        result = host.module("server_start", instance="main")
        predicted = host.module("server_start", check=True, instance="main")
    finally:
        host.shell("systemctl stop squatter")
    for refused in (result, predicted):
        assert refused["failed"]
        assert refused["kind"] == "port_taken"
        assert "(python3, of root)" in refused["msg"]
        # The arguments of a process that is not ours may hold secrets.
        assert "http.server" not in refused["msg"]
        assert not refused["changed"]
    assert host.shell("systemctl show sglang-main -p InvocationID --value").strip() == ""


def test_a_bad_model_path_fails_at_once_with_the_line_that_says_so(host):
    begun = time.monotonic()
    result = host.module("server_start", instance="broken")
    assert result["failed"]
    assert result["kind"] == "start_failed"
    assert "'/srv/models/none'" in result["msg"]
    assert "Repo id must be" in result["explanation"]
    assert [step["ok"] for step in result["steps"]] == [False]
    # The deadline is 300 s; nobody waits for a server that is dead, and systemd does not try again.
    assert time.monotonic() - begun < 200
    assert host.info("broken")["state"] == "stopped"
    assert host.shell("systemctl show sglang-broken -p NRestarts --value").strip() == "0"


def test_a_start_waits_until_real_tokens_come(host):
    assert host.module("server_start", check=True, instance="main")["changed"]
    assert host.info()["state"] == "stopped"
    result = host.module("server_start", instance="main")
    assert not result.get("failed"), result["msg"]
    assert result["changed"]
    assert not result["already"]
    assert result["max_total_num_tokens"] == 65536
    assert result["version"] == "0.5.22"
    assert result["phases"]["tokenizer_e2e_s"] > 0
    assert result["verify"]["completion_tokens"] == 8
    assert result["memory"]["memory_max_bytes"] == 8 * 2**30
    assert [(step["step"], step["ok"]) for step in result["steps"]] == [("start", True), ("verify", True)]
    again = host.module("server_start", instance="main")
    assert again["already"]
    assert not again["changed"]
    assert not host.module("server_start", check=True, instance="main")["changed"]


def test_the_live_state(serving):
    entry = serving.info()
    assert entry["error"] is None
    assert entry["state"] == "up"
    assert entry["ready"]
    assert entry["version"] == "0.5.22"
    assert entry["model"]["served_name"] == "tiny"
    assert entry["arguments"]["max_running_requests"] == 16
    assert entry["arguments"]["api_key"] == "********"
    assert entry["slice"]["memory_max_bytes"] == 8 * 2**30
    assert entry["slice"]["mismatches"] == []
    assert entry["listeners"][0]["pid"] == entry["main_pid"]
    assert entry["restart_pending"] is False
    assert entry["job"]["state"] == "done"


def test_a_broken_desired_state_is_an_entry_with_its_error(serving):
    serving.shell("echo '{' > /etc/sglang/odd.json")
    try:
        entries = {entry["instance"]: entry for entry in serving.module("server_info")["instances"]}
    finally:
        serving.shell("rm /etc/sglang/odd.json")
    assert "not valid JSON" in entries["odd"]["error"]
    assert entries["main"]["state"] == "up"


def test_a_drain_that_takes_too_long_leaves_the_server_serving(serving):
    serving.slow_down(0.02)
    load = serving.load(2, 3000)
    result = serving.module("server_stop", instance="main", drain_timeout_s=2, on_timeout="fail")
    serving.slow_down(0)
    assert result["failed"]
    assert result["kind"] == "drain_timeout"
    assert (result["running_at_leave"], result["aborted"]) == (2, 0)
    assert "2 running and 0 waiting" in result["msg"]
    assert not result["changed"]
    assert "2 running, 0 waiting" in result["_output"]
    assert load.answers() == [{"tokens": 3000, "whole": True, "error": None}] * 2
    assert serving.info()["state"] == "up"


def test_a_job_that_is_killed_has_a_clear_end(serving):
    serving.slow_down(0.02)
    load = serving.load(1, 3000)
    process, path = serving.begin("server_stop", instance="main", drain_timeout_s=60)
    serving.shell("until systemctl is-active -q sglang-job-main; do sleep 0.2; done; sleep 1")
    refused = serving.module("server_start", instance="main")
    serving.shell("systemctl kill -s KILL sglang-job-main")
    process.communicate(timeout=60)
    serving.slow_down(0)
    assert refused["kind"] == "busy"
    assert "stop of instance main runs on this host" in refused["msg"]
    assert '"kind": "job_lost"' in path.read_text()
    assert load.answers()[0]["whole"]
    assert serving.info()["state"] == "up"


def test_a_hung_scheduler_hangs_nobody_and_is_revived_when_it_lives(serving):
    with serving.frozen_scheduler():
        assert serving.http("GET", "/health_generate", limit=30)[0] == 503
        begun = time.monotonic()
        entry = serving.info()
        assert time.monotonic() - begun < 30
        assert entry["state"] == "unhealthy"
        assert entry["main_pid"]
        kept = serving.module("server_stop", instance="main", on_timeout="fail")
        assert kept["failed"]
        assert kept["kind"] == "unhealthy"
        assert "Nothing was signalled" in kept["msg"]
    # SIGTERM now would lose what runs: the server must be healthy again before it may be drained.
    serving.slow_down(0.02)
    load = serving.load(1, 3000)
    result = serving.module("server_stop", instance="main", drain_timeout_s=1, on_timeout="fail")
    serving.slow_down(0)
    assert result["state_found"] == "unhealthy"
    assert result["kind"] == "drain_timeout"
    assert load.answers()[0]["whole"]
    assert serving.info()["state"] == "up"


def test_zeros_of_a_scheduler_that_stands_still_prove_nothing(serving):
    pid = serving.info()["main_pid"]
    with serving.frozen_scheduler():
        load = serving.load(1, 50, until_running=False)
        time.sleep(2)
        assert serving.running() == 0, "what it published before is still there to read"
        kept = serving.module("server_stop", instance="main", drain_timeout_s=8, on_timeout="fail")
        assert kept["failed"]
        assert kept["kind"] == "drain_timeout", kept["msg"]
        assert "Nothing was signalled" in kept["msg"]
    assert load.answers()[0]["whole"]
    assert serving.info()["main_pid"] == pid


def test_an_abort_is_counted(serving):
    serving.slow_down(0.02)
    load = serving.load(3, 4000)
    result = serving.module("server_stop", instance="main", drain_timeout_s=1, on_timeout="abort")
    assert not result.get("failed"), result["msg"]
    assert result["aborted"] == 3
    assert result["exit_code"] == 0
    assert all(answer["tokens"] < 4000 for answer in load.answers())
    assert serving.info()["state"] == "stopped"
    again = serving.module("server_stop", instance="main")
    assert again["already"]
    assert not again["changed"]


def test_a_stop_follows_a_stream_and_outlives_its_controller(serving):
    serving.slow_down(0.01)
    load = serving.load(1, 2000)
    options = {"instance": "main", "drain": False, "request": "test/main"}
    process, _path = serving.begin("server_stop", **options)
    serving.shell("until grep -q 'SIGTERM' /run/sglang/jobs/main.json; do sleep 0.1; done")
    os.killpg(process.pid, signal.SIGKILL)
    result = serving.module("server_stop", **options)
    assert not result.get("failed"), result["msg"]
    assert result["joined"]
    assert result["state_found"] == "up"
    assert result["clean"]
    assert result["exit_code"] == 0
    assert result["remaining_at_signal"] == 1
    assert any("Remaining number of requests 1" in line for line in result["drain_lines"])
    assert any("Remaining number of requests 0" in line for line in result["drain_lines"])
    assert load.answers() == [{"tokens": 2000, "whole": True, "error": None}]


def test_a_paused_server_is_resumed_and_drained(serving):
    assert serving.http("POST", "/pause_generation", {"mode": "in_place"})[0] == 200
    assert serving.info()["state"] == "paused"
    assert serving.module("server_start", instance="main")["kind"] == "paused"
    result = serving.module("server_stop", instance="main")
    assert not result.get("failed"), result["msg"]
    assert result["state_found"] == "paused"
    assert result["clean"]
    assert result["exit_code"] == 0


@pytest.mark.full
def test_a_host_that_is_cut_off_goes_on_and_is_found_again(serving):
    serving.slow_down(0.02)
    load = serving.load(1, 4000)
    options = {"instance": "main", "drain_timeout_s": 300, "request": "test/cut"}
    process, path = serving.begin("server_stop", **options, reconnect_s=5)
    serving.shell("until systemctl is-active -q sglang-job-main; do sleep 0.2; done; sleep 1")
    serving.hosts("cut", "--fleet", serving.fleet, "h1")
    try:
        process.communicate(timeout=180)
    finally:
        serving.hosts("join", "--fleet", serving.fleet, "h1")
    assert '"lost_connection": true' in path.read_text()
    serving.slow_down(0)
    result = serving.module("server_stop", **options)
    assert not result.get("failed"), result["msg"]
    assert result["joined"]
    assert load.answers()[0]["tokens"] == 4000


@pytest.mark.full
def test_a_grace_period_that_is_too_short_is_told_as_a_loss(serving):
    drop_in = "/run/systemd/system/sglang-main.service.d"
    serving.shell(
        f"mkdir -p {drop_in}; printf '[Service]\\nTimeoutStopSec=4\\n' > {drop_in}/short.conf; systemctl daemon-reload"
    )
    try:
        serving.slow_down(0.02)
        load = serving.load(1, 4000)
        result = serving.module("server_stop", instance="main", drain=False)
    finally:
        serving.shell(f"rm -r {drop_in}; systemctl daemon-reload")
    assert result["failed"]
    assert result["kind"] == "unclean_stop"
    assert "grace period of 4 s passed" in result["msg"]
    assert result["clean"] is False
    assert not load.answers()[0]["whole"]
    assert serving.info()["state"] == "stopped"


@pytest.mark.full
def test_a_limit_that_does_not_hold_fails_the_start(host):
    host.shell(
        "python3 - <<'END'\n"
        "import json\n"
        "data = json.load(open('/etc/sglang/main.json'))\n"
        "data['limits']['memory_max_bytes'] //= 2\n"
        "json.dump(data, open('/etc/sglang/main.json', 'w'))\n"
        "END"
    )
    result = host.module("server_start", instance="main")
    assert result["failed"]
    assert result["kind"] == "limit_mismatch"
    assert "asked for 4294967296 bytes (4.00 GiB), the kernel holds 8589934592 bytes" in result["msg"]
    assert host.info()["state"] == "stopped"


@pytest.mark.full
def test_a_server_that_is_still_starting_is_simply_stopped(host):
    host.shell("systemctl start --no-block sglang-main; sleep 3")
    assert host.info()["state"] == "loading"
    result = host.module("server_stop", instance="main")
    assert not result.get("failed"), result["msg"]
    assert result["state_found"] == "starting"
    assert host.info()["state"] == "stopped"
    assert host.shell("pgrep -fc '[l]aunch_server|^sglang::' || true").strip() == "0"
