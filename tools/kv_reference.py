# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask SGLang's own code how many tokens a budget of bytes holds, for each configuration in MODELS.

    VENV/bin/python tools/kv_reference.py MODELS > tests/data/kv_reference_0.5.22.jsonl

Runs the pool configurators of the installed release; the runtime around them (ranks, schedule) is pretended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import pathlib
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

BUDGETS = (3 * 2**30 + 12345, 40 * 2**30 + 7)
DTYPES = ("auto", "fp8_e4m3", "bf16")
RATIOS = (None, 0.5)


def layers_of(config: Any, stages: int, stage: int) -> SimpleNamespace:
    from sglang.srt.distributed.utils import get_pp_indices

    start, end = get_pp_indices(config.num_hidden_layers, stage, stages)
    inside = lambda ids: [i for i in ids or [] if start <= i < end]  # noqa: E731
    return SimpleNamespace(
        start_layer=start,
        end_layer=end,
        num_effective_layers=end - start,
        full_attention_layer_ids=inside(config.full_attention_layer_ids),
        swa_attention_layer_ids=inside(config.swa_attention_layer_ids),
        is_hybrid_swa_mtp_draft=False,
    )


def answer(
    path: pathlib.Path, tp: int, dtype: str, page: int, ratio: float | None, draft: int, pp: int
) -> dict[str, Any]:
    import torch
    from sglang.srt.configs.model_config import AttentionArch, ModelConfig
    from sglang.srt.layers.cp import utils as cp_utils
    from sglang.srt.mem_cache import kv_cache_configurator, kv_cache_dtype
    from sglang.srt.model_executor import pool_configurator
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    server = ServerArgs(model_path=str(path), device="cuda")
    config = ModelConfig.from_server_args(server)
    _name, stored = kv_cache_dtype.configure_kv_cache_dtype(
        server_args_kv_cache_dtype=dtype,
        model=None,
        model_dtype=config.dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend="",
    )
    kvc = SimpleNamespace(
        model_config=config,
        kv_cache_dtype=stored,
        kv_cache_dtype_str=dtype,
        layer_info=layers_of(config, pp, pp - 1),
        use_mla_backend=config.attention_arch == AttentionArch.MLA,
        is_hybrid_swa=config.is_hybrid_swa,
        is_draft_worker=False,
        mambaish_config=None,
        spec_algorithm=SpeculativeAlgorithm.from_string("EAGLE" if draft else None),
        spec_aux_config=SimpleNamespace(eagle_draft_num_layers=draft, eagle_draft_swa_num_layers=None),
        fused_entry_bytes=lambda kind: None,
        server_args=SimpleNamespace(enable_hisparse=False),
        page_size=page,
        sliding_window_size=config.sliding_window_size or config.attention_chunk_size,
        pp_size=pp,
        attn_dp_size=1,
        device="cuda",
        model_dtype=config.dtype,
    )
    memory = SimpleNamespace(
        enable_hisparse=False,
        enable_unified_memory=False,
        disable_radix_cache=False,
        enable_hierarchical_cache=False,
        enable_unified_cache_external_linker=False,
    )
    schedule = SimpleNamespace(
        swa_full_tokens_ratio=0.8 if ratio is None else ratio,
        max_total_tokens=None,
        max_running_requests=None,
        page_size=page,
        chunked_prefill_size=8192,
    )
    kernel = SimpleNamespace(dsa_prefill_backend="flashmla_kv", dsa_decode_backend="flashmla_kv")
    parallel = SimpleNamespace(attn_tp_size=tp, attn_dcp_size=1, attn_dp_size=1)
    disagg = SimpleNamespace(disaggregation_mode="null")
    row: dict[str, Any] = {
        "version": importlib.metadata.version("sglang"),
        "model": path.name,
        "tp_size": tp,
        "pp_size": pp,
        "kv_cache_dtype": dtype,
        "page_size": page,
        "swa_full_tokens_ratio": ratio,
        "draft_layers": draft,
    }
    with contextlib.ExitStack() as stack:
        for module in (pool_configurator, kv_cache_configurator):
            for name, value in (
                ("get_parallel", parallel),
                ("get_memory", memory),
                ("get_schedule", schedule),
                ("get_disagg", disagg),
                ("get_exec", SimpleNamespace(kernel=kernel)),
            ):
                stack.enter_context(mock.patch.object(module, name, return_value=value))
        stack.enter_context(mock.patch.object(pool_configurator, "compute_page_shard_scratch_bytes", return_value=0))
        stack.enter_context(
            mock.patch.object(
                cp_utils, "get_glm_dsa_layer_split_effective_num_layers", side_effect=lambda kvc, layers: layers
            )
        )
        stack.enter_context(
            mock.patch.object(cp_utils, "get_glm_dsa_cp_layer_shard_info", side_effect=lambda kvc: (0, 1))
        )
        configurator = pool_configurator.create_memory_pool_configurator(kvc)
        row["cell_bytes"] = float(configurator._cell_size)
        row["pools"] = []
        for budget in BUDGETS:
            sizes = configurator.calculate_pool_sizes(budget, page)
            row["pools"].append([budget, sizes.max_total_num_tokens, sizes.swa_max_total_num_tokens])
        from sglang.srt.configs import hybrid_arch, mamba_utils, qwen3_next

        recurrent = hybrid_arch.mambaish_config(config)
        if recurrent is not None:
            for module in (qwen3_next, mamba_utils):
                if hasattr(module, "linear_attn_tp_size"):
                    stack.enter_context(mock.patch.object(module, "linear_attn_tp_size", return_value=tp))
                if hasattr(module, "get_parallel"):
                    stack.enter_context(mock.patch.object(module, "get_parallel", return_value=parallel))
            row["state_bytes"] = int(recurrent.mamba2_cache_params.mamba_cache_per_req)
    assert isinstance(stored, torch.dtype)
    return row


def main(arguments: list[str]) -> None:
    for path in sorted(pathlib.Path(arguments[0]).iterdir()):
        for tp in (1, 2, 8):
            for dtype in DTYPES:
                for page, ratio, draft, pp in ((1, None, 0, 1), (64, 0.5, 1, 1), (1, None, 0, 2)):
                    try:
                        print(json.dumps(answer(path, tp, dtype, page, ratio, draft, pp)), flush=True)
                    except (ValueError, AssertionError, RuntimeError) as error:
                        print(f"{path.name} tp {tp} {dtype}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
