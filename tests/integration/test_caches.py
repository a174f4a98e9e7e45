# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Caches on real mounts, with locks that real processes hold and leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts file systems of its own"
)

USER = "nobody"

# In a mount namespace of its own: a disk, a noexec one, one that is full of nothing, and one that is read-only.
SCRIPT = """
import json, os, subprocess, sys
from ansible_collections.serving.sglang.plugins.module_utils.checks import cache_readings
top = sys.argv[1]
for name, options in (("noexec", "noexec,size=8m"), ("small", "size=1m,nr_inodes=16"), ("ro", "ro,size=1m")):
    path = f"{top}/{name}"
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
print(json.dumps(cache_readings.examine_caches({"instances": json.loads(sys.argv[2])})))
"""

# Takes a lock as torch does, says so, and waits.
TORCH = """
import os, sys, time
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
print("held", flush=True)
time.sleep(60)
"""
FLOCK = """
import fcntl, sys, time
handle = open(sys.argv[1], "w")
fcntl.flock(handle, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def caches(tmp_path: Path) -> Iterator[Path]:
    """A directory that the service user can reach, below which all caches are."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder in (Path("/"), Path("/tmp")):
            break
        folder.chmod(0o755)
    # Not below /tmp, which a unit has for itself.
    top = Path(f"/var/cache/serving-sglang-test-{os.getpid()}")
    top.mkdir()
    shutil.chown(top, USER)
    yield top
    shutil.rmtree(top)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


def hold(script: str, path: Path, children: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def examine(top: Path, **environment: str) -> list[dict[str, Any]]:
    given = {
        "SGLANG_CACHE_DIR": f"{top}/sglang",
        "SGLANG_JIT_CACHE_DIR": f"{top}/jit",
        "TVM_FFI_CACHE_DIR": f"{top}/tvm_ffi",
        "TORCH_EXTENSIONS_DIR": f"{top}/torch",
        "HF_HOME": f"{top}/hf",
        **environment,
    }
    redirected = ("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR", "SGLANG_DG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    given = {**{name: f"{top}/{name.lower()}" for name in redirected}, **given}
    given = {**{name: f"{top}/{name.lower()}" for name in ("TILELANG_CACHE_DIR", "CUDA_CACHE_PATH")}, **given}
    instance = {
        "name": "main",
        "version": "0.5.22",
        "user": USER,
        "environment": {"SGLANG_CUTE_AOT_CACHE_DIR": "", "XDG_CACHE_HOME": f"{top}/xdg", **given},
        "writable_paths": [str(top)],
    }
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", SCRIPT, top, json.dumps([instance])],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return [finding for finding in findings if finding["severity"] != "ok"]


def of(findings: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [finding for finding in findings if finding["id"] == kind]


def test_a_sound_host_has_no_finding(caches: Path) -> None:
    kinds = {finding["id"] for finding in examine(caches)}
    # How much space the disk of the developer has, and how many cores, is not ours to say.
    assert kinds <= {"cache.space", "cache.cold_deadline"}


def test_noexec_is_found(caches: Path) -> None:
    findings = examine(caches, TRITON_CACHE_DIR=f"{caches}/noexec/triton")
    (finding,) = of(findings, "cache.noexec")
    assert f"{caches}/noexec/triton" in finding["summary"]
    assert finding["fix"].startswith(f"`mount -o remount,exec {caches}/noexec")
    # A file system in memory is one too.
    (finding,) = of(findings, "cache.lost_at_restart")
    assert "triton" in finding["summary"]


def test_weights_may_lie_on_a_noexec_mount(caches: Path) -> None:
    assert not of(examine(caches, HF_HOME=f"{caches}/noexec/hf"), "cache.noexec")


def test_a_small_file_system_and_a_read_only_one_are_found(caches: Path) -> None:
    findings = examine(caches, TRITON_CACHE_DIR=f"{caches}/small/t", SGLANG_JIT_CACHE_DIR=f"{caches}/ro/jit")
    small = [finding for finding in of(findings, "cache.space") if f"{caches}/small" in finding["summary"]]
    assert {finding["severity"] for finding in small} == {"error", "warning"}
    assert any("remount,rw" in finding["fix"] for finding in of(findings, "cache.not_writable"))


def test_locks_that_are_held_are_no_fault(caches: Path, children: list[subprocess.Popen[str]]) -> None:
    build = caches / "torch" / "py311_cu130" / "extension"
    build.mkdir(parents=True)
    shutil.chown(build, USER)
    hold(TORCH, build / "lock", children)
    hold(FLOCK, build / "x.lock", children)
    (build / "left.lock").touch()
    assert not of(examine(caches), "cache.stale_lock")


def test_a_lock_whose_holder_was_killed_is_stale_and_its_repair_removes_it(
    caches: Path, children: list[subprocess.Popen[str]]
) -> None:
    build = caches / "torch" / "py311_cu130" / "extension"
    build.mkdir(parents=True)
    lock = build / "lock"
    child = hold(TORCH, lock, children)
    assert not of(examine(caches), "cache.stale_lock")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert lock.exists()
    (finding,) = of(examine(caches), "cache.stale_lock")
    assert finding["severity"] == "error"
    assert str(lock) in finding["summary"]
    subprocess.run(["sh", "-c", finding["fix"]], check=True)
    assert not lock.exists()
    assert not of(examine(caches), "cache.stale_lock")


def test_the_repair_leaves_a_lock_alone_that_was_taken_meanwhile(
    caches: Path, children: list[subprocess.Popen[str]]
) -> None:
    build = caches / "torch"
    build.mkdir()
    lock = build / "lock"
    lock.touch()
    (finding,) = of(examine(caches), "cache.stale_lock")
    lock.unlink()
    hold(TORCH, lock, children)
    subprocess.run(["sh", "-c", finding["fix"]], check=True)
    assert lock.exists()


def test_what_root_left_in_the_cache_is_found(caches: Path) -> None:
    left = caches / "triton_cache_dir" / "kernel"
    left.mkdir(parents=True)
    findings = examine(caches)
    assert any(str(left.parent) in finding["summary"] for finding in of(findings, "cache.not_writable"))
    (finding,) = of(findings, "cache.foreign_owner")
    assert str(left) in finding["evidence"]
    for repair in of(findings, "cache.not_writable"):
        subprocess.run(["sh", "-c", repair["fix"]], check=True)
    assert not of(examine(caches), "cache.foreign_owner")
