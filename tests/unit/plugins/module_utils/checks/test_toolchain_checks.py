# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is concluded from the readings of a toolchain."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks import toolchain_kinds
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import Kind, run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.path_variables import (
    PathEntry,
    PathVariable,
    read_path_variables,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import Unknown
from ansible_collections.serving.sglang.plugins.module_utils.checks.service_view import OutOfReach
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_checks import CHECKS
from ansible_collections.serving.sglang.plugins.module_utils.checks.toolchain_readings import (
    Driver,
    HeaderSet,
    Library,
    System,
    Tool,
    Toolchain,
)
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, UNKNOWN, WARNING
from ansible_collections.serving.sglang.plugins.module_utils.missing_library import explain_import_error
from ansible_collections.serving.sglang.plugins.module_utils.pinned_packages import pins_for

TESTS = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(TESTS))
from toolchain_hosts import (  # noqa: E402
    INTERPRETER,
    PYTHON,
    SITE,
    WHEELS,
    faults,
    host,
    ids,
    libraries,
    no_root,
    only_fault,
    root,
    wheels,
    without,
)

CASES = {
    case["id"]: case["given"]
    for case in yaml.safe_load((TESTS / "data" / "cases" / "toolchain.yml").read_text(encoding="utf-8"))
}
NO_CUDART = "/usr/bin/ld: cannot find -lcudart: No such file or directory"


def variables(**environment: str) -> dict[str, Any]:
    return {"variables": read_path_variables(environment)}


def test_a_host_where_all_is_well_has_nothing_but_fine_findings() -> None:
    found = run_checks(CHECKS, host())
    assert {finding.severity for finding in found} == {OK}
    assert {finding.id for finding in found} == {kind.id for check in CHECKS for kind in check.kinds}


def test_every_kind_belongs_to_a_check() -> None:
    declared = {kind.id for kind in vars(toolchain_kinds).values() if isinstance(kind, Kind)}
    assert declared == {kind.id for check in CHECKS for kind in check.kinds}


# The cases from the field.


def test_case_python_headers_of_the_base_interpreter() -> None:
    case = CASES["python-headers-of-the-base-interpreter"]
    readings = host(
        interpreter={
            "executable": case["interpreter"],
            "prefix": "/opt/sglang/venv",
            "base_prefix": case["base_prefix"],
            "include": case["include_dir"],
            "python_h": case["python_h"] != "absent",
        }
    )
    fault = only_fault(readings)
    assert (fault.id, fault.severity) == ("python.headers_missing", ERROR)
    assert "headers belong to the base interpreter" in fault.summary
    assert "is a virtual environment and has none of its own" in fault.summary
    assert "/usr/include/python3.12/Python.h" in fault.evidence
    assert fault.fix.startswith("`apt-get install -y python3.12-dev`; or")
    assert "an interpreter that ships its headers" in fault.fix
    assert ids(replace(readings, device="cpu")) == ["warning python.headers_missing"]


def test_case_nvcc_in_wheels_but_not_pointed_to() -> None:
    case = CASES["nvcc-in-wheels-but-not-pointed-to"]
    readings = host(roots=(no_root(),), wheels=wheels(), links={"cudart": NO_CUDART, "cuda": ""})
    found = faults(readings)
    assert [(fault.id, fault.severity) for fault in found] == [
        ("cuda.nvcc_missing", ERROR),
        ("cuda.libcudart_missing", ERROR),
    ]
    for fault, wheel in zip(found, (case["wheel_nvcc"], case["wheel_libcudart"])):
        assert wheel in fault.evidence
        assert "CUDA_HOME to a directory that has bin/nvcc, include and lib64/libcudart.so" in fault.fix
        assert "sglang_server_cuda_home: auto" in fault.fix


def test_case_headers_and_nvcc_of_different_releases() -> None:
    case = CASES["headers-and-nvcc-of-different-releases"]
    bundled = HeaderSet("FlashInfer's own", f"{SITE}/flashinfer/data/cuda", str(case["flashinfer_bundled_headers"]))
    readings = host(
        roots=(root(release=str(case["nvcc"])),),
        headers=(bundled,),
        driver=Driver("580.95.05", "13.0", (case["compute_capability"],)),
    )
    fault = only_fault(readings)
    assert (fault.id, fault.severity) == ("cuda.headers_of_another_release", ERROR)
    assert "13.4" in fault.evidence
    assert "13.0" in fault.evidence
    assert "compute capability 8.9" in fault.evidence
    assert "flashinfer-jit-cache==0.7.1" in fault.fix
    assert "nothing is compiled for this card" in fault.fix
    assert "sglang_server_flashinfer_jit_index" in fault.fix
    assert "not on PyPI" in fault.fix
    for installed in ("0.7.1", "0.7.1+cu130"):
        assert faults(replace(readings, interpreter=packaged(**{"flashinfer-jit-cache": installed}))) == []


def packaged(**packages: str) -> Any:
    return replace(INTERPRETER, packages={**INTERPRETER.packages, **packages})


def test_case_host_nvcc_older_than_the_wheels() -> None:
    case = CASES["host-nvcc-older-than-the-wheels"]
    readings = host(
        interpreter={"torch_cuda": str(case["torch_cuda"])},
        roots=(root(case["cuda_home"], str(case["nvcc"]), "CUDA_HOME"),),
    )
    fault = only_fault(readings)
    assert (fault.id, fault.severity) == ("cuda.nvcc_of_another_release", ERROR)
    for text in ("11.8", "12.8", "/usr/local/cuda/bin/nvcc", f"{SITE}/torch/version.py"):
        assert text in fault.summary


def test_case_leading_colon_in_cuda_home() -> None:
    case = CASES["leading-colon-in-cuda-home"]
    value = case["cuda_home"]
    entries = (PathEntry("", "missing"), PathEntry("/usr/local/cuda-12.8", "directory"))
    readings = host(
        roots=(no_root(value, "CUDA_HOME"),),
        variables=(PathVariable("CUDA_HOME", value, False, "missing", entries),),
        links={"cudart": NO_CUDART, "cuda": ""},
    )
    fault = only_fault(readings)
    assert (fault.id, fault.severity) == ("environment.list_in_directory", ERROR)
    assert "is not a directory" in fault.summary
    assert "list separator at its start" in fault.summary
    assert fault.evidence == "CUDA_HOME=:/usr/local/cuda-12.8"
    assert fault.fix == "CUDA_HOME: /usr/local/cuda-12.8"


def test_case_misleading_second_line() -> None:
    case = CASES["misleading-second-line"]
    problem = explain_import_error(case["log"], "debian")
    assert problem is not None
    assert problem.library == case["missing_library"]
    assert problem.line == case["log"][0]
    assert problem.fix == "apt-get install -y libnuma1"
    assert "the package that asked for it is fine" in problem.summary
    assert "numactl-libs" in explain_import_error(case["log"], "redhat").fix  # type: ignore[union-attr]
    assert explain_import_error(case["log"][1:]) is None


# Each fault, and what stands next to it.


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param(host(interpreter={"python_h": False}), ["error python.headers_missing"], id="no Python.h"),
        pytest.param(
            host(interpreter={"version": "3.10.4", **without("sglang")}, stand_in=True),
            ["warning python.environment_missing", "error python.version_unsupported"],
            id="no wheel for the Python",
        ),
        pytest.param(
            host(interpreter={"version": "3.14.0"}), ["warning python.version_unsupported"], id="built for this Python"
        ),
        pytest.param(
            host(out_of_reach=(OutOfReach(PYTHON, "/root/.pyenv/bin/python", "ProtectHome= of the unit hides it"),)),
            ["error python.out_of_reach"],
            id="an interpreter in a home",
        ),
        pytest.param(host(interpreter={"glibc": "2.31"}), ["error libraries.glibc_too_old"], id="glibc 2.31"),
        pytest.param(host(interpreter={"glibc": "2.34"}), [], id="glibc 2.34"),
        pytest.param(host(interpreter={"glibc": ""}), ["unknown libraries.glibc_too_old"], id="glibc unknown"),
        pytest.param(host(cxx=Tool("c++", "")), ["error compiler.cxx_missing"], id="no c++"),
        pytest.param(
            host(cxx=Tool("g++-13", "/usr/bin/g++-13", problem="`g++-13 --version` ended with 127")),
            ["error compiler.cxx_missing"],
            id="c++ that does not run",
        ),
        pytest.param(host(cc=Tool("gcc", "")), ["error compiler.c_missing"], id="no gcc"),
        pytest.param(
            host(interpreter=without("ninja"), ninja=Tool("ninja", "")), ["error compiler.ninja_missing"], id="ninja"
        ),
        pytest.param(
            host(roots=(no_root("/opt/cuda", "CUDA_HOME"),)), ["error cuda.root_not_a_directory"], id="no root"
        ),
        pytest.param(
            host(roots=(replace(no_root("/opt/cuda", "CUDA_PATH"), state="unreadable"),)),
            ["unknown cuda.root_not_a_directory"],
            id="root unreadable",
        ),
        pytest.param(
            host(roots=(root(nvcc="", libcudart=""),)), ["error cuda.nvcc_missing"], id="no nvcc, but it links"
        ),
        pytest.param(host(roots=(root(nvcc_for_all=False),)), ["error cuda.nvcc_missing"], id="nvcc for root alone"),
        pytest.param(host(roots=(root(includes=()),)), ["error cuda.headers_missing"], id="nvcc without its profile"),
        pytest.param(
            host(roots=(root(runtime_header=""),)), ["error cuda.headers_missing"], id="no headers in the root"
        ),
        pytest.param(
            host(roots=(root(libcudart=""),), links={"cudart": NO_CUDART, "cuda": ""}),
            ["error cuda.libcudart_missing"],
            id="no libcudart.so",
        ),
        pytest.param(host(roots=(root(libcudart=""),)), [], id="libcudart.so on the linker's own path"),
        pytest.param(
            host(roots=(root(),), links={"cudart": "file in wrong format", "cuda": ""}),
            ["error cuda.libcudart_missing"],
            id="libcudart.so of another machine",
        ),
        pytest.param(
            host(links={"cudart": "", "cuda": "cannot find -lcuda"}),
            ["error cuda.libcuda_stub_missing"],
            id="no libcuda.so for FlashInfer",
        ),
        pytest.param(
            host(packages={"flashinfer-jit-cache": "0.7.1+cu130"}, links={"cudart": "", "cuda": "cannot find -lcuda"}),
            ["warning cuda.libcuda_stub_missing"],
            id="no libcuda.so, and nothing of FlashInfer to link",
        ),
        pytest.param(
            host(roots=(root(release="13.4", headers_release="13.0"),)),
            ["error cuda.headers_of_another_release"],
            id="headers of the root",
        ),
        pytest.param(
            host(roots=(root(),), headers=(HeaderSet("CPATH", "/usr/include/cuda", "12.4"),)),
            ["error cuda.headers_of_another_release"],
            id="headers by CPATH",
        ),
        pytest.param(
            host(roots=(no_root(),), wheels=wheels(nvcc_release="13.4"), links={"cudart": NO_CUDART, "cuda": ""}),
            ["error cuda.nvcc_missing", "error cuda.headers_of_another_release", "error cuda.libcudart_missing"],
            id="wheels of two releases",
        ),
        pytest.param(host(roots=(root(release="13.4"),)), [], id="a later nvcc of the same major release"),
        pytest.param(host(roots=(root(release="14.0"),)), ["error cuda.nvcc_of_another_release"], id="nvcc 14"),
        pytest.param(
            host(
                driver=Driver("580.95.05", "13.0", ("12.1",)),
                roots=(root(release="12.8"),),
                interpreter={"torch_cuda": "12.8"},
            ),
            ["error cuda.nvcc_cannot_target_card"],
            id="nvcc older than the card",
        ),
        pytest.param(
            host(driver=Driver("580.95.05", "13.0", ("7.0",))), ["error cuda.nvcc_cannot_target_card"], id="Volta"
        ),
        pytest.param(
            host(cxx=Tool("c++", "/usr/bin/c++", "c++ (Ubuntu 16.1.0-2) 16.1.0")),
            ["error cuda.host_compiler_too_new"],
            id="GCC 16",
        ),
        pytest.param(
            host(cxx=Tool("g++-15", "/usr/bin/g++-15", "g++-15 (Debian 15.2.0) 15.2.0")), [], id="GCC 15, the newest"
        ),
        pytest.param(
            host(cxx=Tool("clang++", "/usr/bin/clang++", "Debian clang version 21.1.0")), [], id="no GCC at all"
        ),
        pytest.param(
            host(roots=(root(newest_gcc=Unknown("denied")),)), ["unknown cuda.host_compiler_too_new"], id="limit denied"
        ),
        pytest.param(
            host(driver=Driver("570.124.06", "12.8", ("8.9",))), ["error cuda.torch_newer_than_driver"], id="driver 570"
        ),
        pytest.param(
            host(driver=Driver("570.124.06", "", ("8.9",))),
            ["error cuda.torch_newer_than_driver"],
            id="570, by its number",
        ),
        pytest.param(host(driver=Driver("580.65.06", "", ("9.0",))), [], id="the oldest driver for CUDA 13"),
        pytest.param(
            host(interpreter=libraries(Library("libcuda.so.1", "", "no such file")), driver=Driver("")),
            ["error libraries.libcuda_missing"],
            id="no driver",
        ),
        pytest.param(
            host(interpreter=libraries(Library("libnuma.so.1", "", "no such file"))),
            ["warning libraries.libnuma_missing"],
            id="libnuma, not needed",
        ),
        pytest.param(
            host(interpreter=libraries(Library("libnuma.so.1", "", "no", needed_by=("common_ops.so",)))),
            ["error libraries.libnuma_missing"],
            id="libnuma, needed",
        ),
        pytest.param(
            host(interpreter=libraries(Library("libnvrtc.so.13", "", "signal 11"))),
            ["error libraries.shared_library_missing"],
            id="a library that crashes",
        ),
        pytest.param(
            host(interpreter=libraries(Library("libnvrtc.so.13", "", "did not end", late=True))),
            ["unknown libraries.shared_library_missing"],
            id="a library that hangs",
        ),
        pytest.param(host(packages={"sglang": "0.5.23"}), ["error packages.sglang_differs"], id="another SGLang"),
        pytest.param(host(interpreter=without("sglang")), ["error packages.sglang_differs"], id="no SGLang"),
        pytest.param(
            host(interpreter={"torch_cuda": ""}), ["error packages.torch_without_cuda"], id="torch for the CPU"
        ),
        pytest.param(host(packages={"torch": "2.14.1+cu130"}), [], id="a local part of a version"),
        pytest.param(host(packages={"torch": "2.13.0"}), ["error packages.differs_from_pin"], id="older torch"),
        pytest.param(host(packages={"torch": "2.15.0"}), ["error packages.differs_from_pin"], id="later torch"),
        pytest.param(host(packages={"torch": "2.14.2"}), ["warning packages.differs_from_pin"], id="torch 2.14.2"),
        pytest.param(
            host(packages={"sglang-kernel": "0.4.8"}), ["error packages.differs_from_pin"], id="older kernels"
        ),
        pytest.param(
            host(packages={"sglang-kernel": "0.4.10"}), ["warning packages.differs_from_pin"], id="later kernels"
        ),
        pytest.param(host(packages={"sgl-deep-gemm": "0.1.7"}), ["warning packages.differs_from_pin"], id="DeepGEMM"),
        pytest.param(host(interpreter=without("triton")), ["error packages.differs_from_pin"], id="no triton"),
        pytest.param(
            host(interpreter={"unreadable": {"torch": "its metadata names no version"}}),
            ["unknown packages.differs_from_pin"],
            id="metadata that cannot be read",
        ),
        pytest.param(
            host(packages={"flashinfer-cubin": "0.7.2"}), ["error packages.flashinfer_parts_differ"], id="cubin"
        ),
        pytest.param(
            host(packages={"flashinfer-jit-cache": "0.7.2+cu130"}),
            ["error packages.flashinfer_parts_differ"],
            id="jit-cache",
        ),
        pytest.param(
            host(interpreter={"unreadable": {"flashinfer-cubin": "denied"}}),
            ["unknown packages.differs_from_pin", "unknown packages.flashinfer_parts_differ"],
            id="cubin that cannot be read",
        ),
        pytest.param(host(**variables(HF_HOME="~/hf")), ["error environment.unexpanded"], id="~"),
        pytest.param(host(**variables(TRITON_CACHE_DIR="$HOME/x")), ["error environment.unexpanded"], id="$HOME"),
        pytest.param(
            host(**variables(LD_LIBRARY_PATH="/usr/lib:${X}/lib")), ["error environment.unexpanded"], id="${X}"
        ),
        pytest.param(host(**variables(HF_HOME="cache/hf")), ["error environment.relative_path"], id="relative"),
        pytest.param(
            host(**variables(PATH="/usr/bin:bin")), ["warning environment.relative_path"], id="relative in PATH"
        ),
        pytest.param(host(**variables(PATH="/usr/bin:")), ["warning environment.empty_entry"], id="trailing colon"),
        pytest.param(host(**variables(CPATH=":/usr/include")), ["warning environment.empty_entry"], id="leading colon"),
        pytest.param(host(**variables(CPATH="/usr::/bin")), ["warning environment.empty_entry"], id="two colons"),
        pytest.param(host(**variables(HF_HOME="/usr:/bin")), ["error environment.list_in_directory"], id="a list"),
        pytest.param(
            host(**variables(HF_HOME="/usr:")), ["error environment.list_in_directory"], id="colon at its end"
        ),
        pytest.param(host(**variables(HF_HOME="/etc/passwd")), ["error environment.not_a_directory"], id="a file"),
        pytest.param(host(**variables(TMPDIR="/no/such")), ["error environment.not_a_directory"], id="no TMPDIR"),
        pytest.param(
            host(**variables(LD_LIBRARY_PATH="/etc/passwd")),
            ["warning environment.not_a_directory"],
            id="a file in a list",
        ),
        pytest.param(host(**variables(PYTHONPATH="/etc/passwd.zip")), [], id="an archive of Python, not there"),
        pytest.param(
            host(
                **variables(
                    PATH="/no/such:/usr/bin", LD_LIBRARY_PATH="/no/such", HF_HOME="/no/such", SGLANG_CACHE_DIR=""
                )
            ),
            [],
            id="what is made or may be missing",
        ),
        pytest.param(
            host(variables=(PathVariable("HF_HOME", "/x", False, "unreadable", (PathEntry("/x", "unreadable"),)),)),
            ["unknown environment.not_a_directory"],
            id="a directory that cannot be looked at",
        ),
        pytest.param(
            host(pins=pins_for("0.6.0"), packages={"sglang": "0.6.0"}), None, id="a release that is not known"
        ),
    ],
)
def test_faults(readings: Toolchain, expected: list[str] | None) -> None:
    if expected is None:
        assert "warning release.pins_assumed" in ids(readings)
        assert not any(line.startswith("error") for line in ids(readings))
    else:
        assert ids(readings) == expected


def test_every_fault_says_what_was_seen_and_what_to_do() -> None:
    everything = host(
        interpreter={
            "python_h": False,
            "glibc": "2.17",
            "version": "3.9.2",
            "torch_cuda": "",
            **without("triton"),
            "libraries": tuple(Library(library.name, "", "no such file") for library in INTERPRETER.libraries),
        },
        cxx=Tool("c++", ""),
        cc=Tool("gcc", ""),
        ninja=Tool("ninja", ""),
        roots=(root("/opt/cuda", "11.8", runtime_header="", libcudart="", headers_release="12.0"),),
        links={"cudart": NO_CUDART, "cuda": "cannot find -lcuda"},
        driver=Driver("525.60.13", "12.0", ("12.0",)),
        **variables(HF_HOME="~/x", PATH="bin:", CUDA_CACHE_PATH="/a:/b", TMPDIR="/no/such"),
    )
    found = faults(everything)
    assert len(found) > 18
    for fault in found:
        assert all((fault.summary, fault.evidence, fault.fix)), fault


def test_the_line_to_paste_fits_the_distribution() -> None:
    readings = host(cxx=Tool("c++", ""), system=System("Rocky Linux 9.6", "redhat"))
    assert only_fault(readings).fix == "dnf install -y gcc-c++"
    assert only_fault(replace(readings, system=System("Ubuntu", "debian"))).fix == "apt-get install -y g++"
    assert only_fault(replace(readings, system=System("SLES", "suse"))).fix == "zypper install -y gcc-c++"
    headers = host(interpreter={"python_h": False}, system=System("RHEL", "redhat"))
    assert only_fault(headers).fix.startswith("`dnf install -y python3.12-devel`; ")
    elsewhere = host(interpreter={"python_h": False, "base_prefix": "/opt/python"})
    assert "headers of /opt/python" in only_fault(elsewhere).fix


def test_a_root_that_serves_is_named_in_the_repair() -> None:
    other = replace(root("/usr/local/cuda-13.0", origin="/usr/local/cuda"), chosen=False)
    fault = only_fault(host(roots=(no_root("/gone", "CUDA_HOME"), other)))
    assert fault.fix.startswith("CUDA_HOME: /usr/local/cuda-13.0 ")
    assert "not taken: /usr/local/cuda-13.0" in fault.evidence


def test_missing_wheels_are_named_in_the_repair() -> None:
    readings = host(roots=(no_root(),), wheels=wheels(nvvm=False), links={"cudart": "", "cuda": ""})
    fault = next(fault for fault in faults(readings) if fault.id == "cuda.nvcc_missing")
    assert "with the missing nvidia-nvvm (" in fault.fix
    assert "nvidia-cuda-nvcc" not in fault.fix
    bare = replace(readings, wheels=wheels(nvcc=False))
    fault = next(fault for fault in faults(bare) if fault.id == "cuda.nvcc_missing")
    assert fault.fix == (
        "set CUDA_HOME to a directory that has bin/nvcc, include and lib64/libcudart.so: a deployment makes one of"
        " wheels (sglang_server_cuda_home: auto); or install the toolkit of CUDA 13.0"
    )
    assert "(/usr/local/cuda)" in fault.summary


def test_the_empty_cuda_path_is_the_working_directory() -> None:
    fault = only_fault(host(roots=(no_root("", "CUDA_PATH"),)))
    assert fault.id == "cuda.root_not_a_directory"
    assert "set and empty" in fault.summary


def test_ninja_that_is_installed_and_not_on_the_path() -> None:
    fault = only_fault(host(ninja=Tool("ninja", ""), path="/usr/bin"))
    assert "/opt/sglang/0.5.22/bin is not on PATH" in fault.summary
    assert "put /opt/sglang/0.5.22/bin on PATH" in fault.fix


def test_nothing_of_cuda_is_asked_of_a_server_on_the_cpu() -> None:
    unasked = Unknown("not asked: the server runs on the CPU")
    readings = host(
        interpreter={"torch_cuda": "", "libraries": (), **without("triton")},
        device="cpu",
        roots=unasked,
        links=unasked,
        headers=unasked,
        wheels=unasked,
        driver=unasked,
        cxx=Tool("c++", ""),
    )
    found = run_checks(CHECKS, readings)
    assert {finding.severity for finding in found} == {OK}
    for finding in found:
        if finding.id.startswith("cuda."):
            assert finding.summary == "not asked: the server runs on the CPU"


def test_an_environment_that_is_not_there_yet_is_one_warning() -> None:
    readings = host(stand_in=True, interpreter={"packages": {}, "executable": "/usr/bin/python3", "torch_cuda": None})
    fault = only_fault(readings)
    assert (fault.id, fault.severity) == ("python.environment_missing", WARNING)
    assert "/usr/bin/python3 was asked" in fault.evidence
    assert "once this version is declared" in fault.fix
    assert only_fault(replace(readings, ninja=Tool("ninja", ""))).id == "python.environment_missing"


@pytest.mark.parametrize("field", [field.name for field in fields(Toolchain) if "Reading" in str(field.type)])
def test_what_could_not_be_read_is_never_a_clean_bill(field: str) -> None:
    readings = replace(host(), **{field: Unknown("permission denied")})
    found = run_checks(CHECKS, readings)
    assert not any(finding.severity == ERROR for finding in found)
    unknown = [finding for finding in found if finding.severity == UNKNOWN]
    # The distribution only decides how a repair is spelled, and wheels are only asked about where there is no toolkit.
    if field not in ("system", "wheels", "links"):
        assert unknown
    for finding in unknown:
        assert "permission denied" in finding.evidence


def test_links_that_could_not_be_tried_leave_the_file_to_look_for() -> None:
    unread = Unknown("there is no C++ compiler to link with (c++)")
    assert ids(host(links=unread)) == ["unknown cuda.libcuda_stub_missing"]
    assert "error cuda.libcudart_missing" in ids(host(links=unread, roots=(root(libcudart=""),)))


def test_nothing_is_known_of_a_garbled_interpreter_and_its_root_is_still_looked_at() -> None:
    readings = host(interpreter=None, roots=(root(nvcc="", libcudart=""),), links={"cudart": NO_CUDART, "cuda": ""})
    found = ids(replace(readings, interpreter=Unknown("garbled")))
    assert "error cuda.nvcc_missing" in found
    assert "error cuda.libcudart_missing" in found
    assert "unknown python.headers_missing" in found
    assert "unknown packages.differs_from_pin" in found


releases = st.tuples(st.integers(11, 14), st.integers(0, 9)).map(lambda pair: f"{pair[0]}.{pair[1]}")


@given(nvcc=releases, torch=releases)
def test_nvcc_and_torch_go_together_within_a_major_release(nvcc: str, torch: str) -> None:
    found = ids(host(interpreter={"torch_cuda": torch}, roots=(root(release=nvcc),), driver=Driver("999.0", "99.0")))
    together = nvcc.partition(".")[0] == torch.partition(".")[0]
    assert found == ([] if together else ["error cuda.nvcc_of_another_release"])


@given(value=st.text(alphabet="/:~$ab. ", max_size=12), name=st.sampled_from(["CUDA_HOME", "HF_HOME", "PATH", "CPATH"]))
def test_no_text_of_a_variable_breaks_a_check(value: str, name: str) -> None:
    for finding in run_checks(CHECKS, host(**variables(**{name: value}))):
        assert "broke on what it read" not in finding.evidence


@pytest.mark.parametrize(
    ("lines", "library", "fix"),
    [
        (["OSError: libcuda.so.1: cannot open shared object file: No such file"], "libcuda.so.1", "driver"),
        (["x", "  ImportError: libnvrtc.so.13: cannot open shared object file"], "libnvrtc.so.13", "nvidia-cuda-nvrtc"),
        (
            ["ImportError: libfoo-2.so: cannot open shared object file"],
            "libfoo-2.so",
            "the package that has libfoo-2.so",
        ),
        (
            ["ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)"],
            "libstdc++.so.6",
            "GLIBCXX_3.4.32",
        ),
        (["Could not load any common_ops library!", ""], None, ""),
        ([], None, ""),
    ],
)
def test_the_first_missing_library_is_named(lines: list[str], library: str | None, fix: str) -> None:
    problem = explain_import_error(lines)
    assert (problem.library if problem else None) == library
    assert problem is None or fix in problem.fix


def test_the_readings_say_where_the_wheels_are() -> None:
    assert wheels().complete
    assert wheels().nvcc
    assert wheels().nvcc.path == f"{WHEELS}/bin/nvcc"
    assert PYTHON.endswith("/bin/python")
