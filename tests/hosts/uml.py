"""Test hosts as kernels that run as a program (User-Mode Linux): control groups of version 2 without KVM, and quick.

They are virtual machines of another make, from the same disk and on the same network. Programs on them run on the
processor itself, only their calls of the kernel take a detour; a host has one processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import network
import vm

if TYPE_CHECKING:
    from fleet import Fleet, Host


class Uml(vm.Vm):
    programs = ()
    patience = 4

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
