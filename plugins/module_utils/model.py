# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model as far as memory is concerned: its layers, its cache, its towers, its dtype and its weights.

Pure: a parsed configuration and the tensors of the checkpoint come in (`model_files.py` reads them). What the
configuration does not say is left out and named in `unknown`; nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .memory import ModelTraits
from .memory_releases import MemoryRelease
from .model_config import ConfigReader

FULL = "full"
SLIDING = "sliding"
LINEAR = "linear"


@dataclass(frozen=True)
class Family:
    """How an architecture is read. `reference` says what its figures were checked against; empty: nothing."""

    name: str
    reference: str = ""
    layout: str = "attention"
    text_layout: bool = True


_CONFIGURATION = "SGLang's own code on a configuration of this family"
_START = "a recorded start"

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", _CONFIGURATION),
    "Llama4ForConditionalGeneration": Family("llama4", _CONFIGURATION, "llama4"),
    "Qwen2ForCausalLM": Family("qwen2", _CONFIGURATION),
    "Qwen2MoeForCausalLM": Family("qwen2_moe", _CONFIGURATION),
    "Qwen3ForCausalLM": Family("qwen3", _START),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", _START),
    "Qwen3NextForCausalLM": Family("qwen3_next", _CONFIGURATION, "gated_delta"),
    "Qwen3_5ForConditionalGeneration": Family("qwen3_5", "", "gated_delta"),
    "Qwen3_5MoeForConditionalGeneration": Family("qwen3_5_moe", "", "gated_delta"),
    "Gemma3ForCausalLM": Family("gemma3", _CONFIGURATION, "gemma3"),
    "Gemma3ForConditionalGeneration": Family("gemma3", _CONFIGURATION, "gemma3"),
    "GptOssForCausalLM": Family("gpt_oss", _CONFIGURATION, "layer_types"),
    "MistralForCausalLM": Family("mistral", _CONFIGURATION),
    "Mistral3ForConditionalGeneration": Family("mistral3", _CONFIGURATION),
    "MixtralForCausalLM": Family("mixtral", _CONFIGURATION),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", _CONFIGURATION, "mla"),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", _CONFIGURATION, "mla"),
    "DeepseekV32ForCausalLM": Family("deepseek_v32", _CONFIGURATION, "mla"),
    "KimiK25ForConditionalGeneration": Family("kimi_k2", "", "mla"),
    "Glm4ForCausalLM": Family("glm4", _CONFIGURATION),
    "Glm4MoeForCausalLM": Family("glm4_moe", _CONFIGURATION),
    "Glm4MoeLiteForCausalLM": Family("glm4_moe_lite", _CONFIGURATION, "mla"),
    "Glm4vMoeForConditionalGeneration": Family("glm4v_moe", ""),
    "GlmMoeDsaForCausalLM": Family("glm5", _CONFIGURATION, "mla"),
    "Qwen2VLForConditionalGeneration": Family("qwen2_vl", ""),
    "Qwen2_5_VLForConditionalGeneration": Family("qwen2_5_vl", _CONFIGURATION),
    "Qwen3VLForConditionalGeneration": Family("qwen3_vl", _CONFIGURATION),
    "Qwen3VLMoeForConditionalGeneration": Family("qwen3_vl_moe", _CONFIGURATION),
}

_KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
_CONTEXT = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
_DTYPE_NAMES = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class SparseIndex:
    """The indexer of DeepSeek's sparse attention: its own small cache beside the latent one."""

    head_dim: int
    pool: int
    layers: int


@dataclass(frozen=True)
class Latent:
    """The compressed cache of MLA."""

    rank: int
    rope_dim: int
    index: SparseIndex | None = None


@dataclass(frozen=True)
class Heads:
    """The cache of ordinary attention in one layer: heads and the widths of keys and values."""

    count: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True)
class Recurrent:
    """The state of gated-delta and Mamba layers, per request and whole model."""

    conv_kernel: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    state_dtype: str


@dataclass(frozen=True)
class Vision:
    """A vision tower; None is what the configuration does not say."""

    layers: int | None
    hidden: int | None
    intermediate: int | None


@dataclass(frozen=True)
class Weights:
    """The bytes of a checkpoint by how they are divided among ranks.

    `by_division` holds bytes for "tp" (all ranks), "attention" (the ranks of one attention group), "experts" (all
    ranks), "kv" (as far as there are heads) and "all" (each rank holds them), for each stage alike.
    """

    by_division: Mapping[str, int]
    source: str
    draft_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return sum(self.by_division.values()) + self.draft_bytes


@dataclass(frozen=True)
class Model:
    """What memory needs to know. None: the configuration does not say."""

    file: str
    architecture: str
    family: str
    known: bool
    reference: str
    model_type: str
    dtype: str
    quantization: str | None
    kv_quantised: bool
    hidden: int | None
    vocabulary: int | None
    heads: int | None
    layers: tuple[str, ...]
    pooled_layers: tuple[str, ...]
    full: Heads | None
    sliding: Heads | None
    latent: Latent | None
    recurrent: Recurrent | None
    window: int | None
    vision: Vision | None
    draft_layers: int
    experts: int
    context_length: int
    traits: ModelTraits
    weights: Weights | None = None
    unknown: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()

    @property
    def unverified(self) -> bool:
        return not self.reference

    def with_weights(self, weights: Weights) -> Model:
        return replace(self, weights=weights)

    def layer_count(self, kind: str, stages: int = 1, stage: int = 0) -> int:
        """Layers that the pools of a pipeline stage hold of this kind."""
        start, end = stage_layers(len(self.pooled_layers), stages, stage)
        return sum(layer == kind for layer in self.pooled_layers[start:end])

    def fits_pool(self) -> bool:
        """Whether everything that the size of the pool depends on is known."""
        return self.known and not self.unknown


def stage_layers(layers: int, stages: int, stage: int) -> tuple[int, int]:
    """The layers of a pipeline stage: what is left over goes to the last stages."""
    base, left = divmod(layers, stages)
    first_larger = stages - left
    start = stage * base + max(0, stage - first_larger)
    return start, start + base + (1 if stage >= first_larger else 0)


def describe(config: Mapping[str, Any], release: MemoryRelease, file: str = "config.json") -> Model:
    """The model of a parsed config.json."""
    reader = ConfigReader(config, file)
    architecture = reader.architecture()
    family = FAMILIES.get(architecture)
    text = reader.text()
    layout = family.layout if family else None
    unknown: list[str] = []
    if family is None:
        unknown.append(f"architecture {architecture}: its layers and caches are not known here")
    layers = _layers(layout, text) if layout else ()
    sliding_pools = release.has("sliding_pools", architecture) or bool(text.get("is_hybrid_swa"))
    pooled = layers if sliding_pools or LINEAR in layers else (FULL,) * len(layers)
    latent = _latent(text, architecture, release, len(layers)) if layout == "mla" else None
    heads = text.count("num_attention_heads", required=family is not None)
    full = _heads(text, heads) if family and latent is None else None
    recurrent = _recurrent(text) if layout == "gated_delta" else None
    vision = _vision(reader)
    dtype = _dtype(reader, text)
    context = _context(text)
    draft_layers = text.count("num_nextn_predict_layers", least=0) or text.count("mtp_num_hidden_layers", least=0) or 0
    model = Model(
        file=file,
        architecture=architecture,
        family=family.name if family else "unknown",
        known=family is not None,
        reference=family.reference if family else "",
        model_type=str(config.get("model_type", "")),
        dtype=dtype,
        quantization=_quantization(reader),
        kv_quantised=_kv_quantised(reader),
        hidden=text.count("hidden_size", required=family is not None),
        vocabulary=text.count("vocab_size"),
        heads=heads,
        layers=layers,
        pooled_layers=pooled,
        full=full,
        sliding=_sliding_heads(text, full) if SLIDING in pooled else None,
        latent=latent,
        recurrent=recurrent,
        window=text.count("sliding_window", least=0) or text.count("attention_chunk_size") or None,
        vision=vision,
        draft_layers=draft_layers,
        experts=_experts(text),
        context_length=context,
        traits=_traits(reader, text, architecture, release, vision, context, recurrent, sliding_pools),
        unknown=tuple(unknown),
    )
    return replace(model, defaulted=tuple(sorted(reader.defaulted)))


def _layers(layout: str, text: ConfigReader) -> tuple[str, ...]:
    count = text.need("num_hidden_layers")
    types = text.get("layer_types")
    if layout == "llama4":
        return tuple(FULL if (index + 1) % 4 == 0 else SLIDING for index in range(count))
    if layout == "gated_delta":
        if types is None:
            every = text.need("full_attention_interval") if text.get("full_attention_interval") is not None else 4
            return tuple(FULL if (index + 1) % every == 0 else LINEAR for index in range(count))
        return _by_name(text, types, count)
    if layout == "layer_types":
        if types is None:
            return tuple(FULL if index % 2 else SLIDING for index in range(count))
        return _by_name(text, types, count)
    if layout == "gemma3":
        if types is not None:
            return _by_name(text, types, count)
        every = text.count("sliding_window_pattern") or 6
        return tuple(FULL if (index + 1) % every == 0 else SLIDING for index in range(count))
    return (FULL,) * count


_LAYER_NAMES = {"full_attention": FULL, "sliding_attention": SLIDING, "linear_attention": LINEAR}


def _by_name(text: ConfigReader, types: Any, count: int) -> tuple[str, ...]:
    if not isinstance(types, list) or len(types) != count:
        raise text.fail("layer_types", types, f"a list of {count} names is needed, one for each layer")
    for name in types:
        if name not in _LAYER_NAMES:
            raise text.fail("layer_types", name, f"none of {', '.join(_LAYER_NAMES)}")
    return tuple(_LAYER_NAMES[name] for name in types)


def _kv_heads(text: ConfigReader, heads: int | None) -> int:
    for key in _KV_HEADS:
        value = text.count(key)
        if value is not None:
            return value
    return heads or 0


def _heads(text: ConfigReader, heads: int | None) -> Heads:
    width = text.count("head_dim")
    if width is None:
        width = text.need("hidden_size") // (heads or 1)
    value_width = text.count("v_head_dim", least=0) or width
    return Heads(_kv_heads(text, heads), width, value_width)


def _sliding_heads(text: ConfigReader, full: Heads | None) -> Heads | None:
    if full is None:
        return None
    key = text.count("swa_head_dim") or full.key_dim
    value = text.count("swa_v_head_dim") or (text.count("swa_head_dim") or full.value_dim)
    return Heads(text.count("swa_num_key_value_heads") or full.count, key, value)


def _latent(text: ConfigReader, architecture: str, release: MemoryRelease, layers: int) -> Latent:
    index = None
    if release.has("sparse_index", architecture) and text.get("index_topk") is not None:
        index = SparseIndex(
            head_dim=text.need("index_head_dim"),
            pool=text.count("index_kpool") or 1,
            layers=_index_layers(text, layers),
        )
    return Latent(text.need("kv_lora_rank"), text.need("qk_rope_head_dim"), index)


def _index_layers(text: ConfigReader, layers: int) -> int:
    """Layers with an indexer of their own: some reuse what a layer before them found."""
    kinds, pattern = text.get("indexer_types"), text.get("index_topk_pattern")
    if isinstance(kinds, list):
        return layers - list(kinds[:layers]).count("shared")
    if isinstance(pattern, (str, list)):
        return layers - list(pattern[:layers]).count("S")
    every = text.count("index_topk_freq") or 1
    offset = text.count("index_skip_topk_offset") or 2
    return sum(max(layer - offset + 1, 0) % every == 0 for layer in range(layers))


def _recurrent(text: ConfigReader) -> Recurrent:
    return Recurrent(
        conv_kernel=text.need("linear_conv_kernel_dim"),
        key_heads=text.need("linear_num_key_heads"),
        value_heads=text.need("linear_num_value_heads"),
        key_dim=text.need("linear_key_head_dim"),
        value_dim=text.need("linear_value_head_dim"),
        state_dtype=str(text.get("mamba_ssm_dtype") or "float32"),
    )


def _vision(reader: ConfigReader) -> Vision | None:
    part = reader.part("vision_config")
    if part is None:
        return None
    layers = part.count("num_hidden_layers") or part.count("depth")
    return Vision(layers, part.count("hidden_size"), part.count("intermediate_size"))


def _dtype(reader: ConfigReader, text: ConfigReader) -> str:
    """The dtype that `--dtype auto` serves with."""
    named = None
    for part in (text, reader):
        named = named or part.get("dtype") or part.get("torch_dtype")
    name = str(named or "float32").replace("torch.", "")
    name = _DTYPE_NAMES.get(name, name)
    if name not in DTYPE_BYTES:
        raise reader.fail("torch_dtype", named, f"none of {', '.join(DTYPE_BYTES)}")
    if name == "float32":
        return "bfloat16" if str(reader.get("model_type", "")).startswith("gemma") else "float16"
    return name


def _context(text: ConfigReader) -> int:
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    factor: float = 1
    if isinstance(scaling, Mapping) and text.get("rope_scaling"):
        factor = scaling.get("factor", 1)
        if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
            factor = 1
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not math.isfinite(factor) or factor <= 0:
        raise text.fail("rope_scaling.factor", factor, "not a positive number")
    for key in _CONTEXT:
        value = text.count(key)
        if value is not None:
            return math.floor(factor * value)
    return 2048


def _experts(text: ConfigReader) -> int:
    for key in ("n_routed_experts", "num_local_experts", "num_experts"):
        value = text.count(key, least=0)
        if value:
            return value
    return 0


def _quantization(reader: ConfigReader) -> str | None:
    part = reader.part("quantization_config") or reader.part("compression_config")
    if part is None:
        return None
    return str(part.get("quant_method") or part.get("quant_algo") or "unknown").lower()


def _kv_quantised(reader: ConfigReader) -> bool:
    """Whether the checkpoint itself asks for an FP8 cache (ModelOpt)."""
    part = reader.part("quantization_config")
    if part is None:
        return False
    scheme = part.get("kv_cache_scheme")
    named = str(part.get("kv_cache_quant_algo") or "").upper() == "FP8"
    modelopt = str(part.get("quant_method", "")).startswith("modelopt")
    return named or (modelopt and isinstance(scheme, Mapping) and scheme.get("num_bits") == 8)


def _number(part: ConfigReader, key: str, default: float) -> float:
    value = part.get(key, default)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise part.fail(key, value, "not a positive number")
    return float(value)


def _traits(
    reader: ConfigReader,
    text: ConfigReader,
    architecture: str,
    release: MemoryRelease,
    vision: Vision | None,
    context: int,
    recurrent: Recurrent | None,
    sliding_pools: bool,
) -> ModelTraits:
    tower = reader.part("vision_config")
    return ModelTraits(
        architecture=architecture,
        model_type=str(reader.get("model_type", "")),
        mla=release.has("mla", architecture) and _uses_latent(text, architecture),
        multimodal=release.has("multimodal", architecture) or text is not reader,
        has_vision_config=tower is not None,
        has_audio_config=reader.part("audio_config") is not None,
        vision_layers=_number(tower, "num_hidden_layers", 24) if tower else 24,
        vision_hidden=_number(tower, "hidden_size", 1024) if tower else 1024,
        language_model_only=bool(reader.get("language_model_only")),
        context_length=context,
        kda=_kda(reader) or _kda(text),
        deepseek_v4=architecture.startswith("DeepseekV4ForCausalLM"),
        minimax_sparse=architecture.startswith("MiniMaxM3Sparse"),
        sliding_pools=sliding_pools,
        recurrent=recurrent is not None,
        kv_heads=_kv_heads(text, text.count("num_attention_heads")),
    )


_LATENT_ONLY_WITH_RANK = ("PixtralForConditionalGeneration", "BailingMoeForCausalLMNextN")


def _uses_latent(text: ConfigReader, architecture: str) -> bool:
    if architecture in _LATENT_ONLY_WITH_RANK:
        return text.get("kv_lora_rank") is not None
    return architecture != "DeepseekVL2ForCausalLM" or bool(text.get("use_mla", True))


def _kda(part: ConfigReader) -> bool:
    linear = part.get("linear_attn_config")
    if isinstance(linear, Mapping) and linear.get("kda_layers"):
        return True
    return (
        "linear_attention" in (part.get("layer_types") or [])
        and part.get("linear_num_heads") is not None
        and part.get("linear_head_dim") is not None
    )
