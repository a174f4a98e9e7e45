# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the packages of an environment are what the release names, and their libraries load."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..missing_library import how_to_get
from ..pinned_packages import public_version, satisfies, version_key
from . import toolchain_kinds as kinds
from .check import Check, Kind, check
from .cuda_only import cuda_check
from .reading import CouldNotTell, known
from .toolchain_fixes import family_of, jit_cache_fix
from .toolchain_readings import WATCHED_PACKAGES, Interpreter, Library, Toolchain

# With another version of these the kernels do not load, or SGLang refuses to start.
CRITICAL = ("torch", "flashinfer-python", "sglang-kernel", "triton")


@cuda_check(kinds.LIBCUDA)
def libcuda(readings: Toolchain) -> Iterator[Finding]:
    """The driver's library, asked of the loader."""
    yield _library(kinds.LIBCUDA, _loaded(readings, "libcuda.so.1"), readings)


@cuda_check(kinds.LIBNUMA)
def libnuma(readings: Toolchain) -> Iterator[Finding]:
    """Needed by the kernels of some releases, and used by all where there is more than one node of memory."""
    library = _loaded(readings, "libnuma.so.1")
    severity = ERROR if library.needed_by else WARNING
    yield _library(kinds.LIBNUMA, library, readings, severity)


@cuda_check(kinds.SHARED_LIBRARY)
def shared_libraries(readings: Toolchain) -> Iterator[Finding]:
    """Everything else that the compiled parts of the kernels name as needed."""
    for library in known(readings.interpreter).libraries:
        if library.name not in ("libcuda.so.1", "libnuma.so.1"):
            yield _library(kinds.SHARED_LIBRARY, library, readings)


@check(kinds.SGLANG_VERSION)
def sglang_version(readings: Toolchain) -> Iterator[Finding]:
    """What is installed against what is declared."""
    if readings.stand_in:
        yield kinds.SGLANG_VERSION.fine(not_installed(readings))
        return
    interpreter, wanted = known(readings.interpreter), readings.pins.version
    _readable(interpreter, "sglang")
    installed = interpreter.packages.get("sglang", "")
    evidence = f"{readings.python}: sglang {installed or 'not installed'}; declared: {wanted or 'nothing'}"
    if not installed:
        fix = f"{readings.python} -m pip install sglang=={wanted}" if wanted else ""
        yield kinds.SGLANG_VERSION.found(f"SGLang is not installed in {interpreter.prefix}", evidence, fix)
    elif wanted and public_version(installed) != wanted:
        yield kinds.SGLANG_VERSION.found(f"SGLang {installed} is installed and {wanted} declared", evidence)
    else:
        yield kinds.SGLANG_VERSION.fine(f"SGLang {installed} is installed", evidence)


@cuda_check(kinds.TORCH_WITHOUT_CUDA)
def torch_with_cuda(readings: Toolchain) -> Iterator[Finding]:
    """The build of torch, read from its text: importing it would take seconds."""
    if readings.stand_in:
        yield kinds.TORCH_WITHOUT_CUDA.fine(not_installed(readings))
        return
    interpreter = known(readings.interpreter)
    cuda = known(interpreter.torch_cuda)
    version = interpreter.packages.get("torch", "")
    evidence = (
        f"{interpreter.torch_path or interpreter.prefix}: torch {version or 'not installed'}, CUDA {cuda or 'none'}"
    )
    if cuda == "":
        wanted = readings.pins.requires.get("torch", "")
        fix = f"{readings.python} -m pip install --force-reinstall --index-url https://pypi.org/simple 'torch{wanted}'"
        yield kinds.TORCH_WITHOUT_CUDA.found(f"torch {version} is built without CUDA", evidence, fix)
    else:
        yield kinds.TORCH_WITHOUT_CUDA.fine(
            f"torch {version} is built for CUDA {cuda}" if cuda else "no torch", evidence
        )


@cuda_check(kinds.PINS)
def pinned_versions(readings: Toolchain) -> Iterator[Finding]:
    """The packages that kernels are in, or are compiled with."""
    if readings.stand_in:
        yield kinds.PINS.fine(not_installed(readings))
        return
    interpreter, pins = known(readings.interpreter), readings.pins
    if not interpreter.packages.get("sglang") and "sglang" not in interpreter.unreadable:
        yield kinds.PINS.fine(f"not asked: SGLang is not installed ({kinds.SGLANG_VERSION.id})", interpreter.prefix)
        return
    for name, problem in interpreter.unreadable.items():
        summary = f"could not tell the version of {name}"
        yield kinds.PINS.found(summary, problem, f"install {name} again in {interpreter.prefix}", UNKNOWN)
    fitting: list[str] = []
    differing: dict[str, list[tuple[str, str, str]]] = {ERROR: [], WARNING: []}
    for name, wanted in pins.requires.items():
        installed = interpreter.packages.get(name, "")
        if name in interpreter.unreadable or name not in WATCHED_PACKAGES:
            continue
        if installed and satisfies(installed, wanted):
            fitting.append(f"{name} {installed}")
        else:
            differing[_pin_severity(name, installed, wanted, pins.assumed)].append((name, installed, wanted))
    for severity, rows in differing.items():
        if rows:
            said = [f"{name} {installed or 'is missing'} ({wanted})" for name, installed, wanted in rows]
            install = " ".join(f"'{name}{wanted}'" for name, _installed, wanted in rows)
            yield kinds.PINS.found(
                f"not as SGLang {pins.taken_from} names it: {', '.join(said)}",
                f"packages of {interpreter.prefix} against the metadata of the wheel of SGLang {pins.taken_from}",
                f"{readings.python} -m pip install {install}",
                severity,
            )
    if not any(differing.values()) and not interpreter.unreadable:
        yield kinds.PINS.fine(f"{len(fitting)} packages are as the release names them", ", ".join(fitting))


@cuda_check(kinds.FLASHINFER_PARTS)
def flashinfer_parts(readings: Toolchain) -> Iterator[Finding]:
    """flashinfer-cubin and flashinfer-jit-cache must be of exactly FlashInfer's version, where they are installed."""
    if readings.stand_in:
        yield kinds.FLASHINFER_PARTS.fine(not_installed(readings))
        return
    interpreter = known(readings.interpreter)
    _readable(interpreter, "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
    packages = interpreter.packages
    base = packages.get("flashinfer-python", "")
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        part = packages.get(name, "")
        evidence = (
            f"{interpreter.prefix}: flashinfer-python {base or 'not installed'}, {name} {part or 'not installed'}"
        )
        if base and part and public_version(part) != base:
            cache = name == "flashinfer-jit-cache"
            yield kinds.FLASHINFER_PARTS.found(
                f"{name} {part} does not belong to flashinfer-python {base}: FlashInfer refuses to be imported",
                evidence,
                jit_cache_fix(readings, packages) if cache else f"{readings.python} -m pip install '{name}=={base}'",
            )
        else:
            yield kinds.FLASHINFER_PARTS.fine(f"{name} and flashinfer-python do not contradict each other", evidence)


@check(kinds.PINS_ASSUMED)
def pins_known(readings: Toolchain) -> Iterator[Finding]:
    """Whether we know what this release requires."""
    pins = readings.pins
    if pins.assumed:
        yield kinds.PINS_ASSUMED.found(
            f"what SGLang {pins.version or '(not declared)'} requires is not known; {pins.taken_from} is assumed",
            f"release_pins.py has no {pins.version or 'version to look up'}",
        )
    else:
        yield kinds.PINS_ASSUMED.fine(f"what SGLang {pins.version} requires is known")


def _loaded(readings: Toolchain, name: str) -> Library:
    interpreter = known(readings.interpreter)
    library = next((each for each in interpreter.libraries if each.name == name), None)
    if library is None:
        raise CouldNotTell(f"{interpreter.executable} did not say whether it loads {name}")
    return library


def _library(kind: Kind, library: Library, readings: Toolchain, severity: str = "") -> Finding:
    if library.loaded:
        return kind.fine(f"{library.name} is loaded", f"loaded: {library.loaded}")
    if library.late:
        return kind.found(f"could not tell whether {library.name} loads", library.problem, severity=UNKNOWN)
    needed = f"; needed by {', '.join(library.needed_by[:3])}" if library.needed_by else ""
    return kind.found(
        f"{library.name} is not loaded",
        f"{library.problem or library.name}{needed}; LD_LIBRARY_PATH={_library_path(readings)}",
        how_to_get(library.name, family_of(readings.system), readings.python),
        severity,
    )


def _library_path(readings: Toolchain) -> str:
    value = next((each.value for each in known(readings.variables) if each.name == "LD_LIBRARY_PATH"), "")
    return value or "(not set)"


def _readable(interpreter: Interpreter, *names: str) -> None:
    for name in names:
        if name in interpreter.unreadable:
            raise CouldNotTell(f"version of {name}: {interpreter.unreadable[name]}")


def _pin_severity(name: str, installed: str, wanted: str, assumed: bool) -> str:
    """An error where SGLang or its kernels refuse it: missing, older than named, or torch of another minor release."""
    if assumed or name not in CRITICAL:
        return WARNING
    named = re.sub(r"^[=~<>!]+", "", wanted.partition(",")[0])
    if not installed or version_key(installed) < version_key(named):
        return ERROR
    same = version_key(installed)[0][:2] == version_key(named)[0][:2]
    return ERROR if name == "torch" and not same else WARNING


def not_installed(readings: Toolchain) -> str:
    return f"not asked: {readings.python} is not there yet"


PACKAGE_CHECKS: tuple[Check[Toolchain], ...] = (
    libcuda,
    libnuma,
    shared_libraries,
    sglang_version,
    torch_with_cuda,
    pinned_versions,
    flashinfer_parts,
    pins_known,
)
