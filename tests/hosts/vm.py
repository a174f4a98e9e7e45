"""Test hosts as QEMU virtual machines: a kernel of their own with control groups of version 2.

Each host is an overlay over one disk, a cable to the fleet's bridge, and a QEMU in the fleet's namespace. What makes a
host the one that it is reaches it with the RAM disk that it boots from. Without KVM a processor is translated, and
everything takes five to ten times as long.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

import backends
import network
from fleet import CONTAINERS, Fleet, FleetError, Host, cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

QEMU = "qemu-system-x86_64"
PROGRAMS = ("cpio", "ip", "nsenter", "ssh", "ssh-keygen")
PROCESSORS = 2
MEMORY_MIB = 3072
KERNEL_WORDS = "systemd.getty_auto=no"


class Vm(backends.Backend):
    suites = (CONTAINERS,)

    @property
    def patience(self) -> int:
        return 1 if _has_kvm() else 6

    programs: tuple[str, ...] = (QEMU, "qemu-img")

    def check(self, fleet: Fleet) -> None:
        if os.geteuid() != 0:
            raise FleetError("needs root, for network namespaces and taps: run it with sudo")
        missing = network.missing_programs([*self.programs, *PROGRAMS])
        missing += [str(path) for path in (made("disk.raw"), made("linux")) if not path.exists()]
        if missing:
            raise FleetError(
                f"{', '.join(missing)} is not there: run tests/lab/setup.sh vm first, it makes and installs it"
            )
        if not pathlib.Path("/dev/net/tun").exists():
            raise FleetError("/dev/net/tun is not there: virtual machines are cabled with taps")

    def up(self, fleet: Fleet, binds: Sequence[str], arguments: Sequence[str]) -> None:
        if binds:
            raise FleetError("a virtual machine shares no folder with this machine: leave --bind out, and copy files")
        network.make_network(fleet)
        for host in fleet.hosts:
            (fleet.disks / host.name).mkdir(parents=True)
            self.make_disk(fleet, host)
            _make_ram_disk(fleet, host)
            _make_cable(fleet, host)
            network.write(_script(fleet, host.name), f"exec {shlex.join([*self.machine(fleet, host), *arguments])}\n")
        for host in fleet.hosts:
            network.launch(fleet, host, _script(fleet, host.name))

    def make_disk(self, fleet: Fleet, host: Host) -> None:
        disk = _disk(fleet, host)
        network.run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(made("disk.raw")), str(disk))

    def machine(self, fleet: Fleet, host: Host) -> list[str]:
        """The command that is the host."""
        accelerator = ["-accel", "kvm", "-cpu", "host"] if _has_kvm() else ["-accel", "tcg,thread=multi", "-cpu", "max"]
        return [
            QEMU,
            *("-name", network.machine(fleet, host.name)),
            *("-machine", "q35"),
            *accelerator,
            *("-m", str(fleet.memory_mib or MEMORY_MIB)),
            *("-smp", str(PROCESSORS)),
            *("-nodefaults", "-nographic", "-serial", "stdio"),
            *("-kernel", str(made("vmlinuz"))),
            *("-initrd", str(ram_disk(fleet, host.name))),
            *("-append", f"console=ttyS0 quiet mitigations=off {KERNEL_WORDS}"),
            *("-drive", f"if=none,id=disk,file={_disk(fleet, host)},format=qcow2"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *("-netdev", f"tap,id=cable,ifname={network.port(fleet, host.name)},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=cable,romfile=,mac={hardware_address(host)}"),
            *("-device", "virtio-rng-pci"),
        ]

    def down(self, fleet: Fleet) -> None:
        network.kill_all(lambda: network.processes(fleet), wait_s=10)
        network.remove_disks(fleet.disks)
        network.remove_network(fleet)

    def kill(self, fleet: Fleet, host: str) -> None:
        fleet.host(host)
        network.kill_all(lambda: _processes(fleet, host), wait_s=5)

    def start(self, fleet: Fleet, host: str) -> None:
        if self.is_running(fleet, host):
            raise FleetError(f"host '{host}' of fleet '{fleet.name}' is on already")
        network.launch(fleet, fleet.host(host), _script(fleet, host))

    def is_running(self, fleet: Fleet, host: str) -> bool:
        fleet.host(host)
        return bool(_processes(fleet, host))

    def has_given_up(self, fleet: Fleet, host: str) -> bool:
        return not _processes(fleet, host)


def made(name: str) -> pathlib.Path:
    return cache_directory() / "vm" / name


def _has_kvm() -> bool:
    """Say whether KVM can run a stock kernel here; /dev/kvm alone does not say it (kvm_pvm has one, and cannot)."""
    modules = (pathlib.Path("/sys/module", name) for name in ("kvm_intel", "kvm_amd"))
    return os.access("/dev/kvm", os.W_OK) and any(module.is_dir() for module in modules)


def _disk(fleet: Fleet, host: Host) -> pathlib.Path:
    return fleet.disks / host.name / "disk.qcow2"


def hardware_address(host: Host) -> str:
    return f"52:54:00:77:00:{int(host.address.rpartition('.')[2]):02x}"


def ram_disk(fleet: Fleet, host: str) -> pathlib.Path:
    return fleet.disks / host / "initrd"


def _script(fleet: Fleet, host: str) -> pathlib.Path:
    return fleet.state / f"{host}.sh"


def _make_ram_disk(fleet: Fleet, host: Host) -> None:
    """Put the host's own files, in /host, behind those of the RAM disk that all hosts share: the kernel reads both."""
    with tempfile.TemporaryDirectory(dir=fleet.disks / host.name) as folder:
        root = pathlib.Path(folder, "host")
        network.write_host(fleet, host, root)
        for home, user in (("root", 0), ("home/ops", 1000)):
            os.chown(root / home, user, user)
            (root / home).chmod(0o700)
        names = "".join(f"{path.relative_to(folder)}\n" for path in sorted([root, *root.rglob("*")]))
        packed = subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"],
            input=names.encode(),
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
        )
        shutil.copyfile(made("initrd"), ram_disk(fleet, host.name))
        with ram_disk(fleet, host.name).open("ab") as file:
            file.write(gzip.compress(packed.stdout, compresslevel=1))


def _make_cable(fleet: Fleet, host: Host) -> None:
    port = network.port(fleet, host.name)
    network.ip(fleet, "tuntap", "add", "dev", port, "mode", "tap")
    network.ip(fleet, "link", "set", port, "master", network.BRIDGE, "up")


def _processes(fleet: Fleet, host: str) -> list[int]:
    """Those of the host: what the script became or is about to become, and what that has started."""
    names = {str(_script(fleet, host)), f"initrd={ram_disk(fleet, host)}", str(ram_disk(fleet, host))}
    running = network.processes(fleet)
    sessions = {_session(pid) for pid in running if names.intersection(network.command_line(pid))} - {0}
    return [pid for pid in running if _session(pid) in sessions]


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0
