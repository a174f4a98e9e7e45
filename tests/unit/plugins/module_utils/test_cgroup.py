# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Control groups: where a process is, and which limits the kernel holds."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import cgroup
from ansible_collections.serving.sglang.plugins.module_utils.cgroup import Held, Mount
from ansible_collections.serving.sglang.plugins.module_utils.desired_state import Limits
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

V1 = """\
9:pids:/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service
8:memory:/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service
4:cpu,cpuacct:/engine/h1/sglang.slice/sglang-main.slice
1:name=systemd:/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service
0::/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service
"""
V2 = "0::/sglang.slice/sglang-main.slice/sglang-main.service\n"
MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
35 30 0:31 /engine/h1 /sys/fs/cgroup/memory rw,nosuid shared:15 - cgroup cgroup rw,memory
36 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
"""
GIB = 2**30


def test_where_a_process_is():
    assert cgroup.memory_path(V1) == (1, "/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service")
    assert cgroup.memory_path(V2) == (2, "/sglang.slice/sglang-main.slice/sglang-main.service")
    with pytest.raises(EngineError):
        cgroup.memory_path("3:cpu:/x\n")


def test_where_the_hierarchy_is_mounted():
    assert cgroup.memory_mount(MOUNTS, 1) == Mount(1, "/engine/h1", "/sys/fs/cgroup/memory")
    assert cgroup.memory_mount(MOUNTS, 2) == Mount(2, "/", "/sys/fs/cgroup/unified")
    with pytest.raises(EngineError, match="not mounted"):
        cgroup.memory_mount("", 2)


@pytest.mark.parametrize(
    ("path", "mount", "directory"),
    [
        (
            "/engine/h1/sglang.slice/sglang-main.slice/sglang-main.service",
            Mount(1, "/engine/h1", "/sys/fs/cgroup/memory"),
            "/sys/fs/cgroup/memory/sglang.slice/sglang-main.slice",
        ),
        (
            "/sglang.slice/sglang-main.slice/sglang-main.service",
            Mount(2, "/", "/sys/fs/cgroup"),
            "/sys/fs/cgroup/sglang.slice/sglang-main.slice",
        ),
    ],
)
def test_the_directory_of_the_slice(path, mount, directory):
    assert cgroup.slice_directory(path, "sglang-main.slice", mount) == directory


def test_a_process_outside_its_slice_is_a_mismatch():
    with pytest.raises(EngineError, match=r"not in sglang-main\.slice") as caught:
        cgroup.slice_directory("/system.slice/sglang-main.service", "sglang-main.slice", Mount(2, "/", "/s"))
    assert caught.value.kind == "limit_mismatch"


@pytest.mark.parametrize(
    ("text", "value"),
    [("max\n", None), ("9223372036854771712\n", None), ("8589934592\n", 8 * GIB), ("0\n", 0), (None, None)],
)
def test_limit_files(text, value):
    assert cgroup.parse_limit(text) == value


def test_limits_that_hold():
    held = Held(2, "/x", memory_max_bytes=8 * GIB, memory_high_bytes=7 * GIB, memory_swap_max_bytes=0)
    assert cgroup.compare(Limits(8 * GIB, 7 * GIB, 0), held) == []
    assert cgroup.compare(Limits(8 * GIB + 100, None, None), held) == []
    assert cgroup.compare(Limits(), Held(2, "/x")) == []


@pytest.mark.parametrize("held", [None, 4 * GIB, 16 * GIB])
def test_a_limit_that_does_not_hold(held):
    (found,) = cgroup.compare(Limits(memory_max_bytes=8 * GIB), Held(2, "/x", memory_max_bytes=held))
    assert found.name == "MemoryMax"
    assert "8.00 GiB" in found.text()


def test_version_1_has_no_high_and_no_swap_limit_and_says_the_way_out():
    held = Held(1, "/x", memory_max_bytes=8 * GIB, high_known=False, swap_known=False)
    found = cgroup.compare(Limits(8 * GIB, 7 * GIB, 0), held)
    assert [mismatch.name for mismatch in found] == ["MemoryHigh", "MemorySwapMax"]
    assert all("systemd.unified_cgroup_hierarchy=1" in mismatch.text() for mismatch in found)


def test_files_of_version_1(tmp_path):
    (tmp_path / "memory.limit_in_bytes").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.memsw.limit_in_bytes").write_text(f"{10 * GIB}\n")
    (tmp_path / "memory.usage_in_bytes").write_text("1395761152\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    held = cgroup.read_held(str(tmp_path), 1)
    assert held.memory_max_bytes == 8 * GIB
    assert held.memory_swap_max_bytes == 2 * GIB
    assert held.current_bytes == 1395761152
    assert held.oom_kills == 2


def test_files_of_version_2(tmp_path):
    (tmp_path / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.high").write_text("max\n")
    (tmp_path / "memory.swap.max").write_text("0\n")
    (tmp_path / "memory.current").write_text("12345\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n")
    held = cgroup.read_held(str(tmp_path), 2)
    assert (held.memory_max_bytes, held.memory_high_bytes, held.memory_swap_max_bytes) == (8 * GIB, None, 0)
    assert held.oom_kills == 1


def test_a_group_that_is_gone(tmp_path):
    with pytest.raises(EngineError, match="does not exist"):
        cgroup.read_held(str(tmp_path / "gone"), 2)
