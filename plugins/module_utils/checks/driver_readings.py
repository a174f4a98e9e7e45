# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read NVIDIA's driver: the module in the kernel, the library of the user's side, and what stands on the PCI bus."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass

from .reading import CouldNotTell, Output, read_first, read_text, run_command

NVRM_VERSION = "/proc/driver/nvidia/version"
MODULES = "/sys/module"
PCI_DEVICES = "/sys/bus/pci/devices"
LIBRARY = "libnvidia-ml.so.1"
NVIDIA = "0x10de"
# Class "bridge, other": an NVSwitch. 0x03 are display and 3D controllers: the cards themselves.
SWITCH_CLASS = "0x0680"
CARD_CLASS = "0x03"

_VERSION = r"\d{3,4}\.\d+(?:\.\d+)?"


@dataclass(frozen=True)
class KernelModule:
    """What the kernel runs. `version` is None when NVIDIA's module is not loaded."""

    version: str | None
    source: str = ""
    nouveau: bool = False


@dataclass(frozen=True)
class Library:
    """NVIDIA's management library as the loader finds it; `version` is None when it finds none."""

    version: str | None
    path: str = ""


@dataclass(frozen=True)
class PciDevice:
    """A device of NVIDIA on the PCI bus."""

    address: str
    device: str
    kind: str


def read_kernel_module() -> KernelModule:
    """The version of the loaded module, from both places that name it."""
    if not os.path.isdir(MODULES):
        raise CouldNotTell(f"{MODULES} is not there: is /sys mounted?")
    nouveau = os.path.isdir(f"{MODULES}/nouveau")
    text = read_first(NVRM_VERSION)
    if text is not None:
        return KernelModule(nvrm_version(text), NVRM_VERSION, nouveau)
    path = f"{MODULES}/nvidia/version"
    version = read_first(path)
    if version is None:
        if os.path.isdir(f"{MODULES}/nvidia"):
            raise CouldNotTell(f"the module nvidia is loaded, and neither {NVRM_VERSION} nor {path} is there")
        return KernelModule(None, f"neither {NVRM_VERSION} nor {MODULES}/nvidia is there", nouveau)
    if not re.fullmatch(_VERSION, version.strip()):
        raise CouldNotTell(f"{path} holds no version: {version[:80]!r}")
    return KernelModule(version.strip(), path, nouveau)


def nvrm_version(text: str) -> str:
    """The version in /proc/driver/nvidia/version, of the proprietary and of the open module."""
    match = re.search(rf"^NVRM version:.*?Kernel Module(?: for \S+)?\s+({_VERSION})\b", text, re.MULTILINE)
    if match is None:
        raise CouldNotTell(f"{NVRM_VERSION} holds no version: {text[:80]!r}")
    return match.group(1)


def read_library() -> Library:
    """The version of the library, by loading it as a server would. It answers this without a driver too."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        if "cannot open shared object file: No such file" in str(error):
            return Library(None)
        raise CouldNotTell(f"{LIBRARY} cannot be loaded: {error}") from None
    path = _mapped("libnvidia-ml.so")
    text = ctypes.create_string_buffer(96)
    failed = library.nvmlSystemGetNVMLVersion(text, ctypes.c_uint(len(text)))
    version = library_version(text.value.decode("ascii", "replace") if not failed else "", path)
    if version is None:
        raise CouldNotTell(f"{path or LIBRARY} does not say its version (NVML error {failed})")
    return Library(version, path)


def library_version(said: str, path: str) -> str | None:
    """The driver's version from NVML's own (the CUDA major in front of it), or from the name of the file."""
    match = re.fullmatch(rf"\d+\.({_VERSION})", said) or re.search(rf"\.so\.({_VERSION})$", path)
    return match.group(1) if match else None


def _mapped(name: str) -> str:
    """The file behind a library that this process has loaded."""
    for line in read_text("/proc/self/maps").splitlines():
        path = line.partition("/")[2]
        if name in path:
            return "/" + path
    return ""


def read_pci() -> tuple[PciDevice, ...]:
    """The devices of NVIDIA that the bus shows, with or without a driver."""
    try:
        addresses = sorted(os.listdir(PCI_DEVICES))
    except OSError as error:
        raise CouldNotTell(f"{PCI_DEVICES}: {error.strerror or error}") from None
    found = []
    for address in addresses:
        directory = f"{PCI_DEVICES}/{address}"
        if (read_first(f"{directory}/vendor") or "").strip() != NVIDIA:
            continue
        kind = read_text(f"{directory}/class").strip()
        found.append(PciDevice(address, (read_first(f"{directory}/device") or "").strip(), kind))
    return tuple(found)


def pci_cards(devices: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    return tuple(device for device in devices if device.kind.startswith(CARD_CLASS))


def pci_switches(devices: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    return tuple(device for device in devices if device.kind.startswith(SWITCH_CLASS))


def read_fabric_manager_version() -> str | None:
    """The version of the fabric manager's program; None when it is not installed."""
    for program in ("/usr/bin/nv-fabricmanager", "nv-fabricmanager"):
        try:
            return fabric_manager_version(run_command([program, "--version"], 1.5))
        except CouldNotTell as error:
            if not str(error).endswith("is not installed"):
                raise
    return None


def fabric_manager_version(output: Output) -> str:
    match = re.search(rf"\b({_VERSION})\b", output.stdout)
    if match is None:
        raise CouldNotTell(f"`nv-fabricmanager --version` (exit {output.code}) names no version: {output.said[:120]}")
    return match.group(1)
