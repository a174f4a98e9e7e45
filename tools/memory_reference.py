# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask SGLang's own code for the automatic fraction under random arguments.

    VENV/bin/python tools/memory_reference.py COUNT SEED MODELS > tests/data/memory_reference_0.5.22.jsonl

Runs the handlers of the installed release, from the graph settings to the fraction, on configurations in MODELS; only
the platform and the capacity of the card are pretended. No GPU is needed. Arguments that SGLang refuses are left out.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import random
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

EDGES = [20, 32, 35, 60, 64, 90, 160]
GRAPH_CHOICES = [None, None, None, "full", "breakable", "disabled"]


def capacity(pick: random.Random) -> float | None:
    kind = pick.random()
    if kind < 0.05:
        return None
    if kind < 0.3:
        return float(pick.choice(EDGES) * 1024 + pick.choice([-1, 0, 1]))
    if kind < 0.4:
        return float(pick.choice([143771, 81559, 23034, 183359, 122570, 97871]))
    return float(pick.randint(2000, 300000))


def graph_flags(pick: random.Random, given: dict[str, Any]) -> None:
    for phase in ("decode", "prefill"):
        backend = pick.choice(GRAPH_CHOICES)
        if backend and pick.random() < 0.4:
            given[f"cuda_graph_backend_{phase}"] = backend
        if pick.random() < 0.12:
            given[f"cuda_graph_max_bs_{phase}"] = pick.choice([1, 8, 100, 301, 600, 5000, 9000])
        if pick.random() < 0.08:
            given[f"cuda_graph_bs_{phase}"] = sorted(pick.sample(range(1, 700), 4))
        if pick.random() < 0.06:
            given[f"disable_{phase}_cuda_graph"] = True
    if pick.random() < 0.05:
        given["disable_cuda_graph"] = True
    if pick.random() < 0.1:
        settings: dict[str, Any] = {}
        for phase in ("decode", "prefill"):
            if pick.random() < 0.7:
                settings[phase] = pick.choice(
                    [{"backend": "disabled"}, {"max_bs": 77}, {"bs": [4, 40, 400]}, {"backend": "full", "max_bs": 33}]
                )
        given["cuda_graph_config"] = settings


def arguments(pick: random.Random) -> dict[str, Any]:
    given: dict[str, Any] = {"tp_size": pick.choice([1, 1, 2, 3, 4, 8, 16])}
    if pick.random() < 0.15:
        given["pp_size"] = pick.choice([2, 4])
    if pick.random() < 0.25:
        given["attn_dp_size"] = pick.choice([n for n in (1, 2, 4, 8) if given["tp_size"] % n == 0])
    elif pick.random() < 0.1:
        given["dp_size"] = pick.choice([n for n in (1, 2, 4, 8) if given["tp_size"] % n == 0])
        given["enable_dp_attention"] = pick.random() < 0.6
    if pick.random() < 0.3:
        given["chunked_prefill_size"] = pick.choice(
            [-1, 1, 512, 1500, 2048, 2049, 4096, 5000, 8192, 16384, 30000, 65536]
        )
    if pick.random() < 0.2:
        given["max_prefill_tokens"] = pick.choice([1000, 16384, 40000])
    if pick.random() < 0.3:
        given["max_running_requests"] = pick.choice([1, 5, 40, 200, 300, 511, 512, 513, 3000])
    if pick.random() < 0.1:
        given["max_total_tokens"] = pick.choice([500, 3000, 7000, 100000])
    if pick.random() < 0.25:
        given["disaggregation_mode"] = pick.choice(["prefill", "decode"])
    if pick.random() < 0.15:
        given["speculative_num_draft_tokens"] = pick.choice([2, 4, 8])
    if pick.random() < 0.2:
        given["moe_a2a_backend"] = pick.choice(["deepep", "deepep", "flashinfer", "mooncake", "mori", "megamoe"])
    for flag, share in (
        ("enable_two_batch_overlap", 0.04),
        ("language_only", 0.04),
        ("language_model_only", 0.04),
        ("enable_memory_saver", 0.05),
        ("prefill_only_disable_kv_cache", 0.03),
        ("enable_dynamic_chunking", 0.1),
        ("enable_unified_memory", 0.05),
    ):
        if pick.random() < share:
            given[flag] = True
    if pick.random() < 0.15:
        given["enable_multimodal"] = True
    if pick.random() < 0.04:
        given["dcp_size"] = 2
    if pick.random() < 0.05:
        given["attn_cp_size"] = given["tp_size"]
        given["enable_prefill_cp"] = True
        given["cp_strategy"] = pick.choice(["zigzag", "interleave"])
        given["prefill_attention_backend"] = pick.choice(["trtllm_mha", "dsv4", "fa3"])
        for name in ("attn_dp_size", "dp_size", "enable_dp_attention"):
            given.pop(name, None)
    if pick.random() < 0.03:
        given["ep_join_mode"] = "scale"
    graph_flags(pick, given)
    return given


def environment(pick: random.Random) -> dict[str, str]:
    given = {}
    if pick.random() < 0.35:
        given["SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"] = pick.choice(["1", "true", "0"])
    if pick.random() < 0.05:
        given["MOONCAKE_PROTOCOL"] = "efa"
    return given


def resolve(given: dict[str, Any], variables: dict[str, str], platform: str, mib: float | None, hopper: bool) -> Any:
    """What SGLang's handlers make of the arguments."""
    from sglang.srt.arg_groups import cuda_graph_hook, memory_hook, parallel_hook, platform_hook
    from sglang.srt.arg_groups.model_overrides import qwen3_vl
    from sglang.srt.arg_groups.overrides import model_config_of, resolved_view
    from sglang.srt.hardware_backend.npu import utils as npu_utils
    from sglang.srt.server_args import ServerArgs

    device = "cuda" if platform in ("cuda", "hip") else platform
    server = ServerArgs(device=device, **given)
    # Before the platform is pretended: what it imports must see the real one.
    model_config_of(server)
    pretended = SimpleNamespace(is_xpu=platform == "xpu", is_hip=platform == "hip", is_cuda=platform == "cuda")
    with (
        mock.patch.dict(os.environ, variables),
        mock.patch("sglang.srt.utils.is_cuda", return_value=platform == "cuda"),
        mock.patch.object(memory_hook, "get_device_memory_capacity", return_value=mib),
        mock.patch.object(memory_hook, "get_platform", return_value=pretended),
        mock.patch.object(qwen3_vl, "is_sm90_supported", return_value=hopper),
        mock.patch.object(npu_utils, "get_npu_memory_capacity", return_value=mib),
    ):
        parallel_hook.handle_deprecated_dp_attention(server)
        cuda_graph_hook.apply_inkling_prefill_cuda_graph_default(server)
        cuda_graph_hook.apply_muse_glimmer_prefill_cuda_graph_max_bs_default(server)
        cuda_graph_hook.handle_cuda_graph_config(server)
        platform_hook.handle_npu_backends(server)
        platform_hook.handle_xpu_backends(server)
        memory_hook.handle_gpu_memory_settings(server)
        return resolved_view(server)


def rows(count: int, seed: int, models: pathlib.Path) -> Iterator[dict[str, Any]]:
    pick = random.Random(seed)
    names = sorted(path.name for path in models.iterdir() if path.is_dir())
    made = 0
    while made < count:
        given, variables, mib = arguments(pick), environment(pick), capacity(pick)
        platform = pick.choice(["cuda"] * 12 + ["hip", "hip", "xpu", "npu", "npu", "musa"])
        hopper = platform == "cuda" and pick.random() < 0.5
        name = pick.choice(names)
        path = str(models / name)
        if pick.random() < 0.05:
            os.makedirs("/tmp/Llama-2-link", exist_ok=True)
            link = pathlib.Path("/tmp/Llama-2-link") / name
            if not link.exists():
                link.symlink_to((models / name).resolve())
            path = str(link)
        if platform == "npu" and mib is None:
            continue
        try:
            view = resolve({"model_path": path, **given}, variables, platform, mib, hopper)
        except (ValueError, AssertionError, TypeError, AttributeError, RuntimeError) as error:
            print(f"refused: {type(error).__name__} {str(error)[:150]} {given}", file=sys.stderr)
            continue
        graphs = view.cuda_graph_config
        made += 1
        yield {
            "version": importlib.metadata.version("sglang"),
            "model": name,
            "llama_2_path": "Llama-2" in path,
            "arguments": given,
            "environment": variables,
            "platform": platform,
            "hopper": hopper,
            "capacity_mib": mib,
            "fraction": view.mem_fraction_static,
            "chunked_prefill_size": view.chunked_prefill_size,
            "decode": [graphs.decode.backend, graphs.decode.max_bs],
            "prefill": [graphs.prefill.backend, graphs.prefill.max_bs, len(graphs.prefill.bs)],
        }


def main(arguments: list[str]) -> None:
    count, seed, models = arguments
    for row in rows(int(count), int(seed), pathlib.Path(models)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
