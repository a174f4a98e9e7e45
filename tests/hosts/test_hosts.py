"""Fleets come up, can be reached and broken, and leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from used import HOSTS, STATE, hosts, links, traces, wait_for

FLEET = "selftest"


@pytest.fixture(scope="module")
def fleet() -> Iterator[str]:
    hosts("down")
    before = links()
    hosts("up", "--servers", "2")
    yield FLEET
    hosts("down")
    assert traces(FLEET) == []
    assert links() == before


def on(host: str, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return hosts("ssh", host, command, check=check)


def test_a_host_is_a_machine_with_systemd(fleet: str) -> None:
    assert on("h1", "systemctl is-system-running").stdout == "running\n"
    assert on("h2", "hostname; cat /proc/1/comm").stdout == "h2\nsystemd\n"
    assert on("h1", "systemctl --failed --no-legend").stdout == ""


def test_hosts_see_each_other_and_no_other_network(fleet: str) -> None:
    on("h1", "ping -c 1 -W 2 h2")
    assert on("h1", "ping -c 1 -W 1 192.0.2.1", check=False).returncode != 0


def test_real_sglang_the_model_and_the_wheels_are_there_to_read(fleet: str) -> None:
    ask = "import importlib.metadata as m; print(m.version('sglang'))"
    for version in ("0.5.22", "0.5.23"):
        assert on("h1", f'/opt/sglang/{version}/bin/python -c "{ask}"').stdout == f"{version}\n"
    assert on("h1", "sudo -u ops head -c1 /srv/models/tiny/model.safetensors | wc -c").stdout.strip() == "1"
    on("h1", "python3 -m venv /tmp/v && /tmp/v/bin/pip download -q -d /tmp/w --no-deps smg==1.13.0")
    assert on("h1", "touch /srv/models/x", check=False).returncode != 0


def test_an_ordinary_user_may_become_root(fleet: str) -> None:
    config = STATE / fleet / "ssh_config"
    done = hosts("exec", "--", "ssh", "-F", str(config), "ops@10.77.0.11", "id -un; sudo -n id -un")
    assert done.stdout == "ops\nroot\n"


def test_memory_limits_hold(fleet: str) -> None:
    done = on("h1", "systemd-run -q --wait -p MemoryMax=64M python3 -c 'x = bytearray(256 << 20)'", check=False)
    assert done.returncode != 0
    on("h1", "systemd-run -q --wait -p MemoryMax=512M python3 -c 'x = bytearray(256 << 20)'")


def test_a_host_is_cut_off_and_comes_back(fleet: str) -> None:
    on("h1", "systemd-run -q --unit=stays sleep 1000")
    hosts("cut", "h1")
    try:
        assert hosts("exec", "--", "ping", "-c", "1", "-W", "1", "10.77.0.11", check=False).returncode != 0
        on("h2", "true")
    finally:
        hosts("join", "h1")
    wait_for(lambda: on("h1", "systemctl is-active stays", check=False).returncode == 0)


def test_a_host_that_reboots_itself_comes_back(fleet: str) -> None:
    boot = on("h2", "cat /proc/sys/kernel/random/boot_id; touch /root/kept").stdout
    on("h2", "systemctl reboot", check=False)

    def is_back() -> bool:
        asked = on("h2", "cat /proc/sys/kernel/random/boot_id", check=False)
        return asked.returncode == 0 and asked.stdout != boot

    wait_for(is_back)
    on("h2", "test -e /root/kept")


def test_a_host_without_power_starts_from_its_disk(fleet: str) -> None:
    on("h2", "touch /root/kept; sync")
    hosts("kill", "h2")
    assert on("h2", "true", check=False).returncode != 0
    hosts("start", "h2")
    on("h2", "test -e /root/kept")
    assert "is on already" in hosts("start", "h2", check=False).stderr


def test_a_fleet_that_is_up_is_not_made_again(fleet: str) -> None:
    done = hosts("up", check=False)
    assert done.returncode == 1
    assert "is up" in done.stderr
    on("h1", "true")


def test_what_does_not_exist_is_said(fleet: str) -> None:
    assert "has no host 'h9'" in hosts("ssh", "h9", check=False).stderr
    assert "is not up" in hosts("exec", "--", "true", fleet="nobody", check=False).stderr
    assert "cannot name a fleet" in hosts("down", fleet="No/good", check=False).stderr


# An image of the little that a shell and `sleep` need, out of the host's own files.
PACK = """set -e
tar -chf /tmp/image.tar -C / $(for file in /bin/bash /bin/sleep; do echo $file; ldd $file | grep -o '/[^ ]*'; done |
  sed 's,^/,,' | sort -u)
"""


def test_containers_run_on_the_other_suite_and_are_gone_with_the_fleet() -> None:
    name = "selftest-box"
    hosts("up", "--suite", "trixie", "--gateway", fleet=name)
    run = "run -d --name box --network host --user 998:998 small /bin/bash -c 'sleep 1000 & wait'"
    try:
        assert hosts("ssh", "gw", "cat /etc/debian_version", fleet=name).stdout.startswith("13.")
        hosts("ssh", "h1", PACK, fleet=name)
        for engine in ("podman", "docker"):
            hosts("ssh", "h1", f"{engine} import /tmp/image.tar small && {engine} {run}", fleet=name)
            pid = hosts("ssh", "h1", f"{engine} inspect -f '{{{{.State.Pid}}}}' box", fleet=name).stdout.strip()
            assert "sleep" in hosts("ssh", "h1", f"cat /proc/$(pgrep -P {pid})/comm", fleet=name).stdout
        hosts("kill", "h1", fleet=name)
        hosts("start", "h1", fleet=name)
        # The same release with the same images; containers do not start by themselves.
        for engine in ("podman", "docker"):
            assert hosts("ssh", "h1", f"{engine} images -q small", fleet=name).stdout.strip()
            hosts("ssh", "h1", f"{engine} start box", fleet=name)
    finally:
        hosts("down", fleet=name)
    assert traces(name) == []


@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.3, 0.6, 1.2])
def test_an_interrupted_up_leaves_nothing(delay_s: float) -> None:
    name = "selftest-int"
    making = subprocess.Popen(
        [HOSTS, "up", "--fleet", name, "--servers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay_s)
    making.send_signal(signal.SIGINT)
    making.send_signal(signal.SIGTERM)
    said = making.communicate(timeout=60)[1]
    # Before Python has set itself up, the signal ends it.
    assert making.returncode in (130, 143, -signal.SIGINT, -signal.SIGTERM), said
    assert traces(name) == []


def test_down_removes_what_a_killed_up_left(fleet: str) -> None:
    name = "selftest-kill"
    making = subprocess.Popen(
        [HOSTS, "up", "--fleet", name, "--servers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(0.8)
    making.kill()
    making.wait()
    assert traces(name)
    hosts("down", fleet=name)
    assert traces(name) == []
    assert "is not there" in hosts("down", fleet=name).stdout


def test_prune_spares_what_runs(fleet: str) -> None:
    name = "selftest-off"
    hosts("up", fleet=name)
    hosts("kill", "h1", fleet=name)
    subprocess.run([HOSTS, "prune"], check=True, stdout=subprocess.DEVNULL)
    assert traces(name) == []
    on("h1", "true")


def test_down_ends_what_still_runs_in_the_fleets_network() -> None:
    name = "selftest-left"
    hosts("up", fleet=name)
    left = subprocess.Popen([HOSTS, "exec", "--fleet", name, "--", "sleep", "1000"])
    time.sleep(0.5)
    hosts("down", fleet=name)
    assert left.wait(10) == -signal.SIGKILL
    assert traces(name) == []
