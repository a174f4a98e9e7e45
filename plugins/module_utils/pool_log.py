# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a server's log and metrics say about its pool over time. Pure: text comes in, observations go out."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .server_log import split_prefix

_STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?")
_PAIR = re.compile(r"(#?[A-Za-z][A-Za-z -]*): ([0-9.]+)")
_BATCH = re.compile(r"^(Prefill|Decode) batch\b")
_USAGES = ("token usage", "full token usage", "swa token usage", "mamba usage")
_TOKENS = ("#token", "#full token")
_RETRACTED = re.compile(r"KV cache pool is full\. Retract requests\. #retracted_reqs: (\d+)")
_POOL = re.compile(r"\bmax_total_num_tokens=(\d+)")
_FREE = re.compile(r"available_gpu_mem=([0-9.]+) GB")
_FRACTION = re.compile(r"\bmem_fraction_static=([0-9.]+)")
_CAP = re.compile(r"\bmax_total_tokens=(\d+|None)")
_BEGIN = re.compile(r"Load weight begin\. avail mem=([0-9.]+) GB")
_CACHE = re.compile(r"KV Cache is allocated\..*#tokens: (\d+)((?:, [KV]+ size: [0-9.]+ GB)+)")
_SIZE = re.compile(r"size: ([0-9.]+) GB")
_MLX = re.compile(r"Auto-sized attention KV pool: sys_available=([0-9.]+) GB.*bytes_per_slot=(\d+), pool_size=(\d+)")
_CUDA_OOM = re.compile(r"CUDA out of memory\.(?: Tried to allocate ([0-9.]+) (GiB|MiB))?")
_OOM_FREE = re.compile(r"of which ([0-9.]+) (GiB|MiB) is free")
_SLOTS = re.compile(r"alloc_req_slots runs out of memory")
_KV_OOM = re.compile(r"^(?:Prefill|Decode) out of memory\. Try to lower your batch size")
_METRIC = re.compile(r"^(sglang:\w+)(?:\{[^}]*\})? ([0-9.eE+-]+)")


@dataclass(frozen=True)
class Sample:
    """The pool at one moment. None: not said."""

    at_s: float
    usage: float
    running: int = 0
    queued: int = 0
    tokens: int | None = None


@dataclass(frozen=True)
class OutOfMemory:
    """An allocation that failed on the card."""

    at_s: float
    in_attention: bool
    usage: float | None
    free_pool_tokens: int | None
    tried_gib: float | None = None
    free_gib: float | None = None


@dataclass(frozen=True)
class Observations:
    """What was seen of one server."""

    samples: tuple[Sample, ...] = ()
    requests: int = 0
    retractions: int = 0
    card_failures: tuple[OutOfMemory, ...] = ()
    slot_failures: int = 0
    pool_failures: int = 0
    pool_tokens: int | None = None
    token_bytes: float | None = None
    fraction: float | None = None
    before_gib: float | None = None
    free_outside_gib: float | None = None
    capped_by_tokens: int | None = None
    mlx: bool = False

    @property
    def duration_s(self) -> float:
        return self.samples[-1].at_s - self.samples[0].at_s if len(self.samples) > 1 else 0.0

    @property
    def peak(self) -> float:
        return max((sample.usage for sample in self.samples), default=0.0)

    def usual(self, share: float = 0.95) -> float:
        """The usage that is not exceeded in this share of the samples."""
        ordered = sorted(sample.usage for sample in self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def queued_while_full(self) -> int:
        """The longest queue while the pool was full."""
        return max((sample.queued for sample in self.samples if sample.usage >= 0.9), default=0)


@dataclass
class _Reading:
    samples: list[Sample] = field(default_factory=list)
    failures: list[OutOfMemory] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    at_s: float = 0.0


def read_log(lines: Iterable[str]) -> Observations:
    """The observations of one start. A second start in the same log begins anew."""
    found, state = Observations(), _Reading()
    for raw in lines:
        for line in raw.replace("\r", "\n").splitlines():
            found = _line(line, found, state)
    return replace(found, samples=tuple(state.samples), card_failures=tuple(state.failures))


def _line(line: str, found: Observations, state: _Reading) -> Observations:
    stamp = _STAMP.match(line)
    if stamp:
        moment = time.strptime(stamp.group(1), "%Y-%m-%d %H:%M:%S")
        state.at_s = calendar.timegm(moment) + float(stamp.group(2) or 0)
    message = split_prefix(line).message
    if "server_args=ServerArgs(" in message:
        state.samples, state.failures = [], []
        found = _started(message)
    batch = _BATCH.match(message)
    if batch:
        return _batch(message, batch.group(1), found, state)
    state.recent = [*state.recent[-60:], message]
    return _event(message, found, state)


def _started(message: str) -> Observations:
    fraction, cap = _FRACTION.search(message), _CAP.search(message)
    tokens = cap.group(1) if cap else "None"
    return Observations(
        fraction=float(fraction.group(1)) if fraction else None,
        capped_by_tokens=int(tokens) if tokens.isdigit() else None,
    )


def _batch(message: str, kind: str, found: Observations, state: _Reading) -> Observations:
    values = {name.strip(): float(value) for name, value in _PAIR.findall(message)}
    usages = [values[name] for name in _USAGES if name in values]
    tokens = next((int(values[name]) for name in _TOKENS if name in values), None)
    usage = max(usages, default=0.0)
    if found.mlx and not usage and tokens and found.pool_tokens:
        usage = tokens / found.pool_tokens
    state.samples.append(
        Sample(state.at_s, usage, int(values.get("#running-req", 0)), int(values.get("#queue-req", 0)), tokens)
    )
    if kind == "Prefill":
        return replace(found, requests=found.requests + int(values.get("#new-seq", 0)))
    return found


def _event(message: str, found: Observations, state: _Reading) -> Observations:
    retracted = _RETRACTED.search(message)
    if retracted:
        return replace(found, retractions=found.retractions + int(retracted.group(1)))
    mlx = _MLX.search(message)
    if mlx:
        return replace(found, mlx=True, token_bytes=float(mlx.group(2)), pool_tokens=int(mlx.group(3)))
    begin = _BEGIN.search(message)
    if begin:
        return replace(found, before_gib=float(begin.group(1)))
    cache = _CACHE.search(message)
    if cache and int(cache.group(1)) > 0:
        size = sum(float(number) for number in _SIZE.findall(cache.group(2)))
        return replace(found, token_bytes=(found.token_bytes or 0.0) + size * (1 << 30) / int(cache.group(1)))
    pool = _POOL.search(message)
    if pool and "server_args" not in message:
        free = _FREE.search(message)
        return replace(
            found,
            pool_tokens=int(pool.group(1)),
            free_outside_gib=float(free.group(1)) if free else found.free_outside_gib,
        )
    if _SLOTS.search(message):
        return replace(found, slot_failures=found.slot_failures + 1)
    if _KV_OOM.search(message):
        return replace(found, pool_failures=found.pool_failures + 1)
    if _CUDA_OOM.search(message):
        state.failures.append(_failure(message, found, state))
    return found


def _failure(message: str, found: Observations, state: _Reading) -> OutOfMemory:
    tried, free = _CUDA_OOM.search(message), _OOM_FREE.search(message)
    frames = [text for text in state.recent[-40:] if text.lstrip().startswith("File ")]
    in_attention = any(re.search(r"attention|attn|forward_extend", text, re.IGNORECASE) for text in frames[-8:])
    last = state.samples[-1] if state.samples else None
    left = None
    if last is not None and found.pool_tokens:
        left = max(0, found.pool_tokens - (last.tokens or round(last.usage * found.pool_tokens)))
    return OutOfMemory(
        state.at_s,
        in_attention,
        last.usage if last is not None else None,
        left,
        _gib(tried.group(1), tried.group(2)) if tried and tried.group(1) else None,
        _gib(free.group(1), free.group(2)) if free else None,
    )


def _gib(number: str, unit: str) -> float:
    return float(number) / (1024 if unit == "MiB" else 1)


def read_metrics(snapshots: Sequence[Mapping[str, Any]]) -> Observations:
    """The observations of metric pages over time: each with `at_s` and the `text` that /metrics answered."""
    samples: list[Sample] = []
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for position, snapshot in enumerate(snapshots):
        values = parse_metrics(str(snapshot.get("text", "")))
        first = first or values
        last = values
        usage = max(
            (
                values[name]
                for name in ("sglang:token_usage", "sglang:full_token_usage", "sglang:swa_token_usage")
                if name in values
            ),
            default=0.0,
        )
        samples.append(
            Sample(
                float(snapshot.get("at_s", position)),
                usage,
                int(values.get("sglang:num_running_reqs", 0)),
                int(values.get("sglang:num_queue_reqs", 0)),
                int(values["sglang:num_used_tokens"]) if "sglang:num_used_tokens" in values else None,
            )
        )

    def grew(*names: str) -> int:
        return int(max((last.get(name, 0.0) - first.get(name, 0.0) for name in names), default=0.0))

    pool = last.get("sglang:max_total_num_tokens")
    return Observations(
        samples=tuple(samples),
        requests=grew("sglang:num_requests_total"),
        retractions=grew("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
        pool_tokens=int(pool) if pool else None,
    )


def parse_metrics(text: str) -> dict[str, float]:
    """The largest value of each metric, whatever its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _METRIC.match(line)
        if match:
            value = float(match.group(2))
            found[match.group(1)] = max(value, found.get(match.group(1), value))
    return found


def together(log: Observations, metrics: Observations) -> Observations:
    """Both sources as one. Where the metric always reads 0.0 (MLX) the log counts."""
    if not metrics.samples:
        return log
    read_zero = metrics.peak == 0.0 and log.peak > 0.0
    samples = (
        log.samples
        if log.mlx or read_zero
        else tuple(sorted((*log.samples, *metrics.samples), key=lambda sample: sample.at_s))
    )
    return replace(
        log,
        samples=samples,
        requests=max(log.requests, metrics.requests),
        retractions=max(log.retractions, metrics.retractions),
        pool_tokens=log.pool_tokens or metrics.pool_tokens,
    )
