# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and environment variables of a server that decide how it divides its memory, read and checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from .flag_table import flags_of

DECODE = "decode"
PREFILL = "prefill"
BACKENDS = ("full", "breakable", "disabled")
ROLES = ("null", "prefill", "decode")

_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_YES = ("true", "1", "yes", "y")
_NO = ("false", "0", "no", "n")


class ArgumentError(ValueError):
    """An argument or environment variable that SGLang would not accept, or that no memory follows from."""


@dataclass(frozen=True)
class GraphPhase:
    """What was asked for the graphs of one phase; None was not given.

    `by_all`: the backend comes from --disable-cuda-graph alone, which the default of a single model outranks.
    """

    backend: str | None = None
    by_all: bool = False
    max_bs: int | None = None
    bs: tuple[int, ...] | None = None


@dataclass(frozen=True)
class MemoryArguments:
    """Arguments as given, before anything is derived from them; None was not given."""

    model_path: str = ""
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    attn_dp_size: int = 1
    attn_cp_size: int = 1
    dcp_size: int = 1
    ep_size: int = 1
    nnodes: int = 1
    elastic_ep_join_mode: str | None = None
    device: str | None = None
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    context_length: int | None = None
    page_size: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    disaggregation_mode: str = "null"
    disaggregation_transfer_backend: str = "mooncake"
    disaggregation_decode_extra_slots: int | None = None
    speculative_algorithm: str | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_draft_model_path: str | None = None
    moe_a2a_backend: str = "none"
    enable_multimodal: bool | None = None
    language_only: bool = False
    language_model_only: bool = False
    mm_feature_transport: str | None = None
    decode: GraphPhase = field(default_factory=GraphPhase)
    prefill: GraphPhase = field(default_factory=GraphPhase)
    torch_compile_max_bs: int = 32
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    enable_prefill_cp: bool = False
    cp_strategy: str | None = None
    enable_two_batch_overlap: bool = False
    enable_kv_cache_sharding: bool = False
    enable_memory_saver: bool = False
    enable_unified_memory: bool = False
    enable_dynamic_chunking: bool = False
    prefill_only_disable_kv_cache: bool = False
    disable_hybrid_swa_memory: bool = False
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    enable_hierarchical_cache: bool = False
    hicache_ratio: float | None = None
    hicache_size: int = 0
    cpu_offload_gb: int = 0
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    max_mamba_cache_size: int | None = None
    mamba_ssm_dtype: str | None = None
    mamba_radix_cache_strategy: str = "auto"
    dsa_prefill_backend: str | None = None
    dsa_decode_backend: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def attention_dp(self) -> bool:
        """A scale joiner's own group may be one rank wide, but it joins an attention-DP deployment."""
        return self.attn_dp_size > 1 or self.elastic_ep_join_mode == "scale"

    @property
    def attn_tp_size(self) -> int:
        return self.tp_size // self.attn_dp_size // self.attn_cp_size

    def switched_on(self, variable: str) -> bool:
        """A boolean environment variable as SGLang reads it."""
        value = self.environment.get(variable, "").lower()
        if value == "" or value in _NO:
            return False
        if value in _YES:
            return True
        raise ArgumentError(f'environment {variable}: "{self.environment[variable]}" is not a boolean for SGLang')

    def number(self, variable: str, default: int) -> int:
        """A numeric environment variable as SGLang reads it."""
        value = self.environment.get(variable)
        if value is None:
            return default
        try:
            return int(value)
        except ValueError:
            raise ArgumentError(f'environment {variable}: "{value}" is not a whole number') from None


_TOKENS = ("max_prefill_tokens", "max_total_tokens", "context_length")
_WHOLE = (
    "tp_size",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "attn_cp_size",
    "dcp_size",
    "ep_size",
    "nnodes",
    "chunked_prefill_size",
    "max_running_requests",
    "page_size",
    "disaggregation_decode_extra_slots",
    "speculative_num_draft_tokens",
    "torch_compile_max_bs",
    "hicache_size",
    "cpu_offload_gb",
    "max_mamba_cache_size",
)
_REAL = ("mem_fraction_static", "hicache_ratio", "swa_full_tokens_ratio", "mamba_full_memory_ratio")
_TEXT = (
    "model_path",
    "elastic_ep_join_mode",
    "device",
    "kv_cache_dtype",
    "dtype",
    "disaggregation_mode",
    "disaggregation_transfer_backend",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "moe_a2a_backend",
    "mm_feature_transport",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "cp_strategy",
    "mamba_ssm_dtype",
    "mamba_radix_cache_strategy",
    "dsa_prefill_backend",
    "dsa_decode_backend",
)
_FLAGS = (
    "enable_multimodal",
    "language_only",
    "language_model_only",
    "enable_prefill_cp",
    "enable_two_batch_overlap",
    "enable_kv_cache_sharding",
    "enable_memory_saver",
    "enable_unified_memory",
    "enable_dynamic_chunking",
    "prefill_only_disable_kv_cache",
    "disable_hybrid_swa_memory",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "enable_hierarchical_cache",
)
_MAY_BE_NEGATIVE = ("chunked_prefill_size",)
_MAY_BE_ZERO = ("hicache_size", "cpu_offload_gb", "disaggregation_decode_extra_slots")


def read_arguments(
    arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None, version: str = ""
) -> MemoryArguments:
    """The arguments by flag name (hyphens or underscores, aliases too); what has no bearing on memory is ignored."""
    given = _by_field(arguments, version)
    values: dict[str, Any] = {}
    for name in _TOKENS:
        _keep(values, name, _tokens(name, given.get(name)))
    for name in _WHOLE:
        _keep(values, name, _whole(name, given.get(name)))
    for name in _REAL:
        _keep(values, name, _real(name, given.get(name)))
    for name in _TEXT:
        _keep(values, name, None if given.get(name) is None else str(given[name]))
    for name in _FLAGS:
        _keep(values, name, _flag(name, given.get(name)))
    if "device" in values:
        values["device"] = values["device"].split(":")[0]
    _deprecated_attention_dp(given, values)
    _expert_layouts(given, values)
    values.update(_graphs(given))
    result = MemoryArguments(environment=dict(environment or {}), **values)
    _check(result)
    return result


def _by_field(arguments: Mapping[str, Any], version: str) -> dict[str, Any]:
    aliases = flags_of(version or "0").aliases
    given: dict[str, Any] = {}
    for key, value in arguments.items():
        name = key.lstrip("-").replace("_", "-")
        given[aliases.get(name, name).replace("-", "_")] = value
    return given


def _keep(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values[name] = value


def _named(name: str) -> str:
    return "--" + name.replace("_", "-")


def _whole(name: str, value: Any) -> int | None:
    if value is None:
        return None
    number: int
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        raise ArgumentError(f"{_named(name)}: {value!r} is not a whole number") from None
    least = 0 if name in _MAY_BE_ZERO else 1
    if number < least and name not in _MAY_BE_NEGATIVE:
        raise ArgumentError(f"{_named(name)}: {number} is below {least}")
    return number


def _tokens(name: str, value: Any) -> int | None:
    """SGLang's readable numbers: 8192, 8k (8,000), 8Ki (8,192)."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", value.strip())
        if match:
            number, suffix = match.groups()
            if suffix in _IEC:
                if "." in number:
                    raise ArgumentError(f"{_named(name)}: {value!r}: no decimals with {suffix}")
                value = int(number) * _IEC[suffix]
            else:
                value = int(Decimal(number) * _SI[suffix])
    return _whole(name, value)


def _real(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (ValueError, TypeError):
        raise ArgumentError(f"{_named(name)}: {value!r} is not a number") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{_named(name)}: {value!r} is not a finite number")
    return number


def _flag(name: str, value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise ArgumentError(f"{_named(name)} takes no value: true or false, not {value!r}")


def _deprecated_attention_dp(given: Mapping[str, Any], values: dict[str, Any]) -> None:
    """`--dp-size N --enable-dp-attention` is `--attn-dp-size N`."""
    if _flag("enable_dp_attention", given.get("enable_dp_attention")) and values.get("attn_dp_size", 1) == 1:
        values["attn_dp_size"] = values.get("dp_size", 1)
        values["dp_size"] = 1


def _expert_layouts(given: dict[str, Any], values: dict[str, Any]) -> None:
    """What the layouts of experts stand for: DWDP is attention DP without graphs, one runner is its own all-to-all."""
    if given.get("moe_runner_backend") == "megamoe":
        values["moe_a2a_backend"] = "megamoe"
    width = _whole("dwdp_size", given.get("dwdp_size"))
    if width is not None and width > 1:
        values.update(attn_dp_size=width, dp_size=1, ep_size=width, moe_a2a_backend="none")
        given["disable_cuda_graph"] = True


def _graphs(given: Mapping[str, Any]) -> dict[str, GraphPhase]:
    """Each phase: the JSON first, then the flags of the phase, then those that switch graphs off."""
    explicit = given.get("cuda_graph_config") or {}
    if isinstance(explicit, str):
        try:
            explicit = json.loads(explicit)
        except ValueError as error:
            raise ArgumentError(f"--cuda-graph-config is not JSON: {error}") from None
    if not isinstance(explicit, Mapping) or not all(
        phase in (DECODE, PREFILL) and isinstance(keys, Mapping) for phase, keys in explicit.items()
    ):
        raise ArgumentError(f"--cuda-graph-config: give {{decode: {{…}}, prefill: {{…}}}}, not {explicit!r}")
    all_off = _flag("disable_cuda_graph", given.get("disable_cuda_graph"))
    phases: dict[str, GraphPhase] = {}
    for phase in (DECODE, PREFILL):
        off = _flag(f"disable_{phase}_cuda_graph", given.get(f"disable_{phase}_cuda_graph"))
        keys = explicit.get(phase, {})
        named = keys.get("backend", given.get(f"cuda_graph_backend_{phase}") or ("disabled" if off else None))
        backend = named if named is not None else "disabled" if all_off else None
        if backend is not None and backend not in BACKENDS:
            raise ArgumentError(f"graph backend of {phase}: {backend!r} is none of {', '.join(BACKENDS)}")
        sizes = keys.get("bs", given.get(f"cuda_graph_bs_{phase}"))
        phases[phase] = GraphPhase(
            backend=backend,
            by_all=named is None and bool(all_off),
            max_bs=_whole(f"cuda_graph_max_bs_{phase}", keys.get("max_bs", given.get(f"cuda_graph_max_bs_{phase}"))),
            bs=_sizes(f"cuda_graph_bs_{phase}", sizes),
        )
    return phases


def _sizes(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    items = value if isinstance(value, (list, tuple)) else [value]
    sizes = [_whole(name, item) for item in items]
    return tuple(size for size in sizes if size is not None)


def _check(arguments: MemoryArguments) -> None:
    fraction = arguments.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        raise ArgumentError(
            f"--mem-fraction-static: {fraction} is not between 0 and 1. SGLang takes any number and fails later, "
            "when the pool is sized"
        )
    if arguments.disaggregation_mode not in ROLES:
        raise ArgumentError(f"--disaggregation-mode: {arguments.disaggregation_mode!r} is none of {', '.join(ROLES)}")
    groups = arguments.attn_dp_size * arguments.attn_cp_size
    if arguments.tp_size % groups:
        raise ArgumentError(
            f"--tp-size {arguments.tp_size} is not a multiple of --attn-dp-size {arguments.attn_dp_size} x "
            f"--attn-cp-size {arguments.attn_cp_size}"
        )
    for name in ("swa_full_tokens_ratio", "mamba_full_memory_ratio"):
        value = getattr(arguments, name)
        if value is not None and value < 0:
            raise ArgumentError(f"{_named(name)}: {value} is negative")
