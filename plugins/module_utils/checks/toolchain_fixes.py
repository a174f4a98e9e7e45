# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What to do about a fault of a toolchain, as lines that fit the host and the release."""

from __future__ import annotations

from collections.abc import Mapping

from ..missing_library import INSTALL
from ..pinned_packages import public_version
from .cuda_wheels import release_pair
from .reading import CouldNotTell, Reading, Unknown, known
from .toolchain_readings import Interpreter, System, Toolchain

JIT_CACHE_INDEX = "https://flashinfer.ai/whl"


def family_of(system: Reading[System]) -> str:
    return "" if isinstance(system, Unknown) else system.family


def headers_fix(interpreter: Interpreter, family: str) -> str:
    """The package of a distribution's own interpreter; another kind must come with its headers."""
    other = "or set sglang_server_python to an interpreter that ships its headers, and make the environment again"
    if interpreter.base_prefix not in ("/usr", "/usr/local"):
        return f"install the headers of {interpreter.base_prefix} (Python {interpreter.version}); {other}"
    debian, redhat = f"python{interpreter.minor}-dev", f"python{interpreter.minor}-devel"
    if family == "redhat":
        # The interpreter of RHEL 9 itself is 3.9; its package has no number.
        return f"`{INSTALL['redhat']} {'python3-devel' if interpreter.minor == '3.9' else redhat}`; {other}"
    if family == "suse":
        return f"`{INSTALL['suse']} python{interpreter.minor.replace('.', '')}-devel`; {other}"
    return f"`{INSTALL['debian']} {debian}`; {other}"


def root_fix(readings: Toolchain) -> str:
    """How to come to a root that has everything: from another candidate, from wheels, or from a toolkit."""
    major = release_pair(wanted_release(readings))[0]
    taken = readings.root.path
    for root in known(readings.roots):
        if root.path == taken:
            continue
        release = root.nvcc_release if isinstance(root.nvcc_release, str) else ""
        if root.nvcc and root.runtime_header and root.libcudart and release_pair(release)[0] == major:
            return f"CUDA_HOME: {root.path} (has bin/nvcc, include and lib64/libcudart.so, of CUDA {release})"
    target = "CUDA_HOME to a directory that has bin/nvcc, include and lib64/libcudart.so"
    wheels = readings.wheels
    parts = None if isinstance(wheels, Unknown) else wheels.of_major(major)
    if parts is not None and parts.complete:
        return f"set {target}: a deployment makes one of the wheels in the environment (sglang_server_cuda_home: auto)"
    release = wanted_release(readings)
    missing = parts.missing_distributions if parts is not None and parts.nvcc else ()
    said = f" with the missing {', '.join(missing)}" if missing else ""
    return (
        f"set {target}: a deployment makes one of wheels{said} (sglang_server_cuda_home: auto);"
        f" or install the toolkit of CUDA {release}"
    )


def wanted_release(readings: Toolchain) -> str:
    """torch's release of CUDA; what the release of SGLang names where torch does not say."""
    try:
        return torch_release(readings)[0]
    except CouldNotTell:
        return readings.pins.torch_cuda


def torch_release(readings: Toolchain) -> tuple[str, str]:
    """The release of CUDA that torch is built for, and where that was read."""
    interpreter = readings.interpreter
    if not isinstance(interpreter, Unknown) and not readings.stand_in:
        cuda = known(interpreter.torch_cuda)
        if cuda:
            return cuda, interpreter.torch_path
    elif not readings.stand_in:
        known(interpreter)
    return (
        readings.pins.torch_cuda,
        f"torch{readings.pins.requires.get('torch', '')} of SGLang {readings.pins.taken_from}",
    )


def jit_cache_fits(packages: Mapping[str, str]) -> bool:
    """Whether FlashInfer takes its kernels from flashinfer-jit-cache: exactly its version, a local part aside."""
    base = packages.get("flashinfer-python", "")
    return bool(base) and public_version(packages.get("flashinfer-jit-cache", "")) == base


def jit_cache_state(packages: Mapping[str, str]) -> str:
    have, base = packages.get("flashinfer-jit-cache", ""), packages.get("flashinfer-python", "")
    return f"flashinfer-python {base or 'not installed'}, flashinfer-jit-cache {have or 'not installed'}"


def jit_cache_fix(readings: Toolchain, packages: Mapping[str, str]) -> str:
    """It is on an index of its own, so a host without a way to it needs a mirror."""
    version = packages.get("flashinfer-python", "")
    if not version:
        version = readings.pins.requires.get("flashinfer-python", "").lstrip("=")
    index = f"{JIT_CACHE_INDEX}/cu{wanted_release(readings).replace('.', '')}"
    return (
        "install flashinfer-jit-cache of exactly the flashinfer version, so that nothing is compiled for this card:"
        f" `{readings.python} -m pip install flashinfer-jit-cache=={version} --index-url {index}`. It is not on PyPI:"
        f" the role takes it from sglang_server_flashinfer_jit_index ({index}, or a mirror of it on a host without"
        " a way there)"
    )


def same_release_fix(readings: Toolchain, origin: str, release: str, packages: Mapping[str, str]) -> str:
    """An nvcc of the release of the headers: those are bound to torch, which pins its runtime."""
    if origin not in ("the root", "the wheels"):
        return f"remove the directory of CUDA {release} from {origin} in the environment of the instance"
    said = f"take nvcc of CUDA {release}, as the headers are: a deployment installs it beside the environment and makes"
    said += " a CUDA_HOME of it (sglang_server_cuda_home: auto)"
    return said if jit_cache_fits(packages) else f"{said}; and {jit_cache_fix(readings, packages)}"
