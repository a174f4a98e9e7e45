"""Two servers in containers of podman: what they are given, what becomes of them, upgrades and the way back.

The tests build on each other's fleet, not on each other's results: each one leaves two servers that serve.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

import pytest
import running_fleet as fleet
from running_fleet import deploy, extra, ledger_of, on, registry, rollout, shown, wait_until

UNIT = "sglang-main.service"
# What a busy machine may take for what takes a tenth of it on a quiet one.
START_S = 600
PLAYBOOK_S = 1500


@pytest.fixture
def two_serve():
    """For each test that changes something; those that only look do without."""
    fleet.assert_whole("before")
    yield
    fleet.assert_whole("after")


def inspected(host: str) -> dict[str, Any]:
    return json.loads(on(host, "podman", "inspect", "sglang-main", check=False) or "[{}]")[0]


def server(host: str) -> int:
    """The server's process, as the host sees it; 0 where no container runs."""
    return int(inspected(host).get("State", {}).get("Pid", 0))


def version(host: str) -> str:
    return json.loads(on(host, "curl -s --max-time 10 http://127.0.0.1:30000/server_info"))["version"]


def versions() -> list[str]:
    return [version(host) for host in fleet.SERVERS]


def comes_back(host: str, before: int) -> None:
    wait_until(lambda: server(host) not in (0, before) and fleet.serves(host), f"{host} serves again", START_S, 1)


def of_tag(tag: str) -> tuple[str, str]:
    """Options that declare another release than the scenario's variables do."""
    return extra(tag=tag)


def sent() -> int:
    """Bytes that went over the fleet's bridge from this machine to the hosts."""
    cache = pathlib.Path(os.environ.get("SGLANG_TEST_CACHE") or "/var/cache/serving-sglang")
    pid = (cache / "fleets" / fleet.NAME / "registry" / "pid").read_text()
    (bridge,) = re.findall(r"^\s*br0:(.*)$", pathlib.Path(f"/proc/{pid}/net/dev").read_text(), re.MULTILINE)
    return int(bridge.split()[8])


# --- what an instance is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", fleet.SERVERS)
def test_the_server_is_the_first_process_and_has_no_privileges(host: str) -> None:
    pid = server(host)
    status = on(host, "cat", f"/proc/{pid}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NSpid"].split()[-1] == "1"
    assert (fields["NoNewPrivs"], int(fields["CapEff"], 16), int(fields["CapBnd"], 16)) == ("1", 0, 0)
    user, group = (on(host, "id", option, "sglang").strip() for option in ("-u", "-g"))
    assert (fields["Uid"].split()[0], fields["Gid"].split()[0]) == (user, group)
    command = on(host, "cat", f"/proc/{pid}/cmdline").split("\0")
    assert command[1:3] == ["-m", "sglang.launch_server"]
    assert not inspected(host)["HostConfig"]["Privileged"]
    assert version(host) == "0.5.22"


@pytest.mark.parametrize("host", fleet.SERVERS)
def test_the_limit_holds_in_the_group_that_the_server_is_in(host: str) -> None:
    groups = on(host, "cat", f"/proc/{server(host)}/cgroup")
    memory = next(line.split(":")[2] for line in groups.splitlines() if ":memory:" in line or line.startswith("0::"))
    parts = memory.split("/")
    assert f"{UNIT}" in parts, groups
    top = "/".join(parts[: parts.index("sglang-main.slice") + 1])
    found = on(
        host,
        f"cat /sys/fs/cgroup/memory{top}/memory.limit_in_bytes /sys/fs/cgroup{top}/memory.max 2>/dev/null || true",
    )
    assert found.strip() == str(6 << 30)


def test_environment_caches_and_mounts() -> None:
    environment = on("h1", f"tr '\\0' '\\n' < /proc/{server('h1')}/environ").splitlines()
    for name in ("SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "HF_HOME"):
        assert any(line.startswith(f"{name}=/var/cache/sglang/") for line in environment), name
    assert "SGLANG_MAX_NEW_TOKENS_LIMIT=2500" in environment
    assert "PYTHONPATH=/opt/sglang/stubs" in environment, "what the image sets holds"
    mounts = {mount["Destination"]: mount["RW"] for mount in inspected("h1")["Mounts"]}
    assert mounts == {
        "/run/sglang/credentials/main": False,
        "/srv/models/tiny": False,
        "/var/cache/sglang": True,
        "/var/lib/sglang/main": True,
    }
    shared = on("h1", f"nsenter --mount=/proc/{server('h1')}/ns/mnt df --output=size -B1 /dev/shm").split()[-1]
    assert int(shared) == 1 << 30
    assert on("h1", "ls /etc/containers/systemd/sglang-main.container; ls /etc/systemd/system/sglang-main.service || :")


def test_a_secret_reaches_the_server_by_a_file_of_its_user() -> None:
    environment = on("h1", f"tr '\\0' '\\n' < /proc/{server('h1')}/environ").splitlines()
    (place,) = (line.partition("=")[2] for line in environment if line.startswith("HF_TOKEN_PATH="))
    assert on("h1", "stat", "-c", "%U:%a", place).strip() == "sglang:400"
    assert on("h1", "nsenter", f"--mount=/proc/{server('h1')}/ns/mnt", "cat", place).strip() == "only-for-the-tests"
    seen = on("h1", "podman", "inspect", "sglang-main") + on("h1", "systemctl", "cat", UNIT)
    assert "only-for-the-tests" not in seen + on("h1", "cat", "/etc/sglang/main.json")


def test_podman_waits_for_the_grace_period_and_systemd_longer() -> None:
    grace = json.loads(on("h1", "cat", "/etc/sglang/main.json"))["grace"]["period_s"]
    assert inspected("h1")["Config"]["StopTimeout"] == grace
    minutes, seconds = divmod(grace + 30, 60)
    assert shown("h1", "TimeoutStopUSec") == [f"{minutes}min {seconds}s" if seconds else f"{minutes}min"]


def test_the_log_is_in_the_journal_once() -> None:
    fired = "fired up and ready to roll"
    found = on("h1", "journalctl", "-t", "sglang-main", "-o", "cat", "--no-pager")
    assert found.count(fired) == on("h1", "journalctl", "-o", "cat", "--no-pager").count(fired) == 1
    # The image's own entry point would have said so.
    assert "entry point of the test image" not in found


# --- what becomes of it ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_serve")
def test_a_request_of_2000_tokens_outlives_a_stop_and_a_reboot_brings_the_server_back() -> None:
    before = server("h1")
    stream = fleet.Stream("h1", 2000)
    on("h1", "systemctl", "stop", UNIT, timeout=300)
    assert stream.answer()["tokens"] == 2000
    assert shown("h1", "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert on("h1", "podman", "ps", "-aq") == ""
    boot = on("h1", "systemctl show -P UserspaceTimestamp")
    on("h1", "systemctl", "reboot", check=False)
    comes_back("h1", before)
    assert on("h1", "systemctl show -P UserspaceTimestamp") != boot


@pytest.mark.usefixtures("two_serve")
def test_what_loses_its_container_or_the_program_beside_it_is_started_again() -> None:
    before = {host: server(host) for host in fleet.SERVERS}
    on("h1", "kill", "-KILL", shown("h1", "MainPID")[0])
    on("h2", "podman", "rm", "--force", "--time", "0", "sglang-main")
    for host in fleet.SERVERS:
        comes_back(host, before[host])
        assert shown(host, "NRestarts") == ["1"]
        assert on(host, "podman", "ps", "-aq").count("\n") == 1
        # What the server itself has just forked bears its command line for a moment.
        alone = [str(server(host))]
        wait_until(
            lambda: on(host, "pgrep", "-f", "sglang.launch_server").split() == alone,  # noqa: B023  # used at once
            f"nothing is left on {host} of the one before",
            30,
            1,
        )


@pytest.mark.usefixtures("two_serve")
def test_the_services_of_podman_may_be_restarted() -> None:
    before = {host: server(host) for host in fleet.SERVERS}
    on("h1", "systemctl", "restart", "podman.socket", "podman.service")
    assert {host: server(host) for host in fleet.SERVERS} == before


# --- upgrades -------------------------------------------------------------------------------------------------------


# tests/integration/test_prefetch.py has both of a module; here it is what a whole deployment leaves.
@fleet.full
@pytest.mark.usefixtures("two_serve")
def test_a_pull_that_is_cut_off_and_a_moved_tag_touch_nothing() -> None:
    before, declared = {host: server(host) for host in fleet.SERVERS}, on("h1", "cat", "/etc/sglang/main.json")
    begun = sent()
    deploying = fleet.Playbook("deploy", *of_tag("v0.5.23"), log="cut-off-pull")
    wait_until(lambda: sent() - begun > 20 << 20, "the pull is on its way", START_S, 0.005)
    registry("stop")
    try:
        said = deploying.fails(PLAYBOOK_S)
    finally:
        registry("start")
    assert "podman could not pull 10.77.0.1:5000/sglang@sha256:" in said
    assert "What runs was not touched" in said
    registry("tag", "v0.5.23-broken", "v0.5.23")
    try:
        said = fleet.Playbook("deploy", *of_tag("v0.5.23"), log="moved-tag").fails(PLAYBOOK_S)
    finally:
        registry("stop")
        registry("start")
    assert "was moved under its pin" in said
    assert {host: server(host) for host in fleet.SERVERS} == before
    assert on("h1", "cat", "/etc/sglang/main.json") == declared, "what is on disk can be started"
    assert all(on(host, "podman", "images", "-q").count("\n") == 1 for host in fleet.SERVERS), "nothing was pulled"


@pytest.mark.usefixtures("two_serve")
def test_an_upgrade_under_load_loses_nothing() -> None:
    deploy(*of_tag("v0.5.23"), log="declared")
    assert versions() == ["0.5.22"] * 2
    # A deployment brings images. Where one is gone again, the rollout brings it, before the first replica leaves.
    image = json.loads(on("h2", "cat", "/etc/sglang/main.json"))["container"]["run_image"]
    on("h2", "podman", "rmi", image)
    with fleet.load_through_gateway("upgrade") as summary:
        rolled = rollout(log="upgrade").succeeds(PLAYBOOK_S)
    lost = {key: summary[key] for key in ("failed", "cut_short", "in_flight", "reasons")}
    assert summary["sent"] == summary["answered"] > 10, lost
    assert versions() == ["0.5.23"] * 2
    assert "0.5.22 -> 0.5.23" in rolled.text
    lines = ledger_of(rolled)
    places = {step: [n for n, line in enumerate(lines) if line["step"] == step] for step in ("prefetch", "leave")}
    assert len(places["prefetch"]) == 2
    assert max(places["prefetch"]) < min(places["leave"]), "both have the image before one of them leaves"
    for host in fleet.SERVERS:
        stopped = next(line for line in lines if line["step"] == "stop" and line["host"] == host)
        assert stopped["detail"]["exit_code"] == 0
    assert on("h1", "cat", "/etc/sglang/main.previous.json").count("v0.5.22@sha256:") > 0


# tests/integration/test_rollback.py has the same of native servers, and what is refused.
@fleet.full
@pytest.mark.usefixtures("two_serve")
def test_the_way_back_loses_nothing_and_can_be_undone() -> None:
    assert versions() == ["0.5.23"] * 2
    with fleet.load_through_gateway("way-back") as summary:
        returned = fleet.Playbook("rollback", log="way-back").succeeds(PLAYBOOK_S)
    lost = {key: summary[key] for key in ("failed", "cut_short", "in_flight", "reasons")}
    assert summary["sent"] == summary["answered"] > 10, lost
    assert "0.5.23 -> 0.5.22" in returned.text
    assert versions() == ["0.5.22"] * 2
    fleet.Playbook("rollback", *extra(sglang_rollback_undo=True), log="undone").succeeds(PLAYBOOK_S)
    assert versions() == ["0.5.23"] * 2


@pytest.mark.usefixtures("two_serve")
def test_an_image_that_cannot_start_is_returned_from_and_the_other_server_goes_on() -> None:
    before = {host: server(host) for host in fleet.SERVERS}
    deploy(*of_tag("v0.5.23-broken"), log="broken")
    assert {host: server(host) for host in fleet.SERVERS} == before
    tried = rollout(*extra(sglang_rollout_on_failure="rollback"), log="broken-rollout")
    said = tried.fails(PLAYBOOK_S)
    assert "No module named sglang.launch_server" in said
    assert "h1-main was returned to its previous state and serves 0.5.23 again" in said
    assert server("h2") == before["h2"]
    assert versions() == ["0.5.23"] * 2
    *_lines, failed, last = ledger_of(tried)
    assert (failed["step"], failed["ok"], failed["host"]) == ("failed", False, "h1")
    assert failed["detail"]["rolled_back"]
    assert (last["step"], last["ok"], last["host"]) == ("rejoin", True, "gw")


@fleet.full
@pytest.mark.usefixtures("two_serve")
def test_what_still_runs_gets_its_files_back_and_is_not_restarted() -> None:
    before = server("h2")
    assert "broken" in on("h2", "cat", "/etc/sglang/main.json")
    fleet.Playbook("rollback", log="rollback").succeeds(PLAYBOOK_S)
    assert server("h2") == before
    assert "broken" not in on("h2", "cat", "/etc/sglang/main.json", "/etc/containers/systemd/sglang-main.container")
    deploy(*of_tag("v0.5.23"), log="as-declared")
