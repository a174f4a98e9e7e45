# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of CUDA's toolkit that Python wheels bring: where each lies in site-packages, and of which release it is.

Two layouts are in use. Since CUDA 13 all wheels share one root (`nvidia/cu13` with bin, include, lib and nvvm); before,
each wheel had its own (`nvidia/cuda_nvcc`, `nvidia/cuda_runtime`, …). Neither has a `lib64` or a `libcudart.so`, so
neither can be used for CUDA_HOME as it is.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..pinned_packages import numbers
from .reading import CouldNotTell, read_text

NVCC = "nvcc"
NVVM = "nvvm"
CRT = "crt"
CCCL = "cccl"
RUNTIME = "runtime"
CUDART = "cudart"
NVRTC = "nvrtc"

# What a compiler run needs, with the file by which it is recognised (below a root of wheels) and its distribution.
_MARKS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (NVCC, ("bin/nvcc",), "nvidia-cuda-nvcc"),
    (NVVM, ("nvvm/bin/cicc",), "nvidia-nvvm"),
    (CRT, ("include/crt/host_config.h",), "nvidia-cuda-crt"),
    (CCCL, ("include/cccl/cuda/std/version", "include/cuda/std/version"), "nvidia-cuda-cccl"),
    (RUNTIME, ("include/cuda_runtime_api.h",), "nvidia-cuda-runtime"),
    (CUDART, ("lib/libcudart.so*", "lib64/libcudart.so*"), "nvidia-cuda-runtime"),
    (NVRTC, ("lib/libnvrtc.so*", "lib64/libnvrtc.so*"), "nvidia-cuda-nvrtc"),
)
# Without one of these nothing is compiled and linked. libnvrtc is for those who compile at run time.
NEEDED_TO_COMPILE = (NVCC, NVVM, CRT, CCCL, RUNTIME, CUDART)
DISTRIBUTIONS = {name: distribution for name, _marks, distribution in _MARKS}

_CUDART_VERSION = re.compile(r"^\s*#\s*define\s+CUDA(?:RT)?_VERSION\s+(\d{4,6})\b", re.MULTILINE)
_LEADING_RELEASE = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True)
class CudaPart:
    """One part of the toolkit. `path` is the file that it was recognised by, `root` the directory of the wheel.

    `version` is that of the distribution ("13.0.88"), empty when none claims the file. `release` is the release of
    CUDA ("13.0"), empty when unknown.
    """

    name: str
    root: str
    path: str
    distribution: str
    version: str
    release: str

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)

    @property
    def major(self) -> int:
        """The major release; 0 when unknown."""
        return release_pair(self.release)[0]


@dataclass(frozen=True)
class CudaWheels:
    """All parts that were found, the newest release of each name first."""

    site_packages: tuple[str, ...]
    parts: tuple[CudaPart, ...]

    def part(self, name: str) -> CudaPart | None:
        """The newest part of that name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def nvcc(self) -> CudaPart | None:
        return self.part(NVCC)

    @property
    def nvvm(self) -> CudaPart | None:
        return self.part(NVVM)

    @property
    def crt(self) -> CudaPart | None:
        return self.part(CRT)

    @property
    def cccl(self) -> CudaPart | None:
        return self.part(CCCL)

    @property
    def runtime(self) -> CudaPart | None:
        """The headers of the runtime (cuda.h, cuda_runtime.h); `release` is what they say themselves."""
        return self.part(RUNTIME)

    @property
    def cudart(self) -> CudaPart | None:
        """libcudart; `path` is libcudart.so where there is one, else the versioned file."""
        return self.part(CUDART)

    @property
    def nvrtc(self) -> CudaPart | None:
        return self.part(NVRTC)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the parts that are needed to compile and link and are not here."""
        return tuple(name for name in NEEDED_TO_COMPILE if self.part(name) is None)

    @property
    def missing_distributions(self) -> tuple[str, ...]:
        """What to install to have them all."""
        return tuple(dict.fromkeys(DISTRIBUTIONS[name] for name in self.missing))

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def library_directories(self) -> tuple[str, ...]:
        """Every `lib` of a wheel: where the loader finds what is not on its own path."""
        found = [
            directory
            for root in _roots(self.site_packages)
            for directory in (os.path.join(root, "lib"), os.path.join(root, "lib64"))
            if os.path.isdir(directory)
        ]
        return tuple(found)

    def of_major(self, major: int) -> CudaWheels:
        """Only the parts of one major release (and those whose release nobody knows)."""
        return CudaWheels(self.site_packages, tuple(part for part in self.parts if part.major in (0, major)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "site_packages": list(self.site_packages),
            "parts": [asdict(part) for part in self.parts],
            "missing": list(self.missing),
        }


def release_pair(text: str) -> tuple[int, int]:
    """(13, 0) of "13.0.88"; (0, 0) when it has no release in it."""
    found = _LEADING_RELEASE.match(text.strip())
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def release_of_version(version: str) -> str:
    """The release of CUDA that a version stands for: 13.0 of 13.0.88."""
    major, minor = release_pair(version)
    return f"{major}.{minor}" if major else ""


def header_release(include: str) -> str | None:
    """The release that the headers in a directory say they are of; None when there are none.

    Raises CouldNotTell when they are there and cannot be read, or name no version.
    """
    for name in ("cuda_runtime_api.h", "cuda.h"):
        path = os.path.join(include, name)
        if os.path.exists(path):
            # The define stands in the first kilobytes of a file of half a megabyte.
            found = _CUDART_VERSION.search(read_text(path, 1 << 17))
            if found is None:
                raise CouldNotTell(f"{path} names no version of CUDA")
            number = int(found.group(1))
            return f"{number // 1000}.{number % 1000 // 10}"
    return None


def find_cuda_wheels(site_packages: Sequence[str], by_headers: bool = True) -> CudaWheels:
    """Look for the parts below `nvidia` in these directories; one that does not exist has none.

    Without `by_headers` headers that name no release are taken to be of the release of their wheel.
    Raises CouldNotTell when a directory is there and cannot be listed.
    """
    parts: list[CudaPart] = []
    for site in dict.fromkeys(site_packages):
        versions = _distribution_versions(site)
        for root in _roots((site,)):
            for name, marks, distribution in _MARKS:
                path = _first_match(root, marks)
                if path:
                    parts.append(_part(name, root, path, distribution, versions, by_headers))
    # Stable: among parts of one release the first directory of the path wins, as it does for the interpreter.
    parts.sort(key=lambda part: numbers(part.version or part.release), reverse=True)
    return CudaWheels(tuple(site_packages), tuple(parts))


def _part(name: str, root: str, path: str, distribution: str, versions: dict[str, str], by_headers: bool) -> CudaPart:
    # Before CUDA 13 the name of a distribution ends in its major release: nvidia-cuda-runtime-cu12.
    candidates = [distribution]
    if os.path.basename(root) != "cu13":
        candidates = [each for each in sorted(versions) if each.startswith(f"{distribution}-cu")] + candidates
    owner = next((each for each in candidates if each in versions), "")
    version = versions.get(owner, "")
    release = release_of_version(version)
    if name == RUNTIME:
        try:
            release = header_release(os.path.dirname(path)) or release
        except CouldNotTell:
            if by_headers or not release:
                raise
    return CudaPart(name, root, path, owner or distribution, version, release)


def _roots(site_packages: Sequence[str]) -> list[str]:
    """Directories below `nvidia` that have a bin, include, lib or nvvm."""
    found = []
    for site in dict.fromkeys(site_packages):
        for root in sorted(_listed(os.path.join(site, "nvidia"))):
            path = os.path.join(site, "nvidia", root)
            if any(os.path.isdir(os.path.join(path, each)) for each in ("bin", "include", "lib", "lib64", "nvvm")):
                found.append(path)
    return found


def _first_match(root: str, marks: Sequence[str]) -> str:
    """The file by which a part is recognised; the shortest name (libcudart.so before libcudart.so.13)."""
    for mark in marks:
        found = sorted(glob.glob(os.path.join(glob.escape(root), mark)), key=lambda path: (len(path), path))
        if found:
            return found[0]
    return ""


def _distribution_versions(site: str) -> dict[str, str]:
    """Versions of NVIDIA's distributions by name, from the names of their dist-info directories."""
    versions = {}
    for entry in _listed(site):
        if entry.endswith(".dist-info") and entry.startswith("nvidia"):
            name, _dash, version = entry[: -len(".dist-info")].partition("-")
            versions[name.replace("_", "-")] = version
    return versions


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CouldNotTell(f"{directory}: {error.strerror or error}") from None
