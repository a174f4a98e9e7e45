"""Advice on pools: a real log, and what it must conclude from each kind of evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.serving.sglang.plugins.module_utils import pool_report
from ansible_collections.serving.sglang.plugins.module_utils.kv_cell import PoolError
from ansible_collections.serving.sglang.plugins.module_utils.pool_advice import Asked, advise
from ansible_collections.serving.sglang.plugins.module_utils.pool_log import (
    Observations,
    OutOfMemory,
    Sample,
    read_log,
    read_metrics,
    together,
)

DATA = Path(__file__).resolve().parents[3] / "data"
FULL_POOL = (DATA / "h200-full-pool.log").read_text(encoding="utf-8").splitlines()
ASKED = Asked(fraction=0.85, before_gib=78.0, pool_tokens=400_000, token_bytes=131072.0, free_at_peak_gib=8.0)


def samples(*usages: float, queued: int = 0) -> tuple[Sample, ...]:
    return tuple(Sample(1800.0 * step, usage, 8, queued) for step, usage in enumerate(usages))


def seen(*usages: float, **more: Any) -> Observations:
    queued = more.pop("queued", 0)
    return Observations(samples=samples(*usages, queued=queued), requests=more.pop("requests", 5000), **more)


def test_a_real_log_of_a_pool_that_overflows() -> None:
    found = read_log(FULL_POOL)
    assert (found.fraction, found.pool_tokens, found.capped_by_tokens) == (0.903, 30000, 30000)
    assert found.retractions == sum("Retract requests. #retracted_reqs: 1" in line for line in FULL_POOL)
    assert found.retractions >= 6
    assert found.peak > 0.95
    assert found.before_gib == 139.13
    assert found.token_bytes == pytest.approx(147456, rel=0.01)
    assert found.requests > 16
    assert found.duration_s > 10


def test_nothing_is_advised_from_a_few_seconds() -> None:
    answer = pool_report.report({"log_lines": FULL_POOL, "enough_requests": 1000, "enough_s": 3600})
    assert answer["verdict"] == "unclear"
    assert "it takes 1000 requests in 60 min" in answer["lines"][0]
    assert answer["fraction"] == answer["fraction_now"] == 0.903


def test_a_capped_pool_is_not_the_fractions_fault() -> None:
    answer = pool_report.report({"log_lines": FULL_POOL, "enough_requests": 10, "enough_s": 5})
    assert answer["verdict"] == "other_lever"
    assert "--max-total-tokens 30000" in answer["lines"][0]


def test_a_full_pool_is_raised_by_a_step_when_the_card_has_room() -> None:
    full = seen(0.8, 0.97, 0.99, retractions=12, queued=30)
    answer = advise(full, ASKED)
    assert (answer.verdict, answer.fraction) == ("raise", 0.87)
    assert answer.tokens > ASKED.pool_tokens
    assert "12 retractions" in answer.lines[1]
    assert "at most 30 queued" in answer.lines[1]
    tight = advise(full, replace(ASKED, free_at_peak_gib=2.0))
    assert (tight.verdict, tight.fraction) == ("keep", 0.85)
    assert "another replica" in tight.lines[1]
    blind = advise(full, replace(ASKED, free_at_peak_gib=None))
    assert blind.verdict == "unclear"


def test_a_pool_without_retractions_is_kept() -> None:
    assert advise(seen(0.9, 0.97, 0.93), ASKED).verdict == "keep"


def test_a_pool_that_never_fills_gives_memory_back() -> None:
    answer = advise(seen(0.05, 0.2, 0.1), ASKED)
    assert answer.verdict == "shrink"
    assert answer.tokens >= 0.2 * 1.25 * ASKED.pool_tokens
    assert answer.gives_back_gib == pytest.approx((400_000 - answer.tokens) * 131072 / 2**30, rel=0.01)
    assert f"{answer.fraction:g}" in answer.lines[0]
    assert advise(seen(0.59, 0.59, 0.59), replace(ASKED, pool_tokens=2000)).verdict == "keep", "not worth a restart"


def test_a_card_without_memory_beside_an_empty_pool_is_lowered() -> None:
    failure = OutOfMemory(10.0, True, 0.31, 274_934, tried_gib=4.0, free_gib=1.2)
    answer = advise(seen(0.31, card_failures=(failure,), requests=3), ASKED)
    assert answer.verdict == "lower"
    assert answer.fraction == 0.81, "2.8 GiB of 78 are two steps"
    assert "in the attention of a long prompt although 274934 tokens of the pool were free" in answer.lines[0]
    assert answer.findings[0].severity == "error"


def test_request_slots_are_not_memory_of_the_card() -> None:
    text = (DATA / "cases" / "memory.yml").read_text(encoding="utf-8")
    case = next(case for case in yaml.safe_load(text) if case["id"] == "request-slots-are-not-gpu-memory")
    found = read_log([case["given"]["log"].replace("...", "Please set a smaller number for `--max-running-requests`.")])
    found = replace(found, samples=samples(case["given"]["token_usage"]))
    answer = advise(found, ASKED)
    assert answer.verdict == "other_lever"
    assert "--max-running-requests" in answer.lines[1]
    assert "the fraction is not the lever" in answer.lines[1]


def test_staging_is_remembered_and_production_stays_below() -> None:
    staging = replace(ASKED, stage="staging", fraction=0.91)
    assert advise(seen(0.9, 0.95, 0.9), staging).highest_in_staging == 0.91
    production = replace(ASKED, highest_in_staging=0.91, steps_below_staging=2)
    raised = advise(seen(0.8, 0.99, 0.99, retractions=5), production)
    assert (raised.verdict, raised.fraction) == ("raise", 0.87)
    stopped = advise(seen(0.8, 0.99, 0.99, retractions=5), replace(production, fraction=0.87))
    assert (stopped.verdict, stopped.fraction) == ("keep", 0.87)
    above = advise(seen(0.8, 0.9, 0.9), replace(production, fraction=0.91))
    assert (above.verdict, above.fraction) == ("lower", 0.87)
    failure = OutOfMemory(1.0, False, 0.5, None)
    broken = advise(seen(0.5, card_failures=(failure,)), replace(ASKED, highest_in_staging=0.85))
    assert broken.highest_in_staging == 0.83


OOM_LOG = """\
[2026-11-29 10:00:00] server_args=ServerArgs(mem_fraction_static=0.85, max_total_tokens=None, page_size=1)
[2026-11-29 10:00:10] Load weight begin. avail mem=78.00 GB
[2026-11-29 10:00:30] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 24.41 GB, V size: 24.41 GB
[2026-11-29 10:00:40] max_total_num_tokens=400000, chunked_prefill_size=8192, available_gpu_mem=9.10 GB
[2026-11-29 10:10:00] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.31, #queue-req: 0
[2026-11-29 10:10:01] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/x/flashattention_backend.py", line 700, in forward_extend
    result = flash_attn_with_kvcache(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.11 GiB of \
which 120.00 MiB is free. Including non-PyTorch memory, this process has 70.00 GiB memory in use.
"""


def test_a_log_with_an_allocation_that_failed() -> None:
    found = read_log(OOM_LOG.splitlines())
    (failure,) = found.card_failures
    assert failure.in_attention
    assert failure.free_pool_tokens == 276_000
    assert failure.tried_gib == 0.5
    assert failure.free_gib == pytest.approx(120 / 1024)
    assert found.free_outside_gib == 9.1
    answer = pool_report.report({"log_lines": OOM_LOG.splitlines()})
    assert (answer["verdict"], answer["fraction"]) == ("lower", 0.83)


def test_hybrid_and_mlx_lines() -> None:
    lines = [
        "[2026-11-29 10:00:00] Decode batch, #running-req: 3, #full token: 10, full token usage: 0.20, "
        "#swa token: 9, swa token usage: 0.70, cuda graph: True, gen throughput (token/s): 1.0, #queue-req: 2",
    ]
    (sample,) = read_log(lines).samples
    assert (sample.usage, sample.running, sample.queued, sample.tokens) == (0.7, 3, 2, 10)
    mlx = [
        "[2026-11-29 10:00:00] Auto-sized attention KV pool: sys_available=27.81 GB, mlx_limit=51.8 GB, mlx_used=0.31 "
        "GB, kv_budget=24.25 GB, bytes_per_slot=114688, pool_size=227022",
        "[2026-11-29 10:01:00] Decode batch, #running-req: 1, #token: 113511, token usage: 0.00, #queue-req: 0",
    ]
    found = read_log(mlx)
    assert found.mlx
    assert (found.pool_tokens, found.token_bytes) == (227022, 114688)
    assert found.peak == 0.5
    page = "sglang:token_usage 0.0\nsglang:num_running_reqs 1\n"
    both = together(found, read_metrics([{"at_s": 0, "text": page}, {"at_s": 10, "text": page}]))
    assert both.peak == 0.5


def test_metrics_over_time() -> None:
    page = (
        'sglang:token_usage{{engine_type="unified",tp_rank="0"}} {usage}\nsglang:num_queue_reqs{{a="b"}} {queued}\n'
        "sglang:num_requests_total{{}} {count}\nsglang:num_retracted_requests_total {retracted}\n"
        "sglang:max_total_num_tokens 1000.0\n"
    )
    pages = [
        {"at_s": 0, "text": page.format(usage=0.1, queued=0, count=10, retracted=1)},
        {"at_s": 60, "text": page.format(usage=0.95, queued=7, count=210, retracted=4)},
    ]
    found = read_metrics(pages)
    assert (found.requests, found.retractions, found.peak, found.queued_while_full) == (200, 3, 0.95, 7)
    assert (found.duration_s, found.pool_tokens) == (60, 1000)


def test_a_restart_begins_anew() -> None:
    found = read_log([*OOM_LOG.splitlines(), *OOM_LOG.splitlines()[:4]])
    assert found.card_failures == ()
    assert found.samples == ()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"log_lines": ["nothing"]}, "fraction, before_gib, pool_tokens, token_bytes"),
        ({"log_lines": OOM_LOG.splitlines(), "fraction": 1.5}, "between 0 and 1"),
        ({"log_lines": OOM_LOG.splitlines(), "before_gib": float("nan")}, "before_gib"),
        ({"log": "/nowhere/x.log"}, "/nowhere/x.log"),
    ],
)
def test_bad_input(params: dict[str, Any], said: str) -> None:
    with pytest.raises(PoolError, match=said):
        pool_report.report(params)
