"""A server in a container of docker: what it is given, and what becomes of it and of its requests.

The tests build on each other's server, not on each other's results: each one leaves a server that serves.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import running_fleet as fleet
from running_fleet import on, registry, shown, wait_until

UNIT = "sglang-main.service"
START_S = 240


@pytest.fixture(autouse=True)
def _serves():
    assert fleet.serves("h1"), "the server does not serve before the test"
    # Starts that these tests ask for count for the unit's limit, which server_start and rollouts begin anew.
    on("h1", "systemctl", "reset-failed", UNIT, check=False)
    yield
    wait_until(lambda: fleet.serves("h1"), "the server serves after the test", START_S, 1)


def inspected() -> dict[str, Any]:
    return json.loads(on("h1", "docker", "inspect", "sglang-main"))[0]


def desired() -> dict[str, Any]:
    return json.loads(on("h1", "cat", "/etc/sglang/main.json"))


def server() -> int:
    return int(inspected()["State"]["Pid"])


def test_the_server_is_the_first_process_and_has_no_privileges() -> None:
    status = on("h1", "cat", f"/proc/{server()}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NSpid"].split()[-1] == "1"
    assert (fields["NoNewPrivs"], int(fields["CapEff"], 16), int(fields["CapBnd"], 16)) == ("1", 0, 0)
    user, group = (on("h1", "id", option, "sglang").strip() for option in ("-u", "-g"))
    assert (fields["Uid"].split()[0], fields["Gid"].split()[0]) == (user, group)
    command = on("h1", "cat", f"/proc/{server()}/cmdline").split("\0")
    assert command[1:3] == ["-m", "sglang.launch_server"]
    assert not inspected()["HostConfig"]["Privileged"]


def test_the_limit_holds_in_the_group_that_the_server_is_in() -> None:
    groups = on("h1", "cat", f"/proc/{server()}/cgroup")
    memory = next(line.split(":")[2] for line in groups.splitlines() if ":memory:" in line)
    parts = memory.split("/")
    assert "sglang-main.slice" in parts
    top = "/".join(parts[: parts.index("sglang-main.slice") + 1])
    assert on("h1", "cat", f"/sys/fs/cgroup/memory{top}/memory.limit_in_bytes").strip() == str(6 << 30)


def test_docker_waits_for_the_grace_period_and_systemd_longer() -> None:
    grace = desired()["grace"]["period_s"]
    assert inspected()["Config"]["StopTimeout"] == grace
    minutes, seconds = divmod(grace + 30, 60)
    assert shown("h1", "TimeoutStopUSec") == [f"{minutes}min {seconds}s" if seconds else f"{minutes}min"]


def test_the_log_is_in_the_journal_once() -> None:
    fired = "fired up and ready to roll"
    found = on("h1", "journalctl", "-t", "sglang-main", "-o", "cat", "--no-pager")
    assert found.count(fired) == on("h1", "journalctl", "-o", "cat", "--no-pager").count(fired) >= 1
    assert inspected()["HostConfig"]["LogConfig"]["Type"] == "none"
    # The image's own entry point would have said so.
    assert "entry point of the test image" not in found


def test_what_the_server_may_write_and_read() -> None:
    mounts = {mount["Destination"]: mount["RW"] for mount in inspected()["Mounts"]}
    assert mounts == {
        "/run/sglang/credentials/main": False,
        "/srv/models/tiny": False,
        "/var/cache/sglang": True,
        "/var/lib/sglang/main": True,
    }
    names = on("h1", "stat", "-c", "%U:%a", "/run/sglang/credentials/main", "/run/sglang/credentials/main/config.yml")
    assert names.splitlines() == ["sglang:500", "sglang:400"]
    ask = "curl -s -o /dev/null -w %{http_code} -X POST http://127.0.0.1:30000/flush_cache"
    assert on("h1", ask) == "401"
    assert on("h1", f"{ask} -H 'Authorization: Bearer only-for-the-tests'") == "200"
    assert "only-for-the-tests" not in json.dumps(inspected())


def test_a_request_of_2000_tokens_outlives_a_stop() -> None:
    stream = fleet.Stream("h1", 2000)
    on("h1", "systemctl", "stop", UNIT, timeout=300)
    assert stream.answer()["tokens"] == 2000
    assert shown("h1", "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert on("h1", "docker", "ps", "-aq") == ""
    assert on("h1", "ls", "/run/sglang/credentials") == ""
    on("h1", "systemctl", "start", UNIT)


@fleet.full
def test_what_docker_was_told_to_stop_is_not_started_again() -> None:
    grace = desired()["grace"]["period_s"]
    on("h1", "docker", "stop", "--time", str(grace), "sglang-main", timeout=300)
    wait_until(lambda: shown("h1", "ActiveState") == ["inactive"], "the unit ends with its container", 60)
    assert shown("h1", "Result", "NRestarts") == ["success", "0"]
    on("h1", "systemctl", "start", UNIT)


def test_a_restart_of_docker_drains_the_server_and_starts_it_again() -> None:
    before = shown("h1", "InvocationID")
    stream = fleet.Stream("h1", 1500)
    on("h1", "systemctl", "restart", "docker.service", timeout=300)
    assert stream.answer()["tokens"] == 1500
    wait_until(lambda: fleet.serves("h1"), "the server is back", START_S, 1)
    assert shown("h1", "InvocationID") != before


@fleet.full
def test_a_container_that_lost_its_unit_is_drained_and_replaced() -> None:
    before = inspected()["Id"]
    stream = fleet.Stream("h1", 1000)
    on("h1", "systemctl", "kill", "--kill-whom=main", "--signal=KILL", UNIT)
    assert stream.answer()["tokens"] == 1000
    wait_until(lambda: fleet.serves("h1") and inspected()["Id"] != before, "a new container serves", START_S, 1)
    assert shown("h1", "NRestarts") == ["1"]


def test_a_tag_that_was_moved_under_its_pin_is_refused() -> None:
    pin, before = json.loads(registry("pins"))["v0.5.23"], desired()
    registry("tag", "v0.5.23-broken", "v0.5.23")
    try:
        said = fleet.Playbook("deploy", *fleet.extra(sglang_server_image=pin), log="moved-tag").fails()
    finally:
        registry("stop")
        registry("start")
    assert "was moved under its pin" in said
    assert on("h1", "docker", "images", "-q", "--no-trunc").count("sha256:") == 1
    # What is on disk can still be started.
    assert desired() == before


@fleet.full
def test_the_host_is_rebooted() -> None:
    before = server()
    stream = fleet.Stream("h1", 1000)
    on("h1", "systemctl", "reboot", check=False)
    assert stream.answer()["tokens"] == 1000
    wait_until(lambda: not fleet.serves("h1"), "the host goes down", 120)
    wait_until(lambda: fleet.serves("h1"), "the host is back and its server serves", START_S, 1)
    assert server() != before
