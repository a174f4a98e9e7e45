# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory fraction as SGLang computes it when `--mem-fraction-static` is not given.

Pure: the capacity, the arguments and what the rule asks of the model come in; the fraction goes out, with every term
of the reserve by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .memory_arguments import MemoryArguments
from .memory_releases import MemoryRelease

UNKNOWN_CAPACITY_FRACTION = 0.95

FULL = "full"
BREAKABLE = "breakable"
DISABLED = "disabled"

_GIB = 1024
_FLOOR_ABOVE_MIB = 60 * _GIB
_FLOOR_MIB = 10 * _GIB
_CONSTANT_MIB = 512
_PER_TOKEN_MIB = 1.5
_LEAST_TOKENS = 2048
_POST_CAPTURE_MIB = 1536
_POST_CAPTURE_VISION_MIB = 8 * _GIB
_MLA_PREFILL_GRAPH_MIB = 1536
_AITER_FACTOR = 0.85
_AITER_ABOVE_TOKENS = 8192
_PIPELINE_SHAPES_TO = 8192
_DEEPEP_SHAPES_TO = 2048
_DEEPEP_SHAPE_MULTIPLE = 8
_A2A_WITH_GRAPH = ("none", "deepep", "megamoe", "flashinfer")
_HOPPER_EXPANDS = ("qwen3_vl", "qwen3_vl_moe")
_HOPPER_EXPANDS_TO = 512


@dataclass(frozen=True)
class Tier:
    """Defaults of the cards below this capacity. `many` is the graph's batch size from four ranks on."""

    below_mib: float
    chunk: int
    few: int
    many: int

    def batch_size(self, tp_size: int) -> int:
        return self.few if tp_size < 4 else self.many


TIERS = (
    Tier(20 * _GIB, 2048, 8, 8),
    Tier(35 * _GIB, 4096, 48, 160),
    Tier(60 * _GIB, 4096, 32, 160),
    Tier(90 * _GIB, 8192, 256, 512),
    Tier(160 * _GIB, 8192, 256, 512),
    Tier(math.inf, 16384, 512, 512),
)
UNKNOWN_TIER = Tier(math.inf, 4096, 160, 160)
# Ascend cards take these first; there the limit itself still belongs to the tier.
NPU_TIERS = (Tier(32 * _GIB, 4096, 16, 64), Tier(64 * _GIB, 8192, 64, 256))


@dataclass(frozen=True)
class Capacity:
    """What SGLang takes as the size of a card. None: unknown."""

    mib: float | None
    source: str = "given"
    platform: str = "cuda"
    compute_major: int | None = None

    def __post_init__(self) -> None:
        if self.mib is not None and (not math.isfinite(self.mib) or self.mib <= 0):
            raise ValueError(f"capacity: {self.mib} MiB is not a positive number")

    @property
    def device(self) -> str:
        return "cuda" if self.platform == "hip" else self.platform

    @property
    def hopper(self) -> bool:
        return self.platform == "cuda" and self.compute_major == 9


@dataclass(frozen=True)
class ModelTraits:
    """What the rule asks of a model. The defaults are those of a text model with ordinary attention.

    `multimodal` says that the checkpoint has encoders, before any argument switches them off. `vision_layers` and
    `vision_hidden` are those of the vision tower as the rule reads them; None when the configuration has no tower.
    """

    architecture: str = ""
    model_type: str = ""
    mla: bool = False
    multimodal: bool = False
    has_vision_config: bool = False
    has_audio_config: bool = False
    vision_layers: float = 24
    vision_hidden: float = 1024
    language_model_only: bool = False
    context_length: int = 2048
    kda: bool = False
    deepseek_v4: bool = False
    minimax_sparse: bool = False
    sliding_pools: bool = False
    recurrent: bool = False
    kv_heads: int = 0


@dataclass(frozen=True)
class Term:
    """One summand of the reserve."""

    name: str
    mib: float
    why: str


@dataclass(frozen=True)
class Factor:
    """What the fraction is multiplied with, or what is taken from it, after it was rounded."""

    name: str
    value: float
    why: str


@dataclass(frozen=True)
class Graph:
    """The graphs of one phase as SGLang resolves them."""

    backend: str
    max_bs: int
    shapes: tuple[int, ...] = ()

    @property
    def on(self) -> bool:
        return self.backend != DISABLED


@dataclass(frozen=True)
class Fraction:
    """A memory fraction with the sum it came from."""

    value: float
    automatic: bool
    capacity: Capacity
    chunked_prefill_size: int
    decode: Graph
    prefill: Graph
    post_capture: bool
    terms: tuple[Term, ...] = ()
    factors: tuple[Factor, ...] = ()
    release: str = ""
    assumed: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def reserve_mib(self) -> float:
        """What the rule leaves outside, before the fraction is rounded."""
        return sum(term.mib for term in self.terms)

    @property
    def outside_mib(self) -> float | None:
        """What the rounded fraction leaves outside of the whole card."""
        return None if self.capacity.mib is None else (1 - self.value) * self.capacity.mib


def prefill_shapes(max_tokens: int) -> tuple[int, ...]:
    """The numbers of tokens for which SGLang captures a prefill graph."""
    sizes = (
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, max_tokens + 1, 512),
    )
    return tuple(size for size in sizes if size <= max_tokens)


def is_multimodal(model: ModelTraits, arguments: MemoryArguments, release: MemoryRelease) -> bool:
    """Whether the server runs the encoders, which some models only do when asked."""
    if not model.multimodal or model.language_model_only or arguments.language_model_only:
        return False
    if arguments.enable_multimodal is not None:
        return arguments.enable_multimodal
    if release.has("text_unless_asked", model.architecture):
        return False
    return not (
        release.has("text_without_encoders", model.architecture)
        and not (model.has_vision_config and model.has_audio_config)
    )


def automatic_fraction(
    capacity: Capacity, arguments: MemoryArguments, model: ModelTraits, release: MemoryRelease
) -> Fraction:
    """The fraction that SGLang of this release would serve with: computed, or the given one where it changes it."""
    tier, npu_tier = _tier(capacity), _npu_tier(capacity)
    chunk = arguments.chunked_prefill_size
    if chunk is None:
        chunk = (npu_tier or tier).chunk
    multimodal = is_multimodal(model, arguments, release)
    decode = _decode_graph(capacity, arguments, model, tier, npu_tier, multimodal)
    prefill = _prefill_graph(capacity, arguments, model, release, chunk, multimodal)
    post_capture = _post_capture(capacity, arguments, model, release, chunk, decode, prefill)
    result = Fraction(
        value=arguments.mem_fraction_static or UNKNOWN_CAPACITY_FRACTION,
        automatic=arguments.mem_fraction_static is None,
        capacity=capacity,
        chunked_prefill_size=chunk,
        decode=decode,
        prefill=prefill,
        post_capture=post_capture,
        release=release.version,
        assumed=release.assumed,
    )
    if result.automatic:
        result = _computed(result, arguments, model, multimodal)
        result = _sharded_kv(result, arguments)
    result = _aiter(result, arguments, model)
    return result


def _computed(base: Fraction, arguments: MemoryArguments, model: ModelTraits, multimodal: bool) -> Fraction:
    mib = base.capacity.mib
    result = base
    if mib is None:
        result = replace(
            result, notes=(*result.notes, "the capacity is unknown: SGLang takes 0.95 and reserves nothing")
        )
    else:
        terms = _post_capture_terms(arguments) if base.post_capture else _terms(base, arguments, model)
        reserve = sum(term.mib for term in terms)
        result = replace(result, terms=tuple(terms), value=round((mib - reserve) / mib, 3))
    if multimodal and not arguments.language_only and arguments.disaggregation_mode != "decode":
        result = _with_vision(result, model)
    return result


def _parallel_term(arguments: MemoryArguments) -> Term:
    ranks = arguments.tp_size * arguments.pp_size
    return Term(
        "parallel", ranks / 8 * 1024, f"128 for each of {ranks} ranks (tp {arguments.tp_size} x pp {arguments.pp_size})"
    )


def _post_capture_terms(arguments: MemoryArguments) -> list[Term]:
    return [
        Term("constant", _POST_CAPTURE_MIB, "the pool is sized after graph capture, so neither graphs nor activations"),
        _parallel_term(arguments),
    ]


def _terms(base: Fraction, arguments: MemoryArguments, model: ModelTraits) -> list[Term]:
    tokens, why = _activation_tokens(base, arguments)
    terms = [
        Term("constant", _CONSTANT_MIB, "metadata of the attention backend and the like"),
        Term("activations", tokens * _PER_TOKEN_MIB, f"1.5 for each of {tokens} tokens: {why}"),
        _parallel_term(arguments),
        *_graph_terms(base, arguments, model),
    ]
    reserve = sum(term.mib for term in terms)
    mib = base.capacity.mib
    if mib is not None and mib > _FLOOR_ABOVE_MIB and reserve < _FLOOR_MIB:
        terms.append(Term("floor", _FLOOR_MIB - reserve, "a card above 60 GiB reserves at least 10 GiB"))
    if arguments.disaggregation_mode != "prefill" and base.decode.on and arguments.moe_a2a_backend == "deepep":
        terms.append(Term("deepep_decode", 2048, "buffers of DeepEP in the decode graphs"))
    if base.capacity.platform == "xpu":
        terms.append(Term("xpu", 2048, "scratch space of oneDNN"))
    return terms


def _activation_tokens(base: Fraction, arguments: MemoryArguments) -> tuple[int, str]:
    if arguments.disaggregation_mode == "decode":
        running = arguments.max_running_requests or base.decode.max_bs or 1
        draft = arguments.speculative_num_draft_tokens or 1
        tokens, why = running * draft, f"{running} running requests x {draft} draft tokens"
    elif base.chunked_prefill_size > 0:
        tokens, why = base.chunked_prefill_size, "the chunked prefill size"
    else:
        tokens, why = arguments.max_prefill_tokens, "max prefill tokens, as prefill is not chunked"
    if tokens < _LEAST_TOKENS:
        return _LEAST_TOKENS, f"at least {_LEAST_TOKENS} ({why}: {tokens})"
    return tokens, why


def _graph_terms(base: Fraction, arguments: MemoryArguments, model: ModelTraits) -> list[Term]:
    role, size, groups = arguments.disaggregation_mode, base.decode.max_bs, arguments.attn_dp_size
    terms: list[Term] = []
    if role != "prefill" and base.decode.on:
        terms.append(Term("decode_graphs", size * 2, f"2 x batch size {size}"))
    if arguments.attention_dp and role != "prefill":
        terms.append(Term("attention_dp", size * groups * 3, f"3 x batch size {size} x {groups} attention-DP groups"))
        if size > 300:
            terms.append(
                Term("attention_dp_large", size * groups * 1.5, f"1.5 x batch size {size} x {groups} groups, above 300")
            )
    if role != "decode" and base.prefill.on:
        if model.mla:
            terms.append(Term("prefill_graphs", _MLA_PREFILL_GRAPH_MIB, "prefill graphs of an MLA model"))
        else:
            shapes = len(base.prefill.shapes)
            terms.append(Term("prefill_graphs", shapes * 8, f"8 for each of {shapes} prefill shapes"))
        if base.prefill.backend == BREAKABLE and arguments.moe_a2a_backend == "deepep":
            terms.append(Term("deepep_prefill", 1024, "buffers of DeepEP in the prefill graphs"))
    return terms


def _with_vision(result: Fraction, model: ModelTraits) -> Fraction:
    mib = result.capacity.mib
    if result.post_capture:
        if mib is None:
            return result
        share = _POST_CAPTURE_VISION_MIB / mib
        taken = Factor("vision", -share, f"{_POST_CAPTURE_VISION_MIB} MiB for the encoders")
        return replace(result, value=result.value - share, factors=(*result.factors, taken))
    if not model.has_vision_config:
        return result
    size = model.vision_layers * model.vision_hidden**2 / (24 * 1024**2)
    factor = 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0)))
    why = f"vision tower of {model.vision_layers:g} layers, width {model.vision_hidden:g}: {size:.3g} times a ViT-L/14"
    return replace(result, value=result.value * factor, factors=(*result.factors, Factor("vision", factor, why)))


def _sharded_kv(result: Fraction, arguments: MemoryArguments) -> Fraction:
    """With sharded KV the chunk is rounded up to whole pages, and the fraction pays for the tokens it gained."""
    chunk = result.chunked_prefill_size
    page = arguments.page_size or 1
    if not arguments.enable_kv_cache_sharding or chunk <= 0:
        return result
    per_group = chunk // arguments.attn_dp_size if arguments.attention_dp else chunk
    rounded = math.ceil(per_group / page) * page
    gained = max(rounded, _LEAST_TOKENS) - max(per_group, _LEAST_TOKENS)
    if gained <= 0 or result.capacity.mib is None:
        return result
    share = _PER_TOKEN_MIB * gained / result.capacity.mib
    why = f"the chunk grows by {rounded - per_group} to whole pages of {page}"
    return replace(
        result,
        value=result.value - share,
        factors=(*result.factors, Factor("kv_sharding", -share, why)),
    )


def _aiter(result: Fraction, arguments: MemoryArguments, model: ModelTraits) -> Fraction:
    context = arguments.context_length or model.context_length
    if _attention_backend(result.capacity, arguments, model) != "aiter" or context <= _AITER_ABOVE_TOKENS:
        return result
    if not result.automatic and arguments.switched_on("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION"):
        return result
    why = f"AITER attention with a context of {context} tokens (above {_AITER_ABOVE_TOKENS}), given fractions too"
    return replace(
        result,
        value=result.value * _AITER_FACTOR,
        factors=(*result.factors, Factor("aiter", _AITER_FACTOR, why)),
    )


def _attention_backend(capacity: Capacity, arguments: MemoryArguments, model: ModelTraits) -> str | None:
    """The attention backend as far as the fraction asks for it: whether it is AITER."""
    both = arguments.prefill_attention_backend
    if both is not None and both == arguments.decode_attention_backend:
        return both
    if arguments.attention_backend is not None:
        return arguments.attention_backend
    if capacity.platform != "hip":
        return None
    heads = max(1, model.kv_heads // arguments.tp_size)
    return "aiter" if not model.mla or heads in (16, 128) else "triton"


def _tier(capacity: Capacity) -> Tier:
    mib = capacity.mib
    return UNKNOWN_TIER if mib is None else next(tier for tier in TIERS if mib < tier.below_mib)


def _npu_tier(capacity: Capacity) -> Tier | None:
    mib = capacity.mib
    if capacity.platform != "npu" or mib is None:
        return None
    return next((tier for tier in NPU_TIERS if mib <= tier.below_mib), None)


def _decode_graph(
    capacity: Capacity,
    arguments: MemoryArguments,
    model: ModelTraits,
    tier: Tier,
    npu_tier: Tier | None,
    multimodal: bool,
) -> Graph:
    asked = arguments.decode
    backend = asked.backend
    if backend is None:
        off = arguments.disaggregation_mode == "prefill" or capacity.platform == "xpu"
        backend = DISABLED if off else FULL
    elif capacity.platform == "xpu" and backend == BREAKABLE:
        backend = DISABLED
    if capacity.platform == "cpu":
        return Graph(backend, max(asked.bs) if asked.bs else arguments.torch_compile_max_bs)
    if asked.bs:
        return Graph(backend, max(asked.bs))
    size, running = asked.max_bs, arguments.max_running_requests
    if size is None and npu_tier is not None:
        size = npu_tier.batch_size(arguments.tp_size)
    elif size is None:
        size = tier.batch_size(arguments.tp_size)
        if running is not None:
            size = min(size, running)
            size = _expanded(size, running, capacity, model, multimodal)
    return Graph(backend, size)


def _expanded(size: int, running: int, capacity: Capacity, model: ModelTraits, multimodal: bool) -> int:
    """Qwen3-VL on a large Hopper card captures graphs up to its running limit."""
    large = capacity.mib is not None and capacity.mib >= _FLOOR_ABOVE_MIB
    wanted = capacity.hopper and large and multimodal and model.model_type in _HOPPER_EXPANDS
    return max(size, running) if wanted and running <= _HOPPER_EXPANDS_TO else size


def _prefill_graph(
    capacity: Capacity,
    arguments: MemoryArguments,
    model: ModelTraits,
    release: MemoryRelease,
    chunk: int,
    multimodal: bool,
) -> Graph:
    asked = arguments.prefill
    backend, locked = asked.backend, asked.backend is not None
    own = release.prefill_graph.get(model.architecture)
    if own is not None and (backend is None or asked.by_all):
        backend, locked = own, True
    if backend is None:
        backend = BREAKABLE if capacity.platform == "cuda" else DISABLED
    if backend == BREAKABLE and not locked and _no_prefill_graph(arguments, model, release, multimodal):
        backend = DISABLED
    shapes, max_bs = asked.bs, asked.max_bs
    if max_bs is None:
        max_bs = release.prefill_shapes_to.get(model.architecture)
    if backend == BREAKABLE and arguments.moe_a2a_backend == "deepep":
        shapes, max_bs = _deepep_shapes(shapes, max_bs)
    if arguments.disaggregation_mode == "decode" and not locked:
        backend = DISABLED
    if max_bs is None:
        max_bs = _default_shapes_to(arguments, model, release, chunk, backend)
    return Graph(backend, max_bs, shapes if shapes is not None else prefill_shapes(max_bs))


def _no_prefill_graph(arguments: MemoryArguments, model: ModelTraits, release: MemoryRelease, multimodal: bool) -> bool:
    """Whether SGLang gives up the prefill graph by itself."""
    parallel_graph = _context_parallel_graph(arguments, model, release)
    return (
        arguments.pp_size > 1
        or (model.kda and model.architecture != "Glm5NextForConditionalGeneration")
        or (model.deepseek_v4 and not (release.context_parallel_keeps_deepseek_v4 and parallel_graph))
        or (arguments.attn_cp_size > 1 and not parallel_graph)
        or arguments.dcp_size > 1
        or arguments.enable_two_batch_overlap
        or arguments.moe_a2a_backend not in _A2A_WITH_GRAPH
        or (multimodal and not release.has("graph_with_vision", model.architecture))
    )


def _context_parallel_graph(arguments: MemoryArguments, model: ModelTraits, release: MemoryRelease) -> bool:
    if not arguments.enable_prefill_cp or arguments.pp_size != 1 or arguments.attn_cp_size != arguments.tp_size:
        return False
    backend = arguments.prefill_attention_backend or arguments.attention_backend
    for layout in release.context_parallel_graphs:
        if (layout.strategy, layout.attention_backend) != (arguments.cp_strategy, backend):
            continue
        if layout.architecture is None:
            return True
        return (
            layout.architecture == model.architecture
            and arguments.dp_size == 1
            and arguments.ep_size == 1
            and arguments.attn_cp_size > 1
        )
    return False


def _deepep_shapes(shapes: Sequence[int] | None, max_bs: int | None) -> tuple[tuple[int, ...] | None, int | None]:
    """DeepEP wants multiples of eight; the list is made before the chunk is known."""
    made = tuple(shapes) if shapes is not None else prefill_shapes(max_bs or _DEEPEP_SHAPES_TO)
    multiple = _DEEPEP_SHAPE_MULTIPLE
    aligned = tuple(sorted({-(-size // multiple) * multiple for size in made}))
    if aligned == tuple(sorted(made)) or not aligned:
        return (tuple(shapes) if shapes is not None else None), max_bs
    return aligned, aligned[-1]


def _default_shapes_to(
    arguments: MemoryArguments, model: ModelTraits, release: MemoryRelease, chunk: int, backend: str
) -> int:
    limit = chunk
    if model.mla:
        limit = min(release.mla_shapes_to, chunk) if release.mla_shapes_follow_chunk else release.mla_shapes_to
    if arguments.pp_size > 1 and backend == BREAKABLE and arguments.prefill.bs is None:
        limit = min(limit, _PIPELINE_SHAPES_TO)
    if arguments.max_total_tokens is not None:
        limit = min(limit, arguments.max_total_tokens)
    if "llama-2" in arguments.model_path.lower():
        limit = min(limit, 4096)
    return limit


def _post_capture(
    capacity: Capacity,
    arguments: MemoryArguments,
    model: ModelTraits,
    release: MemoryRelease,
    chunk: int,
    decode: Graph,
    prefill: Graph,
) -> bool:
    """Whether the pool is sized after the graphs were captured, which leaves less to reserve."""
    variable = "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"
    wanted = arguments.switched_on(variable)
    if variable not in arguments.environment:
        wanted = model.architecture in release.post_capture_architectures
    if not wanted or capacity.device != "cuda" or model.mla:
        return False
    efa = arguments.environment.get("MOONCAKE_PROTOCOL", "rdma").lower() == "efa"
    if (
        arguments.enable_kv_cache_sharding
        or arguments.dcp_size != 1
        or arguments.prefill_only_disable_kv_cache
        or arguments.enable_memory_saver
        or "SGLANG_MOONCAKE_CUSTOM_MEM_POOL" in arguments.environment
        or (arguments.disaggregation_transfer_backend == "mooncake" and efa)
        or (arguments.enable_unified_memory and not _unified_after_capture(arguments, model))
        or model.deepseek_v4
        or model.minimax_sparse
    ):
        return False
    role = arguments.disaggregation_mode
    if role != "prefill" and not decode.on:
        return False
    if role == "decode":
        return True
    covered = max(prefill.shapes, default=0)
    return prefill.on and chunk > 0 and _largest_prefill(arguments, chunk) <= covered


def _unified_after_capture(arguments: MemoryArguments, model: ModelTraits) -> bool:
    drafts = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "DSPARK", "FROZEN_KV_MTP")
    separate_draft = (arguments.speculative_algorithm or "").upper() in drafts
    return model.sliding_pools and not model.recurrent and not separate_draft


def _largest_prefill(arguments: MemoryArguments, chunk: int) -> int:
    if arguments.enable_dynamic_chunking and arguments.pp_size > 1:
        return max(chunk, arguments.max_prefill_tokens, math.ceil(chunk * 1.25))
    return chunk
