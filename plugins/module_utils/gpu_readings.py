# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a machine with every source there is: NVML first, nvidia-smi second, CUDA where neither has a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import cuda_reader, host_memory_reader, nvidia_smi_reader, nvml_reader
from .machine import Card, Readings


def read(slice_name: str = "sglang.slice", smi_limit_s: float = nvidia_smi_reader.LIMIT_S) -> Readings:
    """Everything that the rules ask of a machine. One question to nvidia-smi may take `smi_limit_s`."""
    problems: list[Mapping[str, str]] = []
    cards: tuple[Card, ...] = ()
    driver, cuda, source = "", "", "none"
    try:
        cards, driver, cuda = nvml_reader.read(nvml_reader.load())
        source = "nvml"
    except nvml_reader.NvmlUnavailable as error:
        problems.append({"source": "nvml", "status": error.status, "text": error.text})
    totals, smi_error = _totals(problems, smi_limit_s)
    if source == "none" and not smi_error:
        try:
            cards, driver = nvidia_smi_reader.read(smi_limit_s)
            source = "nvidia-smi"
        except nvidia_smi_reader.SmiError as error:
            problems.append({"source": "nvidia-smi", "status": error.status, "text": error.text})
    devices: tuple[cuda_reader.CudaDevice, ...] = ()
    if cards and not _has_number(totals):
        devices = cuda_reader.read()
    return Readings(
        source=source,
        cards=cards,
        host=host_memory_reader.read(slice_name),
        driver=driver,
        cuda=cuda,
        smi_totals=totals,
        smi_error=smi_error,
        cuda_totals_mib=tuple(device.total_mib for device in devices),
        problems=tuple(problems),
    )


def _totals(problems: list[Mapping[str, str]], limit_s: float) -> tuple[tuple[str, ...] | None, str]:
    try:
        return nvidia_smi_reader.totals(limit_s), ""
    except nvidia_smi_reader.SmiError as error:
        problems.append({"source": "nvidia-smi", "status": error.status, "text": error.text})
        return None, error.text


def _has_number(totals: Any) -> bool:
    return any(str(total).strip().replace(".", "", 1).isdigit() for total in totals or ())
