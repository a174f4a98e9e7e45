# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which package brings a shared library, and what an import error in a log really says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# By family of distributions; what is not listed comes with a Python package or is not packaged.
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "libnuma.so.1": {"debian": "libnuma1", "redhat": "numactl-libs", "suse": "libnuma1"},
    "libgomp.so.1": {"debian": "libgomp1", "redhat": "libgomp", "suse": "libgomp1"},
    "libstdc++.so.6": {"debian": "libstdc++6", "redhat": "libstdc++", "suse": "libstdc++6"},
    "libgcc_s.so.1": {"debian": "libgcc-s1", "redhat": "libgcc", "suse": "libgcc_s1"},
    "libibverbs.so.1": {"debian": "libibverbs1", "redhat": "libibverbs", "suse": "libibverbs1"},
    "librdmacm.so.1": {"debian": "librdmacm1", "redhat": "librdmacm", "suse": "librdmacm1"},
    "libmlx5.so.1": {"debian": "ibverbs-providers", "redhat": "libibverbs", "suse": "libmlx5-1"},
}
# These come as wheels with torch; the number at the end is the major release of the library.
WHEELS: Mapping[str, str] = {
    "libcudart.so.13": "nvidia-cuda-runtime",
    "libnvrtc.so.13": "nvidia-cuda-nvrtc",
    "libcublas.so.13": "nvidia-cublas",
    "libcublasLt.so.13": "nvidia-cublas",
    "libcudnn.so.9": "nvidia-cudnn-cu13",
    "libnccl.so.2": "nvidia-nccl-cu13",
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libnvrtc.so.12": "nvidia-cuda-nvrtc-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
}
INSTALL = {"debian": "apt-get install -y", "redhat": "dnf install -y", "suse": "zypper install -y"}

_MISSING = re.compile(r"(?P<library>lib[\w.+-]+?\.so(?:\.\d+)*): cannot open shared object file")
_VERSION = re.compile(r"(?P<library>\S+\.so(?:\.\d+)*): version `(?P<wanted>[\w.]+)' not found")


@dataclass(frozen=True)
class ImportProblem:
    """What an import failed at. `line` is the line that says so, `fix` how to get what is missing."""

    library: str
    line: str
    summary: str
    fix: str


def explain_import_error(lines: Iterable[str], family: str = "") -> ImportProblem | None:
    """The first library that a log says is missing, whatever its later lines blame. None when it names none.

    SGLang's kernels try several files and end with 'Could not load any common_ops library', or with advice to install
    the kernel package again. Only the line that the loader wrote names the cause.
    """
    for line in lines:
        found = _MISSING.search(line)
        if found is not None:
            library = found["library"]
            summary = f"{library} is missing; the package that asked for it is fine"
            return ImportProblem(library, line.strip(), summary, how_to_get(library, family))
        found = _VERSION.search(line)
        if found is not None:
            library = found["library"].rpartition("/")[2]
            summary = f"{library} is there, and too old: it has no {found['wanted']}"
            fix = f"use a host whose {library} has {found['wanted']}, or the runtime docker or podman"
            return ImportProblem(library, line.strip(), summary, fix)
    return None


def how_to_get(library: str, family: str = "", python: str = "bin/python") -> str:
    """A line to paste that brings a library, for one family of distributions or for all.

    `python` is the interpreter of the environment, for what comes as a wheel.
    """
    if library.startswith("libcuda.so"):
        return "install NVIDIA's driver: it brings libcuda.so.1, and no package of CUDA or Python does"
    if library in PACKAGES:
        names = PACKAGES[library]
        if family in names:
            return f"{INSTALL[family]} {names[family]}"
        return f"`{INSTALL['debian']} {names['debian']}`; or, on RHEL, `{INSTALL['redhat']} {names['redhat']}`"
    if library in WHEELS:
        # The wheels of CUDA 12 have the release in their name.
        name = WHEELS[library]
        wanted = name if re.search(r"-cu\d\d$", name) else f"'{name}=={library.rpartition('.')[2]}.*'"
        return f"{python} -m pip install {wanted}"
    return f"install the package that has {library}, or add its directory to LD_LIBRARY_PATH of the instance"
