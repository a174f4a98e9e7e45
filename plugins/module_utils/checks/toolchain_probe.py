# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only the interpreter of an environment sees. Its text is given to that interpreter, and it prints JSON.

It stands alone: the standard library and nothing of this collection. No package of the environment is imported:
importing torch takes seconds and memory, and a broken package would take the answers about all others with it.

Argument: a JSON object with `distributions` (names), `libraries` (names to load besides those that the extensions of
SGLang need), `cuda` (whether those of torch's CUDA are asked for too), `extra_paths` (PYTHONPATH of the server) and
`limit_s` for the loading.
"""

# There is no AnsibleModule here: another interpreter runs this text.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import ctypes
import glob
import importlib.metadata
import json
import os
import re
import select
import signal
import struct
import sys
import sysconfig
import time
from typing import Any

# Compiled parts of the packages whose failure to load ends a start, as globs below site-packages.
EXTENSIONS = (
    "sgl_kernel/*.so",
    "sgl_kernel/*/*.so",
    "deep_gemm/*.so",
    "flash_mla/*.so",
    "torch/lib/libtorch_global_deps.so",
    "torch/lib/libc10_cuda.so",
)
# A C library that is missing would not have let this interpreter start.
C_LIBRARY = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv))\.so\.\d+")
# torch's release of CUDA, in the text of torch/version.py; `cuda = None` in a build without.
TORCH_CUDA = re.compile(r"""^cuda\b[^=\n]*=\s*["'](\d+)\.\d+""", re.MULTILINE)
CUDA_LIBRARIES = ("libcudart", "libnvrtc")
LIBRARY_DIRECTORIES = ("torch/lib", "nvidia/*/lib", "nvidia/*/lib64")
# Headers of CUDA that FlashInfer may bring with it.
HEADERS = ("flashinfer/data/cuda_runtime_api.h", *(f"flashinfer/data/{'*/' * n}cuda_runtime_api.h" for n in (1, 2, 3)))

DT_NEEDED, DT_STRTAB = 1, 5
PT_LOAD, PT_DYNAMIC = 1, 2


def needed_libraries(path: str) -> list[str]:
    """The names in the DT_NEEDED entries of a 64-bit little-endian ELF file. Raises ValueError for anything else."""
    with open(path, "rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        raw = file.read(size * count)
        if len(raw) < size * count or size < 56:
            raise ValueError("its program headers are cut off")
        segments = [struct.unpack_from("<IIQQQQ", raw, size * number) for number in range(count)]
        dynamic = next((each for each in segments if each[0] == PT_DYNAMIC), None)
        if dynamic is None:
            return []
        file.seek(dynamic[2])
        body = file.read(dynamic[5])
        entries = [struct.unpack_from("<qQ", body, at) for at in range(0, len(body) - 15, 16)]
        strings = next((value for tag, value in entries if tag == DT_STRTAB), None)
        if strings is None:
            raise ValueError("it has no table of strings")
        load = next(each for each in segments if each[0] == PT_LOAD and each[3] <= strings < each[3] + each[5])
        names = []
        for tag, value in entries:
            if tag == DT_NEEDED:
                file.seek(load[2] + strings - load[3] + value)
                names.append(file.read(256).split(b"\0")[0].decode("ascii", "replace"))
        return names


def directories() -> list[str]:
    """Where this interpreter finds its packages, in its order."""
    paths = sysconfig.get_paths()
    found = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return [path for path in dict.fromkeys([*found, paths["purelib"], paths["platlib"]]) if os.path.isdir(path)]


def include_directory() -> str:
    """Where headers are looked for, as Triton and torch choose it: Debian's own scheme is not asked."""
    name = sysconfig.get_default_scheme() if sys.version_info >= (3, 10) else "posix_prefix"
    return sysconfig.get_path("include", "posix_prefix" if name == "posix_local" else name)


def installed(names: list[str], paths: list[str]) -> dict[str, Any]:
    """Version of each distribution that is there; an object with the problem when its metadata cannot be read."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            for distribution in importlib.metadata.distributions(name=name, path=paths):
                version = distribution.metadata["Version"]
                found[name] = version if version else {"problem": "its metadata names no version"}
                break
        except Exception as error:
            found[name] = {"problem": f"{type(error).__name__}: {error}"}
    return found


def first_file(paths: list[str], *parts: str) -> str:
    for path in paths:
        candidate = os.path.join(path, *parts)
        if os.path.isfile(candidate):
            return candidate
    return ""


def globbed(directory: str, pattern: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))


def text_of(path: str) -> Any:
    if not path:
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError as error:
        return {"problem": f"{path}: {error.strerror}"}


def extensions(paths: list[str]) -> list[dict[str, Any]]:
    found = []
    for pattern in EXTENSIONS:
        for site in paths:
            for path in globbed(site, pattern):
                try:
                    found.append({"path": path, "needed": needed_libraries(path)})
                except (OSError, ValueError, StopIteration, struct.error) as error:
                    found.append({"path": path, "problem": str(error) or type(error).__name__})
    return found


def load_one(name: str, places: list[str]) -> dict[str, Any]:
    """Ask the loader by name, then for the files of that name that packages bring: torch has them loaded by path."""
    problems = []
    for target in [name, *(os.path.join(place, name) for place in places)]:
        if os.sep in target and not os.path.lexists(target):
            continue
        try:
            ctypes.CDLL(target)
            return {"name": name, "loaded": target}
        except OSError as error:
            problems.append(str(error))
    # A file that is there and does not load says more than that the name is not found.
    return {"name": name, "loaded": "", "problem": problems[-1]}


def load_all(names: list[str], places: list[str], limit_s: float) -> list[dict[str, Any]]:
    """Load each library in a child of its own, all at once: one that crashes or hangs takes nothing with it."""
    children: dict[int, tuple[str, int]] = {}
    answers: dict[str, bytes] = dict.fromkeys(names, b"")
    for name in names:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            # What a library prints when it is loaded must not get into the answer.
            quiet = os.open(os.devnull, os.O_RDWR)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            try:
                os.write(writer, json.dumps(load_one(name, places)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        children[reader] = (name, child)
    until = time.monotonic() + limit_s
    waiting = dict(children)
    while waiting and time.monotonic() < until:
        ready, _writable, _failed = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
        for reader in ready:
            data = os.read(reader, 65536)
            answers[waiting[reader][0]] += data
            if not data:
                del waiting[reader]
    results = []
    for reader, (name, child) in children.items():
        late = reader in waiting
        if late:
            os.kill(child, signal.SIGKILL)
        _pid, status = os.waitpid(child, 0)
        os.close(reader)
        if late:
            results.append({"name": name, "problem": f"loading it did not end within {limit_s:g} s", "late": True})
        elif os.WIFSIGNALED(status):
            crash = f"loading it ended the process by signal {os.WTERMSIG(status)}"
            results.append({"name": name, "loaded": "", "problem": crash})
        else:
            results.append(json.loads(answers[name].decode()))
    return results


def report(wanted: dict[str, Any]) -> dict[str, Any]:
    own = directories()
    paths = [*[path for path in wanted["extra_paths"] if os.path.isdir(path)], *own]
    include = include_directory()
    found = extensions(paths)
    torch_path = first_file(paths, "torch", "version.py")
    torch_version = text_of(torch_path)
    cuda = TORCH_CUDA.search(torch_version) if wanted["cuda"] and isinstance(torch_version, str) else None
    names = [*wanted["libraries"], *(f"{name}.so.{cuda.group(1)}" for name in CUDA_LIBRARIES if cuda)]
    needed_by: dict[str, list[str]] = {name: [] for name in names}
    for extension in found:
        for name in extension.get("needed", []):
            # What lies next to it, or in torch, comes with the package; torch's are gigabytes to load.
            beside = [os.path.dirname(extension["path"]), *(os.path.join(site, "torch", "lib") for site in paths)]
            if not C_LIBRARY.fullmatch(name) and not any(os.path.exists(os.path.join(each, name)) for each in beside):
                needed_by.setdefault(name, []).append(extension["path"])
    places = [each for site in paths for mark in LIBRARY_DIRECTORIES for each in globbed(site, mark)]
    return {
        "executable": sys.executable,
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "include": include,
        "python_h": os.path.isfile(os.path.join(include, "Python.h")),
        "site_packages": paths,
        "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", ""),
        "distributions": installed(wanted["distributions"], paths),
        "torch_version": torch_version,
        "torch_path": torch_path,
        "extensions": found,
        "needed_by": needed_by,
        "libraries": load_all(list(needed_by), places, wanted["limit_s"]),
        "headers": [each for site in paths for mark in HEADERS for each in globbed(site, mark)],
    }


if __name__ == "__main__":
    print(json.dumps(report(json.loads(sys.argv[1]))))
