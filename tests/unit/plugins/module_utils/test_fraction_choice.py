"""The window and the choice by machine kind: cases from the field, and what must hold for any numbers."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import fraction_choice, kv_pool
from ansible_collections.serving.sglang.plugins.module_utils.fraction_choice import Case, Machine, choose, inputs_key
from ansible_collections.serving.sglang.plugins.module_utils.fraction_window import Share, window
from ansible_collections.serving.sglang.plugins.module_utils.kv_cell import PoolError, state_bytes
from ansible_collections.serving.sglang.plugins.module_utils.kv_pool import Memory
from ansible_collections.serving.sglang.plugins.module_utils.memory import Capacity, automatic_fraction
from ansible_collections.serving.sglang.plugins.module_utils.memory_arguments import read_arguments
from ansible_collections.serving.sglang.plugins.module_utils.memory_releases import memory_release_for

TESTS = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TESTS))
import references  # noqa: E402

CASES = {
    case["id"]: case["given"]
    for case in yaml.safe_load((TESTS / "data" / "cases" / "memory.yml").read_text(encoding="utf-8"))
}
MODELS = {path.name: references.model_named(path.name, "0.5.22")[0] for path in sorted(references.MODELS.iterdir())}


def case_of(
    before: float,
    after: float,
    kind: str = "dedicated",
    mib: float | None = 143771,
    model: str = "qwen3-8b",
    major: int | None = 9,
    version: str = "0.5.22",
    **words: Any,
) -> Case:
    machine = {
        name: words.pop(name)
        for name in list(words)
        if name in Machine.__dataclass_fields__ and name not in ("kind", "memory")
    }
    draft_gib, wanted = words.pop("draft_gib", 0.0), words.pop("wanted_tokens", 0)
    release, capacity = memory_release_for(version), Capacity(mib, compute_major=major)
    arguments = read_arguments(words, None, version)
    automatic = automatic_fraction(capacity, arguments, MODELS[model].traits, release)
    return Case(
        automatic=automatic,
        model=MODELS[model],
        arguments=arguments,
        capacity=capacity,
        release=release,
        machine=Machine(kind, Memory(before, after), **machine),
        draft_gib=draft_gib,
        wanted_tokens=wanted,
    )


def test_weights_exceed_the_fraction() -> None:
    given_ = CASES["weights-exceed-fraction"]
    case = case_of(given_["free_before_gib"], given_["free_after_gib"])
    pool = case.pool(given_["fraction"])
    assert not pool.feasible
    assert round(pool.minimum_fraction, 4) == 0.9113
    assert pool.asks_above == 0.912
    candidates = {value: case.pool(value).tokens for value in (0.912, 0.92, 0.94)}
    assert candidates[0.912] < 1000, "SGLang takes it, and it is as good as no pool"
    assert candidates[0.912] < candidates[0.92] < candidates[0.94]


def test_draft_weights_count() -> None:
    given_ = CASES["draft-weights-count"]
    pool = case_of(given_["free_before_gib"], given_["free_after_gib"], model="llama-4-scout").pool(given_["fraction"])
    assert not pool.feasible
    assert (round(pool.minimum_fraction, 4), pool.asks_above) == (0.9335, 0.934)


def test_no_value_exists() -> None:
    given_ = CASES["no-value-exists"]
    before, held = given_["free_before_gib"], given_["weights_and_draft_gib"]
    case = case_of(
        before, before - held, "shared", 46068, major=8, needed_outside_gib=given_["needed_outside_gib"], draft_gib=4.0
    )
    choice = choose(case)
    assert choice.fraction is None
    assert choice.pool is None
    assert round(held / before, 3) == 0.839
    assert choice.window.low >= 0.839
    assert round(choice.window.high_exact, 4) == 0.8386
    for tried in given_["fraction_tried"]:
        assert not choice.window.holds(tried)
    assert "no feasible fraction" in choice.lines[0]
    assert "32.90 GiB weights + 4.00 GiB draft" in choice.lines[0]
    assert "7.10 GiB runtime outside" in choice.lines[0]
    assert {remedy.name for remedy in choice.window.remedies} == {"draft", "chunk", "quantised", "ranks"}
    for words in ("smaller draft", "--chunked-prefill-size 2048", "FP8", "--tp-size 2"):
        assert words in choice.lines[2]


def test_the_default_is_computed() -> None:
    given_ = CASES["default-is-computed"]
    choice = choose(case_of(78.5, 63.0, mib=given_["card_mib"]))
    assert choice.fraction == 0.83
    assert choice.source == "automatic"
    assert "(81559 - 13904) / 81559 MiB" in choice.lines[0]
    for term in ("512 constant", "12288 activations", "128 parallel", "512 decode_graphs", "464 prefill_graphs"):
        assert term in choice.lines[0]
    assert len(choice.lines) == 3
    assert all(choice.lines)


def test_a_neighbour_shrinks_the_headroom_and_not_the_automatic_value() -> None:
    choice = choose(case_of(60.0, 44.0, mib=81559, neighbours_hold_gib=18.5))
    assert choice.fraction == 0.83
    assert any("18.5 GiB" in text and "10.20 GiB instead of 13.54" in text for text in choice.warnings)


def test_a_shared_card_leaves_the_whole_reserve_and_what_others_may_take() -> None:
    choice = choose(case_of(60.0, 44.0, "shared", 81559, neighbours_may_take_gib=4.0))
    assert choice.source == "explicit"
    assert choice.fraction == math.floor(1000 * (1 - (13904 / 1024 + 4) / 60)) / 1000
    names = {reason.name for reason in choice.reasons}
    assert {"outside.neighbours", "outside.activations", "inside.weights", "window.low", "slack"} <= names


def test_unified_memory_starts_below_seven_tenths_and_leaves_the_host_its_reserve() -> None:
    choice = choose(case_of(112.59, 54.84, "unified", 124610, "qwen3-30b-a3b", 12))
    assert choice.fraction == 0.69
    assert "below 0.7" in choice.lines[0]
    tight = choose(case_of(80.0, 62.0, "unified", 124610, "qwen3-8b", 12, host_reserve_gib=20.0))
    assert tight.fraction == math.floor(1000 * (1 - (13904 / 1024 + 20) / 80)) / 1000
    assert tight.fraction < 0.69
    raised = choose(case_of(112.59, 54.84, "unified", 124610, "qwen3-30b-a3b", 12), proven=0.73)
    assert raised.fraction == 0.73


def test_an_unknown_capacity_is_never_given_the_value_that_sglang_takes() -> None:
    choice = choose(case_of(40.0, 24.0, mib=None))
    assert choice.fraction is not None
    assert choice.fraction < 0.95
    assert choice.source == "explicit"
    assert any("unknown" in text for text in choice.warnings)


def test_a_proven_value_is_above_the_automatic_one() -> None:
    case = case_of(139.22, 123.85)
    assert choose(case, proven=0.923).fraction == 0.923
    assert choose(case, proven=0.923).source == "proven"
    assert choose(case, proven=0.8).fraction == 0.903


def test_recurrent_state_is_part_of_the_window() -> None:
    case = case_of(139, 60, model="qwen3-next-80b-a3b", tp_size=2, wanted_tokens=100_000)
    bounds = fraction_choice.feasible_window(case)
    assert any(share.name == "state" for share in bounds.inside)
    assert case.pool(bounds.low).tokens >= 100_000
    assert case.pool(bounds.low - 0.001).tokens < 100_000


def test_what_is_not_known_is_said() -> None:
    assumed = choose(case_of(139.22, 123.85, version="0.5.99"))
    assert any("0.5.23 is assumed" in text for text in assumed.warnings)


def test_a_choice_is_kept_until_an_input_changes() -> None:
    inputs = [{"total_mib": 81559}, {"layers": 36}, {"tp-size": 1}, "0.5.22", "choose"]
    key = inputs_key(*inputs)
    assert key == inputs_key({"total_mib": 81559}, {"layers": 36}, {"tp-size": 1}, "0.5.22", "choose")
    for position, other in enumerate([{"total_mib": 1}, {"layers": 1}, {"tp-size": 2}, "0.5.23", "auto"]):
        changed = list(inputs)
        changed[position] = other
        assert inputs_key(*changed) != key


@pytest.mark.parametrize("word", ["neighbours_may_take_gib", "host_reserve_gib", "needed_outside_gib"])
def test_impossible_sizes(word: str) -> None:
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(PoolError, match=word):
            Machine("shared", Memory(10, 5), **{word: value})
    with pytest.raises(PoolError, match="machine kind"):
        Machine("rented", Memory(10, 5))


def test_a_window_begins_above_its_exact_bound() -> None:
    bounds = window(10.0, [Share("weights", 5.0)], [Share("outside", 1.0)])
    assert (bounds.low_exact, bounds.low, bounds.high) == (0.5, 0.501, 0.9)
    assert bounds.text() == "fractions from 0.501 to 0.900 can work"
    assert not window(10.0, [Share("weights", 9.0)], [Share("outside", 1.0)]).feasible


memories = st.tuples(st.floats(1, 300), st.floats(0, 1)).map(lambda pair: (pair[0], pair[0] * pair[1]))
names = st.sampled_from(sorted(MODELS))
kinds = st.sampled_from(fraction_choice.KINDS)
ranks = st.sampled_from([1, 2, 4])


def fits(model: str, tp: int) -> None:
    assume((MODELS[model].heads or 1) % tp == 0)


@settings(max_examples=150, deadline=None)
@given(memories, st.floats(0.01, 0.99), names, ranks, st.floats(0, 50))
def test_more_memory_never_gives_fewer_tokens(
    memory: tuple[float, float], fraction: float, model: str, tp: int, more: float
) -> None:
    fits(model, tp)
    before, after = memory
    fewer = case_of(before, after, model=model, tp_size=tp).pool(fraction)
    further = case_of(before + more, after + more, model=model, tp_size=tp).pool(fraction)
    # With recurrent layers SGLang's own division goes in whole state slots: one more slot may cost its size in tokens.
    slot = state_bytes(MODELS[model], read_arguments({"tp_size": tp})) // max(1, int(fewer.cell.token_bytes)) + 1
    allowed = slot if MODELS[model].recurrent is not None else 0
    assert further.tokens >= fewer.tokens - allowed
    lighter = case_of(before, min(before, after + more), model=model, tp_size=tp).pool(fraction)
    assert lighter.tokens >= fewer.tokens - allowed


@settings(max_examples=150, deadline=None)
@given(memories, names, ranks, kinds, st.floats(0, 20), st.floats(2000, 300000), st.integers(0, 200_000))
def test_a_choice_lies_in_its_window_and_sglang_accepts_all_of_it(
    memory: tuple[float, float], model: str, tp: int, kind: str, may_take: float, mib: float, wanted: int
) -> None:
    fits(model, tp)
    case = case_of(*memory, kind, mib, model, 9, tp_size=tp, neighbours_may_take_gib=may_take, wanted_tokens=wanted)
    choice = choose(case)
    bounds = choice.window
    if choice.fraction is None:
        assert not bounds.feasible
        assert bounds.missing_gib >= 0
        return
    assert bounds.holds(choice.fraction)
    assert choice.pool is not None
    for fraction in {bounds.low, (bounds.low + bounds.high) / 2, bounds.high, choice.fraction}:
        pool = case.pool(fraction)
        assert pool.feasible, (fraction, pool.problem)
        assert pool.tokens >= wanted or fraction != bounds.low


@settings(max_examples=100, deadline=None)
@given(memories, names, st.floats(0.01, 0.98))
def test_a_larger_fraction_never_gives_fewer_tokens(memory: tuple[float, float], model: str, fraction: float) -> None:
    assume(MODELS[model].recurrent is None)
    case = case_of(*memory, model=model)
    assert case.pool(min(0.99, fraction + 0.01)).tokens >= case.pool(fraction).tokens


@settings(max_examples=100, deadline=None)
@given(memories, names, st.floats(0.01, 0.99))
def test_sglangs_minimum_agrees_with_the_prediction(memory: tuple[float, float], model: str, fraction: float) -> None:
    pool = case_of(*memory, model=model).pool(fraction)
    if fraction < kv_pool.smallest_fraction(Memory(*memory))[0] - 1e-9:
        assert not pool.feasible


def test_a_capped_pool_leaves_what_it_does_not_take() -> None:
    free = case_of(60.0, 44.0, "shared", 81559, neighbours_may_take_gib=4.0)
    capped = case_of(60.0, 44.0, "shared", 81559, neighbours_may_take_gib=4.0, max_total_tokens=50_000)
    choice = choose(capped)
    assert choice.fraction is not None
    assert choice.fraction < (choose(free).fraction or 0)
    assert capped.pool(choice.fraction).tokens == 50_000
    assert capped.pool(choice.fraction - 0.021).tokens < 50_000 <= capped.pool(choice.fraction - 0.02).tokens
    assert choice.window.holds(0.95)
    too_much = case_of(60.0, 44.0, "shared", 81559, neighbours_may_take_gib=4.0, max_total_tokens=500_000)
    assert not fraction_choice.feasible_window(too_much).holds(0.95)
