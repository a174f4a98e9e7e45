# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the health of the cards: persistence, ECC, rows that wait for a reset, MIG, and the NVLink fabric.

By NVML, or by `nvidia-smi` where the Python library is missing.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union
from xml.etree import ElementTree

from .. import machine, nvml_reader
from .reading import CouldNotTell, Reading, Unknown, run_command

T = TypeVar("T")
# What a card can say, or None when it has no such thing.
Said = Reading[Union[T, None]]

NOT_READ = Unknown("it was not read")
_UNCORRECTED, _VOLATILE = 1, 0
# Shorter than the limit of the reading, so that a command that hangs is ended and not left behind.
SMI_LIMIT_S = 1.5
# nvmlGpuFabricState_t
_FABRIC_STATES = {0: "N/A", 1: "Not Started", 2: "In Progress", 3: "Completed"}
# nvmlDeviceGpuRecoveryAction_t
_RECOVERY_ACTIONS = {
    1: "GPU reset",
    2: "node reboot",
    3: "drain peer-to-peer",
    4: "drain and reset",
    5: "recovery of the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}


@dataclass(frozen=True)
class CardHealth:
    """One card. A field is None when the card has no such thing, and Unknown when it could not be read."""

    index: int
    uuid: str = ""
    name: str = ""
    bus: str = ""
    persistence: Said[bool] = NOT_READ
    ecc: Said[bool] = NOT_READ
    uncorrectable_volatile: Said[int] = NOT_READ
    retirement_pending: Said[bool] = NOT_READ
    remap_pending: Said[bool] = NOT_READ
    remap_failure: Said[bool] = NOT_READ
    mig: Said[bool] = NOT_READ
    mig_pending: Said[bool] = NOT_READ
    fabric_state: Said[str] = NOT_READ
    fabric_status: str = ""
    recovery_action: str = ""

    def text(self) -> str:
        return f"card {self.index} ({self.name or 'unnamed'}, {self.uuid or self.bus})"


@dataclass(frozen=True)
class Health:
    """All cards, and where they were read from."""

    source: str
    cards: tuple[CardHealth, ...] = ()


@dataclass(frozen=True)
class ListedCard:
    """One card as `nvidia-smi -L` lists it, with the MIG devices cut out of it."""

    index: int
    name: str
    uuid: str
    mig_uuids: tuple[str, ...] = field(default=())


def read_health() -> Health:
    """The health by nvidia-smi."""
    output = run_command(["nvidia-smi", "-q", "-x"], SMI_LIMIT_S)
    if output.code != 0:
        raise CouldNotTell(f"nvidia-smi failed with exit code {output.code}: {output.said}")
    return Health("nvidia-smi -q -x", parse_smi_xml(output.stdout))


def read_nvml(nvml: Any) -> Health:
    """The health by NVML, inside a session."""
    return Health("NVML", tuple(_card(nvml, index) for index in range(_count(nvml))))


def _count(nvml: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCount())
    except Exception as error:
        raise CouldNotTell(f"NVML: {error}") from None


def list_nvml(nvml: Any) -> tuple[ListedCard, ...]:
    """The cards and their MIG devices by NVML, inside a session. Raises where one of them does not answer."""
    found = []
    for index in range(_count(nvml)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle))
            found.append(ListedCard(index, name, uuid, _mig_uuids(nvml, handle)))
        except Exception as error:
            raise CouldNotTell(f"card {index}: NVML: {error}") from None
    return tuple(found)


def _mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return ()
    except Exception as error:
        if nvml_reader.status_of(nvml, error) == machine.NOT_SUPPORTED:
            return ()
        raise
    uuids = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except Exception as error:
            if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_FOUND:
                continue  # places may be empty
            raise
        uuids.append(_text(nvml.nvmlDeviceGetUUID(device)))
    return tuple(uuids)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _card(nvml: Any, index: int) -> CardHealth:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        lost = Unknown(f"card {index}: NVML: {error}")
        return CardHealth(
            index,
            persistence=lost,
            ecc=lost,
            uncorrectable_volatile=lost,
            retirement_pending=lost,
            remap_pending=lost,
            remap_failure=lost,
            mig=lost,
            mig_pending=lost,
            fabric_state=lost,
        )

    def ask(call: str, made: Callable[[Any], T], *words: Any) -> Said[T]:
        try:
            return made(getattr(nvml, call)(handle, *words))
        except Exception as error:
            if nvml_reader.status_of(nvml, error) == machine.NOT_SUPPORTED:
                return None
            return Unknown(f"card {index}: {call}: {error}")

    def word(call: str) -> str:
        said = ask(call, _text)
        return said if isinstance(said, str) else ""

    bus = ask("nvmlDeviceGetPciInfo", lambda info: _text(info.busId))
    fabric, status = _fabric(nvml, handle, index)
    return CardHealth(
        index=index,
        uuid=word("nvmlDeviceGetUUID"),
        name=word("nvmlDeviceGetName"),
        bus=bus if isinstance(bus, str) else "",
        persistence=ask("nvmlDeviceGetPersistenceMode", bool),
        ecc=ask("nvmlDeviceGetEccMode", lambda modes: bool(modes[0])),
        uncorrectable_volatile=ask("nvmlDeviceGetTotalEccErrors", int, _UNCORRECTED, _VOLATILE),
        retirement_pending=ask("nvmlDeviceGetRetiredPagesPendingStatus", bool),
        remap_pending=ask("nvmlDeviceGetRemappedRows", lambda rows: bool(rows[2])),
        remap_failure=ask("nvmlDeviceGetRemappedRows", lambda rows: bool(rows[3])),
        mig=ask("nvmlDeviceGetMigMode", lambda modes: bool(modes[0])),
        mig_pending=ask("nvmlDeviceGetMigMode", lambda modes: bool(modes[1])),
        fabric_state=fabric,
        fabric_status=status,
        recovery_action=_recovery(nvml, handle),
    )


def _recovery(nvml: Any, handle: Any) -> str:
    """What the driver says that the card needs; drivers before 570 do not."""
    try:
        value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
        action = int(value.value.uiVal) if int(value.nvmlReturn) == 0 else 0
    except Exception:
        return ""
    return "" if action == 0 else _RECOVERY_ACTIONS.get(action, f"action {action}")


def _fabric(nvml: Any, handle: Any, index: int) -> tuple[Said[str], str]:
    """How far the card has come in joining the NVLink fabric."""
    call = getattr(nvml, "nvmlDeviceGetGpuFabricInfo", None)
    kind = getattr(nvml, "c_nvmlGpuFabricInfo_t", None)
    if call is None or kind is None:
        return Unknown("this nvidia-ml-py does not know the fabric"), ""
    info = kind()
    try:
        # The binding passes its second word on as it is: the reference is ours to make.
        call(handle, ctypes.byref(info))
    except Exception as error:
        if nvml_reader.status_of(nvml, error) == machine.NOT_SUPPORTED:
            return None, ""
        return Unknown(f"card {index}: nvmlDeviceGetGpuFabricInfo: {error}"), ""
    state = _FABRIC_STATES.get(int(info.state), str(info.state))
    return (None if state == "N/A" else state), ("" if int(info.status) == 0 else f"NVML status {int(info.status)}")


_ABSENT = ("n/a", "[n/a]", "not supported", "[not supported]", "")
_SWITCHED = {"enabled": True, "disabled": False, "yes": True, "no": False}


def parse_smi_xml(text: str) -> tuple[CardHealth, ...]:
    """The cards in what `nvidia-smi -q -x` printed."""
    try:
        root = ElementTree.fromstring(_without_doctype(text))
    except ElementTree.ParseError as error:
        raise CouldNotTell(f"nvidia-smi -q -x printed no XML that can be read: {error}") from None
    cards = root.findall("gpu")
    if not cards:
        raise CouldNotTell("nvidia-smi -q -x names no card")
    return tuple(_smi_card(position, gpu) for position, gpu in enumerate(cards))


def _without_doctype(text: str) -> str:
    return re.sub(r"<!DOCTYPE[^>]*>", "", text, count=1)


def _smi_card(position: int, gpu: ElementTree.Element) -> CardHealth:
    def said(path: str) -> Said[str]:
        found = gpu.find(path)
        if found is None:
            return Unknown(f"this nvidia-smi does not print {path}")
        value = (found.text or "").strip()
        return None if value.lower() in _ABSENT else value

    def switch(path: str) -> Said[bool]:
        value = said(path)
        if not isinstance(value, str):
            return value
        known = _SWITCHED.get(value.lower())
        return Unknown(f"nvidia-smi prints {value!r} for {path}") if known is None else known

    action = said("gpu_recovery_action")
    status = said("fabric/status")
    return CardHealth(
        index=position,
        uuid=(gpu.findtext("uuid") or "").strip(),
        name=(gpu.findtext("product_name") or "").strip(),
        bus=(gpu.findtext("pci/pci_bus_id") or gpu.get("id") or "").strip(),
        persistence=switch("persistence_mode"),
        ecc=switch("ecc_mode/current_ecc"),
        uncorrectable_volatile=_uncorrectable(gpu),
        retirement_pending=switch("retired_pages/pending_retirement"),
        remap_pending=switch("remapped_rows/remapped_row_pending"),
        remap_failure=switch("remapped_rows/remapped_row_failure"),
        mig=switch("mig_mode/current_mig"),
        mig_pending=switch("mig_mode/pending_mig"),
        fabric_state=said("fabric/state"),
        fabric_status="" if not isinstance(status, str) or status.lower() == "success" else status,
        recovery_action="" if not isinstance(action, str) or action.lower() == "none" else action,
    )


def _uncorrectable(gpu: ElementTree.Element) -> Said[int]:
    """The uncorrectable errors since the driver was loaded; their names differ between generations of cards."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return Unknown("this nvidia-smi does not print ecc_errors/volatile")
    values = [(each.text or "").strip() for each in volatile.iter() if "uncorrectable" in each.tag and not len(each)]
    numbers = [int(value) for value in values if value.isdigit()]
    if numbers:
        return sum(numbers)
    if all(value.lower() in _ABSENT for value in values):
        return None
    return Unknown(f"nvidia-smi prints {', '.join(values)} for uncorrectable errors")


def read_list() -> tuple[ListedCard, ...]:
    """The cards and their MIG devices by the UUIDs that an instance may declare."""
    output = run_command(["nvidia-smi", "-L"], SMI_LIMIT_S)
    if output.code != 0:
        raise CouldNotTell(f"nvidia-smi -L failed with exit code {output.code}: {output.said}")
    return parse_list(output.stdout)


def parse_list(text: str) -> tuple[ListedCard, ...]:
    found: list[ListedCard] = []
    for line in text.splitlines():
        card = re.match(r"GPU (\d+): (.*) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$", line)
        device = re.match(r"\s+MIG .*\(UUID: (MIG-[^)\s]+)\)\s*$", line)
        if card:
            found.append(ListedCard(int(card.group(1)), card.group(2), card.group(3)))
        elif device and found:
            last = found[-1]
            found[-1] = ListedCard(last.index, last.name, last.uuid, (*last.mig_uuids, device.group(1)))
        elif line.strip():
            raise CouldNotTell(f"nvidia-smi -L printed a line that cannot be read: {line.strip()[:120]!r}")
    return tuple(found)
