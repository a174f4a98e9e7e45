# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The four starts of a field report that failed one after the other, with real interpreters, compilers and linkers.

Each fault is made, seen to fail as a server would, found by the preflight, repaired, and seen to be gone. CUDA's wheels
are real; a card is not needed, because nothing that is compiled is run. Of torch there is only the file that says which
CUDA it is built for.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_checks import CHECKS
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_readings import read_toolchain
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, Finding
from ansible_collections.serving.sglang.plugins.modules import cuda_home

CHECKOUT = Path(__file__).resolve().parents[2]
WHEELS = Path(os.environ.get("SGLANG_TEST_CACHE", "/var/cache/serving-sglang")) / "cuda-wheels"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# What belongs to a release, from the meta package cuda-toolkit: 104 and 124 MB.
RELEASES = {
    "13.0": {
        "nvidia-cuda-nvcc": "13.0.88",
        "nvidia-nvvm": "13.0.88",
        "nvidia-cuda-crt": "13.0.88",
        "nvidia-cuda-cccl": "13.0.85",
        "nvidia-cuda-runtime": "13.0.96",
    },
    "13.4": {
        "nvidia-cuda-nvcc": "13.4.92",
        "nvidia-nvvm": "13.4.92",
        "nvidia-cuda-crt": "13.4.92",
        "nvidia-cuda-cccl": "13.3.4.3.1",
    },
}
COMPILER_13_0 = [f"{name}=={version}" for name, version in RELEASES["13.0"].items()]
RUNTIME_13_0 = [f"nvidia-cuda-runtime=={RELEASES['13.0']['nvidia-cuda-runtime']}"]
COMPILER_13_4 = [f"{name}=={version}" for name, version in RELEASES["13.4"].items()]

# With a header of CCCL, as FlashInfer's kernels have, and a launch, which needs libcudart.
KERNEL = """
#include <cuda_runtime.h>
#include <cuda/std/type_traits>
__global__ void twice(float *values) { values[threadIdx.x] *= 2; }
extern "C" int launch(float *values) {
  twice<<<1, 32>>>(values);
  return static_cast<int>(cudaGetLastError());
}
"""
MAIN = """
extern "C" int launch(float *values);
int main() { return launch(nullptr) == 0; }
"""
# What Triton compiles at a start: a module of Python in C.
EXTENSION = "#include <Python.h>\nPyMODINIT_FUNC PyInit_launcher(void) { return nullptr; }\n"


def run(argv: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=120, check=False, **options
    )


def wheel_of(requirement: str) -> Path | None:
    name, _equals, version = requirement.partition("==")
    return next(iter(WHEELS.glob(f"{name.replace('-', '_')}-{version}-*.whl")), None)


@pytest.fixture(scope="session", autouse=True)
def wheels() -> Path:
    """The wheels of CUDA, fetched once."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    with open(WHEELS / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [each for each in (*COMPILER_13_0, *COMPILER_13_4) if wheel_of(each) is None]
        for requirement in missing:
            with tempfile.TemporaryDirectory(dir=WHEELS) as place:
                words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
                subprocess.run([*words, "--dest", place, requirement], check=True, stdout=sys.stderr, timeout=600)
                for path in Path(place).glob("*.whl"):
                    path.replace(WHEELS / path.name)
    return WHEELS


@pytest.fixture(scope="session")
def unpacked(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An environment with nothing but pip, and the wheels of each release as pip installs them. Each is made once."""
    places = {name: tmp_path_factory.mktemp(f"unpacked-{name}") for name in ("environment", "runtime", *RELEASES)}
    subprocess.run([sys.executable, "-m", "venv", places["environment"]], check=True, timeout=60)
    contents = {"runtime": RUNTIME_13_0, "13.0": COMPILER_13_0, "13.4": COMPILER_13_4}
    for name, requirements in contents.items():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        done = run([*words, "--target", places[name], *(wheel_of(each) for each in requirements)])
        assert done.returncode == 0, done.stderr
    return places


def put(source: str, target: str) -> None:
    """As pip writes a file: a new one in the place of an old one."""
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


class Environment:
    """A virtual environment as a native release of SGLang has one."""

    def __init__(self, path: Path, unpacked: Mapping[str, Path], *contents: str) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.unpacked = unpacked
        shutil.copytree(unpacked["environment"], path, symlinks=True, copy_function=put)
        (found,) = path.glob("lib/python3*/site-packages")
        self.site: Path = found
        self.root = self.site / "nvidia" / "cu13"
        (self.site / "torch").mkdir()
        (self.site / "torch" / "version.py").write_text(
            "from typing import Optional\n\n__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
        )
        for name in contents:
            self.install(name)

    def install(self, name: str) -> None:
        shutil.copytree(self.unpacked[name], self.site, copy_function=put, dirs_exist_ok=True)

    def make_home(self, **arguments: Any) -> dict[str, Any]:
        """Run the module as Ansible does, first to say what it would do, then for real, then again."""
        # This machine may have a toolkit.
        given = {"environment": str(self.path), "toolkit": "/nowhere", **arguments}
        announced = module({**given, "_ansible_check_mode": True, "_ansible_diff": True})
        done = module({**given, "_ansible_diff": True})
        assert announced == done
        again = module(given)
        assert again.get("failed", False) or not again["changed"]
        return done

    def findings(self, cuda_home: Path | str) -> dict[str, Finding]:
        """What the preflight says of a server with this toolkit."""
        variables = {"CUDA_HOME": str(cuda_home), "PATH": f"{self.path}/bin:{SYSTEM_PATH}"}
        readings = read_toolchain(str(self.python), "0.5.22", variables)
        found: dict[str, Finding] = {}
        for finding in run_checks(CHECKS, readings):
            # Several of one kind: the worst one counts.
            if finding.id not in found or finding.severity == ERROR:
                found[finding.id] = finding
        return found


def module(arguments: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"ANSIBLE_MODULE_ARGS": arguments}, file)
        file.flush()
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = run([sys.executable, cuda_home.__file__, file.name], env={**os.environ, **path})
    result: dict[str, Any] = json.loads(done.stdout)
    result.pop("invocation", None)
    return result


Compile = Callable[[Path | str], subprocess.CompletedProcess[str]]


@pytest.fixture
def compile_kernel(tmp_path: Path) -> Compile:
    """Compile as SGLang and FlashInfer do, with nothing but the toolkit in the environment."""

    def compiled(home: Path | str) -> subprocess.CompletedProcess[str]:
        source, target = tmp_path / "kernel.cu", tmp_path / "kernel.o"
        source.write_text(KERNEL)
        target.unlink(missing_ok=True)
        words = f"{home}/bin/nvcc -arch=sm_89 -Xcompiler -fPIC -c {source} -o {target}"
        # TMPDIR: a compiler that fails leaves its files there.
        return run(["/bin/sh", "-c", words], env={"PATH": SYSTEM_PATH, "CUDA_HOME": str(home), "TMPDIR": str(tmp_path)})

    return compiled


@pytest.fixture
def link_kernel(tmp_path: Path) -> Compile:
    """Link a program with the kernel, as FlashInfer does."""

    def linked(home: Path | str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "main.cpp").write_text(MAIN)
        words = ["g++", "main.cpp", "kernel.o", "-o", "program", f"-L{home}/lib64", f"-L{home}/lib64/stubs", "-lcudart"]
        return run(words, cwd=tmp_path, env={"PATH": SYSTEM_PATH})

    return linked


def assert_compiles_and_links(home: Path | str, compile_kernel: Compile, link_kernel: Compile) -> None:
    done = compile_kernel(home)
    assert done.returncode == 0, done.stderr
    done = link_kernel(home)
    assert done.returncode == 0, done.stderr


# --- 1: an interpreter without headers ------------------------------------------------------------------------------


def bare_interpreter(place: Path) -> Path:
    """The interpreter of these tests at another place, without its headers: they are found from where it lies."""
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (place / "bin").mkdir(parents=True)
    (place / "lib").mkdir()
    shutil.copy2((base / "bin" / name).resolve(), place / "bin" / name)
    for entry in sorted((base / "lib").iterdir()):
        if entry.name == name or entry.name.startswith("libpython"):
            (place / "lib" / entry.name).symlink_to(entry)
    return place / "bin" / name


def compile_extension(python: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """As Triton compiles its launchers: with the headers where the interpreter says they are."""
    include = run([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"]).stdout.strip()
    (place / "launcher.cpp").write_text(EXTENSION)
    return run(["g++", "-shared", "-fPIC", f"-I{include}", "launcher.cpp", "-o", "launcher.so"], cwd=place)


def test_an_interpreter_without_headers(tmp_path: Path, unpacked: dict[str, Path]) -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.fail(f"{sys.base_prefix} has no Python.h: install the headers of the interpreter that runs the tests")
    bare = bare_interpreter(tmp_path / "bare")
    environment = tmp_path / "env"
    subprocess.run([bare, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    python = environment / "bin" / "python"

    failed = compile_extension(python, tmp_path)
    assert failed.returncode != 0
    assert "Python.h: No such file or directory" in failed.stderr
    (finding,) = (
        finding
        for finding in run_checks(CHECKS, read_toolchain(str(python), "0.5.22", {"PATH": SYSTEM_PATH}))
        if finding.id == "python.headers_missing"
    )
    assert finding.severity == ERROR
    # The role does not begin to make an environment with it.
    refused = play_role(
        tmp_path / "refused",
        tmp_path,
        part="native_build",
        __sglang_server_building=str(tmp_path / "building"),
        sglang_server_python=str(bare),
        sglang_server_build_packages=[],
    )
    assert refused.counts["failed"] == 1, refused.text
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"{bare} ({tmp_path}/bare/include/python{version}) has no Python.h" in refused.text
    assert f"Install python{version}-dev" in refused.text
    assert not (tmp_path / "refused").exists()
    assert not (tmp_path / "building").exists()

    repaired = Environment(tmp_path / "repaired", unpacked)
    assert compile_extension(repaired.python, tmp_path).returncode == 0
    assert repaired.findings(tmp_path)["python.headers_missing"].severity == OK


# --- 2: no nvcc -----------------------------------------------------------------------------------------------------


def test_no_nvcc(tmp_path: Path, unpacked: dict[str, Path], compile_kernel: Compile, link_kernel: Compile) -> None:
    # What torch brings.
    environment = Environment(tmp_path / "env", unpacked, "runtime")
    failed = compile_kernel(environment.root)
    assert failed.returncode == 127
    assert "bin/nvcc: not found" in failed.stderr
    assert environment.findings(environment.root)["cuda.nvcc_missing"].severity == ERROR
    refused = environment.make_home(state="present")
    assert refused["failed"]
    assert refused["finding"]["id"] == "cuda.wheels_incomplete"
    for name in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl"):
        assert name in refused["msg"]
    assert not os.path.lexists(environment.path / "cuda-home")

    environment.install("13.0")
    made = environment.make_home()
    assert (made["changed"], made["release"]) == (True, "13.0")
    assert_compiles_and_links(made["home"], compile_kernel, link_kernel)
    found = environment.findings(made["home"])
    for kind in ("root_not_a_directory", "nvcc_missing", "headers_missing", "headers_of_another_release",
                 "nvcc_of_another_release", "libcudart_missing"):  # fmt: skip
        assert found[f"cuda.{kind}"].severity == OK, found[f"cuda.{kind}"]

    # nvcc as the one that links, with the library of its own `lib`.
    words = [f"{made['home']}/bin/nvcc", "-cudart", "shared", "-shared", "kernel.o", "-o", "kernel.so"]
    assert run(words, cwd=tmp_path, env={"PATH": SYSTEM_PATH}).returncode == 0

    gone = environment.make_home(state="absent")
    assert gone["changed"]
    assert not list(environment.path.glob("*cuda-home*"))


# --- 3: nvcc of another release than the headers --------------------------------------------------------------------


def test_nvcc_of_another_release(
    tmp_path: Path, unpacked: dict[str, Path], compile_kernel: Compile, link_kernel: Compile
) -> None:
    # Something asks for nvcc without a version, torch for the runtime of its own release.
    environment = Environment(tmp_path / "env", unpacked, "runtime", "13.4")
    flashinfer = pack(tmp_path, "flashinfer_python", "0.7.1")
    assert run([environment.python, "-m", "pip", "install", "--no-index", "--quiet", flashinfer]).returncode == 0
    failed = compile_kernel(environment.root)
    assert failed.returncode != 0
    assert "CUDA compiler and CUDA toolkit headers are incompatible" in failed.stderr
    finding = environment.findings(environment.root)["cuda.headers_of_another_release"]
    assert finding.severity == ERROR
    assert "13.4" in finding.summary
    assert "13.0" in finding.summary

    # Nothing is made of them, and without a place to take it from nothing is installed either.
    refused = play_role(environment.path, tmp_path, sglang_server_cuda_wheels=[])
    assert refused.counts["changed"] == 0, refused.text
    assert refused.homes == {}
    assert "the wheels of the compiler are of different releases of CUDA: nvcc 13.4" in refused.text
    assert "nvidia-cuda-nvcc 13.4.92" in refused.text
    assert "sglang_server_flashinfer_jit_index" in refused.text
    assert not list(environment.site.glob("flashinfer_jit_cache*"))

    index = tmp_path / "index"
    index.mkdir()
    for version in ("0.7.0+cu130", "0.7.1+cu130", "0.7.2+cu130"):
        pack(index, "flashinfer_jit_cache", version)
    given = {"sglang_server_cuda_wheels": COMPILER_13_0, "sglang_server_flashinfer_jit_index": str(index)}
    done = play_role(environment.path, tmp_path, **given)
    # The wheels and the note of them, the tree, FlashInfer's kernels.
    assert done.counts["changed"] == 4, done.text
    home = environment.path / "cuda-home"
    assert done.homes == {"0.5.22": str(home)}
    assert_compiles_and_links(home, compile_kernel, link_kernel)
    assert environment.findings(home)["cuda.headers_of_another_release"].severity == OK
    # What SGLang's requirements have installed stays.
    assert (environment.site / "nvidia_cuda_nvcc-13.4.92.dist-info").is_dir()
    assert [path.name for path in environment.site.glob("flashinfer_jit_cache*")] == [
        "flashinfer_jit_cache-0.7.1+cu130.dist-info"
    ]
    again = play_role(environment.path, tmp_path, **given)
    assert again.counts["changed"] == 0, again.text

    # Wheels that no longer fit take nothing away from servers that run.
    shutil.rmtree(environment.path / "cuda-wheels")
    kept = environment.make_home()
    assert (kept["home"], len(kept["findings"])) == (str(home), 1)
    assert compile_kernel(home).returncode == 0

    none = play_role(environment.path, tmp_path, sglang_server_cuda_home="none")
    assert (none.counts["changed"], none.homes) == (1, {})
    assert not list(environment.path.glob("*cuda-*"))


# --- 4: -lcudart ----------------------------------------------------------------------------------------------------


def test_no_libcudart_for_the_linker(
    tmp_path: Path, unpacked: dict[str, Path], compile_kernel: Compile, link_kernel: Compile
) -> None:
    environment = Environment(tmp_path / "env", unpacked, "13.0")
    assert compile_kernel(environment.root).returncode == 0
    failed = link_kernel(environment.root)
    assert failed.returncode != 0
    assert "cannot find -lcudart" in failed.stderr
    assert environment.findings(environment.root)["cuda.libcudart_missing"].severity == ERROR

    made = environment.make_home()
    assert link_kernel(made["home"]).returncode == 0
    found = environment.findings(made["home"])
    assert found["cuda.libcudart_missing"].severity == OK
    # Without a driver on the host there is no libcuda, and that is said.
    has_stub = os.path.exists(f"{made['home']}/lib64/stubs/libcuda.so")
    assert has_stub or "no stub" in made["notes"][0]
    assert (found["cuda.libcuda_stub_missing"].severity == OK) == has_stub


# --- the role -------------------------------------------------------------------------------------------------------


class Played:
    def __init__(self, text: str, homes: dict[str, str]) -> None:
        self.text = text
        self.homes = homes
        recap = re.search(r"^localhost +: (.*)$", text, re.MULTILINE)
        assert recap, text
        self.counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", recap[1])}


def play_role(environment: Path, scratch: Path, part: str = "native_cuda", **variables: Any) -> Played:
    """A part of the role for one environment, on this machine, as if it had no toolkit."""
    answer = scratch / "homes.json"
    role = {"name": "serving.sglang.sglang_server", "tasks_from": part}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "module_defaults": {"serving.sglang.cuda_home": {"toolkit": "/nowhere"}},
        "tasks": [
            {"ansible.builtin.setup": {"gather_subset": ["!all", "!min", "distribution"]}},
            {"ansible.builtin.set_fact": {"__sglang_server_cuda_homes": {}}},
            {"ansible.builtin.include_role": role},
            {
                "ansible.builtin.copy": {"content": "{{ __sglang_server_cuda_homes | to_json }}", "dest": str(answer)},
                "changed_when": False,
            },
        ],
    }
    book = scratch / "play.yml"
    book.write_text(json.dumps([play]))
    given = {
        "__sglang_server_native": {"name": "0.5.22", "version": "0.5.22", "lock_sha256": None},
        "__sglang_server_release": "0.5.22",
        "__sglang_server_environment": str(environment),
        "__sglang_server_environment_state": "made",
        "__sglang_server_compiling": ["main"],
        "sglang_server_pip_arguments": ["--no-index", f"--find-links={WHEELS}"],
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    words = [CHECKOUT / "tests" / "dev" / "run", "ansible-playbook", "-i", "localhost,", book, "-e", json.dumps(given)]
    done = run(words, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, cwd=scratch)
    # Warnings and errors are broken into lines.
    text = f"{done.stdout}\n{' '.join(done.stderr.split())}"
    return Played(text, json.loads(answer.read_text()) if done.returncode == 0 else {})


def pack(place: Path, name: str, version: str) -> Path:
    """A wheel with nothing but its name: the real one has gigabytes of kernels and is not on PyPI."""
    path = place / f"{name}-{version}-py3-none-any.whl"
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{information}/RECORD", "")
    return path
