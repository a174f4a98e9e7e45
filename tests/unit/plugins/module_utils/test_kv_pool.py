"""The pool against SGLang's own pool configurators and recorded starts, and the sums around it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import kv_cell, kv_pool
from ansible_collections.serving.sglang.plugins.module_utils.kv_cell import PoolError
from ansible_collections.serving.sglang.plugins.module_utils.kv_pool import AppleMemory, Memory
from ansible_collections.serving.sglang.plugins.module_utils.memory import Capacity
from ansible_collections.serving.sglang.plugins.module_utils.memory_arguments import read_arguments
from ansible_collections.serving.sglang.plugins.module_utils.memory_releases import memory_release_for

TESTS = Path(__file__).resolve().parents[3]
DATA = TESTS / "data"
sys.path.insert(0, str(TESTS))
import recorded  # noqa: E402
import references  # noqa: E402

RELEASE = memory_release_for("0.5.22")
H200 = Capacity(143771, compute_major=9)


def of(name: str) -> Any:
    return references.model_named(name, "0.5.22")[0]


def predict(name: str, before: float, after: float, fraction: float, capacity: Capacity = H200, **given: Any) -> Any:
    environment = given.pop("environment", None)
    arguments = read_arguments(given, environment)
    return kv_pool.predict(Memory(before, after), fraction, of(name), arguments, capacity, RELEASE, 8192)


def cell_of(name: str, capacity: Capacity = H200, **given: Any) -> Any:
    return kv_cell.cell(of(name), read_arguments(given), capacity, RELEASE)


@pytest.mark.parametrize("file", sorted(DATA.glob("kv_reference_*.jsonl")), ids=lambda path: path.stem)
def test_every_pool_of_sglangs_own_code_is_equal(file: Path) -> None:
    wrong, compared, refused = [], 0, 0
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        model = replace(
            references.model_named(row["model"], row["version"])[0],
            draft_layers=row["draft_layers"],
        )
        names = ("tp_size", "pp_size", "kv_cache_dtype", "page_size", "swa_full_tokens_ratio")
        given = {name: row[name] for name in names if row[name] is not None}
        if row["draft_layers"]:
            given["speculative_algorithm"] = "EAGLE"
        arguments = read_arguments(given)
        release = memory_release_for(row["version"])
        if model.heads % row["tp_size"]:
            with pytest.raises(PoolError, match="cannot share"):
                kv_cell.cell(model, arguments, H200, release)
            refused += 1
            continue
        one = kv_cell.cell(model, arguments, H200, release, stage=row["pp_size"] - 1)
        compared += 1
        if one.token_bytes != pytest.approx(row["cell_bytes"], abs=1e-6):
            wrong.append((row, one))
        one = replace(one, page_size=row["page_size"])
        for budget, tokens, sliding in row["pools"]:
            found = kv_pool.tokens_of(budget, one, model, arguments, None, 8192)
            if found[:2] != (tokens, sliding):
                wrong.append((row, found))
        if "state_bytes" in row and row["pp_size"] == 1 and kv_cell.state_bytes(model, arguments) != row["state_bytes"]:
            wrong.append((row, kv_cell.state_bytes(model, arguments)))
    assert wrong == []
    assert compared >= 600
    assert refused > 0


def test_recorded_starts_are_within_their_limit() -> None:
    records = json.loads((DATA / "recorded.json").read_text(encoding="utf-8"))["records"]
    results = [recorded.check(record, references.MODELS) for record in records]
    assert [result for result in results if not result.ok] == []
    cards = [result for result in results if not result.integrated and result.observed]
    assert len(cards) == 3
    assert all(abs(result.error_percent or 100) < 0.02 for result in cards)
    assert all(abs(result.alone_percent or 100) < 1 for result in cards)


def test_recorded_failures_are_found() -> None:
    records = json.loads((DATA / "recorded.json").read_text(encoding="utf-8"))["records"]
    moved = {**records[0], "observed": {"fraction": 0.903, "max_total_num_tokens": 805000}}
    assert "outside of 0.1 %" in recorded.check(moved, references.MODELS).problem
    started = {**records[0], "observed": {"fraction": 0.903, "max_total_num_tokens": None}}
    assert "did not start" in recorded.check(started, references.MODELS).problem
    failed = {**records[3], "observed": {"fraction": 0.05, "max_total_num_tokens": 5}}
    assert "called infeasible" in recorded.check(failed, references.MODELS).problem
    other = {**records[0], "observed": {"fraction": 0.9, "max_total_num_tokens": 803502}}
    assert "logged 0.9" in recorded.check(other, references.MODELS).problem


@pytest.mark.parametrize(
    ("available", "fraction", "recorded_tokens"), [(27.81, 0.872, 227022), (48.49, 0.4, 181574), (38.29, 0.872, 312581)]
)
def test_apple_lines_within_the_rounding_of_the_log(available: float, fraction: float, recorded_tokens: int) -> None:
    model = replace(of("qwen3-8b"), layers=("full",) * 28)
    memory = AppleMemory(51.8, 0.31, available)
    tokens, budget, binds = kv_pool.predict_apple(memory, fraction, model)
    rounding = 0.005 * fraction * 2**30 / 114688
    assert abs(tokens - recorded_tokens) <= rounding + 1
    assert "system" in binds
    assert budget == pytest.approx(available * fraction)


def test_apple_bound_by_metal_and_by_the_least_pool() -> None:
    tokens, budget, binds = kv_pool.predict_apple(AppleMemory(20, 15, 60), 0.8, of("qwen3-8b"))
    assert budget == pytest.approx(1.0)
    assert "Metal" in binds
    assert kv_pool.predict_apple(AppleMemory(20, 19, 60), 0.8, of("qwen3-8b"))[0] == 256
    assert tokens == 2**30 // (36 * 8 * 2 * 128 * 2)


@pytest.mark.parametrize(
    ("name", "given", "size"),
    [
        ("llama-3.1-8b", {}, 131072),
        ("qwen3-30b-a3b", {}, 98304),
        ("qwen3-30b-a3b", {"tp_size": 8}, 24576),
        ("deepseek-v3", {}, 70272),
        ("deepseek-v3", {"tp_size": 8}, 70272),
        ("qwen3-30b-a3b", {"tp_size": 8, "attn_dp_size": 4}, 49152),
        ("qwen3-8b", {"kv_cache_dtype": "fp8_e5m2"}, 73728),
        ("qwen3-8b", {"kv_cache_dtype": "mxfp8"}, 73728 + 73728 // 32),
        ("qwen3-8b", {"kv_cache_dtype": "nvfp4"}, 73728 // 2 + 73728 // 16),
    ],
)
def test_documented_cells(name: str, given: dict[str, Any], size: int) -> None:
    assert cell_of(name, **given).token_bytes == size


def test_sparse_attention_depends_on_the_card() -> None:
    hopper, blackwell = cell_of("deepseek-v3.2"), cell_of("deepseek-v3.2", Capacity(183359, compute_major=10))
    assert (hopper.kv_dtype, blackwell.kv_dtype) == ("bfloat16", "fp8_e4m3")
    assert hopper.token_bytes == 61 * (576 * 2 + 132)
    assert blackwell.token_bytes == 61 * (576 + 132)
    assert hopper.page_size == 64
    fp8 = cell_of("deepseek-v3.2", kv_cache_dtype="fp8_e4m3")
    assert fp8.token_bytes == 61 * (512 + 16 + 128 + 132)
    with pytest.raises(PoolError, match="capability is not known"):
        cell_of("deepseek-v3.2", Capacity(81559))


def test_pages() -> None:
    assert cell_of("qwen3-8b", Capacity(183359, compute_major=10)).page_size == 64
    assert cell_of("deepseek-v3", Capacity(183359, compute_major=10)).page_size == 64
    assert cell_of("qwen3-8b", page_size=16).page_size == 16
    assert cell_of("qwen3-8b", attention_backend="flashmla").page_size == 64
    assert cell_of("qwen3-8b", Capacity(65536, platform="npu")).page_size == 128
    pool = predict("qwen3-8b", 139.22, 123.85, 0.7, page_size=64)
    assert pool.tokens % 64 == 0


def test_what_sglang_would_say_of_a_fraction_that_is_too_small() -> None:
    pool = predict("qwen3-30b-a3b", 112.59, 54.84, 0.5)
    assert not pool.feasible
    assert (round(pool.minimum_fraction, 4), pool.asks_above) == (0.5129, 0.513)
    assert "above 0.513" in pool.problem
    assert (pool.tokens, pool.max_running_requests, pool.longest_prompt_tokens) == (0, 0, 0)


def test_requests_and_prompts() -> None:
    pool = predict("qwen3-8b", 139.22, 123.85, 0.7)
    assert pool.max_running_requests == 4096
    assert pool.longest_prompt_tokens == 40960 - 6
    assert pool.requests_of(4096) == pool.tokens // 4096
    assert pool.request_table_gib == pytest.approx(4097 * 40964 * 4 / 2**30)
    limited = predict("qwen3-8b", 139.22, 123.85, 0.7, max_running_requests=8, max_total_tokens=20000)
    assert (limited.tokens, limited.max_running_requests, limited.requests_of(100)) == (20000, 8, 8)
    assert limited.longest_prompt_tokens == 20000 - 6
    assert any("shorter than the context" in warning for warning in limited.warnings)
    speculative = predict("deepseek-v3", 139, 60, 0.9, tp_size=8, speculative_algorithm="EAGLE")
    assert speculative.max_running_requests == 48


def test_attention_dp_divides_the_requests_as_each_release_does() -> None:
    memory, model = Memory(139, 120), of("qwen3-30b-a3b")
    arguments = read_arguments({"tp_size": 8, "attn_dp_size": 8, "max_running_requests": 4})
    found = [
        kv_pool.predict(memory, 0.9, model, arguments, H200, memory_release_for(version)).max_running_requests
        for version in ("0.5.22", "0.5.23")
    ]
    assert found == [0, 1]


def test_pipeline_stages_take_the_smallest_pool() -> None:
    one = kv_pool.predict(Memory(139, 120), 0.9, of("deepseek-v3"), read_arguments({"pp_size": 2}), H200, RELEASE)
    assert one.cell.token_bytes == 31 * 576 * 2


def test_images_hold_back_memory() -> None:
    plain = predict("qwen2.5-vl-7b", 139, 120, 0.8)
    assert plain.encoders_gib == 100 / 1024
    ipc = predict("qwen2.5-vl-7b", 139, 120, 0.8, mm_feature_transport="cuda_ipc")
    assert ipc.encoders_gib == 1124 / 1024
    assert predict("gemma3-12b", 139, 110, 0.8).encoders_gib == 0
    changed = predict("qwen2.5-vl-7b", 139, 120, 0.8, environment={"SGLANG_VLM_CACHE_SIZE_MB": "0"})
    assert changed.encoders_gib == 0


def test_sliding_windows() -> None:
    pool = predict("gpt-oss-20b", 139, 120, 0.8)
    assert pool.sliding_tokens == int(pool.tokens * 0.8)
    tight = predict("gpt-oss-20b", 139, 120, 0.8, disable_radix_cache=True, max_running_requests=16)
    assert tight.sliding_tokens == (128 + 128 + 1 + 1) * 16 + 2 * 8192 + 1
    assert tight.tokens > pool.tokens
    off = predict("gpt-oss-20b", 139, 120, 0.8, disable_hybrid_swa_memory=True)
    assert off.cell.token_bytes == 24 * 8 * 128 * 2
    assert off.sliding_tokens is None
    small = predict("llama-4-scout", 139, 30, 0.8, tp_size=8, max_total_tokens=9000)
    assert "holds no request" in small.problem


def test_recurrent_state_takes_its_share() -> None:
    pool = predict("qwen3-next-80b-a3b", 139, 120, 0.8, tp_size=2)
    rest = 120 - 139 * 0.2
    assert pool.state_gib == pytest.approx(rest * 0.9 / 1.9, rel=0.002)
    assert pool.max_running_requests == pool.state_slots // 5
    fixed = predict("qwen3-next-80b-a3b", 139, 120, 0.8, tp_size=2, max_mamba_cache_size=100)
    assert fixed.state_slots == 100
    assert fixed.max_running_requests == 20
    plain = predict("qwen3-next-80b-a3b", 139, 120, 0.8, tp_size=2, disable_radix_cache=True, max_running_requests=64)
    assert (plain.state_slots, plain.max_running_requests) == (64, 64)
    none = predict("qwen3-next-80b-a3b", 139, 27.9, 0.8, tp_size=2)
    assert not none.feasible


@pytest.mark.parametrize(("before", "after"), [(0, 0), (-1, 0), (10, 11), (float("nan"), 1), (10, float("inf"))])
def test_impossible_memory(before: float, after: float) -> None:
    with pytest.raises(PoolError):
        Memory(before, after)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5])
def test_impossible_fractions(fraction: float) -> None:
    with pytest.raises(PoolError, match="between 0 and 1"):
        predict("qwen3-8b", 10, 5, fraction)


def test_an_unknown_architecture_has_no_pool() -> None:
    model = replace(of("qwen3-8b"), known=False, unknown=("architecture X",))
    with pytest.raises(PoolError, match="architecture X"):
        kv_pool.predict(Memory(10, 5), 0.9, model, read_arguments({}), H200, RELEASE)
