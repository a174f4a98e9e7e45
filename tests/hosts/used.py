"""What the tests of the hosts use: the command, and what it leaves on the machine."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import time
from collections.abc import Callable

HOSTS = pathlib.Path(__file__).parent / "hosts"
CACHE = pathlib.Path(os.environ.get("SGLANG_TEST_CACHE") or "/var/cache/serving-sglang")
STATE = pathlib.Path("/run/serving-sglang-lab")


def hosts(
    command: str, *arguments: str, fleet: str = "selftest", check: bool = True, limit_s: float = 180
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HOSTS, command, "--fleet", fleet, *arguments], capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def traces(fleet: str = "selftest") -> list[str]:
    """Everything on the machine that names the fleet: mounts, control groups, namespaces, processes, folders."""
    found = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [mount for mount in found if f"/fleets/{fleet}/" in mount or mount.endswith(f"/sglang-{fleet}")]
    found += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/serving-sglang-{fleet}")]
    places = [f"/run/netns/sglang-{fleet}", f"{CACHE}/fleets/{fleet}", f"{STATE}/{fleet}"]
    found += [place for place in places if pathlib.Path(place).exists()]
    short = hashlib.sha256(fleet.encode()).hexdigest()[:4]
    found += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/{short}-*")]
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"/fleets/{fleet}/" in command or f"{STATE}/{fleet}/" in command:
            found.append(f"{process}: {command}")
    return found


def links() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def wait_for(condition: Callable[[], bool], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)
