# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server's log, read from recordings of real servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import server_log
from ansible_collections.serving.sglang.plugins.module_utils.releases import release_for
from ansible_collections.serving.sglang.plugins.module_utils.server_log import DrainLog, StartLog, explain

LOGS = Path(__file__).resolve().parents[2] / "fixtures" / "logs"
V17, V22 = release_for("0.5.17"), release_for("0.5.22")


def lines(name):
    return server_log.text_lines([(LOGS / f"{name}.log").read_text(encoding="utf-8")])


@pytest.mark.parametrize(
    ("line", "timestamp", "ranks", "message"),
    [
        ("[2026-11-29 21:25:28] Load weight begin.", "2026-11-29 21:25:28", "", "Load weight begin."),
        ("[2026-11-29 21:25:28.123 DP0 TP1] x", "2026-11-29 21:25:28.123", "DP0 TP1", "x"),
        ("[2026-11-29 21:25:28 ATTN_CP0 EP3] x", "2026-11-29 21:25:28", "ATTN_CP0 EP3", "x"),
        ("Traceback (most recent call last):", None, "", "Traceback (most recent call last):"),
        ("[rank0]:[W1129 ProcessGroupNCCL.cpp] x", None, "", "[rank0]:[W1129 ProcessGroupNCCL.cpp] x"),
        ("", None, "", ""),
    ],
)
def test_the_prefix(line, timestamp, ranks, message):
    assert server_log.split_prefix(line) == server_log.LogLine(message, timestamp, ranks)


@pytest.mark.parametrize(
    ("name", "tokens", "weights_s", "prefill_s", "total_s"),
    [
        ("h200-start-cold", 803502, 0.25, 82.83, 110.43),
        ("h200-start-warm", 803502, 0.15, 10.07, 36.53),
        ("h200-load-and-drain", 803502, 0.26, 69.16, 90.87),
    ],
)
def test_a_whole_start(name, tokens, weights_s, prefill_s, total_s):
    log = StartLog()
    log.feed(lines(name), V17)
    assert log.fired_up
    assert log.stage == "warmed up"
    assert log.max_total_num_tokens == tokens
    assert log.model_class == "Qwen3ForCausalLM"
    assert log.phases["load_weight_s"] == weights_s
    assert log.phases["cuda_graph_prefill_s"] == prefill_s
    assert log.phases["tokenizer_e2e_s"] == total_s
    assert "cuda_graph_draft_decode_s" not in log.phases


def test_the_stages_of_a_start_in_their_order():
    log, stages = StartLog(), []
    for line in lines("h200-start-cold"):
        log.feed([line], V17)
        if not stages or stages[-1] != log.stage:
            stages.append(log.stage)
    assert stages[0] == "Python is importing"
    told = [stage for stage in stages if "%" not in stage]
    for earlier, later in [
        ("joining the process group", "loading weights"),
        ("loading weights", "weights loaded"),
        ("weights loaded", "KV cache allocated"),
        ("capturing prefill graphs", "scheduler ready"),
        ("scheduler ready", "listening, warm-up request running"),
        ("listening, warm-up request running", "warmed up"),
    ]:
        assert told.index(earlier) < told.index(later), told


def test_the_figures_of_the_pool():
    pool = server_log.parse_pool(
        "max_total_num_tokens=803502, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=4096, context_len=40960, available_gpu_mem=10.99 GB"
    )
    assert pool["max_total_num_tokens"] == 803502
    assert pool["available_gpu_mem"] == 10.99
    assert server_log.parse_pool("server_args=ServerArgs(max_total_tokens=None)") == {}


def test_a_drain_with_requests():
    log = DrainLog()
    log.feed(lines("h200-load-and-drain"), V17)
    assert log.begun
    assert log.finished
    assert log.most_remaining == 32
    assert log.arrived_during_drain == 0
    assert log.forced is None
    assert len(log.lines) == 6
    assert all(len(line) < 200 for line in log.lines)


def test_a_drain_read_in_parts_says_the_same():
    whole, parts = DrainLog(), DrainLog()
    whole.feed(lines("h200-load-and-drain"), V17)
    for line in lines("h200-load-and-drain"):
        parts.feed([line], V17)
    assert whole == parts


def progress(*rids):
    return (
        f"[2026-11-29 22:49:03] Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests "
        + (f"remaining_rids={list(rids)!r}.")
    )


def test_requests_that_arrive_during_a_drain_are_counted():
    log = DrainLog()
    log.feed([progress("a", "b"), progress("b", "c"), progress()], V22)
    assert log.arrived_during_drain == 1
    assert log.finished


@pytest.mark.parametrize("why", ["health check failed", "force shutdown flag set"])
def test_a_forced_end(why):
    log = DrainLog()
    log.feed([f"[2026-11-29 22:49:03] Signal SIGTERM received while {why}. Force exiting."], V22)
    assert log.forced == why


def test_stragglers_and_crashes():
    log = DrainLog()
    log.feed(
        [
            "Schedulers still alive 15s after ShutdownReq, killing them before they released: [71]",
            "[2026-11-29 22:49:03] Subprocess scheduler_0 (pid=71) crashed with exit code -11. Triggering SIGQUIT for "
            "cleanup...",
        ],
        V22,
    )
    assert log.stragglers == "71"
    assert log.crashed == "scheduler_0 ended with -11"


# What explains each failed start, and what must not be taken for it.
EXPLAINED = [
    ("h200-fraction-too-small", "weights_too_large", "Raise --mem-fraction-static above 0.111"),
    ("h200-host-limit-too-low", "scheduler_killed", "exit code: -9"),
    ("cpu-bad-model-path", "model_path", "'/srv/models/none'"),
    ("cpu-hub-id-offline", "model_path", "Cannot find the requested files in the disk cache"),
    ("cpu-empty-model", "model_path", "Unrecognized model in"),
    ("cpu-no-weights", "weights_broken", "Cannot find any model weights"),
    ("cpu-broken-weights", "weights_broken", "SafetensorError"),
    ("cpu-unknown-flag", "unknown_argument", "--no-such-flag"),
    ("cpu-bad-value", "bad_argument", "invalid int value: 'many'"),
    ("cpu-bad-choice", "bad_argument", "invalid choice: 'nonsense'"),
    ("cpu-ambiguous", "bad_argument", "ambiguous option: --cuda-graph-max-bs"),
    ("cpu-port-taken", "port_taken", "31001"),
    ("cpu-bad-config", "unknown_argument", "--unsupported-option"),
    ("cpu-scheduler-killed", "child_crashed", "exit code -9"),
]


@pytest.mark.parametrize(("name", "kind", "words"), EXPLAINED)
def test_a_failed_start_is_explained(name, kind, words):
    found = explain(lines(name))
    assert found is not None
    assert found.kind == kind
    assert words in found.line
    assert found.hint
    assert len(found.line) <= 600
    assert "server_args=" not in found.line


@pytest.mark.parametrize("name", ["h200-start-cold", "h200-start-warm", "h200-load-and-drain"])
def test_a_good_start_has_nothing_to_explain(name):
    assert explain(lines(name)) is None


@pytest.mark.parametrize(
    ("log", "kind", "words"),
    [
        (
            [
                "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
                "ImportError: Could not load any common_ops library!",
                "[2026-11-29 21:37:50] Received sigquit from a child process. It usually means the child failed.",
            ],
            "library_missing",
            "libnuma",
        ),
        (
            [
                "[2026-11-29 21:37:50] Scheduler hit an exception: Traceback (most recent call last):",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
            ],
            "card_memory",
            "Tried to allocate",
        ),
        (
            [
                "KeyError: 'hidden_size'",
                "During handling of the above exception, another exception occurred:",
                "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
            ],
            "exception",
            "hidden_size",
        ),
        (
            [
                "sglang-main.service: Failed at step EXEC spawning /opt/sglang/0.5.22/bin/python: No such file",
                "sglang-main.service: Main process exited, code=exited, status=203/EXEC",
                "sglang-main.service: Failed with result 'exit-code'.",
            ],
            "unit_exec",
            "/opt/sglang/0.5.22/bin/python",
        ),
        (
            [
                "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).",
                "sglang-main.service: A process of this unit has been killed by the OOM killer.",
            ],
            "killed_for_memory",
            "OOM killer",
        ),
        (["sglang-main.service: Main process exited, code=killed, status=9/KILL"], "main_exited", "status=9"),
    ],
)
def test_the_first_cause_counts_and_never_the_last_general_line(log, kind, words):
    found = explain(log)
    assert found is not None
    assert found.kind == kind
    assert words in found.line


RUNC = (
    "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime "
    "create failed: runc create failed: unable to start container process: "
)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        # As docker 26.1.5 and podman 5.4.2 said it.
        ("docker: Error response from daemon: No such image: r:5000/sglang@sha256:50a8.", "image_missing"),
        ("Error: r:5000/sglang@sha256:50a8: image not known", "image_missing"),
        (
            'docker: Error response from daemon: invalid mount config for type "bind": bind source path does not '
            "exist: /nope.",
            "mount_missing",
        ),
        ("Error: statfs /nope: no such file or directory", "mount_missing"),
        (f'{RUNC}exec: "python9": executable file not found in $PATH: unknown.', "image_python"),
        (f'{RUNC}exec: "/x/python9": stat /x/python9: no such file or directory: unknown.', "image_python"),
        ("Error: crun: executable file `python9` not found in $PATH: No such file or directory", "image_python"),
        ("Error: crun: executable file `/x/python9` not found: No such file or directory", "image_python"),
        (
            'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [].',
            "engine_cards",
        ),
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "engine_cards",
        ),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0", "engine_cards"),
        (
            f"{RUNC}error during container init: error setting rlimits for ready process: error setting rlimit type "
            "8: operation not permitted: unknown.",
            "engine_limits",
        ),
        ("docker: Cannot connect to the Docker daemon at unix:///nope. Is the docker daemon running?.", "engine_down"),
        (f"{RUNC}apparmor failed to apply profile: unknown.", "engine_refused"),
    ],
)
def test_what_an_engine_refuses_is_explained(line, kind):
    log = [
        "Error response from daemon: No such container: sglang-main",
        'time="2026-11-30T06:30:45Z" level=warning msg="Using cgroups-v1 which is deprecated in favor of cgroups-v2"',
        line,
        "sglang-main.service: Main process exited, code=exited, status=125/n/a",
    ]
    found = explain(log)
    assert found is not None
    assert (found.kind, found.line) == (kind, line)
    assert not any("cgroups-v1" in said for said in server_log.tail(log))


@pytest.mark.parametrize(
    ("log", "kind", "line", "hint"),
    [
        # The loader's own line names the library; what comes after it blames the wrong package.
        (
            [
                "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
                "ImportError: Could not load any common_ops library!",
            ],
            "library_missing",
            "libnuma.so.1",
            "`apt-get install -y libnuma1`",
        ),
        (
            [
                "[sgl_kernel] /x/common_ops.abi3.so: libcublas.so.13: cannot open shared object file: No such file",
                "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!",
            ],
            "library_missing",
            "libcublas.so.13",
            "nvidia-cublas==13.*",
        ),
        (
            ["ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /x/common_ops.so)"],
            "library_missing",
            "GLIBC_2.38",
            "the runtime docker or podman",
        ),
        (["ModuleNotFoundError: No module named 'orjson'"], "module_missing", "orjson", "make it anew"),
        (["ImportError: Could not load any common_ops library!"], "module_missing", "common_ops", ""),
    ],
)
def test_a_failed_import_says_what_is_missing_and_how_to_get_it(log, kind, line, hint):
    found = explain(log)
    assert found is not None
    assert found.kind == kind
    assert line in found.line
    assert hint in found.hint


def test_a_log_that_says_nothing_explains_nothing():
    assert explain([]) is None
    assert explain(["", "[2026-11-29 21:25:28] Load weight begin. avail mem=139.13 GB"]) is None


def test_the_tail_is_short_and_holds_no_keys():
    tail = server_log.tail(lines("h200-fraction-too-small"))
    assert 0 < len(tail) <= 15
    assert not any("server_args=" in line for line in tail)
    assert not any(line.lstrip().startswith("[--") for line in server_log.tail(lines("cpu-unknown-flag")))


@pytest.mark.parametrize(
    ("log", "signs"),
    [
        (['INFO: 127.0.0.1 - "POST /pause_generation HTTP/1.1" 200 OK'], {"paused": True}),
        (
            [
                'INFO: 127.0.0.1 - "POST /pause_generation HTTP/1.1" 200 OK',
                'INFO: 127.0.0.1 - "POST /continue_generation HTTP/1.1" 200 OK',
            ],
            {"paused": False},
        ),
        (['INFO: 127.0.0.1 - "POST /pause_generation HTTP/1.1" 401 Unauthorized'], {"paused": False}),
        (
            ["Health check failed. Server couldn't get a response from detokenizer for last 20 s"],
            {"health_failed": True},
        ),
        (
            [
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
                'INFO: 127.0.0.1 - "GET /health_generate HTTP/1.1" 200 OK',
            ],
            {"health_failed": False},
        ),
        (["SIGTERM received. signum=None frame=None. Draining requests and shutting down..."], {"draining": True}),
    ],
)
def test_signs_of_a_running_server(log, signs):
    found = server_log.life_signs(["The server is fired up and ready to roll!", *log], V22)
    assert found.fired_up
    for name, value in signs.items():
        assert getattr(found, name) is value


@given(st.lists(st.text()))
def test_no_log_breaks_the_readers(log):
    split = server_log.text_lines(log)
    explain(split)
    server_log.tail(split)
    server_log.life_signs(split, V22)
    StartLog().feed(split, V22)
    DrainLog().feed(split, V22)
