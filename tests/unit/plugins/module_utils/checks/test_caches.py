"""The caches of servers: where each release puts them, and what is wrong with them on a host."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import compile_time, spec
from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    cache_checks,
    cache_readings,
    file_systems,
    lock_holders,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.cache_directories import (
    BY_EXISTENCE,
    BY_KERNEL,
    cache_release_for,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.cache_readings import Caches, Contents
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.file_systems import Identity, Mount, Space
from ansible_collections.serving.sglang.plugins.module_utils.checks.lock_holders import Lock
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Unknown
from ansible_collections.serving.sglang.plugins.module_utils.finding import Finding

CHECKOUT = Path(__file__).resolve().parents[5]
CASES = {
    case["id"]: case["given"]
    for case in yaml.safe_load((CHECKOUT / "tests" / "data" / "cases" / "caches.yml").read_text(encoding="utf-8"))
}
GIB = 1 << 30
DISK = Mount("/", "ext4", "/dev/sda1", ("rw", "relatime"))
ROOMY = Space(500 * GIB, 900 * GIB, 10**7, 10**8)
WARM = Contents(compiled=40)


def caches_of(*instances: dict[str, Any], cores: int = 16, **read: Any) -> Caches:
    """The caches of declared instances on a host where all is well, but for what is given."""
    fine: dict[str, Any] = {
        "exists": True,
        "owner": "sglang",
        "refusal": "",
        "mount": DISK,
        "space": ROOMY,
        "contents": WARM,
    }
    caches = cache_readings.resolve(instances, cores)
    directories = tuple(
        replace(directory, **{"probe": directory.path, **fine, **read}) for directory in caches.directories
    )
    return replace(caches, directories=directories)


def found(caches: Caches, kind: str, severity: str | None = None) -> list[Finding]:
    findings = [finding for finding in run_checks(cache_checks.CHECKS, caches) if finding.id == kind]
    if severity is None:
        return [finding for finding in findings if finding.severity != "ok"]
    return [finding for finding in findings if finding.severity == severity]


MAIN = {"name": "main", "version": "0.5.22"}
DOCKER = {"name": "main", "version": "0.5.22", "runtime": "docker"}


def places(version: str, environment: dict[str, str], home: str = "/home/s") -> dict[str, str]:
    found = cache_release_for(version).places(environment, home, "s")
    return {place.cache.name: place.path for place in found}


# --- where they are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
def test_a_release_redirects_the_caches_of_its_libraries(version: str) -> None:
    assert places(version, {}) == {
        "sglang": "/home/s/.cache/sglang",
        "jit": "/home/s/.cache/sglang/jit",
        "flashinfer": "/home/s/.cache/sglang/.cache/flashinfer",
        "triton": "/home/s/.cache/sglang/triton",
        "deep_gemm": "/home/s/.cache/sglang/deep_gemm",
        "tvm_ffi": "/home/s/.cache/tvm-ffi",
        "inductor": "/home/s/.cache/sglang/inductor",
        "torch_extensions": "/home/s/.cache/torch_extensions",
        "tilelang": "/home/s/.cache/sglang/tilelang",
        "cute_aot": "/home/s/.cache/sglang/cute_aot",
        "nv": "/home/s/.cache/sglang/nv",
        "huggingface": "/home/s/.cache/huggingface/hub",
    }


def test_an_older_release_leaves_each_library_its_own_place() -> None:
    old = places("0.5.17", {"SGLANG_CACHE_DIR": "/c"})
    assert old["triton"] == "/home/s/.triton/cache"
    assert old["inductor"] == "/tmp/torchinductor_s"
    assert old["flashinfer"] == "/home/s/.cache/flashinfer"
    assert old["deep_gemm"] == "/home/s/.cache/deep_gemm"
    assert "jit" not in old
    assert "cute_aot" not in old


def test_a_variable_that_is_set_wins() -> None:
    moved = places("0.5.23", {"TRITON_CACHE_DIR": "/t", "SGLANG_CACHE_DIR": "/c", "HF_HOME": "~/hf"})
    assert moved["triton"] == "/t"
    assert moved["inductor"] == "/c/inductor"
    assert moved["flashinfer"] == "/c/.cache/flashinfer"
    assert moved["huggingface"] == "/home/s/hf/hub"


def test_the_jit_cache_does_not_follow() -> None:
    assert places("0.5.23", {"SGLANG_CACHE_DIR": "/c"})["jit"] == "/home/s/.cache/sglang/jit"
    assert places("0.5.23", {"SGLANG_CACHE_DIR": "/c", "SGLANG_JIT_CACHE_DIR": "/c/jit"})["jit"] == "/c/jit"
    assert places("0.5.23", {"SGLANG_JIT_CACHE_DIR": ""})["jit"] == "/home/s/.cache/sglang/jit"


def test_an_empty_variable_turns_the_cache_off_or_leaves_the_library_its_own_place() -> None:
    assert "cute_aot" not in places("0.5.23", {"SGLANG_CUTE_AOT_CACHE_DIR": ""})
    assert places("0.5.23", {"TRITON_CACHE_DIR": ""})["triton"] == "/home/s/.triton/cache"


def test_an_unknown_release_is_assumed() -> None:
    release = cache_release_for("0.5.99")
    assert release.assumed
    assert release.version == "0.5.23"


def test_the_release_of_flashinfer_comes_from_what_the_wheel_requires() -> None:
    assert cache_release_for("0.5.22").flashinfer == "0.7.1"
    assert cache_release_for("0.5.23").flashinfer == "0.7.2"
    assert cache_release_for("0.5.17").flashinfer == ""


def test_an_instance_as_a_preflight_resolves_it() -> None:
    moved = {
        **MAIN,
        "environment": {"SGLANG_CACHE_DIR": "/data/c", "SGLANG_JIT_CACHE_DIR": "/var/cache/sglang/jit", "HOME": "/h"},
        "declared_environment": {"SGLANG_CACHE_DIR": "/data/c", "SGLANG_X": None},
        "desired": {"start": {"deadline_s": 77}, "writable_paths": ["/data/c"]},
    }
    server = cache_readings.server_of(moved)
    assert server.start_deadline_s == 77
    assert "/data/c" in server.writable
    (finding,) = found(caches_of(moved), "cache.jit_does_not_follow", "warning")
    assert finding.fix == "SGLANG_JIT_CACHE_DIR: /data/c/jit"


def test_an_instance_has_the_environment_of_its_unit() -> None:
    uses = {use.cache.name: use.host_path for use in cache_readings.resolve([MAIN], 1).uses}
    assert uses["jit"] == "/var/cache/sglang/jit"
    assert uses["torch_extensions"] == "/var/cache/sglang/xdg/torch_extensions"
    assert uses["huggingface"] == "/var/cache/sglang/huggingface/hub"
    assert all(path.startswith(spec.CACHE_DIR) for path in uses.values())


@given(
    st.dictionaries(
        st.sampled_from(["SGLANG_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "XDG_CACHE_HOME", "SGLANG_JIT_CACHE_DIR"]),
        st.sampled_from(["", "/c", "~/c", "c/d", "~", "/c/../d//e"]),
    ),
    st.sampled_from(["0.5.17", "0.5.22", "0.5.23", "1.0"]),
)
def test_every_place_is_a_normal_path(environment: dict[str, str], version: str) -> None:
    for name, path in places(version, environment).items():
        assert path, name
        assert path == os.path.normpath(path), name
        assert "{" not in path
        assert "~" not in path


# --- what is lost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CASES["which-directories-persist"]["versions"])
def test_case_which_directories_persist(version: str) -> None:
    (mounted,) = CASES["which-directories-persist"]["mounted"]
    instance = {"name": "main", "version": version, "runtime": "docker", "mounts": [f"{mounted}:{mounted}"]}
    caches = caches_of(instance)
    lost = {use.cache.name for use in caches.uses if use.lost}
    assert lost == {
        "sglang", "jit", "flashinfer", "triton", "deep_gemm", "tvm_ffi", "inductor", "torch_extensions", "tilelang",
        "cute_aot", "nv",
    }  # fmt: skip
    (finding,) = found(caches, "cache.lost_at_restart", "warning")
    assert version in finding.summary
    for name in lost:
        assert name in finding.summary
    assert "/root/.cache/sglang/jit" in finding.evidence
    assert "/var/cache/sglang/sglang:/root/.cache/sglang" in finding.fix
    assert "huggingface" not in finding.summary
    # Following: with the base moved, SGLang's own kernels stay behind, and that is said.
    moved = caches_of({**instance, "environment": {"SGLANG_CACHE_DIR": "/cache"}, "mounts": ["/data/c:/cache"]})
    assert [use.path for use in moved.uses if use.cache.name == "jit"] == ["/root/.cache/sglang/jit"]
    (finding,) = found(moved, "cache.jit_does_not_follow", "warning")
    assert finding.fix == "SGLANG_JIT_CACHE_DIR: /cache/jit"
    (finding,) = found(moved, "cache.lost_at_restart", "warning")
    assert "jit" in finding.summary
    assert "triton" not in finding.summary


def test_nothing_is_lost_where_everything_is_mounted() -> None:
    both = ["/data/c:/root/.cache", {"source": "/data/x", "target": "/root/.triton"}]
    caches = caches_of({**DOCKER, "mounts": both})
    assert not found(caches, "cache.lost_at_restart")
    assert {use.host_path for use in caches.uses if use.cache.name == "jit"} == {"/data/c/sglang/jit"}


def test_a_volume_outlives_its_container() -> None:
    caches = caches_of({**DOCKER, "mounts": ["caches:/root/.cache"]})
    assert not found(caches, "cache.lost_at_restart")
    (finding,) = found(caches, "cache.cold_deadline", "unknown")
    assert "volume" in finding.evidence


def test_a_private_tmp_goes_with_each_stop() -> None:
    caches = caches_of({**MAIN, "environment": {"TRITON_CACHE_DIR": "/tmp/triton"}})
    (finding,) = found(caches, "cache.lost_at_restart", "warning")
    assert "private /tmp" in finding.evidence
    assert not found(caches_of(MAIN), "cache.lost_at_restart")


def test_a_cache_in_memory_is_lost_at_each_boot() -> None:
    caches = caches_of(MAIN, mount=Mount("/var/cache", "tmpfs", "tmpfs", ("rw",)))
    (finding,) = found(caches, "cache.lost_at_restart", "warning")
    assert "at each boot" in finding.summary


# --- what is wrong with a directory ---------------------------------------------------------------------------------

UNREAD = Unknown("the disk does not answer")


@pytest.mark.parametrize(
    ("kind", "read", "severity", "words"),
    [
        ("cache.not_writable", {"refusal": "sglang may not write to /v (root:root, mode 0755)"}, "error", "0755"),
        (
            "cache.not_writable",
            {"exists": False, "probe": "/var/cache/sglang", "refusal": "sglang may not write to /v"},
            "error",
            "cannot make",
        ),
        ("cache.not_writable", {"mount": replace(DISK, options=("ro",))}, "error", "read-only"),
        ("cache.not_writable", {"refusal": UNREAD}, "unknown", "does not answer"),
        ("cache.foreign_owner", {"contents": replace(WARM, foreign=("/v/x",))}, "error", "/v/x"),
        ("cache.foreign_owner", {"contents": UNREAD}, "unknown", "does not answer"),
        ("cache.noexec", {"mount": replace(DISK, options=("rw", "noexec"))}, "error", "remount,exec /"),
        ("cache.noexec", {"mount": UNREAD}, "unknown", "does not answer"),
        ("cache.space", {"space": replace(ROOMY, free_bytes=4 * GIB)}, "warning", "4.0 GiB"),
        (
            "cache.space",
            {"space": replace(ROOMY, free_bytes=4 * GIB)},
            "warning",
            "`du -xh --max-depth=2 / | sort -h | tail`",
        ),
        ("cache.space", {"space": replace(ROOMY, free_bytes=GIB - 1)}, "error", "1.0 GiB"),
        ("cache.space", {"space": replace(ROOMY, free_inodes=10)}, "warning", "10 inodes"),
        ("cache.space", {"space": UNREAD}, "unknown", "does not answer"),
        ("cache.on_network", {"mount": Mount("/n", "nfs4", "nas:/x", ("rw",))}, "warning", "nas:/x"),
        ("cache.on_network", {"mount": Mount("/n", "fuse.juicefs", "x", ("rw",))}, "warning", "local"),
        ("cache.on_network", {"mount": UNREAD}, "unknown", "does not answer"),
        ("cache.stale_lock", {"contents": replace(WARM, complete=False)}, "unknown", "in time"),
        ("cache.stale_lock", {"contents": UNREAD}, "unknown", "does not answer"),
        ("cache.shared_cold", {"contents": UNREAD}, "unknown", "does not answer"),
        ("cache.cold_deadline", {"contents": UNREAD}, "unknown", "does not answer"),
    ],
)
def test_a_fault_is_found_and_only_where_it_is(kind: str, read: dict[str, Any], severity: str, words: str) -> None:
    two = ({"name": "a", "version": "0.5.22"}, {"name": "b", "version": "0.5.22"})
    findings = found(caches_of(*two, **read), kind)
    assert findings
    assert {finding.severity for finding in findings} == {severity}
    assert words in f"{findings[0].summary} {findings[0].evidence} {findings[0].fix}"
    assert not found(caches_of(*two), kind)
    assert found(caches_of(*two), kind, "ok")


def test_inodes_that_a_file_system_does_not_count_are_no_fault() -> None:
    assert not found(caches_of(MAIN, space=replace(ROOMY, free_inodes=0, total_inodes=0)), "cache.space")


def test_weights_may_lie_on_a_network_file_system_and_on_a_noexec_mount() -> None:
    caches = caches_of(MAIN)
    nas = Mount("/n", "nfs4", "nas:/x", ("rw", "noexec"))
    caches = replace(
        caches,
        directories=tuple(
            replace(directory, mount=nas) if directory.caches == ("huggingface",) else directory
            for directory in caches.directories
        ),
    )
    assert not found(caches, "cache.on_network")
    assert not found(caches, "cache.noexec")


def test_a_cache_that_the_unit_makes_read_only() -> None:
    away = {**MAIN, "environment": {"TORCH_EXTENSIONS_DIR": "/data/ext"}}
    (finding,) = found(caches_of(away), "cache.not_writable", "error")
    assert finding.fix == "add /data/ext to writable_paths of main"
    assert not found(caches_of({**away, "writable_paths": ["/data"]}), "cache.not_writable")
    # The role knows this variable and opens the directory by itself.
    assert not found(caches_of({**MAIN, "environment": {"TRITON_CACHE_DIR": "/data/t"}}), "cache.not_writable")


def test_what_the_roles_will_make_is_no_fault_before_they_ran() -> None:
    new = {"exists": False, "probe": "/var/cache", "refusal": Unknown("user sglang does not exist"), "owner": "root"}
    assert not found(caches_of(MAIN, **new), "cache.not_writable")
    # Nobody makes the directories of a container's mounts.
    mounted = {**DOCKER, "mounts": ["/data/c:/root/.cache"]}
    assert found(caches_of(mounted, **{**new, "refusal": "root may not write"}), "cache.not_writable")


def test_a_mount_that_is_read_only_in_the_container() -> None:
    caches = caches_of({**DOCKER, "mounts": ["/data/c:/root/.cache:ro"]})
    assert found(caches, "cache.not_writable", "error")


# --- locks ----------------------------------------------------------------------------------------------------------


def with_lock(lock: Lock, **read: Any) -> Caches:
    return caches_of(MAIN, contents=replace(WARM, locks=(lock,)), **read)


def test_case_stale_lock() -> None:
    case = CASES["stale-lock"]
    path = "/var/cache/sglang/flashinfer/.cache/flashinfer/0.7.1/90a/cached_ops/batch_prefill/lock"
    lock = Lock(path, BY_EXISTENCE, case["lock_file_age_s"], () if case["lock_holder"] == "none" else (1,))
    finding = found(with_lock(lock), "cache.stale_lock", "error")[0]
    assert path in finding.summary
    assert "24.0 h" in finding.summary
    assert finding.fix.startswith(f"find -L /proc/[0-9]*/fd -maxdepth 1 -inum $(stat -c %i {path}) ")
    assert finding.fix.endswith(f"|| rm -- {path}")
    silence = compile_time.judge_silence(case["log_stops_at"], case["lock_file_age_s"], cold=True)
    assert silence.state == compile_time.OVERDUE
    assert "lock file without a holder" in silence.text


@pytest.mark.parametrize(
    ("lock", "severity"),
    [
        (Lock("/c/lock", BY_EXISTENCE, 90000, (77,)), None),
        (Lock("/c/x.lock", BY_KERNEL, 90000, ()), None),
        (Lock("/c/lock", BY_EXISTENCE, 90000, Unknown("3 processes of other users cannot be looked into")), "unknown"),
        (Lock("/c/lock", BY_EXISTENCE, 1, ()), "error"),
    ],
)
def test_a_lock_is_stale_only_when_nobody_can_hold_it(lock: Lock, severity: str | None) -> None:
    assert {finding.severity for finding in found(with_lock(lock), "cache.stale_lock")} == (
        {severity} if severity else set()
    )


def test_a_lock_on_a_network_file_system_may_have_its_holder_elsewhere() -> None:
    caches = with_lock(Lock("/c/lock", BY_EXISTENCE, 90000, ()), mount=Mount("/", "nfs4", "nas:/x", ("rw",)))
    assert {finding.severity for finding in found(caches, "cache.stale_lock")} == {"unknown"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees all processes")
def test_holders_are_found_by_open_files_and_by_locks_of_the_kernel(tmp_path: Path) -> None:
    held, free, flocked = tmp_path / "lock", tmp_path / "free" / "lock", tmp_path / "x.lock"
    free.parent.mkdir()
    for path in (held, free, flocked):
        path.touch()
    files = {(path.stat().st_dev, path.stat().st_ino): str(path) for path in (held, free, flocked)}
    with held.open(), flocked.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        seen = lock_holders.holders(files)
    by_path = {files[key]: pids for key, pids in seen.items()}
    assert by_path == {str(held): (os.getpid(),), str(free): (), str(flocked): (os.getpid(),)}


def test_locks_of_the_kernel_as_proc_says_them() -> None:
    text = (
        "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:1234 0 EOF\n"
        "2: OFDLCK ADVISORY  WRITE -1 08:02:99 0 EOF\n"
        "garbled\n"
    )
    assert lock_holders.kernel_locks(text) == {
        (os.makedev(0xFE, 1), 1234): {4711},
        (os.makedev(8, 2), 99): {-1},
    }


def test_processes_that_cannot_be_read_leave_the_holder_unknown(tmp_path: Path) -> None:
    (read,) = lock_holders.holders({(1, 2): "/c/lock"}, proc=str(tmp_path / "none")).values()
    assert isinstance(read, Unknown)


# --- cold and warm --------------------------------------------------------------------------------------------------


def test_case_compiling_is_not_hanging() -> None:
    case = CASES["compiling-is-not-hanging"]
    cold = case["cache"] == "cold"
    silence = compile_time.judge_silence(case["log"], case["seconds_since"], cold)
    assert silence.state == compile_time.WARMING
    assert "not hanging" in silence.text
    # The same silence with warm caches is none that compiling explains.
    assert compile_time.judge_silence(case["log"], case["seconds_since"], False).state == compile_time.OVERDUE
    warm, cold_s = compile_time.start_deadline_s(False), compile_time.start_deadline_s(True, deep_gemm=True)
    assert warm.seconds < case["seconds_since"] < cold_s.seconds


@pytest.mark.parametrize(
    ("cold", "recorded_s"), [(True, 147), (True, 115), (True, 269), (False, 58), (False, 43), (False, 47)]
)
def test_recorded_starts_fit_the_deadline(cold: bool, recorded_s: int) -> None:
    deadline = compile_time.start_deadline_s(cold, cores=16)
    assert recorded_s < deadline.seconds < 900


def test_the_deadline_carries_its_sum() -> None:
    deadline = compile_time.start_deadline_s(True, cores=8, deep_gemm=True, weights_bytes=100_000_000_000)
    assert deadline.seconds == (62 + 414) * 2 + 1200 + 500
    assert (
        deadline.reason
        == "(62 s + 414 s of compiling on 8 cores) x 2 + 1200 s of DeepGEMM + 500 s for 100 GB of weights"
    )


@given(st.integers(0, 512), st.booleans(), st.integers(0, 10**13))
def test_a_cold_start_never_gets_less_than_a_warm_one(cores: int, deep_gemm: bool, weights: int) -> None:
    warm = compile_time.start_deadline_s(False, cores, deep_gemm, weights).seconds
    assert compile_time.start_deadline_s(True, cores, deep_gemm, weights).seconds > warm


@pytest.mark.parametrize("line", ["", "Load weight begin. avail mem=139.13 GB", "Traceback (most recent call last):"])
def test_other_lines_explain_no_silence(line: str) -> None:
    assert compile_time.judge_silence(line, 10, cold=True).state == compile_time.NOT_COMPILING


def test_the_silence_of_a_recorded_cold_start_is_compiling() -> None:
    line = "Capturing num tokens (num_tokens=8192 avail_mem=12.67 GB):   0%|          | 0/58 [00:00<?, ?it/s]"
    assert compile_time.judge_silence(line, 72, cold=True).state == compile_time.WARMING


def test_a_deadline_that_is_too_short_for_what_is_compiled() -> None:
    fp8 = {**MAIN, "model": "/srv/models/Qwen3-8B-FP8"}
    cold, warm = Contents(), WARM
    (finding,) = found(caches_of(fp8, contents=cold), "cache.cold_deadline", "warning")
    assert finding.fix == "start_deadline_s: 1738"
    assert "900 s" in finding.summary
    assert not found(caches_of(fp8, contents=warm), "cache.cold_deadline")
    assert not found(caches_of({**fp8, "start_deadline_s": 1800}, contents=cold), "cache.cold_deadline")
    assert not found(caches_of(MAIN, contents=cold), "cache.cold_deadline")
    (finding,) = found(caches_of({**MAIN, "start_deadline_s": 60}, contents=warm), "cache.cold_deadline", "warning")
    assert "warm" in finding.summary
    on_cpu = {**fp8, "arguments": {"device": "cpu"}}
    assert not found(caches_of(on_cpu, contents=cold), "cache.cold_deadline")


def test_case_two_servers_one_cold_cache() -> None:
    case = CASES["two-servers-one-cold-cache"]
    instances = [{"name": f"s{number}", "version": "0.5.22"} for number in range(case["instances_on_host"])]
    assert case["cache"] == "shared"
    contents = Contents() if case["state"] == "cold" else WARM
    (finding,) = found(caches_of(*instances, contents=contents), "cache.shared_cold", "warning")
    assert "warm it with one server first, then start the others" in finding.summary
    assert "sglang_server_start_throttle: 1" in finding.fix
    assert "systemctl start sglang-s0.service" in finding.fix
    assert not found(caches_of(*instances, contents=WARM), "cache.shared_cold")
    assert not found(caches_of(instances[0], contents=Contents()), "cache.shared_cold")


def test_kernels_of_another_release_keep_a_cache_cold() -> None:
    caches = caches_of(MAIN, contents=Contents(compiled_for_others=100))
    assert cache_checks.is_cold(caches, caches.servers[0])


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_walk_counts_kernels_of_this_release_and_finds_what_disturbs(tmp_path: Path) -> None:
    top = tmp_path / ".cache" / "flashinfer"
    ours, theirs = top / "0.7.1" / "90a" / "cached_ops" / "x", top / "0.6.15" / "90a" / "cached_ops" / "x"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "x.so").touch()
    (ours / "lock").touch()
    (ours / "x.lock").touch()
    theirs.chmod(0o500)
    directory = cache_readings.Directory(str(top), ("flashinfer",), ("main",), "somebody", True, True)
    contents = cache_readings.walk(directory, Identity("somebody", os.getuid() or 4711), set(), frozenset({"0.7.1"}))
    assert (contents.compiled, contents.compiled_for_others) == (1, 1)
    assert {(Path(lock.path).name, lock.kind) for lock in contents.locks} == {
        ("lock", BY_EXISTENCE),
        ("x.lock", BY_KERNEL),
    }
    assert str(theirs) in contents.foreign
    assert contents.complete


def test_caches_inside_one_another_are_walked_each_on_its_own(tmp_path: Path) -> None:
    inner = tmp_path / "jit"
    inner.mkdir()
    (inner / "x.so").touch()
    directory = cache_readings.Directory(str(tmp_path), ("triton",), ("main",), "root", True, True)
    assert cache_readings.walk(directory, Identity("root", 0), {str(inner)}).compiled == 0


def test_a_walk_that_is_cut_short_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.so").touch()
    monkeypatch.setattr(cache_readings, "WALK_ENTRIES", 3)
    directory = cache_readings.Directory(str(tmp_path), ("triton",), ("main",), "root", True, True)
    assert not cache_readings.walk(directory, Identity("root", 0), set()).complete


def test_reading_a_host_without_any_cache(tmp_path: Path) -> None:
    there = {"SGLANG_JIT_CACHE_DIR": str(tmp_path)}
    instance = {"name": "main", "version": "0.5.23", "user": "nobody-of-this-name", "environment": there}
    result = cache_readings.examine_caches({"instances": [instance]})
    severities = {finding["severity"] for finding in result["findings"] if finding["id"] == "cache.not_writable"}
    assert severities == {"ok"}
    assert result["readings"]["uses"][0]["instance"] == "main"
    assert cache_readings.examine_caches({})["readings"]["directories"] == []


@pytest.mark.parametrize(("there", "told"), [(False, True), (True, False)])
def test_a_cache_without_the_service_user(tmp_path: Path, there: bool, told: bool) -> None:
    """The roles make the user and the caches. What is there without its user is somebody else's work."""
    path = tmp_path / "triton"
    if there:
        path.mkdir()
    directory = cache_readings.Directory(str(path), ("triton",), ("main",), "nobody-of-this-name", True, True)
    assert (cache_readings.read_directory(directory, (), set()).refusal == "") == told


def test_mounts_as_proc_says_them() -> None:
    text = (
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
        "30 22 0:5 / /srv/with\\040space rw,nosuid,noexec - nfs4 nas:/x rw,vers=4.2\n"
        "garbled\n"
        "31 22 0:6 / /srv/with\\040space rw - tmpfs tmpfs rw\n"
    )
    mounts = file_systems.parse_mounts(text)
    assert file_systems.mount_of("/srv/with space/x", mounts).filesystem == "tmpfs"
    assert file_systems.mount_of("/srv/with", mounts).point == "/"
    assert mounts[1].noexec
    assert mounts[1].network
    with pytest.raises(CouldNotTell):
        file_systems.mount_of("/x", ())


@pytest.mark.parametrize(
    ("mode", "owner", "group", "refused"),
    [(0o755, 5, 5, False), (0o755, 0, 5, True), (0o775, 0, 5, False), (0o777, 0, 0, False), (0o500, 5, 5, True)],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_who_may_write(tmp_path: Path, mode: int, owner: int, group: int, refused: bool) -> None:
    top = tmp_path
    while str(top) != "/tmp" and top != top.parent:
        top.chmod(0o755)
        top = top.parent
    target = tmp_path / "cache"
    target.mkdir()
    os.chown(target, owner, group)
    target.chmod(mode)
    assert bool(file_systems.may_write(str(target), Identity("five", 5, (5,)))) is refused
    assert file_systems.may_write(str(target), Identity("root", 0)) == ""


ENVIRON = """
class Envs:
    SGLANG_CACHE_DIR = EnvStr(os.path.expanduser("~/.cache/sglang"))
    SGLANG_DG_CACHE_DIR = EnvStr(lambda: _default_cache_subdir("deep_gemm"))
    SGLANG_JIT_CACHE_DIR = EnvStr(None)

def third_party_cache_defaults():
    base = os.path.expanduser(envs.SGLANG_CACHE_DIR.get())
    return {"TRITON_CACHE_DIR": os.path.join(base, "triton"), "FLASHINFER_WORKSPACE_BASE": base}
"""
JIT = 'configured = envs.SGLANG_JIT_CACHE_DIR.get() or "~/.cache/sglang/jit"\n'


def test_the_table_is_read_from_a_wheel(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("cache_tables", CHECKOUT / "tools" / "cache_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    wheel = tmp_path / "sglang-0.5.99-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sglang/srt/environ.py", ENVIRON)
        archive.writestr("sglang/kernels/jit/cache.py", JIT)
        archive.writestr("sglang-0.5.99.dist-info/METADATA", "Metadata-Version: 2.4\nVersion: 0.5.99\n")
    assert tool.read_release(str(wheel)) == (
        "0.5.99",
        {
            "FLASHINFER_WORKSPACE_BASE": "{base}",
            "SGLANG_CACHE_DIR": "{home}/.cache/sglang",
            "SGLANG_DG_CACHE_DIR": "{base}/deep_gemm",
            "SGLANG_JIT_CACHE_DIR": "{home}/.cache/sglang/jit",
            "TRITON_CACHE_DIR": "{base}/triton",
        },
    )


def test_every_kind_is_documented_once() -> None:
    kinds = [kind for check in cache_checks.CHECKS for kind in check.kinds]
    assert len({kind.id for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.id.startswith("cache.")
        assert kind.meaning
        assert kind.fix


def test_a_flood_of_lock_files_is_counted_to_its_limit_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_readings, "LOCKS", 3)
    for number in range(6):
        (tmp_path / f"{number}.lock").touch()
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "lock").touch()
    directory = cache_readings.Directory(str(tmp_path), ("triton",), ("main",), "root", True, True)
    contents = cache_readings.walk(directory, Identity("root", 0, ()), set())
    assert len(contents.locks) == 6
    assert contents.stopped == "more than 3 lock files were not looked at"
    assert not contents.complete


def test_a_walk_ends_in_time_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_readings, "WALK_ENTRIES", 10)
    for number in range(30):
        (tmp_path / f"{number}.lock").touch()
    directory = cache_readings.Directory(str(tmp_path), ("triton",), ("main",), "root", True, True)
    contents = cache_readings.walk(directory, Identity("root", 0, ()), set())
    assert "counting stopped after 10 files" in contents.stopped


def test_a_cache_of_the_roles_without_the_service_user_is_theirs_to_give(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cache_readings.spec, "CACHE_DIR", str(tmp_path))
    (tmp_path / "jit").mkdir()
    directory = cache_readings.Directory(f"{tmp_path}/jit", ("triton",), ("main",), "nobody-of-this-name", True, True)
    assert cache_readings.read_directory(directory, (), set()).refusal == ""
