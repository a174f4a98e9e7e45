"""What every kind of test host has in common: the fleet's own network, its processes, and who each host is.

A fleet has a network namespace of its own with a bridge in it, so every fleet uses the same addresses and none sees
the machine's network. Everything that outlives a process derives from the fleet's name, so that `down` finds it
without a record.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NoReturn

from fleet import BRIDGE_ADDRESS, Fleet, FleetError, Host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BRIDGE = "br0"

# Names


def namespace(fleet: Fleet) -> pathlib.Path:
    return pathlib.Path("/run/netns", f"sglang-{fleet.name}")


def short(fleet: Fleet) -> str:
    """Four letters for the fleet: an interface's name, vb-<machine>, has room for 15."""
    return hashlib.sha256(fleet.name.encode()).hexdigest()[:4]


def machine(fleet: Fleet, host: str) -> str:
    return f"{short(fleet)}-{host}"


def port(fleet: Fleet, host: str) -> str:
    """The bridge's end of the host's cable."""
    return f"vb-{machine(fleet, host)}"


# Network


def missing_programs(programs: Sequence[str]) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise FleetError(f"`{shlex.join(command)}` ended with {done.returncode}: {done.stdout.strip()}")


def ip(fleet: Fleet, *arguments: str) -> None:
    run("ip", "-n", namespace(fleet).name, *arguments)


def make_network(fleet: Fleet) -> None:
    run("ip", "netns", "add", namespace(fleet).name)
    ip(fleet, "link", "set", "lo", "up")
    ip(fleet, "link", "add", BRIDGE, "type", "bridge")
    ip(fleet, "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    ip(fleet, "link", "set", BRIDGE, "up")


def remove_network(fleet: Fleet) -> None:
    if namespace(fleet).exists():
        run("ip", "netns", "delete", namespace(fleet).name)


def execute(fleet: Fleet, command: Sequence[str]) -> NoReturn:
    """Replace this process by the command, in the network of the fleet."""
    if not namespace(fleet).exists():
        raise FleetError(f"fleet '{fleet.name}' is not up")
    os.execvp("nsenter", ["nsenter", f"--net={namespace(fleet)}", "--", *command])


# Files


def write_host(fleet: Fleet, host: Host, root: pathlib.Path) -> None:
    """Write below `root` what makes the host the one that it is: name, address, keys."""
    write(root / "etc/hostname", f"{host.name}\n")
    names = "".join(f"{other.address} {other.name}\n" for other in fleet.hosts)
    write(root / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{names}")
    # The image may name the server that it was made with. Nobody answers there, and each look-up would take 10 s.
    write(root / "etc/resolv.conf", "# A test host asks no name server.\n")
    write(
        root / "etc/systemd/network/10-host0.network",
        f"[Match]\nName=host0\n[Network]\nAddress={host.address}/24\nGateway={BRIDGE_ADDRESS}\nLinkLocalAddressing=no\n",
    )
    host_key = root / "etc/ssh/ssh_host_ed25519_key"
    host_key.parent.mkdir(parents=True, exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(host_key))
    public_key = fleet.key.with_suffix(".pub").read_text(encoding="utf-8")
    for home, user in (("root", 0), ("home/ops", 1000)):
        keys = root / home / ".ssh/authorized_keys"
        write(keys, public_key)
        for path in (keys.parent, keys):
            os.chown(path, user, user)
            path.chmod(0o700 if path.is_dir() else 0o600)


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def remove_disks(disks: pathlib.Path) -> None:
    """Remove the hosts' files. What was just killed may still hold the last of its mounts for a moment."""
    deadline = time.monotonic() + 5
    while True:
        shutil.rmtree(disks, ignore_errors=True)
        if not disks.exists():
            return
        if time.monotonic() > deadline:
            raise FleetError(f"{disks} could not be removed: look at what still uses it and run down again")
        time.sleep(0.1)


# Processes


def launch(fleet: Fleet, host: Host, script: pathlib.Path) -> None:
    """Run the script in the fleet's network, apart from this process. What it prints is the host's console."""
    with (fleet.state / f"{host.name}.console").open("ab") as console:
        started = subprocess.Popen(
            ["nsenter", f"--net={namespace(fleet)}", "sh", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            cwd="/",
        )
    # Until it is in the namespace, a `down` would not find it, and it would go on to boot what was just removed.
    deadline = time.monotonic() + 10
    while started.poll() is None and network_of(started.pid) != identity(fleet):
        if time.monotonic() > deadline:
            started.kill()
            raise FleetError(f"host '{host.name}' did not enter the fleet's network within 10 s")
        time.sleep(0.002)


def command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return []


def processes(fleet: Fleet) -> list[int]:
    """Every process in the fleet's network, but for this one and those that it runs under."""
    if not namespace(fleet).exists():
        return []
    wanted = identity(fleet)
    spared = set(_own_line())
    return [pid for pid in _pids() if pid not in spared and network_of(pid) == wanted]


def identity(fleet: Fleet) -> tuple[int, int]:
    """The fleet's network as the kernel tells it apart from others."""
    status = namespace(fleet).stat()
    return status.st_dev, status.st_ino


def network_of(pid: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = os.stat(f"/proc/{pid}/ns/net")
        return status.st_dev, status.st_ino
    return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _own_line() -> Iterator[int]:
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def kill_all(find, wait_s: float) -> None:
    """Kill what `find` returns, again and again until it returns nothing or the time is up."""
    deadline = time.monotonic() + wait_s
    while pids := find():
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
