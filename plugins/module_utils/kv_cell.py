# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bytes that a token takes in the cache of one rank, and a request in its recurrent state. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .memory import Capacity
from .memory_arguments import MemoryArguments
from .memory_releases import MemoryRelease
from .model import DTYPE_BYTES, FULL, LINEAR, SLIDING, Model

SLIDING_RATIO = 0.8
_INDEX_BLOCK = 128
_MIXED_BLOCK = 32
_FP4_BLOCK = 16
_EAGLE = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "STANDALONE")
_KV_NAMES = {"bf16": "bfloat16", "mxfp8": "fp8_e4m3", "half": "float16"}


class PoolError(ValueError):
    """The size of the pool cannot be said: why, and what is missing."""


class WillNotStart(PoolError):
    """Nothing is missing to say so: with these arguments on this machine there is no server."""


@dataclass(frozen=True)
class Cell:
    """Bytes of one token on one rank. `sliding` is that of a token in the sliding-window pool."""

    full: int
    sliding: int
    kv_dtype: str
    page_size: int
    sliding_ratio: float
    why: tuple[str, ...]

    @property
    def token_bytes(self) -> float:
        """Bytes for each token of `max_total_num_tokens`, both pools together."""
        if not self.full:
            return self.sliding
        return self.full + (self.sliding_ratio * self.sliding if self.sliding else 0)


def kv_dtype(model: Model, arguments: MemoryArguments, capacity: Capacity, release: MemoryRelease) -> str:
    """The dtype that the cache is stored with."""
    asked = arguments.kv_cache_dtype
    if asked != "auto":
        return _KV_NAMES.get(asked, asked)
    if model.architecture in release.kv_dtype:
        return release.kv_dtype[model.architecture]
    if model.latent is not None and model.latent.index is not None and capacity.platform == "cuda":
        if capacity.compute_major is None:
            raise PoolError(
                f"{model.architecture}: the cache is FP8 from compute capability 10 on and bfloat16 below, and the "
                "card's capability is not known; give it, or --kv-cache-dtype"
            )
        return "fp8_e4m3" if capacity.compute_major >= 10 else "bfloat16"
    if model.kv_quantised:
        return "fp8_e4m3"
    return model.dtype if arguments.dtype in ("auto", "float") else _KV_NAMES.get(arguments.dtype, arguments.dtype)


def page_size(model: Model, arguments: MemoryArguments, capacity: Capacity) -> int:
    """The page that the pool is rounded to."""
    if model.latent is not None and model.latent.index is not None and capacity.platform in ("cuda", "hip"):
        return 64 * model.latent.index.pool
    size = arguments.page_size or {"musa": 64, "npu": 128}.get(capacity.platform, 1)
    backends = _attention_backends(model, arguments, capacity)
    for names, allowed, taken in (
        (("trtllm_mha",), (16, 32, 64, 128), 64),
        (("trtllm_mla", "cutedsl_mla"), (32, 64), 64),
        (("flashmla",), (64,), 64),
        (("cutlass_mla",), (128,), 128),
    ):
        if any(backend in names for backend in backends) and size not in allowed:
            size = taken
    if "fa4" in backends and model.latent is None:
        size = 128
    return size


def _attention_backends(model: Model, arguments: MemoryArguments, capacity: Capacity) -> tuple[str, ...]:
    given = (arguments.attention_backend, arguments.prefill_attention_backend, arguments.decode_attention_backend)
    named = tuple(name for name in given if name)
    if named or capacity.platform != "cuda" or capacity.compute_major != 10:
        return named
    if model.latent is None:
        return ("trtllm_mha",) if arguments.speculative_algorithm is None else ()
    return ("trtllm_mla",) if model.architecture == "DeepseekV3ForCausalLM" else ()


def check_parallel(model: Model, arguments: MemoryArguments) -> None:
    """Refuse what SGLang would refuse: heads that the ranks cannot share."""
    ranks = arguments.attn_tp_size
    if model.heads is not None and model.heads % ranks:
        raise WillNotStart(
            f"{model.file}: num_attention_heads is {model.heads}, which {ranks} ranks cannot share (tp "
            f"{arguments.tp_size}, attention DP {arguments.attn_dp_size})"
        )
    heads = model.full.count if model.full is not None else 0
    if heads and max(heads, ranks) % min(heads, ranks):
        raise WillNotStart(
            f"{model.file}: num_key_value_heads is {heads}, which {ranks} ranks neither share nor repeat"
        )
    if arguments.pp_size > max(1, len(model.layers)):
        raise WillNotStart(
            f"{model.file}: {len(model.layers)} layers cannot be divided among {arguments.pp_size} stages"
        )


def cell(
    model: Model,
    arguments: MemoryArguments,
    capacity: Capacity,
    release: MemoryRelease,
    draft: Model | None = None,
    stage: int = 0,
) -> Cell:
    """The bytes of a token on one rank of a pipeline stage, with the product they come from."""
    if not model.known:
        raise PoolError(f"{model.file}: {'; '.join(model.unknown)}")
    check_parallel(model, arguments)
    dtype = kv_dtype(model, arguments, capacity, release)
    full = model.layer_count(FULL, arguments.pp_size, stage)
    sliding = 0 if arguments.disable_hybrid_swa_memory else model.layer_count(SLIDING, arguments.pp_size, stage)
    if arguments.disable_hybrid_swa_memory:
        full += model.layer_count(SLIDING, arguments.pp_size, stage)
    layer, why = _layer_bytes(model, arguments, capacity, dtype)
    notes = [f"{why} = {layer:g} bytes a layer, {full} layers"]
    size = int(layer * full)
    if model.latent is not None and model.latent.index is not None:
        index = model.latent.index
        entry = -(-(index.head_dim + index.head_dim // _INDEX_BLOCK * 4) // index.pool)
        layers = full if arguments.pp_size > 1 else index.layers
        size += entry * layers
        notes.append(f"indexer {entry} bytes in {layers} layers")
    sliding_size = 0
    if sliding:
        each, sliding_why = _sliding_bytes(model, arguments, dtype)
        sliding_size = int(each * sliding)
        notes.append(f"{sliding_why} = {each:g} bytes a sliding layer, {sliding} layers")
    added, added_why = _draft_bytes(model, draft, arguments, size, full)
    if added:
        size += added
        notes.append(added_why)
    ratio = arguments.swa_full_tokens_ratio if arguments.swa_full_tokens_ratio is not None else SLIDING_RATIO
    return Cell(size, sliding_size, dtype, page_size(model, arguments, capacity), ratio, tuple(notes))


def _element(dtype: str) -> float:
    if dtype in DTYPE_BYTES:
        return DTYPE_BYTES[dtype]
    if dtype in ("nvfp4", "fp4_mx_block16"):
        return 0.5
    raise PoolError(f"--kv-cache-dtype {dtype}: its bytes are not known here")


def _layer_bytes(model: Model, arguments: MemoryArguments, capacity: Capacity, dtype: str) -> tuple[float, str]:
    element = _element(dtype)
    if model.latent is not None:
        width, why = _latent_width(model, arguments, capacity, dtype)
        if element == 0.5:
            return width / 2 + width // _FP4_BLOCK, f"({why}) / 2 and scales"
        return width * element, f"({why}) x {element:g}"
    heads = model.full
    if heads is None:
        raise PoolError(f"{model.file}: the heads of its cache are not known")
    ranks = max(1, arguments.attn_tp_size // arguments.dcp_size)
    count = max(1, heads.count // ranks)
    width = heads.key_dim + heads.value_dim
    why = f"{count} KV heads x ({heads.key_dim} + {heads.value_dim}) x {element:g}"
    if element == 0.5:
        return count * width * (0.5 + 1 / _FP4_BLOCK), why + " and scales"
    scales = count * width / _MIXED_BLOCK if arguments.kv_cache_dtype == "mxfp8" else 0
    return count * width * element + scales, why + (" and scales" if scales else "")


def _latent_width(model: Model, arguments: MemoryArguments, capacity: Capacity, dtype: str) -> tuple[int, str]:
    latent = model.latent
    if latent is None:
        raise PoolError(f"{model.file}: it has no latent cache")
    plain = latent.rank + latent.rope_dim
    if latent.index is None or dtype != "fp8_e4m3" or _raw_latent(arguments, capacity):
        return plain, f"{latent.rank} + {latent.rope_dim}"
    scales = latent.rank // _INDEX_BLOCK * 4
    return latent.rank + scales + 2 * latent.rope_dim, f"{latent.rank} + {scales} + 2 x {latent.rope_dim}"


def _raw_latent(arguments: MemoryArguments, capacity: Capacity) -> bool:
    """Whether the kernels of sparse attention read FP8 rows without scales between them."""
    default = "trtllm" if (capacity.compute_major or 0) >= 10 else "flashmla_kv"
    if capacity.platform == "hip":
        default = "triton"
    prefill = arguments.dsa_prefill_backend or default
    decode = arguments.dsa_decode_backend or default
    role = arguments.disaggregation_mode
    used = {"prefill": (prefill,), "decode": (decode,)}.get(role, (prefill, decode))
    if "trtllm" in used:
        return True
    if capacity.platform == "hip":
        return any(name in ("tilelang", "triton", "aiter") for name in (prefill, decode))
    return prefill == decode == "tilelang"


def _sliding_bytes(model: Model, arguments: MemoryArguments, dtype: str) -> tuple[float, str]:
    heads = model.sliding
    if heads is None:
        raise PoolError(f"{model.file}: the heads of its sliding-window layers are not known")
    count = max(1, heads.count // arguments.attn_tp_size)
    width, element = heads.key_dim + heads.value_dim, _element(dtype)
    scales = count * width // _MIXED_BLOCK if arguments.kv_cache_dtype == "mxfp8" else 0
    return count * width * element + scales, f"{count} KV heads x ({heads.key_dim} + {heads.value_dim}) x {element:g}"


def _draft_bytes(
    model: Model, draft: Model | None, arguments: MemoryArguments, size: int, layers: int
) -> tuple[int, str]:
    """What the draft's own cache adds to a token: SGLang takes its layers to be as wide as the target's."""
    algorithm = (arguments.speculative_algorithm or "").upper()
    if algorithm not in _EAGLE:
        if algorithm in ("DFLASH", "DSPARK"):
            raise PoolError(f"--speculative-algorithm {algorithm}: the cache of its draft is not known here")
        return 0, ""
    count = (draft.draft_layers or len(draft.layers)) if draft is not None else model.draft_layers
    if not count or not layers:
        return 0, ""
    added = int(size * count / layers)
    return added, f"draft of {count} layers: {added} bytes"


def state_bytes(model: Model, arguments: MemoryArguments) -> int:
    """Bytes of the recurrent state of one request on one rank."""
    state = model.recurrent
    if state is None:
        return 0
    ranks = arguments.attn_tp_size
    groups = state.key_heads
    if groups % ranks:
        groups += ranks - groups
    widths = state.value_heads * state.value_dim + 2 * groups * state.key_dim
    if widths % ranks or state.value_heads % ranks:
        raise WillNotStart(
            f"{model.file}: linear_num_value_heads is {state.value_heads}, which {ranks} ranks cannot share"
        )
    convolution = widths // ranks * (state.conv_kernel - 1)
    recurrent = state.value_heads // ranks * state.value_dim * state.key_dim
    dtype = arguments.environment.get("SGLANG_MAMBA_SSM_DTYPE") or arguments.mamba_ssm_dtype or state.state_dtype
    conv_dtype = arguments.environment.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16")
    layers = max(model.layer_count(LINEAR, arguments.pp_size, stage) for stage in range(arguments.pp_size))
    return int(convolution * _element(conv_dtype) + recurrent * _element(dtype)) * layers


def slots_per_request(arguments: MemoryArguments) -> int:
    """State slots that a running request may hold at once."""
    if arguments.disable_radix_cache:
        return 1
    skip = arguments.switched_on("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")
    base = 3 - skip
    strategy = arguments.mamba_radix_cache_strategy
    if strategy == "auto":
        strategy = "no_buffer" if arguments.disable_overlap_schedule else "extra_buffer"
    if strategy == "no_buffer":
        return base + skip
    if strategy == "extra_buffer_lazy":
        return base + 1
    return base + (1 if arguments.disable_overlap_schedule else 2)
