# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rule on arguments and variables: found where it is, not found where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import spec
from ansible_collections.serving.sglang.plugins.module_utils.checks.args_checks import CHECKS, KINDS, check_instance
from ansible_collections.serving.sglang.plugins.module_utils.checks.args_flags import OWNED, SECRET_ARGUMENTS
from ansible_collections.serving.sglang.plugins.module_utils.environment_names import RETIRED, VARIABLES
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, UNKNOWN, WARNING, Finding
from ansible_collections.serving.sglang.plugins.module_utils.flag_table import Flag, flags_of

OLD, NEW = "0.5.22", "0.5.23"


def found(instance: dict[str, Any], release: str = OLD) -> list[Finding]:
    return [one for one in check_instance(instance, release) if one.severity != OK]


def arguments(**given: Any) -> dict[str, Any]:
    return {"arguments": {name.replace("_", "-"): value for name, value in given.items()}}


def variables(**given: Any) -> dict[str, Any]:
    return {"environment": given}


def config(**given: Any) -> dict[str, Any]:
    return {"config": {name.replace("_", "-"): value for name, value in given.items()}}


S = "Zq-secret"
FAR = ("0.5", "0.5.1", "0.5.32", "0.6.0")
# What is declared, the release, and what is found: id, severity, a part of the summary and of the fix.
FAULTS: list[tuple[dict[str, Any], str, str, str, str, str]] = [
    ({"arguments": {"--tp": 2}}, OLD, "args.spelling", ERROR, "write it 'tp-size'", "tp-size: 2"),
    ({"arguments": {"max_running": 2}}, OLD, "args.spelling", ERROR, "", "max-running-requests: 2"),
    ({"arguments": {"--max-running": 2}}, OLD, "args.spelling", ERROR, "", "max-running-requests: 2"),
    ({"arguments": {"--tensor_parallel_size": 2}}, OLD, "args.spelling", ERROR, "", "tp-size: 2"),
    ({"arguments": {"--": None}}, OLD, "args.unknown", WARNING, "argument '--' is no flag", "leave it out"),
    ({"command_line": ["stray", "--tp-size", "2"]}, OLD, "args.unknown", ERROR, "begins with 'stray'", "first flag on"),
    ({"arguments": {"api-keyy": S}}, OLD, "args.unknown", ERROR, "did you mean 'api-key'", "api_key: …"),
    ({"arguments": {"admin-api-ke": S}}, OLD, "args.abbreviated", ERROR, "'admin-api-key'?", "admin_api_key: …"),
    ({"command_line": ["--apikey", S]}, OLD, "args.unknown", ERROR, "did you mean 'api-key'", "leave it out"),
    ({"command_line": [f"--admin-api-ke={S}"]}, OLD, "args.abbreviated", ERROR, "'admin-api-key'?", "leave it out"),
    ({"config": {"apikey": S}}, OLD, "args.unknown", ERROR, "did you mean 'api-key'", "api-key: …"),
    ({"arguments": {f"--api-key={S}": True}}, OLD, "args.owned", ERROR, "'--api-key=…'", "api_key: …"),
    ({"environment": {f"HF_TOKEN={S}": "x"}}, OLD, "env.name", ERROR, "'HF_TOKEN=…' is not a name", ""),
    (arguments(max_running_requests=-5), OLD, "args.range", ERROR, "is -5, expected at least 1", ""),
    (arguments(mem_fraction_static=7), OLD, "args.range", ERROR, "above 0 and below 1", "mem-fraction-static: 0."),
    (arguments(mem_fraction_static=float("nan")), OLD, "args.range", ERROR, "is nan", ""),
    ({"port": 0}, OLD, "args.range", WARNING, "port 0 is not a port", ""),
    ({"port": 70000}, OLD, "args.range", ERROR, "port 70000 is not a port", ""),
    ({"nnodes": 0}, OLD, "args.parallel_sizes", ERROR, "nnodes is 0, expected at least 1", ""),
    ({}, "nonsense", "release.not_a_release", ERROR, "'nonsense' is no release", "as 0.5.22"),
    ({}, "", "release.not_a_release", ERROR, "no release is given", "as 0.5.22"),
    ({}, "9" * 5000, "release.not_a_release", ERROR, "(5000 characters)", "as 0.5.22"),
    *[({}, far, "release.assumed", UNKNOWN, f"nothing is known of SGLang {far}", "") for far in FAR],
    (
        {"arguments": {"max_running_requests": 4}},
        OLD,
        "args.spelling",
        ERROR,
        "write it 'max-running-requests'",
        "max-running-requests: 4",
    ),
    (
        {"arguments": {"--enable-metrics": True}},
        OLD,
        "args.spelling",
        ERROR,
        "write it 'enable-metrics'",
        "enable-metrics: true",
    ),
    ({"arguments": {"tensor-parallel-size": 2}}, OLD, "args.spelling", ERROR, "write it 'tp-size'", "tp-size: 2"),
    ({"arguments": {"enable-hicache": True}}, NEW, "args.spelling", ERROR, "write it 'enable-hierarchical-cache'", ""),
    (
        {"arguments": {"no-lora-strict-loading": True}},
        OLD,
        "args.spelling",
        ERROR,
        "write it 'lora-strict-loading: false'",
        "",
    ),
    (
        {"command_line": ["--max_running_requests", "4"]},
        OLD,
        "args.spelling",
        ERROR,
        "write it 'max-running-requests'",
        "",
    ),
    (config(no_trust_remote_code=True), OLD, "args.spelling", ERROR, "write it 'trust-remote-code: false'", ""),
    (arguments(tp=2), OLD, "args.abbreviated", ERROR, "did you mean 'tp-size'?", "tp-size: 2"),
    (
        arguments(mem_fraction=0.8),
        OLD,
        "args.abbreviated",
        ERROR,
        "did you mean 'mem-fraction-static'?",
        "mem-fraction-static: 0.8",
    ),
    (
        {"command_line": ["--tp", "2"]},
        OLD,
        "args.abbreviated",
        ERROR,
        "of the command line is the beginning",
        "tp-size: 2",
    ),
    (config(tp=2), OLD, "args.abbreviated", ERROR, "of the configuration file is the beginning", "tp-size"),
    (arguments(pp=2), OLD, "args.unknown", ERROR, "'pp-async-batch-depth', 'pp-max-micro-batch-size', 'pp-size'", ""),
    (
        arguments(max_runing_requests=4),
        OLD,
        "args.unknown",
        ERROR,
        "did you mean 'max-running-requests'",
        "max-running-requests: 4",
    ),
    (arguments(zzzzzz=4), OLD, "args.unknown", ERROR, "the server would end with exit code 2", "leave it out"),
    (arguments(enable_paged_experts=True), OLD, "args.unknown", ERROR, "it comes with SGLang 0.5.23", "leave it out"),
    (arguments(zzzzzz=4), "0.5.24", "args.unknown", WARNING, "no flag of SGLang 0.5.23, the nearest release", ""),
    (
        arguments(cuda_graph_max_bs=8),
        OLD,
        "args.removed",
        ERROR,
        "did you mean 'cuda-graph-max-bs-decode', 'cuda-graph-max-bs-prefill'?",
        "",
    ),
    (arguments(cuda_graph_bs=8), NEW, "args.removed", ERROR, "did you mean 'cuda-graph-bs-decode'", ""),
    (
        arguments(speculative_skip_dp_mlp_sync=True),
        NEW,
        "args.removed",
        ERROR,
        "SGLang 0.5.22 still had it",
        "leave it out",
    ),
    (arguments(speculative_skip_dp_mlp_sync=True), "0.5.24", "args.removed", WARNING, "SGLang 0.5.22 still had it", ""),
    (arguments(host="0.0.0.0"), OLD, "args.owned", ERROR, "declare it as 'host' of the instance", "host:"),
    (arguments(model="/srv/m"), OLD, "args.owned", ERROR, "declare it as 'model' of the instance", ""),
    ({"arguments": {"model_path": "/srv/m"}}, OLD, "args.owned", ERROR, "declare it as 'model' of the instance", ""),
    (arguments(api_key="x"), OLD, "args.owned", ERROR, "declare it as 'api_key' of the instance", ""),
    (arguments(admin_api_key="x"), OLD, "args.owned", ERROR, "declare it as 'admin_api_key' of the instance", ""),
    (arguments(config="/x.yml"), OLD, "args.owned", ERROR, "the configuration file is made from api_key", ""),
    (arguments(ssl_keyfile_password="x"), OLD, "args.secret", ERROR, "is a secret", "without a password"),
    ({"command_line": ["--api-key", "x"]}, OLD, "args.secret", WARNING, "is a secret", ""),
    (arguments(enable_metrics="yes"), OLD, "args.shape", ERROR, "takes no value", ""),
    (arguments(tp_size=True), OLD, "args.shape", ERROR, "takes a value, not true", ""),
    (arguments(tp_size=[1, 2]), OLD, "args.shape", ERROR, "takes one value, not a list", ""),
    (arguments(sidecar_args=["a"], sidecar="x"), OLD, "args.shape", ERROR, "give the JSON as text", ""),
    (arguments(numa_node=[0, None]), OLD, "args.shape", ERROR, "is not a value", ""),
    (arguments(lora_paths=["--x"]), OLD, "args.shape", ERROR, "would be taken for a flag", ""),
    ({"command_line": ["--tp-size"]}, OLD, "args.shape", ERROR, "takes a value, not true", ""),
    (arguments(tp_size="two"), OLD, "args.type", ERROR, "'two' is no whole number", "tp-size: a whole number"),
    (arguments(tp_size=2.0), OLD, "args.type", ERROR, "'2.0' is no whole number", ""),
    (arguments(tp_size=""), OLD, "args.type", ERROR, "'' is no whole number", ""),
    (arguments(mem_fraction_static="most"), OLD, "args.type", ERROR, "'most' is no number", ""),
    (arguments(context_length="32K"), OLD, "args.type", ERROR, "did you mean 32k?", "32Ki (32768)"),
    (arguments(context_length="1.5Ki"), OLD, "args.type", ERROR, "has a fraction before Ki", ""),
    (arguments(chunked_prefill_size="8k"), OLD, "args.type", ERROR, "'8k' is no whole number", ""),
    (arguments(preferred_sampling_params="{a: 1}"), OLD, "args.type", ERROR, "is no JSON", ""),
    (
        arguments(cuda_graph_config={"decode": {"max_b": 4}}),
        OLD,
        "args.type",
        ERROR,
        "'max_b' is no setting of decode",
        "",
    ),
    (
        arguments(cuda_graph_config='{"decode": {"backend": "tc_piecewise"}}'),
        OLD,
        "args.type",
        ERROR,
        "tc_piecewise of decode is gone",
        "",
    ),
    (arguments(lora_paths=['{"lora_name": "a"}']), OLD, "args.type", ERROR, "lacks lora_path", ""),
    (config(tp_size=True), OLD, "args.type", ERROR, "'true' is no whole number", ""),
    (
        arguments(schedule_policy="lifo"),
        OLD,
        "args.choice",
        ERROR,
        "'lifo' is not one of its choices (dfs-weight",
        "schedule-policy: ",
    ),
    (arguments(cuda_graph_backend_decode="tc_piecewise"), OLD, "args.choice", ERROR, "(breakable, disabled, full)", ""),
    (arguments(log_requests_level=7), OLD, "args.choice", ERROR, "'7' is not one of its choices (0, 1, 2, 3)", ""),
    (arguments(tool_call_parser="mine"), OLD, "args.choice", WARNING, "a plugin can add it", ""),
    (
        arguments(attention_backend="flashinfr"),
        OLD,
        "args.choice",
        WARNING,
        "flashinfer",
        "attention-backend: flashinfer",
    ),
    (arguments(schedule_policy="lifo"), "0.5.24", "args.choice", WARNING, "another release may have it", ""),
    (arguments(chat_template=""), OLD, "args.empty", WARNING, "is empty", "leave the argument out"),
    (
        arguments(disable_cuda_graph=True),
        OLD,
        "args.deprecated",
        WARNING,
        "use --cuda-graph-backend-{decode,prefill}=disabled",
        "",
    ),
    (
        arguments(enable_dp_attention=True),
        OLD,
        "args.deprecated",
        WARNING,
        "announced to be removed after 2026-12-31",
        "--attn-dp-size DP-SIZE",
    ),
    (arguments(grpc_mode=True), NEW, "args.deprecated", WARNING, "use --smg-grpc-mode", ""),
    (arguments(monokernel_backend="amd"), NEW, "args.deprecated", WARNING, "use --enable-amd-monokernel", ""),
    (
        {"api_key": "k", **arguments(tokenizer_worker_num=2)},
        OLD,
        "args.keys_with_tokenizer_workers",
        ERROR,
        "api_key with tokenizer-worker-num 2",
        "one tokenizer worker",
    ),
    (
        {"admin_api_key": "k", **arguments(tokenizer_worker_num="2")},
        OLD,
        "args.keys_with_tokenizer_workers",
        ERROR,
        "accepts an admin key without enforcing it",
        "",
    ),
    (
        {"config": {"api-key": "k"}, **arguments(tokenizer_worker_num=2)},
        OLD,
        "args.keys_with_tokenizer_workers",
        ERROR,
        "api_key with",
        "",
    ),
    (
        {"admin_api_key": "k", **arguments(grpc_port=4)},
        OLD,
        "args.keys_with_grpc",
        ERROR,
        "SGLang refuses the two together",
        "",
    ),
    (
        {"api_key": "k", **variables(SGLANG_GRPC_PORT=50000)},
        OLD,
        "args.keys_with_grpc",
        ERROR,
        "api_key with SGLANG_GRPC_PORT",
        "",
    ),
    (
        arguments(grpc_port=4, tokenizer_worker_num=2),
        OLD,
        "args.tokenizer_workers_with_grpc",
        ERROR,
        "tokenizer-worker-num 2 with grpc-port",
        "",
    ),
    (arguments(tokenizer_worker_num=2), OLD, "args.tokenizer_workers_drain", WARNING, "the server may never exit", ""),
    (
        arguments(tokenizer_worker_num=2, enable_http_worker_reuseport=True),
        NEW,
        "args.http_worker_reuseport",
        WARNING,
        "several processes answer on one port",
        "",
    ),
    (
        {"nnodes": 2, **arguments(tp_size=2)},
        OLD,
        "args.nodes_without_address",
        ERROR,
        "nnodes is 2 and dist-init-addr is missing",
        "HOST:PORT",
    ),
    (arguments(nnodes=2, tp_size=2), OLD, "args.nodes_without_address", ERROR, "the ranks cannot find each other", ""),
    (
        arguments(nnodes=3, tp_size=4, dist_init_addr="a:1"),
        OLD,
        "args.parallel_sizes",
        ERROR,
        "tp-size 4 x pp-size 1 does not divide by nnodes 3",
        "",
    ),
    (arguments(tp_size=4, attn_dp_size=3), OLD, "args.parallel_sizes", ERROR, "does not divide by attn-dp-size 3", ""),
    (arguments(tp_size=4, moe_dp_size=3), OLD, "args.parallel_sizes", ERROR, "does not divide by moe-dp-size 3", ""),
    (
        arguments(nnodes=2, tp_size=2, dp_size=2, dist_init_addr="a:1"),
        OLD,
        "args.parallel_sizes",
        ERROR,
        "use attn-dp-size",
        "",
    ),
    (arguments(base_gpu_id=-1), OLD, "args.parallel_sizes", ERROR, "base-gpu-id is -1, expected at least 0", ""),
    (
        arguments(served_model_name="a:b"),
        OLD,
        "args.served_name_colon",
        ERROR,
        "contains a colon, which SGLang refuses",
        "without a colon",
    ),
    ({"model": "/srv/a:b"}, OLD, "args.served_name_colon", ERROR, "it is the path of the model", ""),
    (arguments(ssl_certfile="/c.pem"), OLD, "args.certificate_pair", ERROR, "belong together", ""),
    (arguments(enable_ssl_refresh=True), OLD, "args.certificate_pair", ERROR, "enable-ssl-refresh needs", ""),
    (
        arguments(export_metrics_to_file=True),
        OLD,
        "args.conflict",
        ERROR,
        "export-metrics-to-file needs export-metrics-to-file-dir",
        "",
    ),
    (arguments(retraction_policy="priority"), OLD, "args.conflict", ERROR, "needs enable-priority-scheduling", ""),
    (
        {"port": 30000, **arguments(grpc_port=30000)},
        OLD,
        "args.conflict",
        ERROR,
        "grpc-port is the server's port 30000 too",
        "",
    ),
    (
        arguments(enable_http_worker_reuseport=True),
        NEW,
        "args.conflict",
        ERROR,
        "needs tokenizer-worker-num above 1",
        "",
    ),
    (
        {"command_line": ["--config=/x.yml"]},
        OLD,
        "args.config_equals",
        ERROR,
        "'--config=/x.yml' is overlooked",
        "--config /x.yml",
    ),
    (
        {"arguments": {"config=/x.yml": True}},
        OLD,
        "args.config_equals",
        ERROR,
        "'--config=/x.yml' is overlooked",
        "--config /x.yml",
    ),
    (
        {"command_line": ["--config", "a.yml", "--config", "b.yml"]},
        OLD,
        "args.config_name",
        ERROR,
        "more than once",
        "",
    ),
    ({"command_line": ["--config", "a.json"]}, OLD, "args.config_name", ERROR, "ends neither in .yaml nor in .yml", ""),
    ({"command_line": ["--config"]}, OLD, "args.config_name", ERROR, "no file is named", ""),
    ({"config": {"tp_size": 2}}, OLD, "args.config_underscore", ERROR, "write it 'tp-size'", "tp-size: 2"),
    (config(enable_hicache=True), "0.5.21", "args.unknown", WARNING, "it comes with SGLang 0.5.23", ""),
    (config(no_lora_strict_loading=True), OLD, "args.config_alias", ERROR, "write it 'lora-strict-loading'", ""),
    (
        config(disable_cuda_graph=True),
        OLD,
        "args.config_refused",
        ERROR,
        "may not stand there with SGLang 0.5.22",
        "--disable-cuda-graph",
    ),
    (config(enable_dp_attention=True), NEW, "args.config_refused", ERROR, "may not stand there", ""),
    (config(lora_paths=["a"]), NEW, "args.config_refused", ERROR, "may not stand there", ""),
    (
        config(enable_tf32_matmul=True),
        NEW,
        "args.config_refused",
        ERROR,
        "SGLang 0.5.22 still takes it",
        "--enable-tf32-matmul",
    ),
    (
        config(enable_fused_qk_norm_rope=False),
        NEW,
        "args.config_refused",
        ERROR,
        "SGLang 0.5.22 still takes it",
        "--no-enable-fused-qk-norm-rope",
    ),
    (config(tp_size=None), OLD, "args.config_null", ERROR, "it becomes the text None", "leave the key out"),
    (config(chat_template=None), OLD, "args.config_null", WARNING, "it becomes the text None", ""),
    (config(enable_metrics="yes"), OLD, "args.config_value", ERROR, "takes true or false", ""),
    (config(chat_template="-x"), OLD, "args.config_value", ERROR, "would be taken for a flag", ""),
    (config(tp_size=[1, 2]), OLD, "args.config_value", ERROR, "takes one value, not a list", ""),
    (variables(**{"A B": 1}), OLD, "env.name", ERROR, "is not a name for a variable", ""),
    (variables(CUDA_VISIBLE_DEVICES="0"), OLD, "env.owned", ERROR, "declare cards", "cards"),
    (variables(SGLANG_MAX_NEW_TOKENS_LIMIT=9), OLD, "env.owned", ERROR, "declare output_cap_tokens", ""),
    (variables(HF_TOKEN="x"), OLD, "env.secret", ERROR, "declare hf_token", "hf_token"),
    (variables(MY_API_KEY="x"), OLD, "env.secret", ERROR, "looks like a secret", "a file to read it from"),
    (variables(A=[1]), OLD, "env.shape", ERROR, "expected one value", ""),
    (
        variables(SGLANG_CACHEDIR="/x"),
        OLD,
        "env.unknown",
        WARNING,
        "did you mean SGLANG_CACHE_DIR?",
        "SGLANG_CACHE_DIR=/x",
    ),
    (variables(SGLANG_ZZZ="1"), OLD, "env.unknown", WARNING, "does nothing", "remove it"),
    (variables(SGLANG_ZMQ_ALLOWED_PEERS="a"), OLD, "env.unknown", WARNING, "it comes with SGLang 0.5.23", ""),
    (variables(SGLANG_USE_DYNAMIC_MXFP4_LINEAR="1"), NEW, "env.removed", WARNING, "(0.5.22 did)", "remove it"),
    (variables(SGLANG_ENABLE_UNIFIED_RADIX_TREE="1"), NEW, "env.removed", WARNING, "does nothing", ""),
    (
        variables(SGLANG_ENABLE_UNIFIED_RADIX_TREE="1"),
        OLD,
        "env.retired",
        WARNING,
        "The unified radix tree is the default",
        "",
    ),
    (
        variables(SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE="1"),
        NEW,
        "env.retired",
        WARNING,
        "--enable-prefill-delayer",
        "",
    ),
    (
        variables(SGLANG_JIT_DEEPGEMM_COMPILE_WORKERS=8),
        OLD,
        "env.unread",
        WARNING,
        "no code of the package reads",
        "remove",
    ),
    (
        variables(SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES=3),
        OLD,
        "env.retired",
        WARNING,
        "deprecated and still read",
        "",
    ),
    (
        variables(SGLANG_AITER_MLA_DCP_DECODE_BACKEND="asm"),
        OLD,
        "env.former_name",
        WARNING,
        "the former name of SGLANG_AITER_MLA_DECODE_BACKEND",
        "SGLANG_AITER_MLA_DECODE_BACKEND=asm",
    ),
    (variables(SGL_LOG_MS="1"), OLD, "env.prefix", WARNING, "copies it to SGLANG_LOG_MS", "SGLANG_LOG_MS=1"),
    (variables(SGL_LOG_MS="1", SGLANG_LOG_MS="0"), OLD, "env.prefix", WARNING, "it overrides SGLANG_LOG_MS=0", ""),
    (variables(SGLANG_LOG_MS="on"), OLD, "env.value", WARNING, "'on' is not 1 or 0", ""),
    (variables(SGLANG_GRPC_PORT="many"), OLD, "env.value", WARNING, "'many' is not a whole number", ""),
    (variables(SGLANG_USE_AITER="yes"), OLD, "env.boolean", WARNING, "'yes' is taken for false", "SGLANG_USE_AITER=1"),
    (
        variables(SGLANG_FORCE_SHUTDOWN="1"),
        OLD,
        "env.force_shutdown_alone",
        ERROR,
        "SGLang reads SGL_FORCE_SHUTDOWN",
        "set both",
    ),
    (variables(SGL_FORCE_SHUTDOWN="true"), NEW, "env.force_shutdown", WARNING, "every stop loses the requests", ""),
    (variables(SGLANG_RUST_SERVER=True), NEW, "env.rust_server", WARNING, "without a drain", ""),
]


@pytest.mark.parametrize(("instance", "release", "id_", "severity", "said", "fix"), FAULTS)
def test_a_fault_is_found(instance: dict[str, Any], release: str, id_: str, severity: str, said: str, fix: str) -> None:
    of_id = [one for one in found(instance, release) if one.id == id_]
    assert of_id, found(instance, release)
    assert {one.severity for one in of_id} == {severity}
    assert said in " ".join(one.summary for one in of_id)
    assert fix in of_id[0].fix
    assert of_id[0].evidence


def test_every_kind_is_tested() -> None:
    assert {id_ for _i, _r, id_, _s, _t, _f in FAULTS} == set(KINDS)


@pytest.mark.parametrize(("instance", "release", "id_", "severity", "said", "fix"), FAULTS)
def test_one_fault_is_said_once(
    instance: dict[str, Any], release: str, id_: str, severity: str, said: str, fix: str
) -> None:
    summaries = [one.summary for one in found(instance, release)]
    assert len(summaries) == len(set(summaries))
    errors = [one.id for one in found(instance, release) if one.severity == ERROR]
    # A half of a certificate, a wrong node and the like bring one error; none brings another with it.
    assert len(set(errors)) <= 1 or id_ in ("args.tokenizer_workers_with_grpc", "args.config_equals"), errors


FINE: list[dict[str, Any]] = [
    {},
    {"arguments": None, "environment": None},
    {"port": 30000, "model": "/srv/m", "api_key": "k", "admin_api_key": "a", "served_model_name": "m"},
    arguments(tp_size=2, context_length="32Ki", max_total_tokens="1.5k", chunked_prefill_size=-1, enable_metrics=True),
    arguments(cuda_graph_config={"decode": {"max_bs": 8}, "prefill": {"backend": "full"}}, disable_cuda_graph=False),
    arguments(lora_paths=["a=/srv/a", '{"lora_name": "b", "lora_path": "/b"}'], lora_strict_loading=False),
    arguments(model_checksum=True, numa_node=[0, 1], chat_template="-x", custom_weight_loader=[], dist_timeout=None),
    arguments(tp_size=4, attn_dp_size=2, nnodes=2, dist_init_addr="10.0.0.1:5000"),
    arguments(ssl_certfile="/c.pem", ssl_keyfile="/k.pem", enable_ssl_refresh=True),
    arguments(export_metrics_to_file=True, export_metrics_to_file_dir="/x"),
    arguments(enable_priority_scheduling=True, retraction_policy="priority", schedule_policy="lof"),
    {"port": 30000, **arguments(grpc_port=30001)},
    {
        "command_line": [
            "--model-path",
            "m",
            "--port",
            "30000",
            "--config",
            "a.yml",
            "--enable-metrics",
            "--numa-node",
            "0",
            "1",
        ]
    },
    {"command_line": ["--tensor-parallel-size=2", "--no-lora-strict-loading", "--chunked-prefill-size", "-1"]},
    {
        "config": {
            "model-path": "/srv/m",
            "api-key": "k",
            "enable-metrics": True,
            "tp-size": 2,
            "tensor-parallel-size": 2,
        }
    },
    variables(OMP_NUM_THREADS=1, SGLANG_CACHE_DIR="/x", SGLANG_JIT_CACHE_DIR="/y", NCCL_DEBUG="INFO"),
    variables(SGLANG_LOG_MS="yes", SGLANG_USE_AITER="1", SGLANG_HOST_IP="10.0.0.1", SGLANG_DIFFUSION_X="1"),
    variables(SGLANG_FORCE_SHUTDOWN="0", SGL_FORCE_SHUTDOWN="0", SGLANG_RUST_SERVER="0"),
]


@pytest.mark.parametrize("release", [OLD, NEW])
@pytest.mark.parametrize("instance", FINE)
def test_what_is_right_is_fine(instance: dict[str, Any], release: str) -> None:
    assert found(instance, release) == []
    assert len(check_instance(instance, release)) == len(CHECKS)


def test_the_four_booleans_that_a_file_may_hold_with_the_older_release_only() -> None:
    names = (
        "enable-decoder-swa-bounded-replay",
        "enable-fused-qk-norm-rope",
        "enable-tf32-matmul",
        "mm-enable-dp-encoder",
    )
    content = {"config": dict.fromkeys(names, True)}
    assert found(content, OLD) == []
    assert [one.id for one in found(content, NEW)] == ["args.config_refused"] * 4


def test_an_alias_of_a_boolean_in_a_file_is_read_by_the_newer_release_only() -> None:
    content = {"config": {"enable-hicache": True}}
    assert [one.id for one in found(content, OLD)] == ["args.unknown"]
    assert found(content, NEW) == []


@pytest.mark.parametrize(("asked", "used"), [("0.5.24", NEW), ("0.6.0", NEW), ("0.5.17", OLD), ("0.5.22.post1", OLD)])
def test_without_data_the_nearest_release_is_assumed_and_that_is_said(asked: str, used: str) -> None:
    declared = {**arguments(tp=2, tool_call_parser="x", disable_cuda_graph=True), **variables(SGLANG_ZZZ="1")}
    for one in found(declared, asked):
        if one.id != "release.assumed":
            assert f"SGLang {used}, assumed for {asked}" in one.evidence


def test_no_secret_is_shown() -> None:
    secret = "k-1234567890"
    declared = {
        "api_key": secret,
        "arguments": {"api-key": secret, "admin_api_key": secret, "ssl-keyfile-password": secret},
        "environment": {"HF_TOKEN": secret, "SGLANG_S3_SECRET_ACCESS_KEY": secret, "SGLANG_MY_TOKEN": secret},
        "config": {"api-key": [secret], "ssl-keyfile-password": secret, "admin-api-key": f"-{secret}"},
        "command_line": ["--api-key", secret, "--config", "x.json", f"--ssl-keyfile-password={secret}"],
    }
    assert secret not in json.dumps([one.as_dict() for one in check_instance(declared, OLD)])


def test_a_deployment_refuses_what_is_an_error_and_says_the_rest() -> None:
    declared = {
        "name": "main",
        "version": OLD,
        "model": "/srv/m",
        "port": 30000,
        "output_cap_tokens": 100,
        "slowest_tokens_per_s": 10,
        "arguments": {"tp": 2, "disable-cuda-graph": True},
    }
    outcome = spec.resolve([declared], {}, spec.Host("h1", "10.0.0.1"))
    assert any("did you mean 'tp-size'?" in text for text in outcome.problems)
    assert any("'disable-cuda-graph' is deprecated" in text for text in outcome.warnings)


# --- whatever is declared -------------------------------------------------------------------------------------------

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
known_names = st.sampled_from(sorted(flags_of(NEW).spellings()))
names = known_names | known_names.map(lambda name: name.replace("-", "_")) | known_names.map(lambda name: name[:-2])
names = names | st.text(max_size=10)
variable_names = st.sampled_from([*VARIABLES[NEW], *RETIRED[OLD]]) | st.text(max_size=10)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "arguments": st.dictionaries(names, anything, max_size=5),
            "environment": st.dictionaries(variable_names, anything, max_size=4),
            "config": st.dictionaries(names, anything, max_size=4),
            "command_line": st.lists(names.map(lambda name: "--" + name) | st.text(max_size=5), max_size=6),
        },
    ),
    st.sampled_from([OLD, NEW, "0.5.17", "1.0"]),
)
def test_no_declaration_breaks_a_rule(instance: dict[str, Any], release: str) -> None:
    broken = [one for one in check_instance(instance, release) if one.severity == UNKNOWN]
    broken = [one for one in broken if one.id != "release.assumed"]
    assert broken == []


def _right(flag: Flag) -> st.SearchStrategy[Any]:
    if flag.kind in ("flag", "switch"):
        return st.booleans()
    texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: not text.startswith(("-", "{")))
    words: st.SearchStrategy[Any] = {
        "int": st.integers(),
        "float": st.floats(),
        "human_readable_int": st.integers() | st.integers(1, 999).map(lambda n: f"{n}Ki") | st.just("1.5M"),
        "json": st.dictionaries(st.text(), st.integers()),
        "strict_json": st.lists(st.integers()).map(json.dumps),
        "graph_config": st.just({"decode": {"max_bs": 4}}),
    }.get(flag.type, texts)
    if flag.choices is not None:
        words = st.sampled_from(flag.choices)
    # A number of a list that begins with a dash must be a plain one.
    words = words.filter(lambda word: not str(word).startswith("-")) if flag.kind == "values" else words
    return st.lists(words, max_size=3) if flag.kind == "values" else words


@pytest.mark.parametrize("release", [OLD, NEW])
@given(data=st.data())
def test_right_arguments_are_accepted(release: str, data: st.DataObject) -> None:
    table = flags_of(release)
    usable = sorted(set(table.rows) - {*OWNED, *SECRET_ARGUMENTS, "config", "served-model-name"})
    chosen = data.draw(st.lists(st.sampled_from(usable), unique=True, max_size=6))
    flags = {name: table.flag(name) for name in chosen}
    given_arguments = {name: data.draw(_right(flag) | st.none()) for name, flag in flags.items() if flag is not None}
    single = [one for one in found({"arguments": given_arguments}, release) if one.severity == ERROR]
    # What they are together is another matter.
    about_one = (
        "args.spelling",
        "args.unknown",
        "args.removed",
        "args.abbreviated",
        "args.shape",
        "args.type",
        "args.choice",
    )
    assert [one for one in single if one.id in about_one] == []


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if S in str(fault)])
@pytest.mark.parametrize("secret", [S, "Zq1"])
def test_no_secret_is_in_a_finding(fault: Any, secret: str) -> None:
    instance = json.loads(json.dumps(fault[0]).replace(S, secret))
    assert secret not in str(check_instance(instance, fault[1]))


@pytest.mark.parametrize("release", [OLD, NEW, "0.5.22.post1", "0.5.22+cu129"])
def test_of_a_known_release_nothing_is_assumed(release: str) -> None:
    assert found({}, release) == []


def test_a_long_name_is_shortened() -> None:
    (one,) = found({"arguments": {"x" * 300: 1}})
    assert "x" * 61 not in str(one)
    assert "(300 characters)" in one.summary
