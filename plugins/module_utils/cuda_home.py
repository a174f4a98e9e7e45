# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA_HOME made of what wheels bring: whether one is needed, from which wheels, and every entry that it has.

Wheels have nvcc, headers and libraries, and still nothing can be compiled with them as they lie: there is no `lib64`,
no `libcudart.so` for the linker, and nvcc may be of another release than the headers, which CUDA's own headers refuse
("CUDA compiler and CUDA toolkit headers are incompatible").

Pure: from readings to a decision and to a wanted tree. cuda_home_tree reads and builds.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks.check import Kind
from .checks.cuda_wheels import CCCL, CRT, CUDART, DISTRIBUTIONS, NVCC, NVVM, RUNTIME, CudaPart, CudaWheels
from .finding import ERROR, Finding

FILE = "file"
LINK = "link"

DIRECTORY = "cuda-home"
# Wheels that pip puts beside the environment, for the compiler alone.
WHEELS_DIRECTORY = "cuda-wheels"

WHEELS_INCOMPLETE = Kind(
    "cuda.wheels_incomplete",
    ERROR,
    "the wheels of CUDA's compiler are not all there",
    "No toolkit can be made of them, so a server that has to compile a kernel ends at its start.",
    "install the compiler of the release that torch is built for",
    "nvcc, cicc, crt, CCCL and the runtime come in five wheels; torch requires the last one only",
)
WHEELS_DIFFER = Kind(
    "cuda.wheels_of_different_releases",
    ERROR,
    "the wheels of CUDA's compiler are of different releases",
    "CUDA's headers refuse a compiler of another release: 'CUDA compiler and CUDA toolkit headers are incompatible'.",
    "install the compiler of the release that torch is built for",
    "cuda/std/__cccl/cuda_toolkit.h; compiled with nvcc 13.4 next to headers 13.0",
)
WHEELS_OTHER_MAJOR = Kind(
    "cuda.wheels_of_another_major_release",
    ERROR,
    "the wheels of CUDA's compiler are of another major release than torch",
    "What is compiled with them is linked to another libcudart than the one that torch has loaded.",
    "install the compiler of the release that torch is built for",
    "the names libcudart.so.12 and libcudart.so.13",
)
WHEELS_DAMAGED = Kind(
    "cuda.wheels_damaged",
    ERROR,
    "files of the compiler's wheels are not as they were installed",
    "A header or a program that is missing, cut short or changed fails the compilation of a kernel, or compiles "
    "something else. A wheel and the CUDA_HOME that was made of it share their files: writing into one changes both.",
    "install the wheel again: `python -m pip install --force-reinstall --no-deps WHEEL` in the environment",
    "RECORD of the installed wheels (PyPA, Recording installed projects)",
)
KINDS = (WHEELS_INCOMPLETE, WHEELS_DIFFER, WHEELS_OTHER_MAJOR, WHEELS_DAMAGED)

# Only these have to be of one release. CCCL has versions of its own since CUDA 13.3 (13.3.4 came with 13.4).
_ONE_RELEASE = (NVCC, NVVM, CRT, RUNTIME, CUDART)
# The parts of the meta package cuda-toolkit that have all of it.
_EXTRAS = "cccl,crt,cudart,nvcc,nvvm"
_TOOLKIT_LIBRARY = re.compile(r"lib(?:cudart|cudart_static|cudadevrt|nvvm)\.")
_VERSIONED_LIBRARY = re.compile(r"(lib.+\.so)\.[0-9.]+$")


@dataclass(frozen=True)
class Torch:
    """The torch of an environment. `cuda` is the release that it is built for ("13.0"), None without CUDA."""

    version: str
    cuda: str | None
    # The version of the distribution cuda-toolkit, by which torch pins CUDA's wheels; empty without.
    toolkit_version: str = ""


@dataclass(frozen=True)
class Toolkit:
    """A toolkit that is installed on the host. A release is empty where that part is missing."""

    path: str
    nvcc_release: str
    header_release: str
    cudart: str

    @property
    def is_whole(self) -> bool:
        return bool(self.nvcc_release and self.cudart) and self.nvcc_release == self.header_release


@dataclass(frozen=True)
class FileStatus:
    """What is known of a file of a wheel without reading it."""

    size: int
    mtime_ns: int
    executable: bool = False


@dataclass(frozen=True)
class Entry:
    """One entry of the tree: a file with the content of `source`, or a link with the text `source`."""

    kind: str
    source: str
    status: FileStatus = FileStatus(0, 0)

    def signature(self) -> str:
        if self.kind == LINK:
            return f"link {self.source}"
        return f"file {self.status.size} {self.status.mtime_ns} {int(self.status.executable)}"


@dataclass(frozen=True)
class Tree:
    """The wanted tree: its entries by their relative path, the release, the parts and what is to be known of it."""

    release: str
    parts: tuple[CudaPart, ...]
    entries: Mapping[str, Entry]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        lines = (f"{path} {entry.signature()}\n" for path, entry in sorted(self.entries.items()))
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class Decision:
    """Whether a tree is wanted, and why."""

    wanted: bool
    reason: str


@dataclass(frozen=True)
class RootFiles:
    """The files below one root of wheels by their relative path, and those that belong to the compiler's wheels."""

    files: Mapping[str, FileStatus]
    of_the_toolkit: frozenset[str] = field(default_factory=frozenset)


def decide(torch: Torch | None, toolkit: Toolkit | None) -> Decision:
    """Whether the environment needs a tree of its own."""
    if torch is None:
        return Decision(False, "there is no torch in the environment")
    if torch.cuda is None:
        return Decision(False, f"torch {torch.version} is built without CUDA")
    if toolkit is None:
        return Decision(True, f"torch {torch.version} is built for CUDA {torch.cuda}, and the host has no toolkit")
    if not toolkit.is_whole:
        return Decision(True, f"{toolkit.path} is not a whole toolkit: {_shape(toolkit)}")
    if _major(toolkit.nvcc_release) != _major(torch.cuda):
        return Decision(True, f"{toolkit.path} is of CUDA {toolkit.nvcc_release}, torch is built for {torch.cuda}")
    return Decision(False, f"{toolkit.path} is a whole toolkit of CUDA {toolkit.nvcc_release}")


def requirements(torch: Torch) -> list[str]:
    """What pip installs to have a compiler of the release that torch is built for; nothing without CUDA.

    Through the meta package by which torch pins its own wheels of CUDA, because it knows which version of each wheel
    belongs to a release.
    """
    if torch.cuda is None:
        return []
    pinned = torch.toolkit_version
    if ".".join(pinned.split(".")[:2]) != torch.cuda:
        pinned = f"{torch.cuda}.*"
    return [f"cuda-toolkit[{_EXTRAS}]=={pinned}"]


def choose_parts(wheels: CudaWheels, torch_cuda: str | None) -> tuple[CudaPart, ...] | Finding:
    """The parts of one release that the tree is made of, or what keeps it from being made.

    The release that torch is built for comes first, then the newest one of the same major release.
    """
    compilers = [part for part in wheels.parts if part.name == NVCC]
    compilers.sort(key=lambda part: part.release != torch_cuda)
    for nvcc in compilers:
        if torch_cuda is None or nvcc.major == _major(torch_cuda):
            chosen = _set_of(wheels, nvcc)
            if chosen:
                return chosen
    return _refusal(wheels, torch_cuda)


def plan(
    parts: Sequence[CudaPart],
    roots: Mapping[str, RootFiles],
    driver_library: str | None,
    torch_cuda: str | None = None,
) -> Tree:
    """Every entry of the tree that these parts make.

    `roots` has the files of each root of wheels; those of other wheels of the same major release (cuBLAS, NVRTC…) are
    taken too, because kernels include and link them. `driver_library` is the driver's libcuda on this host.
    """
    by_name = {part.name: part for part in parts}
    entries: dict[str, Entry] = {}
    for name, directory in ((NVCC, "bin"), (NVVM, "nvvm")):
        root = by_name[name].root
        _take(entries, root, roots[root].files, f"{directory}/")
    # NVRTC may be the one of torch, beside a compiler of another release that nothing else is taken of.
    own = list(dict.fromkeys(part.root for part in parts if part.name in (*_ONE_RELEASE, CCCL)))
    others = [root for root in roots if root not in own]
    for root in own + others:
        files = roots[root].files
        if root in others:
            files = {path: status for path, status in files.items() if path not in roots[root].of_the_toolkit}
        _take(entries, root, files, "include/")
        for folder in ("lib/", "lib64/"):
            _take_libraries(entries, root, files, folder)
    _name_libraries(entries)
    entries["lib"] = Entry(LINK, "lib64")
    notes = [*_stub(entries, driver_library), *_release_notes(by_name[NVCC], torch_cuda)]
    return Tree(by_name[NVCC].release, tuple(parts), entries, tuple(notes))


def deviations(tree: Tree, found: Mapping[str, str]) -> list[str]:
    """What a tree on disk has otherwise, as `PATH: missing`; `found` has the signature of each of its entries."""
    wanted = {path: entry.signature() for path, entry in tree.entries.items()}
    lines = []
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            lines.append(f"{path}: missing")
        elif path not in wanted:
            lines.append(f"{path}: not part of it")
        elif found[path] != wanted[path]:
            lines.append(f"{path}: differs")
    return lines


def described(tree: Tree) -> dict[str, Any]:
    """The tree in a few lines, for its own record and for a diff."""
    folders: dict[str, int] = {}
    for path in tree.entries:
        folder = path.split("/")[0]
        folders[folder] = folders.get(folder, 0) + 1
    return {
        "release": tree.release,
        "fingerprint": tree.fingerprint,
        "parts": {part.name: f"{part.distribution} {part.version or 'of unknown version'}" for part in tree.parts},
        "roots": sorted({part.root for part in tree.parts}),
        "entries": dict(sorted(folders.items())),
        "notes": list(tree.notes),
    }


# --- which parts ----------------------------------------------------------------------------------------------------


def _set_of(wheels: CudaWheels, nvcc: CudaPart) -> tuple[CudaPart, ...]:
    """All parts that go with this nvcc, from its own root where they are there; empty when one is missing."""
    chosen = []
    for name in DISTRIBUTIONS:
        fitting = [part for part in wheels.parts if part.name == name and _fits(part, nvcc)]
        fitting.sort(key=lambda part: part.root != nvcc.root)
        if fitting:
            chosen.append(fitting[0])
    names = {part.name for part in chosen}
    return tuple(chosen) if names >= {*_ONE_RELEASE, CCCL} else ()


def _fits(part: CudaPart, nvcc: CudaPart) -> bool:
    if part.name in _ONE_RELEASE:
        return bool(nvcc.release) and part.release == nvcc.release
    return part.major == nvcc.major


def _refusal(wheels: CudaWheels, torch_cuda: str | None) -> Finding:
    release = torch_cuda or (wheels.nvcc.release if wheels.nvcc else "") or "13.0"
    install = f"pip install --target DIRECTORY 'cuda-toolkit[{_EXTRAS}]=={release}.*'"
    fix = f"`{install}`, and DIRECTORY among the wheels"
    places = ", ".join(wheels.site_packages) or "no directory"
    if wheels.missing:
        needed = ", ".join(wheels.missing_distributions)
        seen = "; ".join(_line(part) for part in wheels.parts) or "none of them"
        summary = f"the wheels have no whole compiler of CUDA: {needed} missing"
        return WHEELS_INCOMPLETE.found(summary, f"looked in {places}; found: {seen}", fix)
    relevant = [part for part in wheels.parts if part.name in (*_ONE_RELEASE, CCCL)]
    seen = "; ".join(_line(part) for part in relevant)
    compilers = [part for part in relevant if part.name == NVCC]
    if torch_cuda is not None and _major(torch_cuda) not in {part.major for part in compilers}:
        found = ", ".join(part.release or "an unknown release" for part in compilers)
        return WHEELS_OTHER_MAJOR.found(
            f"torch is built for CUDA {torch_cuda}, and the wheels have nvcc of CUDA {found}", seen, fix
        )
    return WHEELS_DIFFER.found(
        f"the wheels of the compiler are of different releases of CUDA: {_releases(relevant)}. What they compile ends "
        "in '#error CUDA compiler and CUDA toolkit headers are incompatible'",
        seen,
        fix,
    )


def _releases(parts: Sequence[CudaPart]) -> str:
    named = [f"{part.name} {part.release or 'unknown'}" for part in parts if part.name in _ONE_RELEASE]
    return ", ".join(dict.fromkeys(named))


def _line(part: CudaPart) -> str:
    return f"{part.distribution} {part.version or 'of unknown version'} (CUDA {part.release or 'unknown'}) {part.path}"


def _shape(toolkit: Toolkit) -> str:
    lines = [
        f"nvcc {toolkit.nvcc_release or 'missing'}",
        f"headers {toolkit.header_release or 'missing'}",
        f"lib64/libcudart.so {'there' if toolkit.cudart else 'missing'}",
    ]
    return ", ".join(lines)


def _major(release: str) -> int:
    found = re.match(r"\d+", release)
    return int(found.group()) if found else 0


# --- the tree -------------------------------------------------------------------------------------------------------


def _take(entries: dict[str, Entry], root: str, files: Mapping[str, FileStatus], folder: str) -> None:
    """Take the files below a folder. What an earlier root has stays."""
    for path, status in files.items():
        if path.startswith(folder):
            entries.setdefault(path, Entry(FILE, os.path.join(root, path), status))


def _take_libraries(entries: dict[str, Entry], root: str, files: Mapping[str, FileStatus], folder: str) -> None:
    """The compiler's libraries as files, the others (gigabytes) as links to where the loader has them too."""
    for path, status in files.items():
        name = path[len(folder) :]
        if not path.startswith(folder) or not re.search(r"\.(?:a$|so(?:\.|$))", name):
            continue
        source = os.path.join(root, path)
        is_toolkit = _TOOLKIT_LIBRARY.match(name) or name.startswith("stubs/")
        entries.setdefault(f"lib64/{name}", Entry(FILE, source, status) if is_toolkit else Entry(LINK, source))


def _name_libraries(entries: dict[str, Entry]) -> None:
    """The names that a linker looks for: libcudart.so beside libcudart.so.13."""
    for path in sorted(entries):
        found = _VERSIONED_LIBRARY.match(os.path.basename(path))
        if path.startswith("lib64/lib") and found:
            entries.setdefault(f"lib64/{found.group(1)}", Entry(LINK, os.path.basename(path)))


def _stub(entries: dict[str, Entry], driver_library: str | None) -> Iterable[str]:
    if "lib64/stubs/libcuda.so" in entries:
        return
    if driver_library:
        entries["lib64/stubs/libcuda.so"] = Entry(LINK, driver_library)
        return
    yield (
        "lib64/stubs/libcuda.so is not there: the wheels bring no stub and the loader knows no libcuda.so.1 of a "
        "driver on this host, so what links with -lcuda fails here"
    )


def _release_notes(nvcc: CudaPart, torch_cuda: str | None) -> Iterable[str]:
    if torch_cuda is not None and nvcc.release != torch_cuda:
        yield (
            f"it is of CUDA {nvcc.release}, torch is built for {torch_cuda}: kernels compiled to PTX need a driver for "
            f"{nvcc.release}"
        )
