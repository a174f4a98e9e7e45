# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask CUDA's driver library for the total of each card and whether it is integrated. No context is made."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass

_LIBRARIES = ("libcuda.so.1", "libcuda.so")
_INTEGRATED = 18
_MIB = 1 << 20


@dataclass(frozen=True)
class CudaDevice:
    """A card as CUDA sees it."""

    total_mib: float
    integrated: bool


def read() -> tuple[CudaDevice, ...]:
    """The visible cards; none when the library is missing or does not answer."""
    library = _load()
    if library is None or library.cuInit(0) != 0:
        return ()
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device, total, integrated = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()
        if library.cuDeviceGet(ctypes.byref(device), index) != 0:
            continue
        if library.cuDeviceTotalMem_v2(ctypes.byref(total), device) != 0:
            continue
        library.cuDeviceGetAttribute(ctypes.byref(integrated), _INTEGRATED, device)
        found.append(CudaDevice(float(total.value // _MIB), bool(integrated.value)))
    return tuple(found)


def _load() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
