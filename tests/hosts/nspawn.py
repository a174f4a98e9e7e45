"""Test hosts as systemd-nspawn containers: a full systemd each, 25 MiB, up in two seconds.

Each host is an overlay over the shared root file system, a control group in every hierarchy,
and a supervisor, a shell in the fleet's namespace that boots the container again when it reboots itself.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import backends
import network
from fleet import CONTAINERS, Fleet, FleetError, Host, cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

REBOOT = 133  # how systemd-nspawn --keep-unit says that the container wants to boot again
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
        missing = network.missing_programs(PROGRAMS)
        if missing:
            raise FleetError(f"needs {', '.join(missing)}: tests/lab/setup.sh installs what test hosts need")
        if not _has_text(pathlib.Path("/etc/machine-id")):
            raise FleetError("/etc/machine-id is empty, and systemd-nspawn needs it: run systemd-machine-id-setup")
        if not _root_file_system(fleet).is_dir():
            raise FleetError(f"{_root_file_system(fleet)} is not there: run tests/lab/setup.sh first, it makes it")

    def up(self, fleet: Fleet, binds: Sequence[str], arguments: Sequence[str]) -> None:
        network.make_network(fleet)
        for host in fleet.hosts:
            _make_disk(fleet, host)
            _write_supervisor(fleet, host, binds, arguments)
        for host in fleet.hosts:
            _boot(fleet, host)

    def down(self, fleet: Fleet) -> None:
        network.kill_all(lambda: _inits(_cgroup(fleet)), wait_s=3)
        network.kill_all(lambda: [*_members(_cgroup(fleet)), *network.processes(fleet)], wait_s=10)
        for mount in reversed(_mounts_under(fleet.disks)):
            subprocess.run(["umount", "--lazy", mount], check=False)
        network.remove_disks(fleet.disks)
        _remove_cgroups(_cgroup(fleet))
        network.remove_network(fleet)
        for directory in ("propagate", "unix-export"):
            for left in pathlib.Path("/run/systemd/nspawn", directory).glob(f"{network.short(fleet)}-*"):
                shutil.rmtree(left, ignore_errors=True)

    def kill(self, fleet: Fleet, host: str) -> None:
        fleet.host(host)
        network.kill_all(lambda: _inits(_cgroup(fleet, host)), wait_s=5)
        network.kill_all(lambda: [*_members(_cgroup(fleet, host)), *_supervisor(fleet, host)], wait_s=5)

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


def _cgroup(fleet: Fleet, host: str = "") -> str:
    return f"serving-sglang-{fleet.name}" + (f"/{host}" if host else "")


# Disk


def _make_disk(fleet: Fleet, host: Host) -> None:
    disk = fleet.disks / host.name
    for part in ("upper", "work", "root", *(ENGINES if fleet.suite == CONTAINERS else ())):
        (disk / part).mkdir(parents=True)
    layers = f"lowerdir={_root_file_system(fleet)},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    network.run("mount", "-t", "overlay", "overlay", "-o", layers, str(disk / "root"))
    network.write_host(fleet, host, disk / "root")


def _mounts_under(directory: pathlib.Path) -> list[str]:
    points = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return [point for point in points if point == str(directory) or point.startswith(f"{directory}/")]


# Boot


def _write_supervisor(fleet: Fleet, host: Host, binds: Sequence[str], arguments: Sequence[str]) -> None:
    container = [
        "systemd-nspawn",
        "--quiet",
        f"--directory={fleet.disks / host.name / 'root'}",
        f"--machine={network.machine(fleet, host.name)}",
        f"--hostname={host.name}",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--private-users=identity",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        f"--network-bridge={network.BRIDGE}",
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
    network.write(_supervisor_script(fleet, host.name), outer)


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
    network.launch(fleet, host, _supervisor_script(fleet, host.name))


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
    return [pid for pid in network.processes(fleet) if script in network.command_line(pid)]
