# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The weights of a model in bytes, and what of them one rank holds.

From the tensors that a checkpoint names, from the total of its index, or from the dimensions of the model alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .model import DTYPE_BYTES, LINEAR, Model, Recurrent, Weights, stage_layers
from .model_config import ConfigReader


@dataclass(frozen=True)
class Part:
    """Parameters that are stored and divided alike. `divided`: by the ranks, else each rank holds them all."""

    name: str
    parameters: int
    divided: str
    quantised: bool


def parts(model: Model, config: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parameters of the model, by how they are stored and divided. Norms and biases are left out."""
    if not model.known:
        return ()
    text = ConfigReader(config, model.file).text()
    hidden, vocabulary = model.hidden or 0, model.vocabulary or 0
    found = [Part("embedding", vocabulary * hidden, "attention", False)]
    if not text.get("tie_word_embeddings", model.family == "gemma3"):
        found.append(Part("output", vocabulary * hidden, "attention", False))
    count = len(model.layers)
    attention = sum(layer != LINEAR for layer in model.layers)
    found += _attention_parts(model, text, attention)
    if model.recurrent is not None:
        size = (count - attention) * _recurrent_parameters(model.recurrent, hidden)
        found.append(Part("recurrent", size, "attention", True))
    found += _feed_forward_parts(model, text, count)
    if model.vision is not None and model.vision.layers and model.vision.hidden:
        tower = model.vision.hidden
        inner = model.vision.intermediate or 4 * tower
        found.append(Part("vision", model.vision.layers * (4 * tower * tower + 2 * tower * inner), "tp", False))
    return tuple(part for part in found if part.parameters)


def _attention_parts(model: Model, text: ConfigReader, count: int) -> list[Part]:
    hidden, heads = model.hidden or 0, model.heads or 0
    if model.latent is not None:
        nope, rope = text.need("qk_nope_head_dim"), model.latent.rope_dim
        value, rank = text.need("v_head_dim"), model.latent.rank
        query_rank = text.count("q_lora_rank")
        query_in = query_rank if query_rank is not None else hidden
        down = hidden * (rank + rope) + (hidden * query_rank if query_rank is not None else 0)
        split = query_in * heads * (nope + rope) + rank * heads * (nope + value) + heads * value * hidden
        parts = [Part("attention", count * split, "attention", True), Part("latent", count * down, "all", True)]
        if model.latent.index is not None:
            index_heads = text.count("index_n_heads") or 64
            width = model.latent.index.head_dim
            parts.append(
                Part("indexer", count * (query_in * index_heads * width + hidden * (width + index_heads)), "all", True)
            )
        return parts
    full = model.full
    if full is None:
        return []
    gate = 2 if model.family in ("qwen3_next", "qwen3_5", "qwen3_5_moe") else 1
    queries = hidden * heads * full.key_dim * gate + heads * full.value_dim * hidden
    return [
        Part("attention", count * queries, "attention", True),
        Part("kv", count * hidden * full.count * (full.key_dim + full.value_dim), "kv", True),
    ]


def _recurrent_parameters(state: Recurrent, hidden: int) -> int:
    keys, values = state.key_heads * state.key_dim, state.value_heads * state.value_dim
    return (
        hidden * (2 * keys + 2 * values + 2 * state.value_heads)
        + values * hidden
        + state.conv_kernel * (2 * keys + values)
    )


def _feed_forward_parts(model: Model, text: ConfigReader, count: int) -> list[Part]:
    hidden = model.hidden or 0
    inner = text.count("intermediate_size", least=0) or 0
    dense_inner = text.count("intermediate_size_mlp") or inner
    if not model.experts:
        return [Part("feed_forward", count * 3 * hidden * inner, "tp", True)]
    moe_inner = text.count("moe_intermediate_size") or text.count("expert_ffn_hidden_size") or inner
    dense = _dense_layers(text, count)
    sparse = count - dense
    shared = (text.count("n_shared_experts", least=0) or 0) * moe_inner
    shared += text.count("shared_expert_intermediate_size", least=0) or 0
    if model.family == "llama4":
        shared = inner
    return [
        Part("feed_forward", dense * 3 * hidden * dense_inner, "tp", True),
        Part("experts", sparse * model.experts * 3 * hidden * moe_inner, "experts", True),
        Part("shared_experts", sparse * 3 * hidden * shared, "tp", True),
        Part("router", sparse * hidden * model.experts, "all", False),
    ]


def _dense_layers(text: ConfigReader, count: int) -> int:
    dense = text.count("first_k_dense_replace", least=0) or 0
    only = text.get("mlp_only_layers")
    if isinstance(only, list):
        dense += len(only)
    step = text.count("interleave_moe_layer_step")
    if step and step > 1:
        dense += count - count // step
    return min(dense, count)


def bytes_per_parameter(model: Model, config: Mapping[str, Any]) -> tuple[float, str] | None:
    """The bytes of a quantised parameter with its scales, and why; None when the method is not known here."""
    plain = DTYPE_BYTES[model.dtype]
    method = model.quantization
    if method is None:
        return (4.25 / 8, "MXFP4 with a scale for 32") if model.family == "gpt_oss" else (plain, model.dtype)
    settings = config.get("quantization_config") or config.get("compression_config") or {}
    bits = settings.get("bits") or settings.get("w_bit")
    group = settings.get("group_size") or settings.get("q_group_size") or 128
    if method == "fp8":
        block = settings.get("weight_block_size")
        scale = 4 / (block[0] * block[1]) if isinstance(block, list) and len(block) == 2 else 0.0
        return 1 + scale, "FP8" + (" with a scale for each block" if scale else "")
    if method in ("gptq", "awq", "gptq_marlin", "awq_marlin") and isinstance(bits, int) and isinstance(group, int):
        return bits / 8 + (2 + bits / 8) / max(1, group), f"{bits} bits, groups of {group}"
    if method == "mxfp4":
        return 4.25 / 8, "MXFP4 with a scale for 32"
    if method in ("modelopt_fp4", "nvfp4"):
        return 4.5 / 8, "NVFP4 with a scale for 16"
    return None


def estimated_weights(model: Model, config: Mapping[str, Any]) -> Weights | None:
    """The bytes that the dimensions alone lead to; None when the model or its quantisation is not known here."""
    per = bytes_per_parameter(model, config)
    found = parts(model, config)
    if not found or per is None:
        return None
    plain = DTYPE_BYTES[model.dtype]
    only_experts = model.family == "gpt_oss" and model.quantization in (None, "mxfp4")
    by_division: dict[str, int] = {}
    for part in found:
        quantised = part.quantised and (not only_experts or part.name == "experts")
        size = math.ceil(part.parameters * (per[0] if quantised else plain))
        by_division[part.divided] = by_division.get(part.divided, 0) + size
    return Weights(by_division, f"estimated from the dimensions ({per[1]})")


_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn)\.|^model\.mtp")
_EXPERT = re.compile(r"\.experts\.|\.block_sparse_moe\.experts|_exps\.")
_VISION = re.compile(r"(?:^|\.)(?:vision_tower|visual|vision_model|vision_embed_tokens|multi_modal_projector)\.?")
_ATTENTION = re.compile(r"\.(?:q_proj|o_proj|qkv_proj|q_b_proj|kv_b_proj|in_proj\w*|out_proj|conv1d|g_proj)\.")
_KV = re.compile(r"\.(?:k_proj|v_proj)\.")
_FEED_FORWARD = re.compile(r"\.(?:gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)(?:\.|$|_)")
_EMBEDDING = re.compile(r"(?:embed_tokens|lm_head|wte|word_embeddings)\b")


def division_of(tensor: str) -> str:
    """How a tensor is divided among the ranks, by its name; what is not recognised is held by each."""
    if _VISION.search(tensor):
        return "tp"
    if _EXPERT.search(tensor):
        return "experts"
    if _KV.search(tensor):
        return "kv"
    if _ATTENTION.search(tensor) or _EMBEDDING.search(tensor):
        return "attention"
    if _FEED_FORWARD.search(tensor):
        return "tp"
    return "all"


def counted_weights(tensors: Mapping[str, int], model: Model, source: str) -> Weights:
    """The bytes of the tensors that a checkpoint names, divided by their names."""
    by_division: dict[str, int] = {}
    draft = 0
    last = len(model.layers)
    for name, size in tensors.items():
        layer = re.search(r"\blayers\.(\d+)\.", name)
        if _DRAFT.search(name) or (model.draft_layers and layer and last and int(layer.group(1)) >= last):
            draft += size
            continue
        division = division_of(name)
        by_division[division] = by_division.get(division, 0) + size
    return Weights(by_division, source, draft)


def scaled_weights(total_bytes: int, model: Model, config: Mapping[str, Any], source: str) -> Weights:
    """A known total, divided as the dimensions say."""
    estimate = estimated_weights(model, config)
    if estimate is None:
        return Weights({"tp": total_bytes}, source)
    scale = total_bytes / max(1, estimate.total_bytes)
    return Weights({key: round(size * scale) for key, size in estimate.by_division.items()}, source)


def rank_weight_bytes(weights: Weights, model: Model, tp_size: int, attn_tp_size: int, stages: int = 1) -> int:
    """The bytes that one rank of the largest stage holds."""
    kv_heads = model.full.count if model.full else 1
    shares = {
        "tp": tp_size,
        "experts": tp_size,
        "attention": attn_tp_size,
        "kv": min(attn_tp_size, max(1, kv_heads)),
        "all": 1,
    }
    whole = sum(size / shares[division] for division, size in weights.by_division.items())
    layers = max(1, len(model.layers))
    largest = max(end - start for start, end in (stage_layers(layers, stages, stage) for stage in range(stages)))
    return math.ceil(whole * largest / layers)
