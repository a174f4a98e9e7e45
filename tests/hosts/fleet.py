"""What a fleet of test hosts is, and the files by which others reach it. Knows nothing of how hosts are made."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess

NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,19}$")
STATE = pathlib.Path("/run/serving-sglang-lab")
# What runs on this machine in the fleet's network has this address, such as the registry of tests/lab/registry.
BRIDGE_ADDRESS = "10.77.0.1"
GATEWAY_ADDRESS = "10.77.0.9"
MOST_SERVERS = 40
# The releases of Debian that hosts may have. The first one runs SGLang natively, the second one has container engines.
SUITES = ("bookworm", "trixie")
CONTAINERS = "trixie"


class FleetError(Exception):
    """Something the user can act on; the text says what to do."""


def cache_directory() -> pathlib.Path:
    return pathlib.Path(os.environ.get("SGLANG_TEST_CACHE") or "/var/cache/serving-sglang")


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    address: str
    group: str


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Hosts that see each other and nothing else, under one name. Every other name derives from it."""

    name: str
    hosts: tuple[Host, ...] = ()
    suite: str = SUITES[0]
    backend: str = "nspawn"
    memory_mib: int = 0  # of each host, where hosts have memory of their own; 0 leaves it to the backend

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise FleetError(f"'{self.name}' cannot name a fleet: use up to 20 of a-z, 0-9 and '-', not '-' first")

    @property
    def state(self) -> pathlib.Path:
        """Small files, gone after a reboot of the machine."""
        return STATE / self.name

    @property
    def disks(self) -> pathlib.Path:
        """What the hosts write."""
        return cache_directory() / "fleets" / self.name

    @property
    def inventory(self) -> pathlib.Path:
        return self.state / "inventory.yml"

    @property
    def ssh_config(self) -> pathlib.Path:
        return self.state / "ssh_config"

    @property
    def key(self) -> pathlib.Path:
        return self.state / "id_ed25519"

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts) or "none"
        raise FleetError(f"fleet '{self.name}' has no host '{name}' (it has: {known})")

    def exists(self) -> bool:
        return self.state.exists() or self.disks.exists()


def planned(name: str, servers: int, gateway: bool, **more: str | int) -> Fleet:
    if not 0 <= servers <= MOST_SERVERS or servers + gateway == 0:
        raise FleetError(f"a fleet has 1 to {MOST_SERVERS} servers, or a gateway alone; asked for {servers} servers")
    hosts = [Host(f"h{n}", f"10.77.0.{10 + n}", "sglang_servers") for n in range(1, servers + 1)]
    if gateway:
        hosts.append(Host("gw", GATEWAY_ADDRESS, "sglang_gateways"))
    return Fleet(name, tuple(hosts), **more)


def known(name: str) -> Fleet:
    """The fleet as `up` recorded it; without hosts where nothing readable is recorded."""
    fleet = Fleet(name)
    try:
        recorded = json.loads((fleet.state / "fleet.json").read_text(encoding="utf-8"))
        return Fleet(**recorded | {"name": name, "hosts": tuple(Host(**host) for host in recorded["hosts"])})
    except (OSError, ValueError, KeyError, TypeError):
        return fleet


def all_names() -> list[str]:
    names = set()
    for directory in (STATE, cache_directory() / "fleets"):
        if directory.is_dir():
            names.update(entry.name for entry in directory.iterdir() if entry.is_dir())
    return sorted(names)


def write_files(fleet: Fleet, patience: int) -> None:
    """Key, SSH configuration, inventory and the record that `known` reads."""
    fleet.state.mkdir(parents=True)
    fleet.state.chmod(0o700)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"fleet {fleet.name}", "-f", str(fleet.key)], check=True
    )
    fleet.ssh_config.write_text(_ssh_config(fleet, patience), encoding="utf-8")
    fleet.inventory.write_text(_inventory(fleet), encoding="utf-8")
    (fleet.state / "fleet.json").write_text(json.dumps(dataclasses.asdict(fleet), indent=1) + "\n", encoding="utf-8")


def _ssh_config(fleet: Fleet, patience: int) -> str:
    parts = [f"Host {host.name} {host.address}\n  HostName {host.address}\n" for host in fleet.hosts]
    parts.append(
        "Host *\n"
        "  User root\n"
        f"  IdentityFile {fleet.key}\n"
        "  IdentitiesOnly yes\n"
        "  BatchMode yes\n"
        "  StrictHostKeyChecking no\n"
        "  UserKnownHostsFile /dev/null\n"
        "  LogLevel ERROR\n"
        f"  ConnectTimeout {10 * patience}\n"
        # A host that is cut off is noticed after nine seconds, not after TCP's quarter of an hour.
        f"  ServerAliveInterval {3 * patience}\n"
        "  ServerAliveCountMax 3\n"
    )
    return "".join(parts)


def _inventory(fleet: Fleet) -> str:
    lines = [
        f"# Reached from the fleet's own network only: tests/hosts/hosts exec --fleet {fleet.name} -- COMMAND",
        "all:",
        "  vars:",
        "    ansible_user: root",
        f"    ansible_ssh_private_key_file: {fleet.key}",
        f"    ansible_ssh_common_args: -F {fleet.ssh_config}",
        f"    ansible_ssh_args: -o ControlMaster=auto -o ControlPersist=60s -o ControlPath={fleet.state}/cm-%C",
        "    ansible_pipelining: true",
        "    ansible_python_interpreter: /usr/bin/python3",
        "  children:",
    ]
    for group in sorted({host.group for host in fleet.hosts}, reverse=True):
        lines += [f"    {group}:", "      hosts:"]
        for host in fleet.hosts:
            if host.group == group:
                lines += [f"        {host.name}:", f"          ansible_host: {host.address}"]
    return "\n".join(lines) + "\n"
