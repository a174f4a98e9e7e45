# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what a native instance compiles and loads its kernels with, as its own interpreter and its unit see it.

The unit has a clean environment, so nothing of the environment of this process is passed on to what is asked here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import nvml_reader, spec
from ..environments import environment_of
from ..pinned_packages import ReleasePins, normal_name, pins_for
from . import toolchain_probe
from .check import run_checks
from .cuda_roots import CudaRoot, candidates, read_roots
from .cuda_wheels import CudaWheels, find_cuda_wheels, header_release
from .driver_readings import read_kernel_module
from .instance_shape import NOT_CUDA
from .path_variables import PathVariable, read_path_variables, watched
from .plain import plain
from .reading import CouldNotTell, Reader, Reading, Unknown, gather, known, patient, read_first, run_command
from .service_view import OutOfReach, is_in_home, out_of_reach

# Together within the limit of a preflight for an area: a round of commands, and a round that reads files.
COMMAND_LIMIT_S = 0.9
SMI_LIMIT_S = 1.7
LOAD_LIMIT_S = 1.2
PROBE_LIMIT_S = 1.9
FIRST_ROUND_S = 2.0
SECOND_ROUND_S = 0.4
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What SGLang's kernels are in, or are compiled with. The other packages do not depend on the host.
WATCHED_PACKAGES = (
    "sglang",
    "torch",
    "triton",
    "flashinfer-python",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "sglang-kernel",
    "sgl-deep-gemm",
    "sgl-deep-ep",
    "sgl-flash-mla",
    "flash-attn-4",
    "apache-tvm-ffi",
    "nvidia-cutlass-dsl",
    "tilelang",
    "tokenspeed-mla",
    "quack-kernels",
    "humming-kernels",
    "cuda-python",
    "ninja",
)
# Loaded by name wherever the server uses a card: the driver, and what cpu and memory are bound with.
WATCHED_LIBRARIES = ("libcuda.so.1", "libnuma.so.1")

_TORCH_CUDA = re.compile(r"""^cuda\b[^=\n]*=\s*(?:None|["']([\d.]+)["'])""", re.MULTILINE)


@dataclass(frozen=True)
class System:
    """The distribution: `family` is debian, redhat, suse or empty, for the names of packages."""

    name: str
    family: str


@dataclass(frozen=True)
class Tool:
    """A program that is looked for on the PATH of the unit. `path` is empty when it is not there."""

    asked: str
    path: str
    version: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Library:
    """What the loader said. `loaded` is the name or the path that it took, empty when it took none."""

    name: str
    loaded: str
    problem: str = ""
    late: bool = False
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interpreter:
    """An interpreter and what it sees. `torch_cuda` is None without torch, empty for a torch without CUDA."""

    executable: str
    version: str
    prefix: str
    base_prefix: str
    include: str
    python_h: bool
    site_packages: tuple[str, ...]
    glibc: str
    packages: Mapping[str, str]
    unreadable: Mapping[str, str]
    torch_cuda: Reading[str | None]
    torch_path: str
    libraries: tuple[Library, ...]
    headers: tuple[str, ...]

    @property
    def minor(self) -> str:
        """3.12 of 3.12.4."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True)
class HeaderSet:
    """Headers of CUDA that a compilation would meet besides those of the chosen root, and their release."""

    origin: str
    include: str
    release: Reading[str]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver; `version` is empty when there is none. `cuda` is the release that it supports, if it says so."""

    version: str
    cuda: str = ""
    capabilities: tuple[str, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Toolchain:
    """All readings for one environment. `stand_in` is set when the host's interpreter was asked in place of its own.

    `links` has, for each library that is linked, what the linker complained about: nothing when it links.
    """

    instances: tuple[str, ...]
    python: str
    stand_in: bool
    device: str
    pins: ReleasePins
    path: str
    variables: Reading[tuple[PathVariable, ...]]
    system: Reading[System]
    interpreter: Reading[Interpreter]
    out_of_reach: Reading[tuple[OutOfReach, ...]]
    cxx: Reading[Tool]
    cc: Reading[Tool]
    ninja: Reading[Tool]
    roots: Reading[tuple[CudaRoot, ...]]
    links: Reading[Mapping[str, str]]
    headers: Reading[tuple[HeaderSet, ...]]
    wheels: Reading[CudaWheels]
    driver: Reading[Driver]

    @property
    def uses_cuda(self) -> bool:
        return self.device not in NOT_CUDA

    @property
    def root(self) -> CudaRoot:
        """The root that SGLang takes. Raises CouldNotTell when the roots could not be read."""
        return next(root for root in known(self.roots) if root.chosen)

    def as_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        return data


def unit_path(python: str) -> str:
    """The PATH that the unit of an instance gives, where none is declared."""
    return f"{os.path.dirname(python)}:/usr/local/cuda/bin:{SYSTEM_PATH}"


def read_toolchain(
    python: str,
    release: str,
    environment: Mapping[str, str],
    device: str = "cuda",
    base_python: str = "python3",
    driver: Reading[Driver] | None = None,
    instances: Sequence[str] = (),
    homes_hidden: bool = True,
) -> Toolchain:
    """Read all of it at once. `driver` is given by who has read it for another environment of the host already."""
    path = environment.get("PATH") or unit_path(python)
    given = {**environment, "PATH": path}
    stand_in = not os.path.lexists(python)
    asked = (shutil.which(base_python, path=path) or base_python) if stand_in else python
    cuda = device != "cpu"
    cxx = given.get("CXX") or "c++"
    readers: dict[str, Callable[[], Any]] = {
        "system": read_system,
        "interpreter": lambda: read_interpreter(asked, given, cuda),
        "cxx": lambda: read_tool(cxx, given),
        "cc": lambda: read_c_compiler(given),
        "ninja": lambda: read_tool("ninja", given),
        "variables": lambda: read_path_variables(environment),
        "out_of_reach": lambda: out_of_reach(needed_paths(asked, given, cuda), spec.USER, homes_hidden),
    }
    if cuda:
        found = candidates(given)
        root = next(candidate.path for candidate in found if candidate.chosen)
        readers["roots"] = lambda: read_roots(found, clean(given))
        readers["links"] = lambda: read_links(root, read_tool(cxx, given), given)
        if driver is None:
            readers["driver"] = read_driver
    first = gather({name: Reader(read, FIRST_ROUND_S) for name, read in readers.items()})
    unasked = Unknown("not asked: the server runs on the CPU")
    second = gather(_second(first["interpreter"], given)) if cuda else dict.fromkeys(("headers", "wheels"), unasked)
    return Toolchain(
        instances=tuple(name for name in instances if name),
        python=python,
        stand_in=stand_in,
        device=device,
        pins=pins_for(release),
        path=path,
        variables=first["variables"],
        system=first["system"],
        interpreter=first["interpreter"],
        out_of_reach=first["out_of_reach"],
        cxx=first["cxx"],
        cc=first["cc"],
        ninja=first["ninja"],
        roots=first.get("roots", unasked),
        links=first.get("links", unasked),
        headers=second["headers"],
        wheels=second["wheels"],
        driver=unasked if not cuda else first["driver"] if driver is None else driver,
    )


def needed_paths(python: str, environment: Mapping[str, str], cuda: bool) -> tuple[str, ...]:
    """What the service must get at: its interpreter, which is a link to the base interpreter, and nvcc."""
    found = [python]
    if cuda:
        found += [os.path.join(root.path, "bin", "nvcc") for root in candidates(environment) if root.chosen]
    return tuple(path for path in found if path.startswith("/"))


def _second(interpreter: Reading[Interpreter], environment: Mapping[str, str]) -> dict[str, Reader]:
    """What is read of the directories that the interpreter named."""

    def wheels() -> CudaWheels:
        return find_cuda_wheels(known(interpreter).site_packages)

    def headers() -> tuple[HeaderSet, ...]:
        bundled = () if isinstance(interpreter, Unknown) else interpreter.headers
        return read_header_sets(bundled, environment)

    return {"wheels": Reader(wheels, SECOND_ROUND_S), "headers": Reader(headers, SECOND_ROUND_S)}


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The few variables that a program which is asked needs. A token must not end up in a list of processes."""
    return {name: environment[name] for name in ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH") if environment.get(name)}


def in_clean_environment(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The words that run a command with nothing but these variables."""
    return ["env", "-i", "LC_ALL=C.UTF-8", *(f"{name}={value}" for name, value in clean(environment).items()), *argv]


def read_system() -> System:
    text = read_first("/etc/os-release") or ""
    values = dict(re.findall(r"""^(\w+)=["']?(.*?)["']?$""", text, re.MULTILINE))
    words = f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".split()
    families = {
        "debian": {"debian", "ubuntu"},
        "redhat": {"rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn"},
        "suse": {"suse", "sles", "opensuse"},
    }
    family = next((name for name, members in families.items() if members & set(words)), "")
    return System(values.get("PRETTY_NAME", ""), family)


def read_tool(asked: str, environment: Mapping[str, str]) -> Tool:
    """Look for a program as a shell would, and have it say its version. `asked` may have a launcher before it.

    Raises CouldNotTell when it does not end in time: a busy host is no broken compiler.
    """
    try:
        words = shlex.split(asked)
    except ValueError as error:
        return Tool(asked, "", problem=f"{asked!r} is no command: {error}")
    paths = [shutil.which(word, path=environment["PATH"]) or "" for word in words if not word.startswith("-")]
    if not paths or not all(paths):
        return Tool(asked, "")
    output = run_command(in_clean_environment([*words, "--version"], environment), COMMAND_LIMIT_S)
    first_line = output.stdout.strip().splitlines()[:1]
    if output.code != 0:
        return Tool(asked, paths[-1], problem=f"`{asked} --version` ended with {output.code}: {output.said}")
    return Tool(asked, paths[-1], first_line[0].strip() if first_line else "")


def read_c_compiler(environment: Mapping[str, str]) -> Tool:
    """The one that Triton takes: $CC, else gcc, else clang."""
    if environment.get("CC"):
        return read_tool(environment["CC"], environment)
    tool = read_tool("gcc", environment)
    return tool if tool.path else (other if (other := read_tool("clang", environment)).path else tool)


def read_interpreter(python: str, environment: Mapping[str, str], cuda: bool) -> Interpreter:
    """Have an interpreter say what it sees. Raises CouldNotTell when it cannot be run or garbles."""
    wanted = {
        "distributions": list(WATCHED_PACKAGES),
        "libraries": list(WATCHED_LIBRARIES) if cuda else [],
        "cuda": cuda,
        "extra_paths": [path for path in environment.get("PYTHONPATH", "").split(":") if path],
        "limit_s": patient(LOAD_LIMIT_S),
    }
    # -I: neither a module in the current directory nor PYTHONPATH shall take the place of the standard library's.
    argv = in_clean_environment([python, "-I", "-B", "-", json.dumps(wanted)], environment)
    output = run_command(argv, PROBE_LIMIT_S, text_in=probe_text())
    if output.code != 0:
        raise CouldNotTell(f"{python} ended with {output.code}: {output.said}")
    return parse_probe(output.stdout, python)


def probe_text() -> str:
    """The text of toolchain_probe.py. Its loader is asked: the files of a module come to the host in an archive."""
    # It is imported although only its text is wanted: what is not imported is not sent to the host.
    loader: Any = toolchain_probe.__spec__.loader if toolchain_probe.__spec__ else None
    text = loader.get_source(toolchain_probe.__name__) if hasattr(loader, "get_source") else None
    if not text:
        raise CouldNotTell("the text of toolchain_probe.py cannot be read")
    return str(text)


def parse_probe(text: str, python: str) -> Interpreter:
    """From the answer of an interpreter. Raises CouldNotTell when it is no such answer."""
    try:
        data = json.loads(text)
        distributions = data["distributions"]
        return Interpreter(
            executable=str(data["executable"]),
            version=str(data["version"]),
            prefix=str(data["prefix"]),
            base_prefix=str(data["base_prefix"]),
            include=str(data["include"]),
            python_h=bool(data["python_h"]),
            site_packages=tuple(data["site_packages"]),
            glibc=str(data["glibc"]),
            packages={normal_name(name): found for name, found in distributions.items() if isinstance(found, str)},
            unreadable={name: found["problem"] for name, found in distributions.items() if isinstance(found, dict)},
            torch_cuda=torch_cuda_of(data["torch_version"]),
            torch_path=str(data["torch_path"]),
            libraries=tuple(
                Library(
                    name=found["name"],
                    loaded=found.get("loaded", ""),
                    problem=found.get("problem", ""),
                    late=found.get("late", False),
                    needed_by=tuple(data["needed_by"].get(found["name"], ())),
                )
                for found in data["libraries"]
            ),
            headers=tuple(data["headers"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        begin = text.strip()[:80] or "nothing"
        raise CouldNotTell(f"{python} answered with something else than expected ({error!r}): {begin}") from None


def torch_cuda_of(text: Any) -> Reading[str | None]:
    """The release of CUDA in the text of torch/version.py: "13.0", empty for a build without, None for no torch."""
    if text is None:
        return None
    if not isinstance(text, str):
        return Unknown(str(text["problem"]))
    found = _TORCH_CUDA.search(text)
    if found is None:
        return Unknown("torch/version.py does not say which release of CUDA it was built for")
    return found.group(1) or ""


def read_links(root: str, compiler: Tool, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Link against libcudart and libcuda as SGLang and FlashInfer do, and keep what the linker complains about."""
    if not compiler.path or compiler.problem:
        raise CouldNotTell(f"there is no C++ compiler to link with ({compiler.asked})")
    said = {}
    directory = os.path.join(root, "lib64")
    with tempfile.TemporaryDirectory(prefix="sglang-preflight-") as place:
        for library in ("cudart", "cuda"):
            argv = [
                *shlex.split(compiler.asked),
                "-shared",
                "-x",
                "c++",
                "/dev/null",
                "-o",
                os.path.join(place, "a.so"),
            ]
            argv += [f"-L{directory}", f"-L{directory}/stubs", f"-l{library}"]
            output = run_command(in_clean_environment(argv, environment), COMMAND_LIMIT_S)
            lines = [line.strip() for line in output.stderr.splitlines() if line.strip()]
            about = [line for line in lines if f"-l{library}" in line or f"lib{library}" in line]
            said[library] = "" if output.code == 0 else (about or lines or [f"it ended with {output.code}"])[0]
    return said


def read_header_sets(bundled: Sequence[str], environment: Mapping[str, str]) -> tuple[HeaderSet, ...]:
    """Headers of CUDA that FlashInfer brings, and those that variables put before others."""
    found = [("FlashInfer's own", os.path.dirname(path)) for path in bundled]
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"):
        found += [(name, entry) for entry in environment.get(name, "").split(":") if entry.startswith("/")]
    sets = []
    for origin, include in dict.fromkeys(found):
        try:
            release: Reading[str] = header_release(include) or ""
        except CouldNotTell as error:
            release = Unknown(str(error))
        if release:
            sets.append(HeaderSet(origin, include, release))
    return tuple(sets)


def read_driver() -> Driver:
    """Ask NVML, else nvidia-smi, else the kernel. Raises CouldNotTell when there is a driver that does not answer."""
    try:
        cards, version, cuda = nvml_reader.read(nvml_reader.load())
        return Driver(version, cuda, _capabilities([card.compute_capability for card in cards]))
    except nvml_reader.NvmlUnavailable as error:
        said = error.text
    loaded = read_kernel_module().version or ""
    argv = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    if shutil.which(argv[0]) is None:
        return Driver(loaded, said=f"{said}; nvidia-smi is not installed")
    try:
        output = run_command(argv, SMI_LIMIT_S)
    except CouldNotTell as error:
        # It takes seconds where nothing keeps the driver awake, and a preflight does not wait so long.
        if not loaded:
            raise
        return Driver(loaded, said=f"{said}; {error}")
    if output.code != 0:
        raise CouldNotTell(f"nvidia-smi ended with {output.code}: {output.said}")
    return parse_driver(output.stdout)


def parse_driver(text: str) -> Driver:
    """From lines like "580.95.05, 9.0". Raises CouldNotTell for anything else."""
    rows = [[field.strip() for field in line.split(",")] for line in text.strip().splitlines()]
    if not rows or any(len(row) != 2 or not re.fullmatch(r"\d+(\.\d+)+", row[0]) for row in rows):
        raise CouldNotTell(f"nvidia-smi answered with something else than expected: {text.strip()[:80] or 'nothing'}")
    return Driver(rows[0][0], capabilities=_capabilities([row[1] for row in rows]))


def _capabilities(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if re.fullmatch(r"\d+\.\d+", text)))


@dataclass(frozen=True)
class Asked:
    """One environment that instances share."""

    python: str
    release: str
    device: str
    environment: tuple[tuple[str, str], ...]
    homes_hidden: bool


def environments_of(params: Mapping[str, Any]) -> dict[Asked, list[str]]:
    """The distinct environments of the native instances, with the names of those that use each.

    Without `instances` there is one, which the other parameters describe.
    """
    declared = params.get("instances")
    if declared is None:
        declared = [{**params, "name": ""}]
    found: dict[Asked, list[str]] = {}
    for instance in declared:
        if str(instance.get("runtime") or "native") != "native":
            continue
        version = str(instance.get("version") or params.get("version") or "")
        python = str(instance.get("python") or f"{environment_of(version)}/bin/python")
        arguments = instance.get("arguments") or {}
        device = str(arguments.get("device") or instance.get("device") or params.get("device") or "cuda")
        environment = {str(key): str(value) for key, value in (instance.get("environment") or {}).items()}
        # HOME is another one for each instance and says nothing about how kernels are compiled.
        kept = tuple(sorted((key, value) for key, value in environment.items() if watched(key) and key != "HOME"))
        # As the role does: a unit that is told of a path in a home is not kept from homes.
        named = [*environment.values(), *map(str, arguments.values()), str(instance.get("model") or "")]
        hidden = not any(is_in_home(path) for path in named)
        found.setdefault(Asked(python, version, device, kept, hidden), []).append(str(instance.get("name") or ""))
    return found


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """Read and check each distinct environment once. A finding names the instance when only one uses it."""
    from .toolchain_checks import CHECKS

    asked = environments_of(params)
    base_python = str(params.get("base_python") or "python3")
    # One driver for the host: it is read beside the environments and put into each of them.
    later = Unknown("the driver is read once for all environments")

    def reader(each: Asked, names: list[str]) -> Reader:
        return Reader(
            lambda: read_toolchain(
                each.python,
                each.release,
                dict(each.environment),
                each.device,
                base_python,
                later,
                names,
                each.homes_hidden,
            ),
            FIRST_ROUND_S + SECOND_ROUND_S,
        )

    readers = {str(number): reader(each, names) for number, (each, names) in enumerate(asked.items())}
    if any(each.device != "cpu" for each in asked):
        readers["driver"] = Reader(read_driver, FIRST_ROUND_S)
    read = gather(readers)
    driver = read.pop("driver", None)
    readings = []
    findings = []
    for (each, names), toolchain in zip(asked.items(), read.values()):
        if isinstance(toolchain, Unknown):
            raise CouldNotTell(f"{each.python}: {toolchain.reason}")
        if driver is not None and toolchain.uses_cuda:
            toolchain = replace(toolchain, driver=driver)
        readings.append(toolchain.as_dict())
        for finding in run_checks(CHECKS, toolchain):
            said = finding.as_dict()
            if len(names) == 1 and names[0]:
                said["instance"] = names[0]
            elif len(asked) > 1:
                said["evidence"] = f"{', '.join(names)}: {said['evidence']}"
            findings.append(said)
    return {"readings": {"environments": readings}, "findings": findings}
