"""Test hosts as systemd-nspawn containers: a full systemd each, 25 MiB, up in two seconds.

A fleet has a network namespace of its own with a bridge in it, so every fleet uses the same addresses and none sees
the machine's network. Each host is an overlay over the shared root file system, a control group in every hierarchy,
and a supervisor, a shell in the fleet's namespace that boots the container again when it reboots itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NoReturn

import backends
from fleet import BRIDGE_ADDRESS, CONTAINERS, Fleet, FleetError, Host, cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REBOOT = 133  # how systemd-nspawn --keep-unit says that the container wants to boot again
BRIDGE = "br0"
# Container engines keep their images in overlays, which cannot lie on the overlay that a host's disk is: each engine's
# folder is one of the machine's own file system.
ENGINES = {"containers": "/var/lib/containers", "docker": "/var/lib/docker", "containerd": "/var/lib/containerd"}
# What they call that systemd-nspawn forbids.
ENGINE_CALLS = "--system-call-filter=@keyring @pkey bpf"
PROGRAMS = ("systemd-nspawn", "ip", "nsenter", "mount", "ssh", "ssh-keygen")


class Nspawn(backends.Backend):
    def check(self, fleet: Fleet) -> None:
        if os.geteuid() != 0:
            raise FleetError("needs root, for mounts and network namespaces: run it with sudo")
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise FleetError(f"needs {', '.join(missing)}: tests/lab/setup.sh installs what test hosts need")
        if not _has_text(pathlib.Path("/etc/machine-id")):
            raise FleetError("/etc/machine-id is empty, and systemd-nspawn needs it: run systemd-machine-id-setup")
        if not _root_file_system(fleet).is_dir():
            raise FleetError(f"{_root_file_system(fleet)} is not there: run tests/lab/setup.sh first, it makes it")

    def up(self, fleet: Fleet, binds: Sequence[str], arguments: Sequence[str]) -> None:
        _make_network(fleet)
        for host in fleet.hosts:
            _make_disk(fleet, host)
            _write_supervisor(fleet, host, binds, arguments)
        for host in fleet.hosts:
            _boot(fleet, host)

    def down(self, fleet: Fleet) -> None:
        _kill_all(lambda: _inits(_cgroup(fleet)), wait_s=3)
        _kill_all(lambda: [*_members(_cgroup(fleet)), *_in_namespace(fleet)], wait_s=10)
        for mount in reversed(_mounts_under(fleet.disks)):
            subprocess.run(["umount", "--lazy", mount], check=False)
        _remove_disks(fleet.disks)
        _remove_cgroups(_cgroup(fleet))
        if _namespace(fleet).exists():
            _run("ip", "netns", "delete", _namespace(fleet).name)
        for directory in ("propagate", "unix-export"):
            for left in pathlib.Path("/run/systemd/nspawn", directory).glob(f"{_short(fleet)}-*"):
                shutil.rmtree(left, ignore_errors=True)

    def execute(self, fleet: Fleet, command: Sequence[str]) -> NoReturn:
        if not _namespace(fleet).exists():
            raise FleetError(f"fleet '{fleet.name}' is not up")
        os.execvp("nsenter", ["nsenter", f"--net={_namespace(fleet)}", "--", *command])

    def cut(self, fleet: Fleet, host: str) -> None:
        self._set_link(fleet, host, "down")

    def join(self, fleet: Fleet, host: str) -> None:
        self._set_link(fleet, host, "up")

    def _set_link(self, fleet: Fleet, host: str, state: str) -> None:
        if not self.is_running(fleet, host):
            raise FleetError(f"host '{host}' of fleet '{fleet.name}' is off")
        _ip(fleet, "link", "set", f"vb-{_machine(fleet, host)}", state)

    def kill(self, fleet: Fleet, host: str) -> None:
        fleet.host(host)
        _kill_all(lambda: _inits(_cgroup(fleet, host)), wait_s=5)
        _kill_all(lambda: [*_members(_cgroup(fleet, host)), *_supervisor(fleet, host)], wait_s=5)

    def start(self, fleet: Fleet, host: str) -> None:
        if self.is_running(fleet, host):
            raise FleetError(f"host '{host}' of fleet '{fleet.name}' is on already")
        _boot(fleet, fleet.host(host))

    def is_running(self, fleet: Fleet, host: str) -> bool:
        fleet.host(host)
        return bool(_inits(_cgroup(fleet, host)))

    def has_given_up(self, fleet: Fleet, host: str) -> bool:
        return not _supervisor(fleet, host)


def _root_file_system(fleet: Fleet) -> pathlib.Path:
    return cache_directory() / f"rootfs-{fleet.suite}"


def _has_text(path: pathlib.Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


# Names. Everything that outlives a process derives from the fleet's name, so that `down` finds it without a record.


def _namespace(fleet: Fleet) -> pathlib.Path:
    return pathlib.Path("/run/netns", f"sglang-{fleet.name}")


def _cgroup(fleet: Fleet, host: str = "") -> str:
    return f"serving-sglang-{fleet.name}" + (f"/{host}" if host else "")


def _short(fleet: Fleet) -> str:
    """Four letters for the fleet: an interface's name, vb-<machine>, has room for 15."""
    return hashlib.sha256(fleet.name.encode()).hexdigest()[:4]


def _machine(fleet: Fleet, host: str) -> str:
    return f"{_short(fleet)}-{host}"


# Network


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise FleetError(f"`{shlex.join(command)}` ended with {done.returncode}: {done.stdout.strip()}")


def _ip(fleet: Fleet, *arguments: str) -> None:
    _run("ip", "-n", _namespace(fleet).name, *arguments)


def _make_network(fleet: Fleet) -> None:
    _run("ip", "netns", "add", _namespace(fleet).name)
    _ip(fleet, "link", "set", "lo", "up")
    _ip(fleet, "link", "add", BRIDGE, "type", "bridge")
    _ip(fleet, "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    _ip(fleet, "link", "set", BRIDGE, "up")


# Disk


def _make_disk(fleet: Fleet, host: Host) -> None:
    disk = fleet.disks / host.name
    for part in ("upper", "work", "root", *(ENGINES if fleet.suite == CONTAINERS else ())):
        (disk / part).mkdir(parents=True)
    layers = f"lowerdir={_root_file_system(fleet)},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    _run("mount", "-t", "overlay", "overlay", "-o", layers, str(disk / "root"))
    root = disk / "root"
    _write(root / "etc/hostname", f"{host.name}\n")
    names = "".join(f"{other.address} {other.name}\n" for other in fleet.hosts)
    _write(root / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{names}")
    # The image may name the server that it was made with. Nobody answers there, and each look-up would take 10 s.
    _write(root / "etc/resolv.conf", "# A test host asks no name server.\n")
    _write(
        root / "etc/systemd/network/10-host0.network",
        f"[Match]\nName=host0\n[Network]\nAddress={host.address}/24\nGateway={BRIDGE_ADDRESS}\nLinkLocalAddressing=no\n",
    )
    _run(
        "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(root / "etc/ssh/ssh_host_ed25519_key")
    )
    public_key = fleet.key.with_suffix(".pub").read_text(encoding="utf-8")
    for home, user in (("root", 0), ("home/ops", 1000)):
        keys = root / home / ".ssh/authorized_keys"
        _write(keys, public_key)
        for path in (keys.parent, keys):
            os.chown(path, user, user)
            path.chmod(0o700 if path.is_dir() else 0o600)


def _write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _remove_disks(disks: pathlib.Path) -> None:
    """Remove the hosts' files. What was just killed may still hold the last of its mounts for a moment."""
    deadline = time.monotonic() + 5
    while True:
        shutil.rmtree(disks, ignore_errors=True)
        if not disks.exists():
            return
        if time.monotonic() > deadline:
            raise FleetError(f"{disks} could not be removed: look at what still uses it and run down again")
        time.sleep(0.1)


def _mounts_under(directory: pathlib.Path) -> list[str]:
    points = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return [point for point in points if point == str(directory) or point.startswith(f"{directory}/")]


# Boot


def _write_supervisor(fleet: Fleet, host: Host, binds: Sequence[str], arguments: Sequence[str]) -> None:
    container = [
        "systemd-nspawn",
        "--quiet",
        f"--directory={fleet.disks / host.name / 'root'}",
        f"--machine={_machine(fleet, host.name)}",
        f"--hostname={host.name}",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--private-users=identity",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        f"--network-bridge={BRIDGE}",
        *(f"--bind-ro={source}:{target}" for source, target in _shared(fleet).items() if source.is_dir()),
        *_for_engines(fleet, host),
        *(f"--bind={bind}" for bind in binds),
        *arguments,
    ]
    # The inner shell enters the control groups and becomes systemd-nspawn; the outer one stays outside them, because a
    # group of version 2 that hands out controllers must have no process of its own.
    enter = [
        f"echo $$ > {shlex.quote(str(directory / 'cgroup.procs'))}" for directory in _cgroup_directories(fleet, host)
    ]
    inner = "\n".join([*enter, f"exec {shlex.join(container)}"])
    outer = f"while :; do sh -c {shlex.quote(inner)}; [ $? = {REBOOT} ] || exit; done\n"
    _write(_supervisor_script(fleet, host.name), outer)


def _shared(fleet: Fleet) -> dict[pathlib.Path, str]:
    """What every host sees of the machine, to read only."""
    cache = cache_directory()
    shared = {cache / "models": "/srv/models", cache / "wheels": "/srv/wheels"}
    if fleet.suite != CONTAINERS:  # the environments are made for the Python of the other release
        shared |= {environment: f"/opt/sglang/{environment.name}" for environment in (cache / "sglang").glob("*")}
    return shared


def _for_engines(fleet: Fleet, host: Host) -> list[str]:
    if fleet.suite != CONTAINERS:
        return []
    return [ENGINE_CALLS, *(f"--bind={fleet.disks / host.name / part}:{path}" for part, path in ENGINES.items())]


def _supervisor_script(fleet: Fleet, host: str) -> pathlib.Path:
    return fleet.state / f"{host}.sh"


def _boot(fleet: Fleet, host: Host) -> None:
    pathlib.Path("/run/systemd/nspawn/propagate").mkdir(parents=True, exist_ok=True)
    for directory in _cgroup_directories(fleet, host):
        _make_cgroup(directory)
    with (fleet.state / f"{host.name}.console").open("ab") as console:
        supervisor = subprocess.Popen(
            ["nsenter", f"--net={_namespace(fleet)}", "sh", str(_supervisor_script(fleet, host.name))],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            cwd="/",
        )
    # Until it is in the namespace, a `down` would not find it, and it would go on to boot what was just removed.
    deadline = time.monotonic() + 10
    while supervisor.poll() is None and _network_of(supervisor.pid) != _identity(fleet):
        if time.monotonic() > deadline:
            supervisor.kill()
            raise FleetError(f"the supervisor of host '{host.name}' did not enter the fleet's network within 10 s")
        time.sleep(0.002)


# Control groups


def _hierarchies() -> list[pathlib.Path]:
    """Where control groups are mounted: one place for version 2, one per controller for version 1."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, after = line.split(" - ", 1)
        if after.split()[0] in ("cgroup", "cgroup2"):
            found.append(pathlib.Path(before.split()[4]))
    return found


def _cgroup_directories(fleet: Fleet, host: Host) -> list[pathlib.Path]:
    return [hierarchy / _cgroup(fleet, host.name) for hierarchy in _hierarchies()]


def _make_cgroup(directory: pathlib.Path) -> None:
    """Make the group and its parent ready for processes and for groups below them."""
    directory.mkdir(parents=True, exist_ok=True)
    top = directory.parent.parent
    for group in (directory.parent, directory):
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group / name).exists() and (top / name).exists() and not (group / name).read_text().strip():
                (group / name).write_text((top / name).read_text())
    for group in (top, directory.parent):
        control = group / "cgroup.subtree_control"
        if control.exists():
            for controller in (group / "cgroup.controllers").read_text().split():
                with contextlib.suppress(OSError):
                    control.write_text(f"+{controller}")


def _members(cgroup: str) -> list[int]:
    found: set[int] = set()
    for hierarchy in _hierarchies():
        for procs in (hierarchy / cgroup).glob("**/cgroup.procs"):
            with contextlib.suppress(OSError):
                found.update(int(word) for word in procs.read_text().split())
    return sorted(found - {0})


def _inits(cgroup: str) -> list[int]:
    """The first processes of the containers in the group: they are 1 in a process namespace of their own."""
    return [pid for pid in _members(cgroup) if _is_container_init(pid)]


def _is_container_init(pid: int) -> bool:
    with contextlib.suppress(OSError):
        match = re.search(r"^NSpid:\t(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        own = len(re.search(r"^NSpid:\t(.*)$", pathlib.Path("/proc/self/status").read_text(), re.MULTILINE)[1].split())
        return bool(match) and len(match[1].split()) == own + 1 and match[1].split()[-1] == "1"
    return False


def _remove_cgroups(cgroup: str) -> None:
    deadline = time.monotonic() + 5
    for top in (hierarchy / cgroup for hierarchy in _hierarchies()):
        while top.is_dir():
            for directory in sorted((path for path in top.glob("**/") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    directory.rmdir()
            if top.is_dir():
                if time.monotonic() > deadline:
                    raise FleetError(f"control group {top} could not be removed: processes are left in it")
                time.sleep(0.1)


# Processes


def _supervisor(fleet: Fleet, host: str) -> list[int]:
    script = str(_supervisor_script(fleet, host))
    return [pid for pid in _in_namespace(fleet) if script in _command_line(pid)]


def _command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return []


def _in_namespace(fleet: Fleet) -> list[int]:
    """Every process in the fleet's network, but for this one and those that it runs under."""
    if not _namespace(fleet).exists():
        return []
    wanted = _identity(fleet)
    spared = set(_own_line())
    return [pid for pid in _pids() if pid not in spared and _network_of(pid) == wanted]


def _identity(fleet: Fleet) -> tuple[int, int]:
    """The fleet's network as the kernel tells it apart from others."""
    status = _namespace(fleet).stat()
    return status.st_dev, status.st_ino


def _network_of(pid: int) -> tuple[int, int] | None:
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


def _kill_all(find, wait_s: float) -> None:
    """Kill what `find` returns, again and again until it returns nothing or the time is up."""
    deadline = time.monotonic() + wait_s
    while pids := find():
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
