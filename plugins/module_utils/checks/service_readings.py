# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the services of a host: units of systemd and their limits, memory guards, automatic upgrades, the clock."""

from __future__ import annotations

import ctypes
import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .reading import CouldNotTell, Output, read_first, run_command

OS_RELEASE = "/etc/os-release"
SYSTEMD = "/run/systemd/system"
EARLYOOM_DEFAULTS = "/etc/default/earlyoom"
DNF_AUTOMATIC = ("/etc/dnf/automatic.conf", "/etc/dnf/dnf5-plugins/automatic.conf")
DNF_CONF = "/etc/dnf/dnf.conf"
DNF_LOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
DNF_TIMERS = (
    "dnf-automatic.timer",
    "dnf-automatic-install.timer",
    "dnf5-automatic.timer",
)
APT_TIMERS = ("apt-daily-upgrade.timer",)
CLOCK_SERVICES = ("chrony.service", "chronyd.service", "ntp.service", "ntpd.service", "systemd-timesyncd.service")
GUARD_SERVICES = ("earlyoom.service", "nohang.service", "nohang-desktop.service", "systemd-oomd.service")
FABRIC_MANAGER = "nvidia-fabricmanager.service"

_PROPERTIES = (
    "Id,LoadState,ActiveState,UnitFileState,LimitNOFILE,LimitNOFILESoft,LimitMEMLOCK,LimitMEMLOCKSoft,"
    "ManagedOOMSwap,ManagedOOMMemoryPressure,ManagedOOMPreference"
)
# What systemd takes for "synchronised": the kernel's own largest error below 16 s.
_LARGEST_ERROR_US = 16_000_000
NVIDIA_PACKAGES = ("*nvidia*", "libcuda1", "cuda-drivers*")
# Of the packages named so these are no part of the driver: replacing them breaks no running card.
_NOT_THE_DRIVER = ("*container*", "nvidia-cuda-*", "nvidia-cudnn*", "nvidia-nsight*", "python3-*", "*-doc")


@dataclass(frozen=True)
class Distribution:
    """`family` is debian, rhel, or the id itself where it is neither."""

    family: str
    name: str = ""


@dataclass(frozen=True)
class Service:
    """A unit as `systemctl show` prints it."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.values.get("LoadState") == "loaded"

    @property
    def active(self) -> bool:
        return self.values.get("ActiveState") in ("active", "reloading", "activating")

    def limit(self, name: str) -> int | None:
        """The soft limit, which is what a server meets; None is no limit. Raises when systemd does not say."""
        text = self.values.get(f"{name}Soft") or self.values.get(name) or ""
        return limit_value(text, f"{name} of {self.name}")


@dataclass(frozen=True)
class Upgrades:
    """Automatic upgrades: whether they are on, what they leave alone, and the driver's packages they could meet."""

    tool: str
    enabled: bool
    evidence: str = ""
    packages: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def exposed(self) -> tuple[str, ...]:
        """The packages of the driver that neither a hold nor an exclusion keeps."""
        return tuple(name for name in self.packages if name not in self.held and not self._blocks(name))

    def _blocks(self, package: str) -> bool:
        for pattern in self.blocked:
            if self.tool == "dnf-automatic":
                # versionlock writes name-epoch:version; an exclusion is a pattern of names.
                if fnmatch.fnmatch(package, pattern) or pattern.startswith(f"{package}-"):
                    return True
                continue
            try:
                if re.match(pattern, package):
                    return True
            except re.error:
                continue
        return False


@dataclass(frozen=True)
class Clock:
    """Whether the kernel's clock is disciplined, and by what it was read."""

    synchronised: bool
    source: str
    error_s: float | None = None


def limit_value(text: str, what: str) -> int | None:
    if text in ("infinity", "18446744073709551615"):
        return None
    if not text.isdigit():
        raise CouldNotTell(f"systemd says {text!r} for {what}")
    return int(text)


def read_distribution() -> Distribution:
    text = read_first(OS_RELEASE)
    if text is None:
        raise CouldNotTell(f"{OS_RELEASE} is not there")
    values: dict[str, str] = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if not values.get("ID"):
        raise CouldNotTell(f"{OS_RELEASE} names no ID")
    names = [values["ID"], *values.get("ID_LIKE", "").split()]
    for family, members in (("debian", ("debian", "ubuntu")), ("rhel", ("rhel", "fedora", "centos"))):
        if any(name in members for name in names):
            return Distribution(family, values.get("PRETTY_NAME", values["ID"]))
    return Distribution(values["ID"], values.get("PRETTY_NAME", values["ID"]))


def _systemctl(words: Sequence[str]) -> Output:
    if not os.path.isdir(SYSTEMD):
        raise CouldNotTell(f"systemd does not run this host: {SYSTEMD} is not there")
    output = run_command(["systemctl", *words], 2.0, {"SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""})
    if output.code != 0:
        raise CouldNotTell(f"systemctl ended with {output.code}: {output.said}")
    return output


def read_services(names: Sequence[str]) -> dict[str, Service]:
    """Units by the names that were asked for, in one call."""
    return parse_services(_systemctl(["show", f"--property={_PROPERTIES}", "--", *names]).stdout, names)


def parse_services(text: str, names: Sequence[str]) -> dict[str, Service]:
    """The blocks of `systemctl show` stand in the order of the names: an alias has another Id."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip("\n")) if block.strip()]
    if len(blocks) != len(names):
        raise CouldNotTell(f"systemctl show answered for {len(blocks)} of {len(names)} units")
    found: dict[str, Service] = {}
    for name, block in zip(names, blocks):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        found[name] = Service(name, values)
    return found


def read_default_limits() -> Service:
    """What systemd gives a service that names no limits."""
    names = "DefaultLimitNOFILE,DefaultLimitNOFILESoft,DefaultLimitMEMLOCK,DefaultLimitMEMLOCKSoft"
    text = _systemctl(["show", f"--property={names}"]).stdout
    values = {
        name[len("Default") :]: value
        for name, equals, value in (line.partition("=") for line in text.splitlines())
        if equals and name.startswith("Default")
    }
    if not values:
        raise CouldNotTell("systemctl show names no default limits")
    return Service("systemd's defaults", values)


def read_earlyoom() -> str:
    """The arguments of earlyoom; empty when its file names none."""
    text = read_first(EARLYOOM_DEFAULTS) or ""
    found = re.findall(r"^\s*EARLYOOM_ARGS=(.*)$", text, re.MULTILINE)
    said = found[-1].strip() if found else ""
    # Only the quotes around the whole: those of a pattern belong to it.
    return said[1:-1] if len(said) > 1 and said[0] == said[-1] and said[0] in "\"'" else said


def read_upgrades(family: str) -> Upgrades:
    if family == "debian":
        return _read_unattended_upgrades()
    if family == "rhel":
        return _read_dnf_automatic()
    raise CouldNotTell(f"how {family or 'this distribution'} upgrades by itself is not known here")


def _read_unattended_upgrades() -> Upgrades:
    if not os.path.exists("/usr/bin/unattended-upgrade"):
        return Upgrades("unattended-upgrades", False, "/usr/bin/unattended-upgrade is not there")
    output = run_command(["apt-config", "dump"], 1.5)
    if output.code != 0:
        raise CouldNotTell(f"apt-config dump ended with {output.code}: {output.said}")
    listed = run_command(["dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Package}\n", *NVIDIA_PACKAGES], 1.8)
    if listed.code not in (0, 1):  # 1: none of the patterns met a package
        raise CouldNotTell(f"dpkg-query ended with {listed.code}: {listed.said}")
    return unattended_upgrades(output.stdout, listed.stdout)


def unattended_upgrades(apt_config: str, dpkg: str) -> Upgrades:
    """From what `apt-config dump` and `dpkg-query` printed."""
    values = re.findall(r'^([A-Za-z0-9:_/.-]+) "(.*)";$', apt_config, re.MULTILINE)
    if not values:
        raise CouldNotTell("apt-config dump printed nothing that can be read")
    every = next((value for name, value in values if name == "APT::Periodic::Unattended-Upgrade"), "0")
    switched_off = any(name == "APT::Periodic::Enable" and value == "0" for name, value in values)
    packages: list[str] = []
    held: list[str] = []
    for line in dpkg.splitlines():
        status, _space, name = line.strip().rpartition(" ")
        # The second letter is the state: i is installed. The first is what is wanted: h is a hold.
        if len(status.strip()) < 2 or status.strip()[1] != "i" or not of_the_driver(name):
            continue
        packages.append(name)
        if status.strip()[0] == "h":
            held.append(name)
    return Upgrades(
        tool="unattended-upgrades",
        enabled=every not in ("", "0") and not switched_off,
        evidence=f'APT::Periodic::Unattended-Upgrade "{every}"',
        packages=tuple(sorted(packages)),
        held=tuple(sorted(held)),
        blocked=tuple(value for name, value in values if name == "Unattended-Upgrade::Package-Blacklist::" and value),
    )


def of_the_driver(package: str) -> bool:
    return not any(fnmatch.fnmatch(package, pattern) for pattern in _NOT_THE_DRIVER)


def _read_dnf_automatic() -> Upgrades:
    services = read_services(DNF_TIMERS)
    timers = [name for name, service in services.items() if service.active]
    if not timers:
        return Upgrades("dnf-automatic", False, f"none of {', '.join(DNF_TIMERS)} is active")
    conf = next((text for text in map(read_first, DNF_AUTOMATIC) if text is not None), "")
    listed = run_command(["rpm", "-qa", "--qf", "%{NAME}\n", "*nvidia*", "cuda-drivers*"], 1.8)
    if listed.code != 0:
        raise CouldNotTell(f"rpm -qa ended with {listed.code}: {listed.said}")
    locks = "\n".join(read_first(path) or "" for path in DNF_LOCKS)
    return dnf_automatic(timers, conf, listed.stdout, read_first(DNF_CONF) or "", locks)


def dnf_automatic(timers: Sequence[str], conf: str, rpm: str, dnf_conf: str, locks: str) -> Upgrades:
    """From its timers, its configuration, the packages, and what dnf excludes or locks."""
    applies = re.search(r"^\s*apply_updates\s*=\s*(yes|true|1)\s*$", conf, re.MULTILINE | re.IGNORECASE) is not None
    applies = applies or any("install" in timer for timer in timers)
    excluded = re.findall(r"^\s*(?:excludepkgs|exclude)\s*=\s*(.*)$", f"{dnf_conf}\n{conf}", re.MULTILINE)
    blocked = [word for line in excluded for word in re.split(r"[,\s]+", line) if word]
    blocked += [line.strip() for line in locks.splitlines() if line.strip() and not line.startswith(("#", "!"))]
    return Upgrades(
        tool="dnf-automatic",
        enabled=applies,
        evidence=f"{', '.join(timers)} active, apply_updates = {'yes' if applies else 'no'}",
        packages=tuple(sorted({name for name in rpm.split() if of_the_driver(name)})),
        blocked=tuple(blocked),
    )


def read_clock() -> Clock:
    """The kernel's own word; timedatectl where the kernel does not give it."""
    try:
        return _adjtimex()
    except CouldNotTell as first:
        output = run_command(["timedatectl", "show", "-p", "NTPSynchronized", "--value"], 1.8)
        word = output.stdout.strip()
        if output.code != 0 or word not in ("yes", "no"):
            raise CouldNotTell(f"{first}; timedatectl says {output.said[:120]!r}") from None
        return Clock(word == "yes", "timedatectl show -p NTPSynchronized")


def _adjtimex() -> Clock:
    # struct timex with modes 0, which only reads: maxerror is the fourth word.
    words = (ctypes.c_long * 64)()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(words)
    except (AttributeError, OSError) as error:
        raise CouldNotTell(f"adjtimex: {error}") from None
    if state < 0:
        raise CouldNotTell(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    error_us = int(words[3])
    return Clock(error_us < _LARGEST_ERROR_US, "adjtimex(2)", error_us / 1e6)
