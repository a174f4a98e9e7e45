# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA_HOME out of wheels: when it is made, of which parts, what it has, and that it is switched to at once."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import cuda_home, cuda_home_change, cuda_home_tree
from ansible_collections.serving.sglang.plugins.module_utils.checks.cuda_wheels import (
    DISTRIBUTIONS,
    CudaPart,
    CudaWheels,
    find_cuda_wheels,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Output
from ansible_collections.serving.sglang.plugins.module_utils.cuda_home import Toolkit, Torch
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.finding import Finding

TORCH = Torch("2.14.1+cu130", "13.0", "13.0.3")
SITE = "/opt/sglang/0.5.22/lib/python3.12/site-packages"
WHOLE = Toolkit("/usr/local/cuda", "13.0", "13.0", "/usr/local/cuda/lib64/libcudart.so")

# Name of the distribution, its files below nvidia/cu13.
WHEELS = {
    "nvidia_cuda_nvcc": ["bin/nvcc", "bin/nvcc.profile", "bin/crt/link.stub"],
    "nvidia_nvvm": ["nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc", "lib/libnvvm.so.4"],
    "nvidia_cuda_crt": ["include/crt/host_config.h"],
    "nvidia_cuda_cccl": ["include/cccl/cuda/std/version", "lib/cmake/cccl/cccl-config.cmake"],
    "nvidia_cuda_runtime": [
        "include/cuda.h",
        "include/cuda_runtime.h",
        "include/cuda_runtime_api.h",
        "lib/libcudart.so.13",
        "lib/libcudart_static.a",
    ],
    "nvidia_cublas": ["include/cublas_v2.h", "lib/libcublas.so.13"],
}


def part(name: str, release: str, root: str = f"{SITE}/nvidia/cu13", version: str = "") -> CudaPart:
    version = version or (f"{release}.88" if release else "")
    return CudaPart(name, root, f"{root}/{name}", DISTRIBUTIONS[name], version, release)


def wheels_of(*parts: CudaPart) -> CudaWheels:
    return CudaWheels((SITE,), parts)


def all_of(release: str, root: str = f"{SITE}/nvidia/cu13", **other: str) -> list[CudaPart]:
    """Every part of one release; `other` has those that are of another one."""
    return [part(name, other.get(name, release), root) for name in DISTRIBUTIONS]


def install(site: Path, release: str, **other: str) -> None:
    """Fake wheels of one release, as pip unpacks them; `other` has the release of a distribution that differs."""
    root = site / "nvidia" / "cu13"
    for distribution, files in WHEELS.items():
        own = other.get(distribution, release)
        for name in files:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            major, minor = own.split(".")
            path.write_text(f"#define CUDART_VERSION {int(major) * 1000 + int(minor) * 10}\n{distribution} {own}\n")
            path.chmod(0o755 if "/bin/" in f"/{name}" and "." not in path.name else 0o644)
        for old in site.glob(f"{distribution}-*.dist-info"):
            shutil.rmtree(old)
        information = site / f"{distribution}-{own}.88.dist-info"
        information.mkdir(parents=True)
        write_record(information, [root / name for name in files])


def write_record(information: Path, files: list[Path]) -> None:
    """As pip does when everything is unpacked."""
    lines = []
    for path in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(information.parent)},sha256={digest},{path.stat().st_size}\n")
    (information / "RECORD").write_text("".join(lines))


def install_again(site: Path, distribution: str) -> None:
    """As `pip install --force-reinstall` does: new files in the place of the old ones, and a new RECORD."""
    information = next(site.glob(f"{distribution}-*.dist-info"))
    release = ".".join(information.name.split("-")[1].split(".")[:2])
    major, minor = release.split(".")
    files = [site / "nvidia/cu13" / name for name in WHEELS[distribution]]
    for path in files:
        executable = "/bin/" in f"/{path.relative_to(site)}" and "." not in path.name
        path.unlink(missing_ok=True)
        path.write_text(f"#define CUDART_VERSION {int(major) * 1000 + int(minor) * 10}\n{distribution} {release}\n")
        path.chmod(0o755 if executable else 0o644)
    write_record(information, files)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with torch for CUDA 13.0 and all wheels of 13.0."""
    site = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    install(site, "13.0")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
    )
    (site / "cuda_toolkit-13.0.3.dist-info").mkdir()
    monkeypatch.setattr(cuda_home_tree, "read_site_packages", lambda python: [str(site)])
    monkeypatch.setattr(cuda_home_tree, "read_driver_library", lambda: None)
    return tmp_path / "env"


def site_of(environment: Path) -> Path:
    return environment / "lib" / "python3.12" / "site-packages"


def change(environment: Path, check_mode: bool = False, **params: Any) -> cuda_home_change.Change:
    given = {"environment": str(environment), "state": "auto", "toolkit": "/nowhere", **params}
    return cuda_home_change.change(given, check_mode)


def everything(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in folder.rglob("*")
    }


# --- whether --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torch", "toolkit", "wanted", "because"),
    [
        (None, None, False, "no torch"),
        (Torch("2.13.0+cpu", None), None, False, "built without CUDA"),
        (Torch("2.13.0+cpu", None), WHOLE, False, "built without CUDA"),
        (TORCH, None, True, "the host has no toolkit"),
        (TORCH, WHOLE, False, "a whole toolkit of CUDA 13.0"),
        (TORCH, Toolkit("/usr/local/cuda", "13.1", "13.1", "x"), False, "of CUDA 13.1"),
        (TORCH, Toolkit("/usr/local/cuda", "12.8", "12.8", "x"), True, "of CUDA 12.8, torch is built for 13.0"),
        (TORCH, Toolkit("/usr/local/cuda", "13.0", "13.0", ""), True, "libcudart.so missing"),
        (TORCH, Toolkit("/usr/local/cuda", "13.4", "13.0", "x"), True, "nvcc 13.4, headers 13.0"),
        (TORCH, Toolkit("/usr/local/cuda", "", "13.0", "x"), True, "nvcc missing"),
        (TORCH, Toolkit("/usr/local/cuda", "", "", ""), True, "nvcc missing, headers missing"),
    ],
)
def test_a_toolkit_is_made_where_none_serves(
    torch: Torch | None, toolkit: Toolkit | None, wanted: bool, because: str
) -> None:
    decision = cuda_home.decide(torch, toolkit)
    assert decision.wanted is wanted
    assert because in decision.reason


@pytest.mark.parametrize(
    ("torch", "pinned"),
    [
        (TORCH, ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.3"]),
        (Torch("2.14.1+cu130", "13.0"), ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.*"]),
        # Somebody upgraded the meta package: torch's own release counts.
        (Torch("2.14.1+cu130", "13.0", "13.4.2"), ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.*"]),
        (Torch("2.13.0+cpu", None), []),
    ],
)
def test_what_pip_is_asked_for(torch: Torch, pinned: list[str]) -> None:
    assert cuda_home.requirements(torch) == pinned


# --- which parts ----------------------------------------------------------------------------------------------------


def chosen(wheels: CudaWheels, torch_cuda: str | None = "13.0") -> tuple[CudaPart, ...]:
    parts = cuda_home.choose_parts(wheels, torch_cuda)
    assert not isinstance(parts, Finding), parts
    return parts


def refused(wheels: CudaWheels, torch_cuda: str | None = "13.0") -> Finding:
    finding = cuda_home.choose_parts(wheels, torch_cuda)
    assert isinstance(finding, Finding)
    return finding


def test_parts_of_one_release() -> None:
    assert {part.name for part in chosen(wheels_of(*all_of("13.0")))} == set(DISTRIBUTIONS)


def test_cccl_has_versions_of_its_own() -> None:
    assert chosen(wheels_of(*all_of("13.4", cccl="13.3")), "13.0")


def test_libraries_for_run_time_may_be_missing_or_of_another_minor_release() -> None:
    parts = all_of("13.4", nvrtc="13.0")
    assert chosen(wheels_of(*parts), "13.0")
    assert chosen(wheels_of(*(part for part in parts if part.name != "nvrtc")), "13.0")


@pytest.mark.parametrize("name", ["nvcc", "nvvm", "crt", "cccl", "runtime", "cudart"])
def test_a_missing_wheel_is_named(name: str) -> None:
    finding = refused(wheels_of(*(part for part in all_of("13.0") if part.name != name)))
    assert (finding.id, finding.severity) == ("cuda.wheels_incomplete", "error")
    assert DISTRIBUTIONS[name] in finding.summary
    assert SITE in finding.evidence
    assert "cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.*" in finding.fix


@pytest.mark.parametrize("name", ["nvcc", "nvvm", "crt", "runtime", "cudart"])
def test_parts_of_different_releases_are_refused(name: str) -> None:
    finding = refused(wheels_of(*all_of("13.0", **{name: "13.4"})))
    assert finding.id == "cuda.wheels_of_different_releases"
    assert f"{name} 13.4" in finding.summary
    # Version and path of each.
    assert f"{DISTRIBUTIONS[name]} 13.4.88 (CUDA 13.4) {SITE}/nvidia/cu13/{name}" in finding.evidence
    assert "==13.0.*" in finding.fix


def test_a_matching_set_elsewhere_is_taken() -> None:
    beside = "/opt/sglang/0.5.22/cuda-wheels/nvidia/cu13"
    parts = [*all_of("13.4", runtime="13.0", cudart="13.0"), *all_of("13.0", beside)]
    assert {part.root for part in chosen(wheels_of(*parts))} == {beside}


def test_the_release_of_torch_comes_before_a_newer_one() -> None:
    newer, older = all_of("13.4"), all_of("13.0", "/w/nvidia/cu13")
    assert {part.release for part in chosen(wheels_of(*newer, *older), "13.0")} == {"13.0"}
    assert {part.release for part in chosen(wheels_of(*newer, *older), "13.2")} == {"13.4"}
    assert {part.release for part in chosen(wheels_of(*newer, *older), None)} == {"13.4"}


def test_another_major_release_is_refused() -> None:
    finding = refused(wheels_of(*all_of("12.8")), "13.0")
    assert finding.id == "cuda.wheels_of_another_major_release"
    assert "13.0" in finding.summary
    assert "12.8" in finding.summary


def test_an_unknown_release_is_no_match() -> None:
    assert refused(wheels_of(*all_of("")), "13.0").severity == "error"
    assert refused(wheels_of(*all_of("")), None).severity == "error"


@given(st.lists(st.tuples(st.sampled_from(sorted(DISTRIBUTIONS)), st.sampled_from(["", "12.8", "13.0", "13.4"]))))
def test_never_a_set_of_two_releases(named: list[tuple[str, str]]) -> None:
    parts = cuda_home.choose_parts(wheels_of(*(part(name, release) for name, release in named)), "13.0")
    if isinstance(parts, Finding):
        assert parts.summary
        assert parts.fix
    else:
        assert {part.major for part in parts} == {13}
        releases = {part.release for part in parts if part.name not in ("cccl", "nvrtc")}
        assert len(releases) == 1


# --- the tree -------------------------------------------------------------------------------------------------------


def planned(site: Path, driver: str | None = None) -> cuda_home.Tree:
    wheels = find_cuda_wheels([str(site)])
    parts = chosen(wheels)
    return cuda_home.plan(parts, cuda_home_tree.read_roots(wheels, parts), driver, "13.0")


def test_tree_has_what_a_compiler_and_a_linker_look_for(tmp_path: Path) -> None:
    install(tmp_path, "13.0")
    entries = planned(tmp_path).entries
    assert {path: entry.kind for path, entry in entries.items()} == {
        "bin/nvcc": "file",
        "bin/nvcc.profile": "file",
        "bin/crt/link.stub": "file",
        "nvvm/bin/cicc": "file",
        "nvvm/libdevice/libdevice.10.bc": "file",
        "include/crt/host_config.h": "file",
        "include/cccl/cuda/std/version": "file",
        "include/cuda.h": "file",
        "include/cuda_runtime.h": "file",
        "include/cuda_runtime_api.h": "file",
        "include/cublas_v2.h": "file",
        "lib64/libcudart.so.13": "file",
        "lib64/libcudart.so": "link",
        "lib64/libcudart_static.a": "file",
        "lib64/libnvvm.so.4": "file",
        "lib64/libnvvm.so": "link",
        "lib64/libcublas.so.13": "link",
        "lib64/libcublas.so": "link",
        # nvcc itself looks for libraries in lib.
        "lib": "link",
    }
    assert entries["lib64/libcudart.so"].source == "libcudart.so.13"
    assert entries["lib64/libcublas.so.13"].source == f"{tmp_path}/nvidia/cu13/lib/libcublas.so.13"
    assert entries["bin/nvcc"].status.executable


def test_stub_of_the_driver_library(tmp_path: Path) -> None:
    install(tmp_path, "13.0")
    without = planned(tmp_path)
    assert "lib64/stubs/libcuda.so" not in without.entries
    assert "libcuda.so is not there" in without.notes[0]
    of_driver = planned(tmp_path, "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    assert of_driver.entries["lib64/stubs/libcuda.so"].source == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert of_driver.notes == ()
    stub = tmp_path / "nvidia/cu13/lib/stubs/libcuda.so"
    stub.parent.mkdir()
    stub.write_text("")
    of_wheels = planned(tmp_path, "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    assert of_wheels.entries["lib64/stubs/libcuda.so"].kind == "file"


def test_headers_of_other_wheels_but_not_of_another_compiler(tmp_path: Path) -> None:
    site, beside = tmp_path / "site", tmp_path / "beside"
    install(site, "13.4", nvidia_cuda_runtime="13.0")
    (site / "nvidia/cu13/include/crt/new_in_13_4.h").write_text("")
    (site / "nvidia/cu13/lib/libnvrtc.so.13").write_text("")
    (site / "nvidia_cuda_nvrtc-13.0.88.dist-info").mkdir()
    record = site / "nvidia_cuda_crt-13.4.88.dist-info" / "RECORD"
    record.write_text(record.read_text() + "nvidia/cu13/include/crt/new_in_13_4.h,,\n")
    install(beside, "13.0")
    shutil.rmtree(beside / "nvidia_cublas-13.0.88.dist-info")
    for name in WHEELS["nvidia_cublas"]:
        (beside / "nvidia/cu13" / name).unlink()
    wheels = find_cuda_wheels([str(beside), str(site)])
    parts = chosen(wheels)
    tree = cuda_home.plan(parts, cuda_home_tree.read_roots(wheels, parts), None, "13.0")
    assert tree.release == "13.0"
    assert tree.entries["include/cublas_v2.h"].source.startswith(str(site))
    assert tree.entries["bin/nvcc"].source.startswith(str(beside))
    assert "include/crt/new_in_13_4.h" not in tree.entries
    assert tree.entries["lib64/libnvrtc.so.13"].source == f"{site}/nvidia/cu13/lib/libnvrtc.so.13"


def test_another_release_than_torch_is_noted(tmp_path: Path) -> None:
    install(tmp_path, "13.4")
    assert any("of CUDA 13.4, torch is built for 13.0" in note for note in planned(tmp_path).notes)


# --- on disk --------------------------------------------------------------------------------------------------------


def test_make_and_keep(environment: Path) -> None:
    before = everything(environment)
    announced = change(environment, check_mode=True)
    assert everything(environment) == before
    done = change(environment)
    assert announced.as_dict() == done.as_dict()
    assert (announced.before, announced.after) == (done.before, done.after)
    assert done.changed
    assert done.home == str(environment / "cuda-home")
    assert done.before == {"path": None}
    assert (done.after["release"], done.after["entries"]["bin"]) == ("13.0", 3)

    home = Path(done.home)
    assert (home / "lib64" / "libcudart.so").read_text().startswith("#define")
    assert os.access(home / "bin" / "nvcc", os.X_OK)
    for path in [home, *home.rglob("*")]:
        status = path.stat()
        assert status.st_uid == os.geteuid()
        assert status.st_mode & 0o444 == 0o444, path

    made = everything(environment)
    again = change(environment)
    assert not again.changed
    assert again.before == again.after
    assert everything(environment) == made
    assert not change(environment, check_mode=True).changed


def test_files_outlive_the_wheels(environment: Path) -> None:
    change(environment)
    shutil.rmtree(site_of(environment) / "nvidia")
    assert "nvidia_cuda_nvcc 13.0" in (environment / "cuda-home" / "bin" / "nvcc").read_text()


def test_changed_wheels_make_another_tree(environment: Path) -> None:
    first = change(environment)
    shutil.rmtree(site_of(environment) / "nvidia")
    install(site_of(environment), "13.4")
    announced, second = change(environment, check_mode=True), change(environment)
    assert announced.changed
    assert second.changed
    assert announced.before == second.before
    assert (second.before["release"], second.after["release"]) == ("13.0", "13.4")
    assert second.home == first.home
    assert "13.4" in (environment / "cuda-home" / "bin" / "nvcc").read_text()
    assert len(list(environment.glob(".cuda-home-*"))) == 1
    assert not change(environment).changed


@pytest.mark.parametrize("damage", ["missing", "added", "edited", "mode", "record"])
def test_damage_is_repaired(environment: Path, damage: str) -> None:
    change(environment)
    home = environment / "cuda-home"
    header = home / "include" / "cuda_runtime_api.h"
    if damage == "missing":
        header.unlink()
    elif damage == "added":
        (home / "include" / "own.h").write_text("")
    elif damage == "edited":
        header.unlink()
        header.write_text("// mine\n")
    elif damage == "mode":
        (home / "bin" / "nvcc").unlink()
        shutil.copy2(site_of(environment) / "nvidia/cu13/bin/nvcc", home / "bin" / "nvcc")
        (home / "bin" / "nvcc").chmod(0o700)
    else:
        (home / cuda_home_tree.RECORD).unlink()
    repaired = change(environment)
    assert repaired.changed
    assert "differs" in repaired.before
    assert not change(environment).changed


def test_a_file_that_others_could_change_is_copied(environment: Path) -> None:
    header = site_of(environment) / "nvidia/cu13/include/cuda_runtime_api.h"
    header.chmod(0o666)
    change(environment)
    made = environment / "cuda-home" / "include" / "cuda_runtime_api.h"
    assert made.stat().st_ino != header.stat().st_ino
    assert made.stat().st_mode & 0o777 == 0o644
    assert (environment / "cuda-home" / "bin" / "nvcc").stat().st_nlink == 2
    assert not change(environment).changed


def test_copied_where_there_are_no_second_names(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_names: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert change(environment).changed
    assert (environment / "cuda-home" / "bin" / "nvcc").stat().st_nlink == 1
    assert os.access(environment / "cuda-home" / "bin" / "nvcc", os.X_OK)
    assert not change(environment).changed


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
@pytest.mark.parametrize("state", ["auto", "present", "absent"])
def test_what_it_did_not_make_is_left_alone(environment: Path, kind: str, state: str) -> None:
    path = environment / "cuda-home"
    if kind == "directory":
        path.mkdir()
        (path / "nvcc").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to("/usr/local/cuda")
    before = everything(environment)
    for check_mode in (True, False):
        with pytest.raises(EngineError, match="was not made by this module"):
            change(environment, check_mode, state=state)
    assert everything(environment) == before


def test_a_run_that_was_killed_leaves_the_old_tree(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(environment)
    old = os.readlink(environment / "cuda-home")
    shutil.rmtree(site_of(environment) / "nvidia")
    install(site_of(environment), "13.4")

    def killed(*_arguments: Any) -> None:
        os._exit(9)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "replace", killed)
        change(environment)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert os.readlink(environment / "cuda-home") == old
    assert "13.0" in (environment / "cuda-home" / "bin" / "nvcc").read_text()
    left = [path.name for path in environment.glob(".cuda-home-*")]
    assert len(left) == 3
    done = change(environment)
    assert sorted(done.before["left_behind"]) == sorted(str(environment / name) for name in left if name != old)
    assert len(list(environment.glob(".cuda-home-*"))) == 1
    assert not change(environment).changed


def test_a_failed_build_leaves_nothing(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        change(environment)
    assert not list(environment.glob("*cuda-home*"))


def test_a_reader_never_finds_a_gap(environment: Path) -> None:
    change(environment)
    nvcc = environment / "cuda-home" / "bin" / "nvcc"
    reader = subprocess.Popen(
        [sys.executable, "-c", f"import os\nwhile True:\n    os.stat({str(nvcc)!r})"], stderr=subprocess.PIPE, text=True
    )
    try:
        for release in ("13.4", "13.0", "13.4", "13.0"):
            install(site_of(environment), release)
            for path in (site_of(environment) / "nvidia").rglob("nvcc"):
                os.utime(path)
            assert change(environment).changed
        assert reader.poll() is None, reader.stderr and reader.stderr.read()
    finally:
        reader.kill()
        reader.communicate()


def test_a_tree_that_something_runs_from_stays_until_later(environment: Path) -> None:
    nvcc = site_of(environment) / "nvidia/cu13/bin/nvcc"
    nvcc.unlink()
    shutil.copy("/bin/sleep", nvcc)
    information = site_of(environment) / "nvidia_cuda_nvcc-13.0.88.dist-info"
    write_record(information, [nvcc])
    change(environment)
    old = environment / os.readlink(environment / "cuda-home")
    compiler = subprocess.Popen([environment / "cuda-home" / "bin" / "nvcc", "60"])
    try:
        nvcc.unlink()
        nvcc.write_text("another")
        nvcc.chmod(0o755)
        write_record(information, [nvcc])
        assert change(environment).changed
        assert old.exists()
        assert not change(environment).changed
    finally:
        compiler.kill()
        compiler.wait()
    assert change(environment, check_mode=True).changed
    assert change(environment).changed
    assert not old.exists()


def test_absent(environment: Path) -> None:
    before = everything(environment)
    assert not change(environment, state="absent").changed
    change(environment)
    made = everything(environment)
    announced = change(environment, check_mode=True, state="absent")
    assert everything(environment) == made
    done = change(environment, state="absent")
    assert announced.as_dict() == done.as_dict()
    assert done.changed
    assert done.home is None
    assert (done.before["release"], done.after) == ("13.0", {"path": None})
    assert everything(environment).keys() == before.keys()
    assert not change(environment, state="absent").changed


def test_absent_waits_for_those_that_were_started_with_it(environment: Path) -> None:
    home = change(environment).home
    assert home is not None
    server = subprocess.Popen(
        ["/bin/sh", "-c", "echo started; read line"],
        env={"CUDA_HOME": home},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        # The kernel shows the environment of a process a moment after it has begun.
        assert server.stdout is not None
        server.stdout.readline()
        kept = change(environment, state="absent")
        assert not kept.changed
        assert kept.home is None
        assert f"PID {server.pid}" in kept.notes[0]
        assert Path(home, "bin", "nvcc").exists()
    finally:
        server.kill()
        server.communicate()
    assert change(environment, state="absent").changed


def test_auto_removes_what_a_toolkit_of_the_host_replaces(environment: Path, tmp_path: Path) -> None:
    change(environment)
    toolkit = tmp_path / "cuda"
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "include").mkdir()
    (toolkit / "lib64").mkdir()
    nvcc = toolkit / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    (toolkit / "include" / "cuda_runtime_api.h").write_text("#define CUDART_VERSION 13000\n")
    assert not change(environment, toolkit=str(toolkit)).changed
    (toolkit / "lib64" / "libcudart.so").write_text("")
    done = change(environment, toolkit=str(toolkit))
    assert done.changed
    assert done.home is None
    assert "whole toolkit" in done.reason


def test_auto_does_nothing_for_torch_on_the_cpu(environment: Path) -> None:
    (site_of(environment) / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: str = None\n")
    before = everything(environment)
    done = change(environment)
    assert (done.changed, done.home, done.findings) == (False, None, [])
    assert done.as_dict()["requirements"] == []
    assert everything(environment) == before


def test_auto_reports_wheels_that_do_not_fit_and_present_fails(environment: Path) -> None:
    install(site_of(environment), "13.4", nvidia_cuda_runtime="13.0")
    done = change(environment)
    assert (done.changed, done.home) == (False, None)
    assert [finding.id for finding in done.findings] == ["cuda.wheels_of_different_releases"]
    assert done.as_dict()["requirements"] == ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.3"]
    with pytest.raises(EngineError, match="different releases") as failure:
        change(environment, state="present")
    assert failure.value.kind == "cuda.wheels_of_different_releases"
    assert "Next step: `pip install" in failure.value.msg
    # Wheels beside the environment repair it.
    install(environment / "cuda-wheels", "13.0")
    repaired = change(environment)
    assert (repaired.changed, repaired.findings) == (True, [])
    assert str(environment / "cuda-wheels" / "nvidia/cu13") in repaired.after["roots"]


def test_auto_keeps_a_tree_whose_wheels_no_longer_fit(environment: Path) -> None:
    home = change(environment).home
    install(site_of(environment), "13.4", nvidia_cuda_runtime="13.0")
    done = change(environment)
    assert (done.changed, done.home) == (False, home)
    assert done.findings


def test_torch_that_says_nothing_is_no_clean_bill(environment: Path) -> None:
    (site_of(environment) / "torch" / "version.py").write_text("\x00garbled")
    with pytest.raises(CouldNotTell, match="does not say which version of torch"):
        change(environment)


def test_an_interpreter_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(CouldNotTell, match="not installed"):
        cuda_home_tree.read_site_packages(str(tmp_path / "bin" / "python"))
    assert cuda_home_tree.read_site_packages(sys.executable)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["libcuda.so.1 (libc6,x86-64) => /lib/libcuda.so.1"], "/lib/libcuda.so.1"),
        (
            ["libcuda.so.1 (libc6) => /i386/libcuda.so.1", "libcuda.so.1 (libc6,x86-64) => /l/libcuda.so.1"],
            "/l/libcuda.so.1",
        ),
        (["libcuda.so.1 (libc6,AArch64) => /lib/libcuda.so.1"], "/lib/libcuda.so.1"),
        (["libcudart.so.13 (libc6,x86-64) => /x/libcudart.so.13"], None),
        ([], None),
    ],
)
def test_driver_library_as_the_loader_knows_it(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], found: str | None
) -> None:
    output = Output(0, "".join(f"\t{line}\n" for line in lines), "")
    monkeypatch.setattr(cuda_home_tree, "run_command", lambda *_arguments, **_options: output)
    assert cuda_home_tree.read_driver_library() == found


def test_two_runs_do_not_meet(environment: Path) -> None:
    waiting = cuda_home_tree.locked(str(environment), limit_s=0.3)
    with (
        cuda_home_tree.locked(str(environment)),
        pytest.raises(EngineError, match="another run has been changing"),
        waiting,
    ):
        pass
    with cuda_home_tree.locked(str(environment), limit_s=0.3):
        pass


# --- wheels that are not whole --------------------------------------------------------------------------------------


def append(path: Path) -> None:
    """Write into the file that is there, as `echo >>` does, and not into a new one."""
    with path.open("a") as file:
        file.write("// mine\n")


def same_size(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("#define", "#DEFINE"))


DAMAGES = [
    ("include/cuda_runtime.h", Path.unlink, "is missing", "nvidia-cuda-runtime"),
    ("include/cuda.h", Path.unlink, "is missing", "nvidia-cuda-runtime"),
    ("include/cuda_runtime_api.h", lambda path: path.write_text(""), "has 0 bytes instead of", "nvidia-cuda-runtime"),
    ("bin/nvcc", lambda path: path.write_text(""), "has 0 bytes instead of", "nvidia-cuda-nvcc"),
    ("nvvm/bin/cicc", same_size, "has another content", "nvidia-nvvm"),
    ("nvvm/libdevice/libdevice.10.bc", Path.unlink, "is missing", "nvidia-nvvm"),
    ("include/crt/host_config.h", append, "bytes instead of", "nvidia-cuda-crt"),
    ("lib/libcudart.so.13", same_size, "has another content", "nvidia-cuda-runtime"),
    ("include/cublas_v2.h", append, "bytes instead of", "nvidia-cublas"),
]


@pytest.mark.parametrize(("name", "damage", "problem", "wheel"), DAMAGES)
def test_a_wheel_that_is_not_whole_is_refused(
    environment: Path, name: str, damage: Any, problem: str, wheel: str
) -> None:
    site = site_of(environment)
    path = site / "nvidia/cu13" / name
    damage(path)
    before = everything(environment)
    for check_mode in (True, False):
        done = change(environment, check_mode)
        assert (done.changed, done.home) == (False, None)
        (finding,) = done.findings
        assert (finding.id, finding.severity) == ("cuda.wheels_damaged", "error")
        assert f"{name} " in finding.summary
        assert problem in finding.summary
        assert f"{path} " in finding.evidence
        words = "-m pip install --force-reinstall --no-deps"
        assert finding.fix == f"`{environment}/bin/python {words} {wheel}==13.0.88`"
        with pytest.raises(EngineError, match=re.escape(problem)) as failure:
            change(environment, check_mode, state="present")
        assert failure.value.kind == "cuda.wheels_damaged"
    assert everything(environment) == before
    install_again(site, wheel.replace("-", "_"))
    assert change(environment).changed
    assert not change(environment).changed


@pytest.mark.parametrize("name", ["bin/nvcc", "include/cuda_runtime_api.h"])
@pytest.mark.parametrize("without", ["no RECORD", "no sizes"])
def test_without_a_record_no_file_that_counts_may_be_empty(environment: Path, name: str, without: str) -> None:
    for record in site_of(environment).glob("nvidia*/RECORD"):
        if without == "no RECORD":
            record.unlink()
        else:
            record.write_text("".join(f"{line.split(',')[0]},,\n" for line in record.read_text().splitlines()))
    assert change(environment, check_mode=True).changed
    (site_of(environment) / "nvidia/cu13" / name).write_text("")
    assert f"{name} is empty" in change(environment).findings[0].summary
    (site_of(environment) / "nvidia/cu13/include/cuda_runtime_api.h").write_text("garbled")
    assert change(environment).findings[0].id == "cuda.wheels_damaged"


def test_writing_into_the_tree_changes_the_wheel_and_is_found(environment: Path) -> None:
    change(environment)
    append(environment / "cuda-home" / "include" / "cuda.h")
    done = change(environment)
    assert (done.changed, done.home) == (False, None)
    assert "include/cuda.h has" in done.findings[0].summary
    install_again(site_of(environment), "nvidia_cuda_runtime")
    assert change(environment, check_mode=True).changed
    repaired = change(environment)
    assert (repaired.changed, repaired.findings) == (True, [])
    assert "mine" not in (environment / "cuda-home" / "include" / "cuda.h").read_text()
    assert not change(environment).changed


def test_a_tree_outlives_a_file_that_was_taken_from_its_wheel(environment: Path) -> None:
    home = change(environment).home
    (site_of(environment) / "nvidia/cu13/include/cuda_runtime.h").unlink()
    done = change(environment)
    assert (done.changed, done.home) == (False, home)
    assert "cuda_runtime.h is missing" in done.findings[0].summary


def test_a_file_of_two_wheels_is_as_one_of_them_says(environment: Path) -> None:
    record = site_of(environment) / "nvidia_cuda_nvcc-13.0.88.dist-info" / "RECORD"
    record.write_text(record.read_text() + "nvidia/cu13/include/crt/host_config.h,sha256=x,7\n")
    assert change(environment).changed


def test_wheels_beside_the_environment_are_put_there_again(environment: Path) -> None:
    beside = environment / "cuda-wheels"
    install(beside, "13.0")
    append(beside / "nvidia/cu13/include/cuda.h")
    (finding,) = change(environment).findings
    assert finding.fix == f"`rm -r {beside}`, then deploy, which fills it again"


def test_nothing_is_to_be_removed_of_a_directory_that_was_declared(environment: Path, tmp_path: Path) -> None:
    declared = tmp_path / "declared"
    install(declared, "13.0")
    append(declared / "nvidia/cu13/include/cuda.h")
    (finding,) = change(environment, wheels=[str(declared)]).findings
    assert "rm" not in finding.fix.split()
    assert finding.fix.startswith(f"install nvidia-cuda-runtime==13.0.88 again in {declared}")


def test_whole_wheels_beside_the_environment_take_the_place_of_damaged_ones(environment: Path) -> None:
    append(site_of(environment) / "nvidia/cu13/include/cuda.h")
    assert change(environment).findings
    install(environment / "cuda-wheels", "13.0")
    assert (change(environment).changed, change(environment).findings) == (True, [])


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["relative", "./a", "/", "//"])
@pytest.mark.parametrize("state", ["auto", "present", "absent"])
def test_a_path_that_is_none(environment: Path, path: str, state: str) -> None:
    with pytest.raises(EngineError, match="path is '.*'. Give the absolute path") as failure:
        change(environment, path=path, state=state)
    assert failure.value.kind == "cuda_home.path"


def test_a_path_in_a_directory_that_is_not_there(environment: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"no directory {tmp_path}/none to make it in"):
        change(environment, path=f"{tmp_path}/none/cuda", check_mode=True)
    assert not change(environment, path=f"{tmp_path}/none/cuda", state="absent").changed


def test_an_environment_that_is_no_path(environment: Path) -> None:
    with pytest.raises(EngineError, match="environment is 'env'"):
        cuda_home_change.change({"environment": "env", "state": "auto", "toolkit": "/nowhere"}, True)


@pytest.mark.parametrize("state", ["auto", "present"])
def test_declared_wheels_that_are_not_there(environment: Path, tmp_path: Path, state: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="wheels names /none, which is not there"):
        change(environment, wheels=["/none"], state=state)
    with pytest.raises(EngineError, match="file, which is no directory"):
        change(environment, wheels=[str(tmp_path / "file")], state=state)
    assert change(environment, wheels=[], state=state).changed
