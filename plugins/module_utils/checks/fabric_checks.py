# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the fabric of a machine with NVSwitches is set up: without it no CUDA program starts there."""

from __future__ import annotations

from collections.abc import Iterable

from ..finding import ERROR, Finding
from ..pinned_packages import numbers
from .check import Kind, check
from .driver_checks import by_family, loaded_version, not_wanted, wants_cuda
from .driver_readings import pci_cards, pci_switches
from .host_readings import HostReadings
from .reading import CouldNotTell, Unknown, known
from .service_readings import FABRIC_MANAGER

FABRIC_MANAGER_DOWN = Kind(
    "driver.fabric_manager",
    ERROR,
    "the fabric manager does not run on a machine with NVSwitches",
    "Until it has set up the fabric every CUDA program ends with error 802, system not yet initialized.",
    f"systemctl enable --now {FABRIC_MANAGER}",
    "NVIDIA's fabric manager user guide; aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33",
)
FABRIC_MANAGER_VERSION = Kind(
    "driver.fabric_manager_version",
    ERROR,
    "the fabric manager is of another version than the driver",
    "It refuses to start with a driver of another version; one that runs still does not survive its next restart.",
    "install the fabric manager of exactly the driver's version",
    "NVIDIA's fabric manager user guide",
)


def needs_fabric_manager(readings: HostReadings) -> str:
    """Why this machine needs the fabric manager; empty when it does not. Raises where that is not known."""
    pci = readings.pci
    if not isinstance(pci, Unknown):
        switches = pci_switches(pci)
        if switches:
            return f"{len(switches)} NVSwitches on the PCI bus ({', '.join(each.address for each in switches)})"
        if len(pci_cards(pci)) <= 1:
            # A single card, also one that a virtual machine was given out of such a machine, sets up nothing.
            return ""
    health = readings.health
    if not isinstance(health, Unknown):
        # Newer switches are no NVIDIA devices on the bus. The card itself says that it belongs to a fabric.
        states = {str(card.fabric_state) for card in health.cards if isinstance(card.fabric_state, str)}
        if states:
            return f"the cards say that they belong to an NVLink fabric (state: {', '.join(sorted(states))})"
        if all(card.fabric_state is None for card in health.cards) and not isinstance(pci, Unknown):
            return ""
    sxm = _sxm_names(readings)
    if isinstance(pci, Unknown) or sxm:
        reason = pci.reason if isinstance(pci, Unknown) else f"several {', '.join(sxm)}; no NVSwitch on the PCI bus"
        raise CouldNotTell(f"whether the cards are joined by NVSwitches is not known: {reason}")
    return ""


def _sxm_names(readings: HostReadings) -> list[str]:
    gpus = readings.gpus
    cards = () if isinstance(gpus, Unknown) else gpus.cards
    names = [card.name for card in cards if "SXM" in card.name or card.name in ("NVIDIA H200", "NVIDIA B200")]
    return sorted(set(names)) if len(names) > 1 else []


@check(FABRIC_MANAGER_DOWN, FABRIC_MANAGER_VERSION)
def fabric_manager(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield FABRIC_MANAGER_DOWN.fine("no driver is needed", not_wanted(readings))
        return
    why = needs_fabric_manager(readings)
    if not why:
        yield FABRIC_MANAGER_DOWN.fine("no NVSwitch, no fabric manager needed", "the PCI bus shows no NVSwitch")
        return
    completed = _fabric_completed(readings)
    service = known(readings.services)[FABRIC_MANAGER]
    if service.active:
        yield FABRIC_MANAGER_DOWN.fine("the fabric manager runs", f"{why}; {FABRIC_MANAGER} is active")
    elif completed:
        # In a virtual machine, or with the manager in a container, something else has set the fabric up.
        yield FABRIC_MANAGER_DOWN.fine("the fabric is set up by something else", f"{why}; every card says Completed")
    else:
        state = service.values.get("ActiveState", "unknown") if service.exists else "not installed"
        install = by_family(
            readings,
            f"`apt install 'nvidia-fabricmanager={_version_or(readings)}*' && systemctl enable --now {FABRIC_MANAGER}`",
            f"`dnf install nvidia-fabricmanager-{_version_or(readings)} && systemctl enable --now {FABRIC_MANAGER}`",
        )
        yield FABRIC_MANAGER_DOWN.found(
            f"this machine has NVSwitches and {FABRIC_MANAGER} is {state}",
            f"{why}; {FABRIC_MANAGER}: {state}",
            FABRIC_MANAGER_DOWN.fix if service.exists else install,
        )
    if not service.exists:
        return
    loaded = loaded_version(readings)
    version = known(readings.fabric_manager_version)
    if version is None:
        raise CouldNotTell(f"{FABRIC_MANAGER} is installed and its program nv-fabricmanager is not found")
    if numbers(version) != numbers(loaded):
        yield FABRIC_MANAGER_VERSION.found(
            f"the fabric manager is {version}, the driver {loaded}",
            f"`nv-fabricmanager --version`: {version}; {known(readings.kernel_module).source}: {loaded}",
            by_family(
                readings,
                f"drain, then: `apt install 'nvidia-fabricmanager={loaded}*' && systemctl restart {FABRIC_MANAGER}`",
                f"drain, then: `dnf install nvidia-fabricmanager-{loaded} && systemctl restart {FABRIC_MANAGER}`",
            ),
        )
    else:
        yield FABRIC_MANAGER_VERSION.fine(f"driver and fabric manager are both {loaded}")


def _version_or(readings: HostReadings) -> str:
    try:
        return loaded_version(readings)
    except CouldNotTell:
        return "VERSION-OF-THE-DRIVER"


def _fabric_completed(readings: HostReadings) -> bool:
    health = readings.health
    if isinstance(health, Unknown) or not health.cards:
        return False
    return all(card.fabric_state == "Completed" and not card.fabric_status for card in health.cards)


CHECKS = (fabric_manager,)
