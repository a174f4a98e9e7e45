# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded readings of a toolchain: a host where all is well, and what a test changes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_roots import CudaRoot
from ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_wheels import CudaPart, CudaWheels
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_checks import CHECKS
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_readings import (
    Driver,
    Interpreter,
    Library,
    System,
    Tool,
    Toolchain,
    unit_path,
)
from ansible_collections.serving.sglang.plugins.module_utils.finding import OK, Finding
from ansible_collections.serving.sglang.plugins.module_utils.pinned_packages import pins_for

PYTHON = "/opt/sglang/0.5.22/bin/python"
SITE = "/opt/sglang/0.5.22/lib/python3.12/site-packages"
WHEELS = f"{SITE}/nvidia/cu13"

INTERPRETER = Interpreter(
    executable=PYTHON,
    version="3.12.3",
    prefix="/opt/sglang/0.5.22",
    base_prefix="/usr",
    include="/usr/include/python3.12",
    python_h=True,
    site_packages=(SITE,),
    glibc="2.39",
    packages={
        "sglang": "0.5.22",
        "torch": "2.14.1",
        "triton": "3.8.0",
        "flashinfer-python": "0.7.1",
        "sglang-kernel": "0.4.9",
        "sgl-deep-gemm": "0.2.2",
        "sgl-deep-ep": "0.1.2.post1",
        "flash-attn-4": "4.0.0b19",
        "apache-tvm-ffi": "0.1.11",
        "nvidia-cutlass-dsl": "4.8.0",
        "tilelang": "0.1.12",
        "tokenspeed-mla": "0.1.8",
        "quack-kernels": "0.6.5",
        "humming-kernels": "0.1.12",
        "cuda-python": "13.0.3",
        "ninja": "1.13.0",
    },
    unreadable={},
    torch_cuda="13.0",
    torch_path=f"{SITE}/torch/version.py",
    libraries=(
        Library("libcuda.so.1", "libcuda.so.1"),
        Library("libnuma.so.1", "libnuma.so.1"),
        Library("libnvrtc.so.13", f"{WHEELS}/lib/libnvrtc.so.13"),
        Library("libcudart.so.13", f"{WHEELS}/lib/libcudart.so.13"),
    ),
    headers=(),
)


def root(
    path: str = "/usr/local/cuda", release: str = "13.0", origin: str = "nvcc on PATH", **changes: Any
) -> CudaRoot:
    """A whole toolkit."""
    whole = CudaRoot(
        origin=origin,
        path=path,
        chosen=True,
        state="directory",
        nvcc=f"{path}/bin/nvcc",
        nvcc_release=release,
        includes=(f"{path}/include",),
        runtime_header=f"{path}/include/cuda_runtime.h",
        headers_release=release,
        newest_gcc=15,
        libcudart=f"{path}/lib64/libcudart.so",
        libcuda_stub=f"{path}/lib64/stubs/libcuda.so",
    )
    return replace(whole, **changes)


def no_root(path: str = "/usr/local/cuda", origin: str = "/usr/local/cuda") -> CudaRoot:
    return CudaRoot(origin, path, True, "missing")


def wheels(nvcc_release: str = "13.0", headers_release: str = "13.0", **leave_out: bool) -> CudaWheels:
    """The wheels of CUDA 13 as they are installed."""
    files = {
        "nvcc": "bin/nvcc",
        "nvvm": "nvvm/bin/cicc",
        "crt": "include/crt/host_config.h",
        "cccl": "include/cccl/cuda/std/version",
        "runtime": "include/cuda_runtime_api.h",
        "cudart": "lib/libcudart.so.13",
    }
    parts = tuple(
        CudaPart(name, WHEELS, f"{WHEELS}/{file}", f"nvidia-{name}", f"{release}.1", release)
        for name, file in files.items()
        if leave_out.get(name, True)
        for release in [headers_release if name in ("runtime", "cudart") else nvcc_release]
    )
    return CudaWheels((SITE,), parts)


def host(
    interpreter: dict[str, Any] | None = None, packages: dict[str, str] | None = None, **changes: Any
) -> Toolchain:
    """A host with a toolkit of CUDA 13.0, where SGLang 0.5.22 is installed as it wants to be."""
    python = replace(INTERPRETER, **(interpreter or {}))
    python = replace(python, packages={**python.packages, **(packages or {})})
    fine = Toolchain(
        instances=("main",),
        python=PYTHON,
        stand_in=False,
        device="cuda",
        pins=pins_for("0.5.22"),
        path=unit_path(PYTHON),
        variables=(),
        system=System("Ubuntu 24.04.3 LTS", "debian"),
        interpreter=python,
        out_of_reach=(),
        cxx=Tool("c++", "/usr/bin/c++", "c++ (Ubuntu 13.3.0) 13.3.0"),
        cc=Tool("gcc", "/usr/bin/gcc", "gcc (Ubuntu 13.3.0) 13.3.0"),
        ninja=Tool("ninja", "/opt/sglang/0.5.22/bin/ninja", "1.13.0"),
        roots=(root(),),
        links={"cudart": "", "cuda": ""},
        headers=(),
        wheels=CudaWheels((SITE,), ()),
        driver=Driver("580.95.05", "13.0", ("8.9",)),
    )
    return replace(fine, **changes)


def without(*names: str) -> dict[str, Any]:
    """The packages of the host without these."""
    return {"packages": {name: version for name, version in INTERPRETER.packages.items() if name not in names}}


def libraries(*changed: Library) -> dict[str, Any]:
    """The libraries of the host with these in the place of those of the same name."""
    names = {library.name for library in changed}
    kept = [library for library in INTERPRETER.libraries if library.name not in names]
    return {"libraries": (*kept, *changed)}


def faults(readings: Toolchain) -> list[Finding]:
    """Everything that is not fine."""
    return [finding for finding in run_checks(CHECKS, readings) if finding.severity != OK]


def only_fault(readings: Toolchain) -> Finding:
    """The one thing that is not fine."""
    found = faults(readings)
    if len(found) != 1:
        raise AssertionError(f"not one fault: {found}")
    return found[0]


def ids(readings: Toolchain) -> list[str]:
    return [f"{finding.severity} {finding.id}" for finding in faults(readings)]
