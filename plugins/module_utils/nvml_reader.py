# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the cards through NVML (the library `nvidia-ml-py`, imported as `pynvml`). It reads and does not decide."""

from __future__ import annotations

import contextlib
import importlib
import os
import pwd
from collections.abc import Callable, Iterator
from typing import Any

from . import machine
from .machine import Card, Process

_MIB = 1 << 20


class NvmlUnavailable(Exception):
    """NVML cannot be asked at all; `status` says why."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def load() -> Any:
    """The library, or why there is none."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("no_library", f"the Python library nvidia-ml-py is not installed: {error}") from None


def status_of(nvml: Any, error: Exception) -> str:
    """What kind of failure an NVML error is."""
    code = getattr(error, "value", None)
    for name, status in (
        ("NVML_ERROR_NOT_SUPPORTED", machine.NOT_SUPPORTED),
        ("NVML_ERROR_GPU_IS_LOST", machine.LOST),
        ("NVML_ERROR_RESET_REQUIRED", machine.LOST),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", machine.DRIVER_MISMATCH),
        ("NVML_ERROR_DRIVER_NOT_LOADED", machine.NO_DRIVER),
        ("NVML_ERROR_LIBRARY_NOT_FOUND", machine.NO_DRIVER),
        ("NVML_ERROR_NO_PERMISSION", machine.NO_PERMISSION),
    ):
        if code is not None and code == getattr(nvml, name, None):
            return status
    return machine.ERROR


@contextlib.contextmanager
def session(nvml: Any) -> Iterator[None]:
    """NVML between its start and its end."""
    try:
        nvml.nvmlInit()
    except Exception as error:
        raise NvmlUnavailable(status_of(nvml, error), f"NVML: {error}") from None
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def read(nvml: Any) -> tuple[tuple[Card, ...], str, str]:
    """The cards, the driver's version and CUDA's."""
    with session(nvml):
        driver = _text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)[0])
        version = _ask(nvml, nvml.nvmlSystemGetCudaDriverVersion)[0]
        cuda = f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) else ""
        count, status, text = _ask(nvml, nvml.nvmlDeviceGetCount)
        if count is None:
            raise NvmlUnavailable(status, text)
        return tuple(_card(nvml, index) for index in range(int(count))), driver, cuda


def _ask(nvml: Any, call: Callable[..., Any], *words: Any) -> tuple[Any, str, str]:
    """The answer, or None with the kind and the text of the failure."""
    try:
        return call(*words), "ok", ""
    except Exception as error:
        return None, status_of(nvml, error), f"NVML: {error}"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _card(nvml: Any, index: int) -> Card:
    handle, status, text = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Card(index=index, memory_status=status, problem=f"{status}: {text}")
    memory, status, text = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    problem = "" if status in ("ok", machine.NOT_SUPPORTED) else f"{status}: {text}"
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)[0]
    bus = _ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)[0]
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)[0]
    temperature = _ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)[0]
    return Card(
        index=index,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)[0]),
        name=_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)[0]),
        bus=_text(getattr(bus, "busId", "")),
        total_mib=None if memory is None else memory.total / _MIB,
        free_mib=None if memory is None else memory.free / _MIB,
        used_mib=None if memory is None else memory.used / _MIB,
        memory_status=status,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
        clocks_mhz=_clocks(nvml, handle),
        temperature_c=temperature,
        mig=bool(mig and mig[0]),
        processes=_processes(nvml, handle),
        problem=problem,
    )


def _clocks(nvml: Any, handle: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, kind in (("graphics", "NVML_CLOCK_GRAPHICS"), ("sm", "NVML_CLOCK_SM"), ("memory", "NVML_CLOCK_MEM")):
        now = _ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, getattr(nvml, kind))[0]
        most = _ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, getattr(nvml, kind))[0]
        if now is not None:
            found[name] = int(now)
        if most is not None:
            found[name + "_max"] = int(most)
    return found


def _processes(nvml: Any, handle: Any) -> tuple[Process, ...]:
    found: dict[int, Process] = {}
    for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for entry in _ask(nvml, call, handle)[0] or ():
            used = getattr(entry, "usedGpuMemory", None)
            name, owner = describe_process(int(entry.pid))
            found[int(entry.pid)] = Process(int(entry.pid), name, owner, None if used is None else used / _MIB)
    return tuple(found[pid] for pid in sorted(found))


def describe_process(pid: int) -> tuple[str, str]:
    """The name of a process and of its owner, as far as /proc says."""
    name, owner = "", ""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            name = stream.read().strip()
        owner = str(os.stat(f"/proc/{pid}").st_uid)
        with contextlib.suppress(KeyError):
            owner = pwd.getpwuid(int(owner)).pw_name
    return name, owner
