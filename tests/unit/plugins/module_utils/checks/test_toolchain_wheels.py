# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of CUDA's toolkit in wheels, in both layouts that are in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_wheels import (
    find_cuda_wheels,
    header_release,
    release_of_version,
    release_pair,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell

CU13 = {
    "nvidia-cuda-nvcc": ("13.0.88", ("bin/nvcc", "bin/nvcc.profile")),
    "nvidia-nvvm": ("13.0.88", ("nvvm/bin/cicc", "lib/libnvvm.so.4")),
    "nvidia-cuda-crt": ("13.0.88", ("include/crt/host_config.h",)),
    "nvidia-cuda-cccl": ("13.0.85", ("include/cccl/cuda/std/version",)),
    "nvidia-cuda-runtime": ("13.0.96", ("include/cuda_runtime_api.h", "lib/libcudart.so.13", "lib/libcudart_static.a")),
    "nvidia-cuda-nvrtc": ("13.0.88", ("lib/libnvrtc.so.13", "lib/libnvrtc-builtins.so.13.0")),
}


def install(site: Path, folder: str, name: str, version: str, files: tuple[str, ...], number: int = 13000) -> None:
    (site / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)
    for file in files:
        path = site / "nvidia" / folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#define CUDART_VERSION  {number}\n" if file.endswith("_api.h") else "", encoding="utf-8")


def install_cu13(site: Path, *leave_out: str) -> None:
    for name, (version, files) in CU13.items():
        if name not in leave_out:
            install(site, "cu13", name, version, files)


def test_the_wheels_of_cuda_13_share_a_root(tmp_path: Path) -> None:
    install_cu13(tmp_path)
    found = find_cuda_wheels([str(tmp_path)])
    root = f"{tmp_path}/nvidia/cu13"
    assert found.complete
    assert {part.root for part in found.parts} == {root}
    assert {part.release for part in found.parts} == {"13.0"}
    assert found.nvcc is not None
    assert (found.nvcc.path, found.nvcc.version) == (f"{root}/bin/nvcc", "13.0.88")
    assert found.cudart is not None
    assert found.cudart.path == f"{root}/lib/libcudart.so.13"
    assert found.runtime is not None
    assert (found.runtime.version, found.runtime.directory) == ("13.0.96", f"{root}/include")
    assert found.nvrtc is not None
    assert found.nvrtc.path == f"{root}/lib/libnvrtc.so.13"
    assert found.library_directories == (f"{root}/lib",)
    assert found.as_dict()["missing"] == []


def test_what_is_missing_is_named_as_it_is_installed(tmp_path: Path) -> None:
    install_cu13(tmp_path, "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc")
    found = find_cuda_wheels([str(tmp_path)])
    assert found.missing == ("nvvm", "runtime", "cudart")
    assert found.missing_distributions == ("nvidia-nvvm", "nvidia-cuda-runtime")
    assert not found.complete


def test_each_wheel_of_cuda_12_has_a_root_of_its_own(tmp_path: Path) -> None:
    files = ("include/cuda_runtime_api.h", "lib/libcudart.so.12")
    install(tmp_path, "cuda_runtime", "nvidia-cuda-runtime-cu12", "12.8.90", files, 12080)
    install(tmp_path, "cuda_nvcc", "nvidia-cuda-nvcc-cu12", "12.8.93", ("bin/ptxas", "nvvm/bin/cicc"))
    install_cu13(tmp_path, "nvidia-cuda-nvcc")
    found = find_cuda_wheels([str(tmp_path)])
    assert found.runtime is not None
    assert found.runtime.release == "13.0"
    old = found.of_major(12)
    assert old.runtime is not None
    assert (old.runtime.release, old.runtime.distribution) == ("12.8", "nvidia-cuda-runtime-cu12")
    # The wheel of that name had ptxas alone, before CUDA 13.
    assert found.nvcc is None


def test_the_headers_say_their_release_themselves(tmp_path: Path) -> None:
    install_cu13(tmp_path, "nvidia-cuda-runtime")
    install(tmp_path, "cu13", "nvidia-cuda-runtime", "13.4.92", ("include/cuda_runtime_api.h",), 13000)
    found = find_cuda_wheels([str(tmp_path)])
    assert found.runtime is not None
    assert found.runtime.release == "13.0"


def test_the_newest_comes_first_and_no_directory_is_no_wheel(tmp_path: Path) -> None:
    install_cu13(tmp_path / "a")
    install(tmp_path / "b", "cu13", "nvidia-cuda-nvcc", "13.4.92", ("bin/nvcc",))
    found = find_cuda_wheels([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")])
    assert found.nvcc is not None
    assert found.nvcc.release == "13.4"
    assert found.crt is not None
    assert found.crt.release == "13.0"
    assert find_cuda_wheels([str(tmp_path / "none")]).parts == ()
    assert find_cuda_wheels([]).missing


def test_headers_that_are_there_and_say_nothing(tmp_path: Path) -> None:
    assert header_release(str(tmp_path)) is None
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 12090\n")
    assert header_release(str(tmp_path)) == "12.9"
    (tmp_path / "cuda_runtime_api.h").write_bytes(b"\xff\xfe")
    with pytest.raises(CouldNotTell, match="names no version of CUDA"):
        header_release(str(tmp_path))


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", denied)
    with pytest.raises(CouldNotTell, match="Permission denied"):
        find_cuda_wheels([str(tmp_path)])


def test_releases() -> None:
    assert release_of_version("13.0.88") == "13.0"
    assert release_of_version("") == ""
    assert release_pair("garbage") == (0, 0)
    assert release_pair("12.9") < release_pair("13.0") < release_pair("13.10")
