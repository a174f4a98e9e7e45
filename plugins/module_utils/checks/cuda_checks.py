# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether CUDA's toolkit is where SGLang looks for it, whole, and of releases that go together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..finding import ERROR, WARNING, Finding
from ..pinned_packages import MINIMUM_DRIVER, version_key
from . import toolchain_kinds as kinds
from .check import Check
from .cuda_only import cuda_check
from .cuda_roots import CudaRoot
from .cuda_wheels import CudaWheels, release_pair
from .path_variables import DIRECTORY, FILE, UNREADABLE
from .reading import CouldNotTell, Reading, Unknown, known
from .toolchain_fixes import jit_cache_fits, jit_cache_fix, jit_cache_state, root_fix, same_release_fix, torch_release
from .toolchain_readings import Toolchain

# The oldest nvcc that compiles for a compute capability (CUDA Toolkit Release Notes). 12.0 needs 12.9 for the target
# that SGLang prefers and falls back below it.
OLDEST_NVCC = {
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "10.3": "12.9",
    "11.0": "13.0",
    "12.0": "12.8",
    "12.1": "12.9",
}
# The first line of `--version`: "g++-13 (Ubuntu 13.3.0-6ubuntu2) 13.3.0".
_GCC = re.compile(r"^(?:\S*g\+\+\S*|\S*gcc\S*|c\+\+) \(.*\) (\d+)\.")
# CUDA 13 compiles for no card before this.
OLDEST_CARD_OF_CUDA_13 = "7.5"


@cuda_check(kinds.ROOT)
def cuda_root(readings: Toolchain) -> Iterator[Finding]:
    """What CUDA_HOME or CUDA_PATH name."""
    root = readings.root
    if not _configured(root):
        yield kinds.ROOT.fine(f"neither CUDA_HOME nor CUDA_PATH is set: {_where(root)} is taken")
    elif root.state == DIRECTORY:
        yield kinds.ROOT.fine(f"{root.origin} is a directory", f"{root.origin}={root.path}")
    elif ":" in root.path:
        yield kinds.ROOT.fine(f"{root.origin} holds a list: see {kinds.SEPARATOR.id}", f"{root.origin}={root.path}")
    elif root.state == UNREADABLE:
        raise CouldNotTell(f"{root.origin}={root.path} cannot be read")
    elif not root.path:
        yield kinds.ROOT.found(
            "CUDA_PATH is set and empty: SGLang takes the working directory for the root and looks no further",
            "CUDA_PATH=",
            "remove CUDA_PATH from the environment of the instance, or give it a directory",
        )
    else:
        what = "is no directory" if root.state == FILE else "does not exist"
        yield kinds.ROOT.found(
            f"{root.origin} names {root.path}, which {what}; SGLang looks no further",
            f"{root.origin}={root.path}: {what}{_others(readings)}",
            root_fix(readings),
        )


@cuda_check(kinds.NVCC)
def nvcc_there(readings: Toolchain) -> Iterator[Finding]:
    """bin/nvcc below the root."""
    root = readings.root
    if _root_is_wrong(root):
        yield kinds.NVCC.fine(_see_root(root))
    elif not root.nvcc:
        wheel = _wheel_path(readings.wheels, "nvcc")
        beside = f"; there is one at {wheel}, which nothing points to" if wheel else ""
        yield kinds.NVCC.found(
            f"there is no nvcc where SGLang looks for it ({_where(root)}){beside}",
            f"{root.path}/bin/nvcc: not there{_others(readings)}" + (f"; {wheel} is there" if wheel else ""),
            root_fix(readings),
        )
    elif not root.nvcc_for_all:
        summary = f"{root.nvcc} may not be run by the user of the service"
        yield kinds.NVCC.found(summary, f"{root.nvcc}: others may not execute it", f"chmod a+rx {root.nvcc}")
    else:
        release = known(root.nvcc_release)
        yield kinds.NVCC.fine(f"nvcc {release} is taken, by {root.origin}", f"{root.nvcc}: release {release}")


@cuda_check(kinds.HEADERS)
def runtime_headers(readings: Toolchain) -> Iterator[Finding]:
    """cuda_runtime.h where nvcc looks, and below the root, where FlashInfer's host code looks."""
    root = readings.root
    if _root_is_wrong(root) or not root.nvcc:
        yield kinds.HEADERS.fine(f"not asked: there is no nvcc below {root.path}")
        return
    includes = known(root.includes)
    if not includes:
        yield kinds.HEADERS.found(
            f"{root.nvcc} does not find its own directories, as a link without nvcc.profile next to it does not",
            f"`{root.nvcc} --dryrun` names no include directory",
            "point CUDA_HOME to the directory that nvcc really lies in, or have serving.sglang.cuda_home make one",
        )
    elif not root.runtime_header:
        yield kinds.HEADERS.found(
            f"there is no cuda_runtime.h below {root.path}, which FlashInfer includes from there",
            f"{root.path}/include/cuda_runtime.h: not there; {root.nvcc} itself looks in {', '.join(includes)}",
            root_fix(readings),
        )
    else:
        yield kinds.HEADERS.fine("the headers of the runtime are there", root.runtime_header)


@cuda_check(kinds.HEADERS_RELEASE)
def headers_of_nvcc(readings: Toolchain) -> Iterator[Finding]:
    """Every set of headers that a compilation meets against the nvcc that does it."""
    root = readings.root
    nvcc, release = root.nvcc, ""
    own = ("the root", f"{root.path}/include", root.headers_release)
    if nvcc:
        release = known(root.nvcc_release) or ""
    else:
        wheels = known(readings.wheels)
        if wheels.nvcc is None:
            yield kinds.HEADERS_RELEASE.fine("not asked: there is no nvcc")
            return
        # What the repair would take: of the release of the wheels, and no better than they are.
        nvcc, release = wheels.nvcc.path, wheels.nvcc.release
        runtime = wheels.runtime
        own = ("the wheels", runtime.directory if runtime else "", runtime.release if runtime else "")
    header_sets: list[tuple[str, str, Reading[str | None]]] = [own]
    header_sets += [(each.origin, each.include, each.release) for each in known(readings.headers)]
    interpreter = readings.interpreter
    packages = {} if isinstance(interpreter, Unknown) else interpreter.packages
    seen, refused = [], False
    for origin, include, reading in header_sets:
        of = known(reading)
        if not of:
            continue
        seen.append(f"{include} {of}")
        if of == release:
            continue
        bundled = origin == "FlashInfer's own"
        if bundled and jit_cache_fits(packages):
            continue
        refused = True
        yield kinds.HEADERS_RELEASE.found(
            f"nvcc is of CUDA {release} and the headers of {origin} are of CUDA {of}",
            f"{nvcc}: {release}; {include}: {of}; {jit_cache_state(packages)}{_cards(readings)}",
            jit_cache_fix(readings, packages) if bundled else same_release_fix(readings, origin, of, packages),
        )
    if not refused:
        yield kinds.HEADERS_RELEASE.fine(
            f"no headers that contradict nvcc {release}",
            f"{nvcc}: {release}; {', '.join(seen) or 'no headers'}; {jit_cache_state(packages)}",
        )


@cuda_check(kinds.LIBCUDART)
def libcudart_for_the_linker(readings: Toolchain) -> Iterator[Finding]:
    """-L<root>/lib64 -lcudart."""
    root = readings.root
    if _root_is_wrong(root):
        yield kinds.LIBCUDART.fine(_see_root(root))
        return
    links = readings.links
    said = "" if isinstance(links, Unknown) else links["cudart"]
    if root.libcudart and not said:
        yield kinds.LIBCUDART.fine("the linker has a libcudart.so", root.libcudart)
    elif not isinstance(links, Unknown) and not said:
        yield kinds.LIBCUDART.fine("the linker finds a libcudart.so on its own path", f"not {root.path}/lib64")
    else:
        wheel = _wheel_path(readings.wheels, "cudart")
        state = f"{root.libcudart} is there" if root.libcudart else f"{root.path}/lib64/libcudart.so: not there"
        yield kinds.LIBCUDART.found(
            f"the linker finds no libcudart.so in {root.path}/lib64"
            + (f"; {wheel} has another name and another directory" if wheel else ""),
            state + (f"; the linker says: {said}" if said else "") + (f"; {wheel} is there" if wheel else ""),
            root_fix(readings),
        )


@cuda_check(kinds.LIBCUDA_STUB)
def libcuda_for_the_linker(readings: Toolchain) -> Iterator[Finding]:
    """-L<root>/lib64/stubs -lcuda, which only FlashInfer asks for."""
    root = readings.root
    if _root_is_wrong(root):
        yield kinds.LIBCUDA_STUB.fine(_see_root(root))
        return
    said = known(readings.links)["cuda"]
    if not said:
        yield kinds.LIBCUDA_STUB.fine("the linker finds a libcuda.so", root.libcuda_stub or "on its own path")
        return
    interpreter = readings.interpreter
    packages = {} if isinstance(interpreter, Unknown) else interpreter.packages
    yield kinds.LIBCUDA_STUB.found(
        f"the linker finds no libcuda.so in {root.path}/lib64/stubs nor where the driver would have it",
        f"{root.path}/lib64/stubs/libcuda.so: not there; the linker says: {said}",
        "" if root.nvcc else root_fix(readings),
        ERROR if packages.get("flashinfer-python") and not jit_cache_fits(packages) else WARNING,
    )


@cuda_check(kinds.NVCC_RELEASE)
def nvcc_of_torch(readings: Toolchain) -> Iterator[Finding]:
    """nvcc against torch: within one major release of CUDA they work together."""
    root = readings.root
    if not root.nvcc:
        yield kinds.NVCC_RELEASE.fine(f"not asked: there is no nvcc below {root.path}")
        return
    nvcc = known(root.nvcc_release) or ""
    torch, where = torch_release(readings)
    evidence = f"{root.nvcc}: {nvcc} (by {root.origin}); {where}: {torch}"
    if release_pair(nvcc)[0] == release_pair(torch)[0]:
        yield kinds.NVCC_RELEASE.fine(f"nvcc {nvcc} and torch's CUDA {torch} are of one major release", evidence)
        return
    older = "older" if release_pair(nvcc) < release_pair(torch) else "newer"
    yield kinds.NVCC_RELEASE.found(
        f"nvcc {nvcc} at {root.nvcc} is {older} than CUDA {torch}, which torch at {where} is built for",
        evidence,
        root_fix(readings),
    )


@cuda_check(kinds.NVCC_CARD)
def nvcc_of_the_card(readings: Toolchain) -> Iterator[Finding]:
    """nvcc against the compute capability of each card."""
    root = readings.root
    if not root.nvcc:
        yield kinds.NVCC_CARD.fine(f"not asked: there is no nvcc below {root.path}")
        return
    nvcc = known(root.nvcc_release) or ""
    capabilities = known(readings.driver).capabilities
    for capability in capabilities:
        oldest = OLDEST_NVCC.get(capability, "")
        evidence = f"{root.nvcc}: {nvcc}; compute capability {capability}"
        if oldest and release_pair(nvcc) < release_pair(oldest):
            summary = f"nvcc {nvcc} does not know compute capability {capability}: {oldest} is the oldest that does"
            yield kinds.NVCC_CARD.found(summary, evidence, root_fix(readings))
        elif release_pair(nvcc)[0] >= 13 and release_pair(capability) < release_pair(OLDEST_CARD_OF_CUDA_13):
            summary = f"nvcc {nvcc} compiles for no card before {OLDEST_CARD_OF_CUDA_13}, and this one is {capability}"
            yield kinds.NVCC_CARD.found(summary, evidence, "use a release of SGLang for CUDA 12 (0.5.19 is the last)")
        else:
            yield kinds.NVCC_CARD.fine(f"nvcc {nvcc} compiles for compute capability {capability}", evidence)
    if not capabilities:
        yield kinds.NVCC_CARD.fine("not asked: no card says its compute capability")


@cuda_check(kinds.HOST_COMPILER)
def host_compiler_of_nvcc(readings: Toolchain) -> Iterator[Finding]:
    """The release of GCC against the limit in the headers of nvcc. Other compilers are not looked at."""
    root, compiler = readings.root, known(readings.cxx)
    newest = known(root.newest_gcc) if root.nvcc else None
    found = _GCC.search(compiler.version)
    if newest is None or found is None:
        yield kinds.HOST_COMPILER.fine("not asked: no limit is given, or the compiler is not GCC", compiler.version)
        return
    major = int(found.group(1))
    evidence = f"{compiler.path}: {compiler.version}; {root.nvcc} accepts GCC up to {newest}"
    if major > newest:
        yield kinds.HOST_COMPILER.found(
            f"GCC {major} is newer than nvcc accepts, which is {newest}",
            evidence,
            f"install g++-{newest}, and set CXX to g++-{newest} and CC to gcc-{newest} in the environment of the "
            "instance",
        )
    else:
        yield kinds.HOST_COMPILER.fine(f"nvcc accepts GCC {major}", evidence)


@cuda_check(kinds.DRIVER_RELEASE)
def driver_of_torch(readings: Toolchain) -> Iterator[Finding]:
    """The driver against the CUDA of torch."""
    driver = known(readings.driver)
    if not driver.version:
        yield kinds.DRIVER_RELEASE.fine(f"not asked: there is no driver ({kinds.LIBCUDA.id})", driver.said)
        return
    torch, where = torch_release(readings)
    major = release_pair(torch)[0]
    oldest = MINIMUM_DRIVER.get(major, "")
    evidence = f"driver {driver.version}" + (f" (CUDA {driver.cuda})" if driver.cuda else "") + f"; {where}: {torch}"
    too_old = (
        release_pair(driver.cuda)[0] < major
        if driver.cuda
        else bool(oldest) and version_key(driver.version) < version_key(oldest)
    )
    if too_old:
        yield kinds.DRIVER_RELEASE.found(
            f"driver {driver.version} is too old for CUDA {torch}, which torch is built for",
            evidence,
            f"upgrade the driver to {oldest} or newer" if oldest else "",
        )
    else:
        yield kinds.DRIVER_RELEASE.fine(f"driver {driver.version} runs CUDA {torch}", evidence)


def _configured(root: CudaRoot) -> bool:
    return root.origin in ("CUDA_HOME", "CUDA_PATH")


def _where(root: CudaRoot) -> str:
    return root.path if root.path == root.origin else f"{root.path}, by {root.origin}"


def _root_is_wrong(root: CudaRoot) -> bool:
    """A root that is named and is none is one fault, whatever all is missing below it."""
    return _configured(root) and root.state != DIRECTORY


def _see_root(root: CudaRoot) -> str:
    return f"not asked: {root.origin}={root.path} is no directory"


def _others(readings: Toolchain) -> str:
    """The other candidates, for who looks for a way out."""
    roots = [root for root in known(readings.roots) if not root.chosen]
    said = [f"{root.path} ({root.origin}): {'nvcc' if root.nvcc else 'no nvcc'}" for root in roots]
    return f"; not taken: {', '.join(said)}" if said else ""


def _wheel_path(wheels: Reading[CudaWheels], name: str) -> str:
    part = None if isinstance(wheels, Unknown) else wheels.part(name)
    return part.path if part else ""


def _cards(readings: Toolchain) -> str:
    driver = readings.driver
    found = () if isinstance(driver, Unknown) else driver.capabilities
    return f"; compute capability {', '.join(found)}" if found else ""


CUDA_CHECKS: tuple[Check[Toolchain], ...] = (
    cuda_root,
    nvcc_there,
    runtime_headers,
    headers_of_nvcc,
    libcudart_for_the_linker,
    libcuda_for_the_linker,
    nvcc_of_torch,
    nvcc_of_the_card,
    host_compiler_of_nvcc,
    driver_of_torch,
)
