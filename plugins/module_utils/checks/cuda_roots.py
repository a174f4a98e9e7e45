# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The places where SGLang and FlashInfer look for CUDA's toolkit, in their order, and what is at each."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cuda_wheels import header_release
from .path_variables import DIRECTORY, state_of
from .reading import CouldNotTell, Reader, Reading, Unknown, gather, known, read_first, run_command

# nvcc answers within milliseconds; it is asked twice, within the limit of a preflight.
NVCC_LIMIT_S = 0.8
DEFAULT_ROOT = "/usr/local/cuda"
ON_PATH = "nvcc on PATH"

_RELEASE = re.compile(r"release (\d+\.\d+)")
_NEWEST_GCC = re.compile(r"#if __GNUC__ > (\d+)\s*\n\s*#error -- unsupported GNU version")
_INCLUDE = re.compile(r'"-I([^"]+)"')


@dataclass(frozen=True)
class CudaRoot:
    """One candidate. `chosen` is set on the one that is taken: the first that is named, whatever is there.

    `nvcc` is empty when there is none; then `nvcc_release` is None, as `headers_release` is without headers. `includes`
    are the directories that this nvcc looks for its own headers in, and `newest_gcc` is the newest major release of GCC
    that these accept. `libcudart` and `libcuda_stub` are what a linker is pointed to, empty when not there.
    """

    origin: str
    path: str
    chosen: bool
    state: str
    nvcc: str = ""
    nvcc_for_all: bool = True
    nvcc_release: Reading[str | None] = None
    includes: Reading[tuple[str, ...]] = ()
    runtime_header: str = ""
    headers_release: Reading[str | None] = None
    newest_gcc: Reading[int | None] = None
    libcudart: str = ""
    libcuda_stub: str = ""


@dataclass(frozen=True)
class Candidate:
    origin: str
    path: str
    chosen: bool


def candidates(environment: Mapping[str, str]) -> tuple[Candidate, ...]:
    """What is looked at, as sglang/kernels/jit/utils/compile/toolchain.py and flashinfer/jit/cpp_ext.py do.

    `CUDA_HOME or CUDA_PATH`, as Python reads it: an empty CUDA_HOME is passed over, an empty CUDA_PATH is not.
    """
    home, path = environment.get("CUDA_HOME"), environment.get("CUDA_PATH")
    configured = home or path
    nvcc = shutil.which("nvcc", path=environment.get("PATH", ""))
    found = []
    if home:
        found.append(("CUDA_HOME", home))
    if path is not None:
        found.append(("CUDA_PATH", path))
    if nvcc:
        found.append((ON_PATH, os.path.dirname(os.path.dirname(nvcc))))
    found.append((DEFAULT_ROOT, DEFAULT_ROOT))
    taken = configured if configured is not None else found[0][1]
    first = next(number for number, (_origin, where) in enumerate(found) if where == taken)
    return tuple(Candidate(origin, where, number == first) for number, (origin, where) in enumerate(found))


def read_roots(found: Sequence[Candidate], environment: Mapping[str, str]) -> tuple[CudaRoot, ...]:
    """What is at each of them."""

    def reader(candidate: Candidate) -> Reader:
        return Reader(lambda: read_root(candidate, environment), 2 * NVCC_LIMIT_S + 0.3)

    read = gather({str(number): reader(candidate) for number, candidate in enumerate(found)})
    # One that could not be read at all is more than we can go on with: it may be the one that is taken.
    return tuple(known(root) for root in read.values())


def read_root(candidate: Candidate, environment: Mapping[str, str]) -> CudaRoot:
    path = candidate.path
    state = state_of(path)
    if state != DIRECTORY:
        return CudaRoot(candidate.origin, path, candidate.chosen, state)
    nvcc = _file(path, "bin/nvcc")
    release, includes = _ask_nvcc(nvcc, environment) if nvcc else (None, ())
    return CudaRoot(
        origin=candidate.origin,
        path=path,
        chosen=candidate.chosen,
        state=state,
        nvcc=nvcc,
        nvcc_for_all=not nvcc or bool(os.stat(nvcc).st_mode & stat.S_IXOTH),
        nvcc_release=release,
        includes=includes,
        runtime_header=_file(path, "include/cuda_runtime.h"),
        headers_release=_release_of_headers(os.path.join(path, "include")),
        newest_gcc=_newest_gcc([os.path.join(path, "include"), *(includes if isinstance(includes, tuple) else ())]),
        libcudart=_file(path, "lib64/libcudart.so"),
        libcuda_stub=_file(path, "lib64/stubs/libcuda.so"),
    )


def _file(root: str, name: str) -> str:
    """Its path when a file is there; a link that leads nowhere is none."""
    path = os.path.join(root, name)
    return path if os.path.isfile(path) else ""


def _ask_nvcc(nvcc: str, environment: Mapping[str, str]) -> tuple[Reading[str | None], Reading[tuple[str, ...]]]:
    words = ["env", "-i", "LC_ALL=C.UTF-8", *(f"{name}={value}" for name, value in environment.items()), nvcc]
    release: Reading[str | None]
    includes: Reading[tuple[str, ...]]
    try:
        release = parse_nvcc_release(run_command([*words, "--version"], NVCC_LIMIT_S).stdout, nvcc)
    except CouldNotTell as error:
        release = Unknown(str(error))
    try:
        # What it would run, without running it: only so it says where its headers are, also behind a wrapper.
        output = run_command([*words, "--dryrun", "-E", "-x", "cu", "/dev/null"], NVCC_LIMIT_S)
        includes = parse_includes(output.stderr + output.stdout, nvcc)
    except CouldNotTell as error:
        includes = Unknown(str(error))
    return release, includes


def parse_nvcc_release(text: str, nvcc: str) -> str:
    """13.0 from the answer to --version. Raises CouldNotTell when it says nothing of a release."""
    found = _RELEASE.search(text)
    if found is None:
        raise CouldNotTell(f"`{nvcc} --version` names no release: {text.strip()[:80] or 'nothing'}")
    return found.group(1)


def parse_includes(text: str, nvcc: str) -> tuple[str, ...]:
    """The -I directories in the answer to --dryrun; none when it does not find its profile.

    Raises CouldNotTell when it is no such answer.
    """
    if "_HERE_=" not in text:
        raise CouldNotTell(f"`{nvcc} --dryrun` says nothing of its directories: {text.strip()[:80] or 'nothing'}")
    lines = [line for line in text.splitlines() if line.startswith("#$ INCLUDES=")]
    found = [os.path.normpath(path) for line in lines for path in _INCLUDE.findall(line)]
    return tuple(dict.fromkeys(found))


def _newest_gcc(includes: Sequence[str]) -> Reading[int | None]:
    """What crt/host_config.h says; None when there is none, or it has no limit."""
    for include in includes:
        path = os.path.join(include, "crt", "host_config.h")
        try:
            text = read_first(path)
        except CouldNotTell as error:
            return Unknown(str(error))
        if text is not None:
            found = _NEWEST_GCC.search(text)
            return int(found.group(1)) if found else None
    return None


def _release_of_headers(include: str) -> Reading[str | None]:
    try:
        return header_release(include)
    except CouldNotTell as error:
        return Unknown(str(error))
