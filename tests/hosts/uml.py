"""Test hosts as kernels that run as a program (User-Mode Linux): control groups of version 2 without KVM, and quick.

They are virtual machines of another make, from the same disk and on the same network. Programs on them run on the
processor itself, only their calls of the kernel take a detour; a host has one processor.
"""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING

import network
import vm

if TYPE_CHECKING:
    from fleet import Fleet, Host


# Each page that a program on such a host uses is a mapping of its process here. The kernel's own default (65,530) ends
# a program at 256 MiB; this is what Fedora 39 and Ubuntu 24.04 set.
MAPPINGS = 1_048_576
MAPPINGS_FILE = pathlib.Path("/proc/sys/vm/max_map_count")


class Uml(vm.Vm):
    programs = ()
    patience = 4

    def check(self, fleet: Fleet) -> None:
        super().check(fleet)
        allowed = int(MAPPINGS_FILE.read_text())
        if allowed < MAPPINGS:
            print(f"vm.max_map_count of this machine: {allowed} -> {MAPPINGS}, until its next boot", file=sys.stderr)
            MAPPINGS_FILE.write_text(str(MAPPINGS))

    def make_disk(self, fleet: Fleet, host: Host) -> None:
        """Nothing: the kernel makes the file that it writes to."""

    def machine(self, fleet: Fleet, host: Host) -> list[str]:
        folder = fleet.disks / host.name
        cable = f"transport=tap,ifname={network.port(fleet, host.name)},depth=64,gro=1,mac={vm.hardware_address(host)}"
        return [
            str(vm.made("linux")),
            f"mem={fleet.memory_mib or vm.MEMORY_MIB}M",
            f"ubd0={folder / 'disk'},{vm.made('disk.raw')}",
            f"initrd={vm.ram_disk(fleet, host.name)}",
            f"vec0:{cable}",
            f"uml_dir={folder}/",
            f"umid={host.name}",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            "quiet",
            *vm.KERNEL_WORDS.split(),
        ]
