# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an environment has what SGLang compiles, links and loads its kernels with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..finding import ERROR, WARNING, Finding
from ..missing_library import INSTALL
from ..pinned_packages import version_key
from . import toolchain_kinds as kinds
from .check import Check, Kind, check
from .cuda_checks import CUDA_CHECKS
from .cuda_only import cuda_check
from .package_checks import PACKAGE_CHECKS
from .path_variable_checks import VARIABLE_CHECKS
from .reading import CouldNotTell, Unknown, known
from .toolchain_fixes import family_of, headers_fix
from .toolchain_readings import Tool, Toolchain


@check(kinds.ENVIRONMENT_MISSING)
def environment_there(readings: Toolchain) -> Iterator[Finding]:
    """Without the environment only the host can be looked at."""
    if readings.stand_in:
        yield kinds.ENVIRONMENT_MISSING.found(
            f"{readings.python} is not there: nothing can be said of its packages before it is installed",
            f"{readings.python} does not exist; {_asked(readings)} was asked for what the host has",
        )
    else:
        yield kinds.ENVIRONMENT_MISSING.fine(f"{readings.python} is there", readings.python)


@check(kinds.HEADERS_OF_PYTHON)
def python_headers(readings: Toolchain) -> Iterator[Finding]:
    """Python.h of the base interpreter."""
    interpreter = known(readings.interpreter)
    header = f"{interpreter.include}/Python.h"
    if interpreter.python_h:
        yield kinds.HEADERS_OF_PYTHON.fine(f"Python {interpreter.version} has its headers", header)
        return
    virtual = interpreter.prefix != interpreter.base_prefix
    why = f"{interpreter.executable} is a virtual environment and has none of its own" if virtual else ""
    # A server on the CPU compiles nothing until it is asked to (torch.compile): it starts without.
    yield kinds.HEADERS_OF_PYTHON.found(
        f"Python.h of Python {interpreter.minor} is missing: headers belong to the base interpreter"
        f" below {interpreter.base_prefix}" + (f"; {why}" if why else ""),
        f"{header}: not there; base interpreter {interpreter.base_prefix}, version {interpreter.version}",
        headers_fix(interpreter, family_of(readings.system)),
        severity="" if readings.uses_cuda else WARNING,
    )


@check(kinds.PYTHON_UNSUPPORTED)
def python_version(readings: Toolchain) -> Iterator[Finding]:
    """Whether there is a wheel of the release for this interpreter."""
    interpreter, pins = known(readings.interpreter), readings.pins
    evidence = f"{interpreter.executable}: Python {interpreter.version}; wheels of {pins.taken_from} are for "
    evidence += ", ".join(pins.pythons)
    if interpreter.minor in pins.pythons:
        yield kinds.PYTHON_UNSUPPORTED.fine(
            f"SGLang {pins.version} has a wheel for Python {interpreter.minor}", evidence
        )
    elif interpreter.packages.get("sglang"):
        summary = f"SGLang is installed for Python {interpreter.version}, which it has no published wheel for"
        yield kinds.PYTHON_UNSUPPORTED.found(summary, evidence, severity=WARNING)
    else:
        # A package manager can still be told to take another interpreter than the one that was asked.
        yield kinds.PYTHON_UNSUPPORTED.found(
            f"SGLang {pins.version} has no wheel for Python {interpreter.version}",
            evidence,
            f"sglang_server_python: python{pins.pythons[-1]}",
            WARNING if pins.assumed else ERROR,
        )


@check(kinds.OUT_OF_REACH)
def within_reach(readings: Toolchain) -> Iterator[Finding]:
    """The service is another user than who reads this, and sees less of the file system."""
    for found in known(readings.out_of_reach):
        summary = f"the service cannot get at {found.place}: {found.why}"
        yield kinds.OUT_OF_REACH.found(summary, f"{found.path}, which is {found.place}: {found.why}")


@check(kinds.GLIBC)
def c_library(readings: Toolchain) -> Iterator[Finding]:
    """The C library against the tag of the wheels."""
    interpreter, wanted = known(readings.interpreter), readings.pins.glibc
    if not interpreter.glibc:
        raise CouldNotTell(f"{interpreter.executable} does not say which C library it runs on")
    evidence = f"glibc {interpreter.glibc}; wheels of {readings.pins.taken_from} want {wanted}"
    if version_key(interpreter.glibc) < version_key(wanted):
        summary = f"glibc {interpreter.glibc} is older than {wanted}, which the wheels want"
        yield kinds.GLIBC.found(summary, evidence)
    else:
        yield kinds.GLIBC.fine(f"glibc {interpreter.glibc} is new enough", evidence)


@cuda_check(kinds.CXX)
def cxx_compiler(readings: Toolchain) -> Iterator[Finding]:
    """$CXX, else c++."""
    packages = {"debian": "g++", "redhat": "gcc-c++", "suse": "gcc-c++"}
    yield _tool(kinds.CXX, known(readings.cxx), readings, packages, "C++ compiler")


@cuda_check(kinds.CC)
def c_compiler(readings: Toolchain) -> Iterator[Finding]:
    """$CC, else gcc, else clang."""
    packages = {"debian": "gcc", "redhat": "gcc", "suse": "gcc"}
    yield _tool(kinds.CC, known(readings.cc), readings, packages, "C compiler")


@cuda_check(kinds.NINJA)
def ninja(readings: Toolchain) -> Iterator[Finding]:
    """On the PATH of the unit; SGLang requires the package that brings it."""
    tool = known(readings.ninja)
    if readings.stand_in and not tool.path:
        yield kinds.NINJA.fine("the host has no ninja; it comes with the environment", f"PATH={readings.path}")
        return
    finding = _tool(kinds.NINJA, tool, readings, {}, "ninja")
    interpreter = readings.interpreter
    if finding.severity == ERROR and not isinstance(interpreter, Unknown) and interpreter.packages.get("ninja"):
        where = f"{interpreter.prefix}/bin"
        fix = f"put {where} on PATH in the environment of the instance"
        yield kinds.NINJA.found(
            f"ninja is installed in the environment and {where} is not on PATH", finding.evidence, fix
        )
        return
    fix = f"{readings.python} -m pip install ninja"
    yield finding if finding.severity != ERROR else kinds.NINJA.found(finding.summary, finding.evidence, fix)


def _asked(readings: Toolchain) -> str:
    interpreter = readings.interpreter
    return "no interpreter" if isinstance(interpreter, Unknown) else interpreter.executable


def _tool(kind: Kind, tool: Tool, readings: Toolchain, packages: Mapping[str, str], what: str) -> Finding:
    if tool.path and not tool.problem:
        return kind.fine(f"{what}: {tool.version or tool.path}", f"{tool.path}: {tool.version}")
    family = family_of(readings.system)
    name = packages.get(family, packages.get("debian", ""))
    fix = f"{INSTALL.get(family, INSTALL['debian'])} {name}" if name else ""
    if tool.problem:
        return kind.found(f"the {what} {tool.asked} does not run", f"{tool.path or tool.asked}: {tool.problem}", fix)
    return kind.found(f"there is no {what}: {tool.asked} is not on PATH", f"PATH={readings.path}", fix)


CHECKS: tuple[Check[Toolchain], ...] = (
    environment_there,
    python_headers,
    python_version,
    within_reach,
    c_library,
    cxx_compiler,
    c_compiler,
    ninja,
    *CUDA_CHECKS,
    *PACKAGE_CHECKS,
    *VARIABLE_CHECKS,
)
