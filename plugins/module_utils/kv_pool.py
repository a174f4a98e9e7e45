# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a fraction to the KV pool: the budget, the tokens it holds, and how many requests they are.

Pure. Sizes are GiB as SGLang prints them, "before" is the free memory before the weights are loaded, "after" the free
memory once they are; both are the smallest of all ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .kv_cell import Cell, PoolError, cell, slots_per_request, state_bytes
from .memory import Capacity, is_multimodal
from .memory_arguments import MemoryArguments
from .memory_releases import MemoryRelease
from .model import DTYPE_BYTES, FULL, Model

GIB = 1 << 30
RECURRENT_RATIO = 0.9
_PROMPT_MARGIN = 5
_FEWEST_SLOTS = 256


@dataclass(frozen=True)
class Memory:
    """Free memory around the load of the weights, in GiB, smallest of all ranks."""

    before_gib: float
    after_gib: float

    def __post_init__(self) -> None:
        for name, value in (("before", self.before_gib), ("after", self.after_gib)):
            if not math.isfinite(value) or value < 0:
                raise PoolError(f"free memory {name} the load: {value} GiB is not a size")
        if self.before_gib == 0:
            raise PoolError("free memory before the load is 0 GiB: nothing can be loaded")
        if self.after_gib > self.before_gib:
            raise PoolError(
                f"free memory after the load ({self.after_gib} GiB) is more than before it ({self.before_gib} GiB)"
            )

    @property
    def loaded_gib(self) -> float:
        return self.before_gib - self.after_gib


@dataclass(frozen=True)
class Pool:
    """A predicted pool, or the reason why there is none."""

    feasible: bool
    fraction: float
    tokens: int
    sliding_tokens: int | None
    budget_gib: float
    slack_gib: float
    encoders_gib: float
    state_gib: float
    state_slots: int | None
    cell: Cell
    max_running_requests: int
    longest_prompt_tokens: int
    request_table_gib: float
    minimum_fraction: float
    asks_above: float
    problem: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def pool_gib(self) -> float:
        return self.tokens * self.cell.token_bytes / GIB

    def requests_of(self, tokens: int) -> int:
        """How many requests of this length, prompt and answer together, the pool holds at once."""
        pages = -(-tokens // self.cell.page_size) * self.cell.page_size
        return min(self.max_running_requests, self.tokens // pages) if pages > 0 else 0


def smallest_fraction(memory: Memory) -> tuple[float, float]:
    """The minimum viable fraction, and the one above which SGLang asks for, as its message prints them."""
    minimum = 1 - memory.after_gib / memory.before_gib
    return minimum, math.ceil(minimum * 1000) / 1000


def encoders_gib(model: Model, arguments: MemoryArguments, release: MemoryRelease) -> float:
    """What SGLang holds back for images once the pool is sized."""
    if not is_multimodal(model.traits, arguments, release):
        return 0.0
    mib = arguments.number("SGLANG_VLM_CACHE_SIZE_MB", 100)
    if arguments.mm_feature_transport in ("cuda_ipc", "cuda_vmm"):
        mib += arguments.number("SGLANG_MM_FEATURE_CACHE_MB", 1024)
    return mib / 1024


@dataclass(frozen=True)
class _State:
    slots: int
    gib: float
    extra_gib: float


def _state(model: Model, arguments: MemoryArguments, rest_gib: float, running: int | None) -> _State:
    """The slots for recurrent state, and what they take from the budget."""
    per_request = state_bytes(model, arguments)
    draft = arguments.speculative_num_draft_tokens if arguments.speculative_algorithm else None
    if draft and arguments.disaggregation_mode == "prefill":
        draft = None
    ratio = slots_per_request(arguments)
    groups = arguments.attn_dp_size
    if arguments.max_mamba_cache_size is not None:
        slots = arguments.max_mamba_cache_size // groups
        extra = (min((running or 48) // groups, slots // ratio) + 1) * draft if draft else 0
    elif arguments.disable_radix_cache and running is not None:
        slots = running // groups
        extra = (slots + 1) * draft if draft else 0
    else:
        share = arguments.mamba_full_memory_ratio
        share = RECURRENT_RATIO if share is None else share
        budget = rest_gib * share / (1 + share) * GIB
        if draft:
            slots = int((budget - per_request * (1 + draft)) // (per_request * (1 + draft / ratio)))
            extra = (min((running or 48) // groups, slots // ratio) + 1) * draft
        else:
            slots, extra = int((budget - per_request) // per_request), 0
    return _State(slots, (slots + 1) * per_request / GIB, extra * per_request / GIB)


def predict(
    memory: Memory,
    fraction: float,
    model: Model,
    arguments: MemoryArguments,
    capacity: Capacity,
    release: MemoryRelease,
    chunk: int = 0,
    draft: Model | None = None,
) -> Pool:
    """The pool of a start with this fraction."""
    if not 0 < fraction < 1:
        raise PoolError(f"a fraction of {fraction} is not between 0 and 1")
    cells = [cell(model, arguments, capacity, release, draft, stage) for stage in range(arguments.pp_size)]
    largest = max(cells, key=lambda one: one.token_bytes)
    minimum, above = smallest_fraction(memory)
    slack = memory.before_gib * (1 - fraction)
    encoders = encoders_gib(model, arguments, release)
    rest = memory.after_gib - slack - encoders
    running = _requested_running(model, arguments)
    state = _State(0, 0.0, 0.0)
    problem = ""
    if model.recurrent is not None and rest > 0:
        state = _state(model, arguments, rest, running)
        if state.slots <= 0:
            problem = "no memory for the state of recurrent layers"
        rest -= state.gib + state.extra_gib
    if rest <= 0:
        problem = problem or (
            f"the weights leave no memory for the pool: SGLang asks for a fraction above {above:.3f} "
            f"(minimum viable {minimum:.4f})"
        )
    tokens, sliding = 0, None
    if not problem:
        tokens, sliding, problem = tokens_of(int(rest * GIB), largest, model, arguments, running, chunk)
    context = arguments.context_length or model.context_length
    requests = _running_requests(tokens, context, arguments, release, running)
    if model.recurrent is not None and not problem:
        requests = min(requests, state.slots // slots_per_request(arguments))
        if requests <= 0:
            problem = f"{state.slots} state slots serve no request ({slots_per_request(arguments)} for each)"
    if problem:
        tokens, sliding, requests = 0, None if sliding is None else 0, 0
    width = context + 4 + (arguments.speculative_num_draft_tokens or 0)
    return Pool(
        feasible=not problem,
        fraction=fraction,
        tokens=tokens,
        sliding_tokens=sliding,
        budget_gib=rest,
        slack_gib=slack,
        encoders_gib=encoders,
        state_gib=state.gib + state.extra_gib,
        state_slots=state.slots if model.recurrent is not None else None,
        cell=largest,
        max_running_requests=requests,
        longest_prompt_tokens=max(0, min(context, tokens * arguments.dcp_size) - 1 - _PROMPT_MARGIN),
        request_table_gib=(requests + 1) * width * 4 / GIB,
        minimum_fraction=minimum,
        asks_above=above,
        problem=problem,
        warnings=_warnings(tokens, context, requests, arguments) if not problem else (),
    )


def _requested_running(model: Model, arguments: MemoryArguments) -> int | None:
    """`max_running_requests` as given, or what SGLang declares for the algorithm or the model."""
    if arguments.max_running_requests is not None:
        return arguments.max_running_requests
    if arguments.speculative_algorithm is not None:
        return 48
    return 256 if model.traits.deepseek_v4 else None


def tokens_of(
    budget: int, one: Cell, model: Model, arguments: MemoryArguments, running: int | None, chunk: int
) -> tuple[int, int | None, str]:
    """Tokens of the pool, of the sliding-window pool, and what is wrong with them."""
    page, cap = one.page_size, arguments.max_total_tokens
    if not one.sliding:
        tokens = budget // one.full if one.full else cap or model.context_length
        tokens = min(tokens, cap) if cap is not None else tokens
        tokens = tokens // page * page
        return tokens, None, "" if tokens > 0 else "the budget holds less than one page"
    if not one.full:
        tokens = int(budget // one.sliding)
        tokens = (min(tokens, cap) if cap is not None else tokens) // page * page
        return tokens, tokens, "" if tokens > 0 else "the budget holds less than one page"
    window = model.window or 0
    if arguments.disable_radix_cache and running is not None and window and (chunk > 0 or _decodes(arguments)):
        sliding = -(-_sliding_cap(arguments, page, window, running, chunk) // page) * page
        tokens = int((budget - sliding * one.sliding) // one.full)
        tokens = (min(tokens, cap) if cap is not None else tokens) // page * page
        if tokens <= 0:
            return 0, 0, f"{sliding} tokens for the windows of {running} requests leave nothing for full layers"
        return tokens, min(sliding, tokens) if cap is not None else sliding, ""
    tokens = int(budget // one.token_bytes)
    tokens = (min(tokens, cap) if cap is not None else tokens) // page * page
    sliding = int(tokens * one.sliding_ratio) // page * page
    if tokens <= 0:
        return 0, 0, "the budget holds less than one page"
    if window and window + page >= sliding:
        why = f"the sliding-window pool of {sliding} tokens holds no request (window {window} + page {page})"
        return tokens, sliding, why
    return tokens, sliding, ""


def _decodes(arguments: MemoryArguments) -> bool:
    return arguments.disaggregation_mode == "decode"


def _sliding_cap(arguments: MemoryArguments, page: int, window: int, running: int, chunk: int) -> int:
    """Sliding-window tokens that this many requests hold at worst, as SGLang counts them without speculation."""
    interval = max(1, arguments.number("SGLANG_SWA_EVICTION_INTERVAL", 128))
    each = window + interval * (arguments.speculative_num_draft_tokens or 1) + page + page
    count = running // arguments.attn_dp_size
    if _decodes(arguments):
        return each * count + (window + page) * (arguments.disaggregation_decode_extra_slots or 0)
    return each * count + (1 if arguments.disable_overlap_schedule else 2) * chunk + page


def _running_requests(
    tokens: int, context: int, arguments: MemoryArguments, release: MemoryRelease, requested: int | None
) -> int:
    if requested is not None:
        return min(max(release.workers_floor, requested // arguments.attn_dp_size), tokens // 2)
    estimate = max(min(int(tokens / context * 512), 4096), 2048)
    return min(estimate, tokens // 2)


def _warnings(tokens: int, context: int, requests: int, arguments: MemoryArguments) -> tuple[str, ...]:
    found: list[str] = []
    if tokens < context:
        found.append(
            f"the pool of {tokens} tokens is shorter than the context of {context}: longer requests are refused"
        )
    asked = arguments.max_running_requests
    if asked is not None and requests < asked // arguments.attn_dp_size:
        found.append(f"max_running_requests falls from {asked} to {requests}")
    cap = arguments.max_total_tokens
    if cap is not None and cap > tokens:
        found.append(f"--max-total-tokens {cap} is more than the {tokens} that fit")
    return tuple(found)


@dataclass(frozen=True)
class AppleMemory:
    """What MLX reads: Metal's limit, what MLX already holds, and what the system has available."""

    limit_gib: float
    active_gib: float
    available_gib: float


def predict_apple(memory: AppleMemory, fraction: float, model: Model) -> tuple[int, float, str]:
    """Tokens of the MLX pool, its budget in GiB, and which of the two limits binds."""
    if model.full is None:
        raise PoolError(f"{model.file}: the heads of its cache are not known")
    layers = sum(layer == FULL for layer in model.layers) or len(model.layers)
    token = layers * model.full.count * 2 * model.full.key_dim * DTYPE_BYTES[model.dtype]
    metal = max(int(memory.limit_gib * GIB * fraction) - int(memory.active_gib * GIB), 0)
    system = int(memory.available_gib * GIB * fraction)
    budget = min(metal, system)
    binds = "the memory that the system has available" if system <= metal else "Metal's limit"
    return max(budget // token, _FEWEST_SLOTS), budget / GIB, binds
