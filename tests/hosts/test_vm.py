"""A host with a kernel of its own is reached, broken and removed by the same commands as the others."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import used
from used import HOSTS, links, traces

FLEET = "selftest-vm"
# On a machine that has other things to do.
LIMIT_S = 900

pytestmark = [pytest.mark.full, pytest.mark.timeout(3 * LIMIT_S)]


def hosts(command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return used.hosts(command, *arguments, fleet=FLEET, check=check, limit_s=LIMIT_S)


def on(command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return hosts("ssh", "h1", command, check=check)


def boot_id() -> str:
    return on("cat /proc/sys/kernel/random/boot_id", check=False).stdout


def wait_for(condition: Callable[[], bool]) -> None:
    used.wait_for(condition, LIMIT_S)


@pytest.fixture(scope="module", autouse=True)
def backend() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_TEST_BACKEND", "uml")
        yield


@pytest.fixture(scope="module")
def fleet(backend: None) -> Iterator[str]:
    hosts("down")
    before = links()
    hosts("up", "--memory", "1024")
    yield FLEET
    hosts("down")
    assert traces(FLEET) == []
    assert links() == before


def test_the_host_is_a_machine_with_control_groups_of_version_2(fleet: str) -> None:
    said = on(
        "systemctl is-system-running; hostname; stat -f -c %T /sys/fs/cgroup; head -1 /proc/meminfo"
    ).stdout.split()
    assert said[:3] == ["running", "h1", "cgroup2fs"]
    assert int(said[4]) < 1 << 20
    on("sudo -u ops sudo -n true; test -r /srv/models/tiny/config.json; podman info --format {{.Host.CgroupsVersion}}")


def test_it_is_not_taken_for_remains(fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_TEST_BACKEND")
    subprocess.run([HOSTS, "prune"], check=True, stdout=subprocess.DEVNULL)
    assert "is up" in hosts("up", check=False).stderr
    on("true")


def test_it_is_cut_off_and_comes_back(fleet: str) -> None:
    hosts("cut", "h1")
    try:
        assert hosts("exec", "--", "ping", "-c", "1", "-W", "5", "10.77.0.11", check=False).returncode != 0
    finally:
        hosts("join", "h1")
    wait_for(lambda: on("true", check=False).returncode == 0)


def test_without_power_it_starts_from_its_disk(fleet: str) -> None:
    on("touch /root/kept; sync")
    hosts("kill", "h1")
    assert on("true", check=False).returncode != 0
    hosts("start", "h1")
    on("test -e /root/kept")


@pytest.mark.skip(reason="a kernel of uml that starts itself anew still holds its tap: the host has no network then")
def test_it_reboots_itself(fleet: str) -> None:
    before = boot_id()
    on("systemctl reboot", check=False)
    wait_for(lambda: boot_id() not in ("", before))


@pytest.mark.parametrize("delay_s", [0.3, 1, 3])
def test_an_interrupted_up_leaves_nothing(delay_s: float) -> None:
    name = "selftest-vm-int"
    making = subprocess.Popen(
        [HOSTS, "up", "--fleet", name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay_s)
    making.send_signal(signal.SIGTERM)
    said = making.communicate(timeout=LIMIT_S)[1]
    assert making.returncode in (143, -signal.SIGTERM), said
    assert traces(name) == []
