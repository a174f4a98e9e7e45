# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a toolchain: real interpreters and linkers, programs that stand in for nvcc, and answers that are garbled."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import nvml_reader, spec
from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    service_view,
    toolchain_probe,
    toolchain_readings,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_roots import (
    candidates,
    parse_includes,
    parse_nvcc_release,
    read_root,
    read_roots,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.driver_readings import KernelModule
from ansible_collections.serving.sglang.plugins.module_utils.checks.path_variables import read_path_variables, watched
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Unknown, known
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_readings import (
    Driver,
    Tool,
    environments_of,
    examine,
    parse_driver,
    parse_probe,
    read_driver,
    read_header_sets,
    read_interpreter,
    read_links,
    read_tool,
    read_toolchain,
    torch_cuda_of,
    unit_path,
)

GCC = shutil.which("gcc")
needs_compiler = pytest.mark.skipif(GCC is None, reason="there is no gcc to make a library with")
PATH = {"PATH": os.environ["PATH"]}

NVCC = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
  --version) echo "Cuda compilation tools, release {release}, V{release}.88" ;;
  --dryrun) echo "#\\$ _HERE_=$here" >&2; echo "#\\$ INCLUDES=\\"-I$here/../include\\"  " >&2 ;;
esac
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def toolkit(path: Path, release: str = "13.0") -> Path:
    """A root with a program for nvcc, headers, and empty files for libraries."""
    number = f"{release.partition('.')[0]}0{release.partition('.')[2]}0"
    program(path / "bin" / "nvcc", NVCC.replace("{release}", release))
    for name, text in (
        ("include/cuda_runtime.h", ""),
        ("include/cuda_runtime_api.h", f"#define CUDART_VERSION  {number}\n"),
        ("lib64/libcudart.so", ""),
        ("lib64/stubs/libcuda.so", ""),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


# CUDA's roots.


@pytest.mark.parametrize(
    ("environment", "origin", "taken"),
    [
        ({"CUDA_HOME": "/a", "CUDA_PATH": "/b"}, "CUDA_HOME", "/a"),
        ({"CUDA_PATH": "/b"}, "CUDA_PATH", "/b"),
        ({"CUDA_HOME": "", "CUDA_PATH": "/b"}, "CUDA_PATH", "/b"),
        ({"CUDA_PATH": ""}, "CUDA_PATH", ""),
        ({"CUDA_HOME": ""}, "/usr/local/cuda", "/usr/local/cuda"),
        ({}, "/usr/local/cuda", "/usr/local/cuda"),
        ({"CUDA_HOME": ":/a"}, "CUDA_HOME", ":/a"),
    ],
)
def test_the_root_is_taken_in_the_order_of_sglang(environment: dict[str, str], origin: str, taken: str) -> None:
    found = [candidate for candidate in candidates({**environment, "PATH": "/nowhere"}) if candidate.chosen]
    assert [(candidate.origin, candidate.path) for candidate in found] == [(origin, taken)]


def test_nvcc_on_the_path_comes_before_the_default(tmp_path: Path) -> None:
    toolkit(tmp_path / "cuda")
    found = candidates({"PATH": f"/nowhere:{tmp_path}/cuda/bin"})
    assert [(each.origin, each.chosen) for each in found] == [("nvcc on PATH", True), ("/usr/local/cuda", False)]
    assert found[0].path == f"{tmp_path}/cuda"


values = st.sampled_from([None, "", "/a", "/b", "/usr/local/cuda"])


@given(home=values, path=values)
def test_the_root_is_what_the_code_of_sglang_computes(home: str | None, path: str | None) -> None:
    environment = {name: value for name, value in (("CUDA_HOME", home), ("CUDA_PATH", path)) if value is not None}
    configured = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    expected = configured if configured is not None else "/usr/local/cuda"
    chosen = [each for each in candidates({**environment, "PATH": ""}) if each.chosen]
    assert [each.path for each in chosen] == [expected]


def test_a_whole_root_is_read(tmp_path: Path) -> None:
    place = toolkit(tmp_path / "cuda", "13.4")
    read = read_roots(candidates({"CUDA_HOME": str(place), **PATH}), PATH)[0]
    assert read.state == "directory"
    assert read.nvcc_release == "13.4"
    assert read.headers_release == "13.4"
    assert read.includes == (f"{place}/include",)
    assert read.libcudart == f"{place}/lib64/libcudart.so"
    assert read.libcuda_stub == f"{place}/lib64/stubs/libcuda.so"


def test_an_empty_root_a_file_and_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "empty" / "lib64").mkdir(parents=True)
    (tmp_path / "empty" / "lib64" / "libcudart.so").symlink_to("libcudart.so.13")
    empty = read_root(candidates({"CUDA_HOME": f"{tmp_path}/empty", "PATH": ""})[0], PATH)
    assert (empty.nvcc, empty.nvcc_release, empty.headers_release, empty.libcudart) == ("", None, None, "")
    (tmp_path / "file").write_text("")
    assert read_root(candidates({"CUDA_HOME": f"{tmp_path}/file", "PATH": ""})[0], PATH).state == "file"
    assert read_root(candidates({"CUDA_HOME": f"{tmp_path}/gone", "PATH": ""})[0], PATH).state == "missing"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho garbage\n", "names no release: garbage"),
        ("#!/bin/sh\n", "names no release: nothing"),
        ("\x7fELF", "could not be run"),
        ("#!/bin/sh\nsleep 60\n", "did not end within"),
    ],
)
def test_an_nvcc_that_does_not_answer_is_unknown(
    tmp_path: Path, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_roots.NVCC_LIMIT_S", 0.3)
    place = toolkit(tmp_path / "cuda")
    program(place / "bin" / "nvcc", text)
    read = read_root(candidates({"CUDA_HOME": str(place), "PATH": ""})[0], PATH)
    assert isinstance(read.nvcc_release, Unknown)
    assert isinstance(read.includes, Unknown)
    # `env` runs it: what cannot be run is what env says, and no release.
    assert reason in read.nvcc_release.reason or "names no release" in read.nvcc_release.reason


def test_headers_that_name_no_version_are_unknown(tmp_path: Path) -> None:
    place = toolkit(tmp_path / "cuda")
    (place / "include" / "cuda_runtime_api.h").write_bytes(b"\xff\x00garbage")
    read = read_root(candidates({"CUDA_HOME": str(place), "PATH": ""})[0], PATH)
    assert isinstance(read.headers_release, Unknown)


def test_the_answers_of_nvcc() -> None:
    assert parse_nvcc_release("Cuda compilation tools, release 12.9, V12.9.86", "nvcc") == "12.9"
    # A link to nvcc without nvcc.profile next to it names no include directory.
    assert parse_includes("#$ _HERE_=t/bin\n#$ _TARGET_SIZE_=64\n", "nvcc") == ()
    text = '#$ _HERE_=/c/bin\n#$ INCLUDES="-I/c/bin/../targets/x86_64-linux/include"  \n'
    assert parse_includes(text, "nvcc") == ("/c/targets/x86_64-linux/include",)
    with pytest.raises(CouldNotTell, match="says nothing of its directories"):
        parse_includes("Segmentation fault", "nvcc")


# Interpreters.


def test_this_interpreter_says_what_it_sees(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n")
    for name, version in (("torch", "2.14.1+cu130"), ("flashinfer_python", "0.7.1"), ("triton", "")):
        folder = site / f"{name}-{version or '0'}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\n" + f"Version: {version}\n" * bool(version)
        )
    read = read_interpreter(sys.executable, {**PATH, "PYTHONPATH": str(site)}, cuda=True)
    assert read.minor == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert read.base_prefix == sys.base_prefix
    assert read.packages["torch"] == "2.14.1+cu130"
    assert read.packages["flashinfer-python"] == "0.7.1"
    assert "triton" in read.unreadable
    assert read.torch_cuda == "13.0"
    assert read.torch_path == f"{site}/torch/version.py"
    assert read.glibc
    assert [library.name for library in read.libraries] == [
        "libcuda.so.1",
        "libnuma.so.1",
        "libcudart.so.13",
        "libnvrtc.so.13",
    ]


def test_the_environment_of_this_process_reaches_no_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the current directory was taken')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert read_interpreter(sys.executable, PATH, cuda=False).libraries == ()


def test_no_secret_is_in_the_words_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(argv: list[str], *_rest: Any, **_named: Any) -> Any:
        seen.extend(argv)
        raise CouldNotTell("enough")

    monkeypatch.setattr(toolchain_readings, "run_command", run)
    with pytest.raises(CouldNotTell, match="enough"):
        read_interpreter(sys.executable, {**PATH, "HF_TOKEN": "hf_secret"}, cuda=True)
    assert seen
    assert not any("hf_secret" in word for word in seen)


@pytest.mark.parametrize("text", ["", "garbage", "[]", "{}", '{"version": 3}', "null", "\x00\xff"])
def test_an_interpreter_that_answers_with_something_else(text: str) -> None:
    with pytest.raises(CouldNotTell, match="answered with something else than expected"):
        parse_probe(text, "/opt/python")


@given(st.dictionaries(st.text(max_size=4), st.none() | st.integers() | st.text(max_size=4), max_size=4))
def test_no_answer_of_an_interpreter_crashes(answer: dict[str, Any]) -> None:
    with pytest.raises(CouldNotTell):
        parse_probe(json.dumps(answer), "python")


def test_an_interpreter_that_does_not_run(tmp_path: Path) -> None:
    broken = program(tmp_path / "python", "#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    with pytest.raises(CouldNotTell, match="ended with 127: error while loading shared libraries"):
        read_interpreter(str(broken), PATH, cuda=True)


def test_the_release_of_cuda_in_the_text_of_torch() -> None:
    assert torch_cuda_of(None) is None
    assert torch_cuda_of("cuda: Optional[str] = '13.0'\n") == "13.0"
    assert torch_cuda_of('cuda = "12.8"\nhip = None') == "12.8"
    assert torch_cuda_of("cuda: Optional[str] = None\n") == ""
    assert isinstance(torch_cuda_of("garbage"), Unknown)
    assert isinstance(torch_cuda_of({"problem": "denied"}), Unknown)


# The loader.


def library(path: Path, text: str, *words: str) -> None:
    argv = [str(GCC), "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", str(path), *words]
    subprocess.run(argv, input=text, text=True, check=True)


@needs_compiler
def test_what_crashes_or_hangs_when_it_is_loaded_takes_nothing_with_it(tmp_path: Path) -> None:
    headers = "".join(f"#include <{name}.h>\n" for name in ("signal", "unistd", "stdio"))
    begin = headers + "__attribute__((constructor)) static void f(void) "
    library(tmp_path / "libcrash.so.1", begin + "{ raise(SIGKILL); }")
    library(tmp_path / "libhang.so.1", begin + "{ for (;;) pause(); }")
    library(tmp_path / "libtalk.so.1", begin + '{ puts("{}"); fflush(stdout); }')
    (tmp_path / "libbad.so.1").write_text("no library")
    names = ["libcrash.so.1", "libhang.so.1", "libtalk.so.1", "libbad.so.1", "libnone.so.1"]
    started = time.monotonic()
    found = {each["name"]: each for each in toolchain_probe.load_all(names, [str(tmp_path)], 1.0)}
    assert time.monotonic() - started < 3
    assert "ended the process by signal 9" in found["libcrash.so.1"]["problem"]
    assert found["libhang.so.1"]["late"]
    assert found["libtalk.so.1"]["loaded"] == f"{tmp_path}/libtalk.so.1"
    assert "invalid ELF header" in found["libbad.so.1"]["problem"] or "too short" in found["libbad.so.1"]["problem"]
    assert "cannot open shared object file" in found["libnone.so.1"]["problem"]


@needs_compiler
def test_the_kernels_say_which_libraries_they_need(tmp_path: Path) -> None:
    site = tmp_path / "site"
    folder = site / "sgl_kernel" / "sm90"
    folder.mkdir(parents=True)
    library(tmp_path / "libgone.so.7", "int gone(void) { return 1; }", "-Wl,-soname,libgone.so.7")
    library(folder / "common_ops.abi3.so", "int gone(void); int f(void) { return gone(); }", f"{tmp_path}/libgone.so.7")
    assert "libgone.so.7" in toolchain_probe.needed_libraries(str(folder / "common_ops.abi3.so"))
    (folder / "garbled.so").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 80)
    read = read_interpreter(sys.executable, {**PATH, "PYTHONPATH": str(site)}, cuda=True)
    found = {each.name: each for each in read.libraries}["libgone.so.7"]
    assert not found.loaded
    assert found.needed_by == (str(folder / "common_ops.abi3.so"),)
    (site / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    shutil.move(tmp_path / "libgone.so.7", site / "nvidia" / "cu13" / "lib" / "libgone.so.7")
    read = read_interpreter(sys.executable, {**PATH, "PYTHONPATH": str(site)}, cuda=True)
    assert {each.name: each.loaded for each in read.libraries}["libgone.so.7"].startswith(str(site))


@given(st.binary(max_size=200))
def test_no_file_crashes_the_reading_of_what_it_needs(data: bytes) -> None:
    path = Path(os.devnull).parent / "shm" / f"elf-{os.getpid()}"
    path.write_bytes(b"\x7fELF\x02\x01" + data)
    try:
        toolchain_probe.needed_libraries(str(path))
    except (ValueError, StopIteration, toolchain_probe.struct.error):
        pass
    finally:
        path.unlink()


# Tools, the linker, headers, the driver.


def test_a_tool_is_there_missing_or_broken(tmp_path: Path) -> None:
    program(tmp_path / "good", "#!/bin/sh\necho good 1.0\n")
    program(tmp_path / "bad", "#!/bin/sh\necho broken >&2\nexit 3\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert read_tool("good", environment) == Tool("good", f"{tmp_path}/good", "good 1.0")
    assert read_tool("env good", environment).path == f"{tmp_path}/good"
    assert "ended with 3: broken" in read_tool("bad", environment).problem
    assert read_tool("none", environment).path == ""
    assert read_tool("sccache good", environment).path == ""
    assert "no command" in read_tool("'unclosed", environment).problem


@needs_compiler
def test_the_linker_is_asked(tmp_path: Path) -> None:
    compiler = read_tool("gcc", PATH)
    said = read_links(str(tmp_path), compiler, PATH)
    if said["cudart"]:
        assert "-lcudart" in said["cudart"]
    (tmp_path / "lib64" / "stubs").mkdir(parents=True)
    library(tmp_path / "lib64" / "libcudart.so", "")
    library(tmp_path / "lib64" / "stubs" / "libcuda.so", "")
    assert read_links(str(tmp_path), compiler, PATH) == {"cudart": "", "cuda": ""}
    with pytest.raises(CouldNotTell, match="no C\\+\\+ compiler to link with"):
        read_links(str(tmp_path), Tool("c++", ""), PATH)


def test_headers_that_come_before_others(tmp_path: Path) -> None:
    place = toolkit(tmp_path / "cuda", "12.4") / "include"
    sets = read_header_sets([f"{place}/cuda_runtime_api.h"], {"CPATH": f":{place}:/nowhere:rel"})
    assert [(each.origin, each.release) for each in sets] == [("FlashInfer's own", "12.4"), ("CPATH", "12.4")]


def test_the_driver_as_nvidia_smi_says_it() -> None:
    driver = parse_driver("580.95.05, 9.0\n580.95.05, 9.0\n")
    assert (driver.version, driver.capabilities) == ("580.95.05", ("9.0",))
    for text in ("", "No devices were found", "580.95.05", "x, 9.0"):
        with pytest.raises(CouldNotTell, match="answered with something else"):
            parse_driver(text)


def test_no_driver_is_something_else_than_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unavailable() -> Any:
        raise nvml_reader.NvmlUnavailable("no_driver", "no pynvml")

    def loaded(version: str | None) -> None:
        monkeypatch.setattr(toolchain_readings, "read_kernel_module", lambda: KernelModule(version))

    monkeypatch.setattr(nvml_reader, "load", unavailable)
    monkeypatch.setattr(toolchain_readings, "SMI_LIMIT_S", 0.5)
    monkeypatch.setenv("PATH", str(tmp_path))
    loaded(None)
    assert read_driver() == Driver("", said="no pynvml; nvidia-smi is not installed")
    loaded("580.95.05")
    assert read_driver().version == "580.95.05"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path / "nvidia-smi", "#!/bin/sh\necho 'Failed to initialize NVML: version mismatch'\nexit 18\n")
    with pytest.raises(CouldNotTell, match="ended with 18: Failed to initialize NVML: version mismatch"):
        read_driver()
    program(tmp_path / "nvidia-smi", "#!/bin/sh\necho '580.95.05, 8.9'\n")
    assert read_driver() == Driver("580.95.05", capabilities=("8.9",))
    program(tmp_path / "nvidia-smi", "#!/bin/sh\nsleep 60\n")
    assert read_driver().version == "580.95.05"
    loaded(None)
    with pytest.raises(CouldNotTell, match="did not end within"):
        read_driver()


def test_what_the_service_cannot_get_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_view, "TEMPORARY", {f"{tmp_path}/home": "hidden"})
    monkeypatch.setattr(service_view, "folders_above", lambda place: [str(Path(place).parent)])
    for folder, mode in (("home", 0o755), ("open", 0o755), ("closed", 0o700)):
        program(tmp_path / folder / "python", "")
        (tmp_path / folder).chmod(mode)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "home" / "python")
    names = ("home/python", "open/python", "closed/python", "open/link", "none/python")
    found = service_view.out_of_reach([f"{tmp_path}/{name}" for name in names], "no-such-user")
    assert [(each.path, each.why) for each in found] == [
        (f"{tmp_path}/home/python", "hidden"),
        (f"{tmp_path}/closed/python", f"{tmp_path}/closed may not be entered (mode 0700)"),
        (f"{tmp_path}/open/link", "hidden"),
    ]
    mine = pwd.getpwuid(os.getuid()).pw_name
    assert service_view.out_of_reach([f"{tmp_path}/closed/python"], mine) == ()


def test_system_interpreters_are_within_reach() -> None:
    assert service_view.out_of_reach(["/usr/bin/env", "/bin/sh"], "nobody") == ()
    assert service_view.is_in_home("/root/x")
    assert not service_view.is_in_home("/rootless/x")
    assert list(service_view.folders_above("/usr/lib/x")) == ["/usr", "/usr/lib"]


# The whole.


def test_the_path_without_a_declared_one_is_that_of_the_unit() -> None:
    declared = {"name": "main", "version": "0.5.22", "model": "/srv/model", "port": 30000, "cards": [0]}
    outcome = spec.resolve(
        [{**declared, "output_cap_tokens": 100, "slowest_tokens_per_s": 10}], {}, spec.Host("gpu1", "10.0.0.1")
    )
    desired = outcome.instances[0].desired
    assert desired["environment"]["PATH"] == unit_path("/opt/sglang/0.5.22/bin/python")


def test_variables_that_are_looked_at() -> None:
    assert watched("SGLANG_DG_CACHE_DIR")
    assert watched("CXX")
    assert not watched("HF_TOKEN")
    read = {
        each.name: each for each in read_path_variables({"HF_HOME": "/etc/passwd", "PATH": "/usr:x", "HF_TOKEN": "s"})
    }
    assert set(read) == {"HF_HOME", "PATH"}
    assert read["HF_HOME"].whole == "file"
    assert [entry.state for entry in read["PATH"].entries] == ["directory", "missing"]


def test_each_environment_is_asked_once_and_containers_never() -> None:
    instances = [
        {"name": "a", "version": "0.5.22", "environment": {"HOME": "/var/lib/sglang/a", "HF_TOKEN": "s"}},
        {"name": "b", "version": "0.5.22", "environment": {"HOME": "/var/lib/sglang/b"}, "runtime": "native"},
        {"name": "c", "version": "0.5.23"},
        {"name": "d", "version": "0.5.23", "arguments": {"device": "cpu"}},
        {"name": "e", "version": "0.5.23", "runtime": "docker"},
    ]
    asked = environments_of({"instances": instances})
    assert list(asked.values()) == [["a", "b"], ["c"], ["d"]]
    assert [each.python for each in asked] == [f"/opt/sglang/0.5.{n}/bin/python" for n in (22, 23, 23)]
    assert [each.device for each in asked] == ["cuda", "cuda", "cpu"]
    assert [each.homes_hidden for each in asked] == [True, True, True]
    named = [{"name": "f", "version": "0.5.23", "model": "/home/models/x"}]
    assert [each.homes_hidden for each in environments_of({"instances": named})] == [False]
    assert examine({"instances": [instances[-1]]}) == {"readings": {"environments": []}, "findings": []}


def test_a_host_is_examined_for_real(tmp_path: Path) -> None:
    place = toolkit(tmp_path / "cuda")
    common = {
        "version": "0.5.22",
        "python": sys.executable,
        "environment": {"CUDA_HOME": str(place), "HF_TOKEN": "hf_x"},
    }
    params = {"instances": [{"name": "gpu", **common}, {"name": "cpu", **common, "arguments": {"device": "cpu"}}]}
    started = time.monotonic()
    result = examine(params)
    assert time.monotonic() - started < 10
    assert "hf_x" not in json.dumps(result)
    gpu, cpu = result["readings"]["environments"]
    assert gpu["roots"][0]["nvcc_release"] == "13.0"
    assert gpu["interpreter"]["executable"] == sys.executable
    assert cpu["roots"] == {"unknown": "not asked: the server runs on the CPU"}
    assert {finding["instance"] for finding in result["findings"]} == {"gpu", "cpu"}
    assert all(finding["severity"] != "unknown" for finding in result["findings"] if finding["instance"] == "cpu")


def test_the_interpreter_of_the_host_stands_in_for_one_that_is_not_there(tmp_path: Path) -> None:
    read = read_toolchain(f"{tmp_path}/bin/python", "0.5.23", {}, base_python=sys.executable)
    assert read.stand_in
    assert known(read.interpreter).executable == sys.executable
    assert isinstance(read_toolchain("/no/python", "0.5.23", {}, "cpu", "/no/python3").interpreter, Unknown)


@needs_compiler
def test_what_hangs_costs_its_own_reading_and_not_the_area(tmp_path: Path) -> None:
    place = toolkit(tmp_path / "cuda")
    for name in ("cuda/bin/nvcc", "bin/c++", "bin/gcc", "bin/ninja", "bin/python"):
        program(tmp_path / name, "#!/bin/sh\nsleep 60\n")
    environment = {"CUDA_HOME": str(place), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    instance = {"name": "a", "version": "0.5.23", "python": f"{tmp_path}/bin/python", "environment": environment}
    started = time.monotonic()
    result = examine({"instances": [instance]})
    assert time.monotonic() - started < 2.6
    severities = {finding["id"]: finding["severity"] for finding in result["findings"]}
    assert severities["python.headers_missing"] == "unknown"
    assert severities["compiler.cxx_missing"] == "unknown"
    assert severities["packages.differs_from_pin"] == "unknown"
    assert severities["cuda.nvcc_missing"] == "unknown"
    assert severities["environment.list_in_directory"] == "ok"
