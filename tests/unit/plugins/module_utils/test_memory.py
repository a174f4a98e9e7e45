"""The automatic fraction against SGLang's own answers, and the parts of the rule that those do not reach."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.memory import (
    TIERS,
    Capacity,
    ModelTraits,
    automatic_fraction,
    prefill_shapes,
)
from ansible_collections.serving.sglang.plugins.module_utils.memory_arguments import ArgumentError, read_arguments
from ansible_collections.serving.sglang.plugins.module_utils.memory_releases import memory_release_for

TESTS = Path(__file__).resolve().parents[3]
DATA = TESTS / "data"
sys.path.insert(0, str(TESTS))
import golden  # noqa: E402
import references  # noqa: E402

REFERENCES = sorted(DATA.glob("memory_reference_*.jsonl"))


def fraction(mib: float | None = 81559.0, version: str = "0.5.22", **given: Any) -> Any:
    traits = given.pop("traits", ModelTraits())
    environment = given.pop("environment", None)
    major = 9 if given.pop("hopper", False) else None
    capacity = Capacity(mib, platform=given.pop("platform", "cuda"), compute_major=major)
    return automatic_fraction(
        capacity, read_arguments(given, environment, version), traits, memory_release_for(version)
    )


def terms(answer: Any) -> dict[str, float]:
    return {term.name: term.mib for term in answer.terms}


def with_aiter(answer: Any) -> bool:
    return any(factor.name == "aiter" for factor in answer.factors)


def test_every_golden_row_is_equal() -> None:
    with (DATA / "mem_fraction_matrix.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 1720
    assert [row for row in rows if golden.differences(row)] == []


@pytest.mark.parametrize("file", REFERENCES, ids=lambda path: path.stem)
def test_every_answer_of_sglangs_own_code_is_equal(file: Path) -> None:
    wrong = []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 300
    for row in rows:
        model, _config = references.model_named(row["model"], row["version"])
        arguments = {name.replace("ep_join_mode", "elastic_ep_join_mode"): v for name, v in row["arguments"].items()}
        arguments["model_path"] = "/models/Llama-2-7b" if row["llama_2_path"] else "/models/other"
        answer = fraction(
            row["capacity_mib"],
            row["version"],
            traits=model.traits,
            environment=row["environment"],
            platform=row["platform"],
            hopper=row["hopper"],
            **arguments,
        )
        ours = {
            "fraction": answer.value,
            "chunked_prefill_size": answer.chunked_prefill_size,
            "decode": [answer.decode.backend, answer.decode.max_bs],
            "prefill": [answer.prefill.backend, answer.prefill.max_bs, len(answer.prefill.shapes)],
        }
        # The reference ends before the attention backend is chosen.
        ours["fraction"] = answer.value if not with_aiter(answer) else row["fraction"]
        if with_aiter(answer):
            assert answer.value == row["fraction"] * 0.85
        different = {key: (row[key], value) for key, value in ours.items() if row[key] != value}
        if different:
            wrong.append((different, row))
    assert wrong == []


def test_the_documented_sum_of_an_h100() -> None:
    answer = fraction(81559)
    assert answer.value == 0.83
    assert answer.reserve_mib == 13904
    assert terms(answer) == {
        "constant": 512,
        "activations": 12288,
        "parallel": 128,
        "decode_graphs": 512,
        "prefill_graphs": 464,
    }


@pytest.mark.parametrize(
    ("mib", "chunk", "few", "many"), [(t.below_mib - 1, t.chunk, t.few, t.many) for t in TIERS[:-1]]
)
def test_a_tier_ends_below_its_limit(mib: float, chunk: int, few: int, many: int) -> None:
    below = fraction(mib)
    assert (below.chunked_prefill_size, below.decode.max_bs) == (chunk, few)
    assert fraction(mib, tp_size=4).decode.max_bs == many
    above = fraction(mib + 1)
    following = TIERS[[tier.below_mib for tier in TIERS].index(mib + 1) + 1]
    assert (above.chunked_prefill_size, above.decode.max_bs) == (following.chunk, following.few)


def test_an_unknown_capacity_reserves_nothing() -> None:
    answer = fraction(None)
    assert answer.value == 0.95
    assert answer.terms == ()
    assert answer.outside_mib is None
    assert "unknown" in answer.notes[0]


def test_the_floor_is_strict_and_the_tier_is_not() -> None:
    assert "floor" not in terms(fraction(61440, chunked_prefill_size=512))
    assert terms(fraction(61441, chunked_prefill_size=512))["floor"] > 0


def test_deepep_and_xpu_come_on_top_of_the_floor() -> None:
    answer = fraction(81920, chunked_prefill_size=512, moe_a2a_backend="deepep", tp_size=8)
    assert answer.reserve_mib == 10240 + 2048
    assert fraction(81920, platform="xpu", chunked_prefill_size=512).reserve_mib == 10240 + 2048


def test_a_joiner_pays_for_attention_dp_at_width_one() -> None:
    assert terms(fraction(elastic_ep_join_mode="scale"))["attention_dp"] == 3 * 256


@pytest.mark.parametrize(
    ("maximum", "count"), [(2048, 42), (4096, 50), (8192, 58), (16384, 74), (5000, 51), (5120, 52), (-1, 0)]
)
def test_prefill_shapes(maximum: int, count: int) -> None:
    assert len(prefill_shapes(maximum)) == count


def test_mla_shapes_differ_by_release_and_the_fraction_does_not() -> None:
    latent = ModelTraits(mla=True)
    old, new = fraction(traits=latent), fraction(traits=latent, version="0.5.23")
    assert (old.prefill.max_bs, new.prefill.max_bs) == (2048, 8192)
    assert old.value == new.value


def test_llama_2_by_its_path() -> None:
    assert fraction(model_path="/models/LLAMA-2-70b").prefill.max_bs == 4096


def test_aiter_also_shrinks_a_given_fraction() -> None:
    long, short = ModelTraits(context_length=8193), ModelTraits(context_length=8192)
    assert fraction(196592, platform="hip", traits=short).factors == ()
    assert (
        fraction(196592, platform="hip", traits=long).value
        == fraction(196592, platform="hip", traits=short).value * 0.85
    )
    given = {"mem_fraction_static": 0.8, "traits": long, "platform": "hip"}
    assert fraction(**given).value == 0.8 * 0.85
    assert fraction(**given, environment={"SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION": "1"}).value == 0.8
    assert fraction(**given, attention_backend="triton").value == 0.8
    assert fraction(**given, context_length=4096).value == 0.8
    assert fraction(0.9 * 81559, attention_backend="aiter", traits=long).factors[-1].name == "aiter"


@pytest.mark.parametrize(("heads", "tp", "factor"), [(128, 1, 0.85), (128, 8, 0.85), (128, 2, 1), (64, 4, 0.85)])
def test_aiter_of_an_mla_model_depends_on_its_heads(heads: int, tp: int, factor: float) -> None:
    traits = ModelTraits(mla=True, kv_heads=heads, context_length=163840)
    with_tp = fraction(196592, platform="hip", traits=traits, tp_size=tp)
    without = fraction(196592, platform="hip", traits=traits, tp_size=tp, attention_backend="triton")
    assert with_tp.value == (without.value * factor if factor != 1 else without.value)


def test_sharded_kv_pays_for_the_tokens_of_its_last_page() -> None:
    given = {"enable_kv_cache_sharding": True, "disaggregation_mode": "prefill", "page_size": 64}
    even = fraction(**given, chunked_prefill_size=8192, tp_size=8)
    odd = fraction(**given, chunked_prefill_size=8200, tp_size=8)
    base = fraction(disaggregation_mode="prefill", chunked_prefill_size=8200, tp_size=8)
    assert even.factors == ()
    assert odd.value == base.value - 1.5 * 56 / 81559
    small = fraction(**given, chunked_prefill_size=1000, tp_size=8)
    assert small.factors == ()


def test_npu_defaults_come_first_and_ignore_the_running_limit() -> None:
    answer = fraction(32 * 1024, platform="npu", max_running_requests=3)
    assert (answer.chunked_prefill_size, answer.decode.max_bs) == (4096, 16)
    assert fraction(64 * 1024, platform="npu", tp_size=4).decode.max_bs == 256
    assert fraction(64 * 1024 + 1, platform="npu", max_running_requests=3).decode.max_bs == 3


def test_a_cpu_takes_its_graph_size_from_torch_compile() -> None:
    assert fraction(24376, platform="cpu").value == 0.719
    assert fraction(24376, platform="cpu", cuda_graph_bs_decode=[3, 70]).decode.max_bs == 70


def test_apple_from_the_metal_limit() -> None:
    assert fraction(53043, platform="mps", disable_cuda_graph=True).value == 0.872
    assert fraction(53043, platform="mps").value == 0.871


def test_muse_spark_sizes_after_capture_by_itself() -> None:
    muse = ModelTraits(architecture="MuseSparkForConditionalGeneration", multimodal=True)
    assert fraction(81920, "0.5.23", traits=muse).post_capture
    assert not fraction(81920, "0.5.22", traits=muse).post_capture
    off = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "0"}
    assert not fraction(81920, "0.5.23", traits=muse, environment=off).post_capture


def test_an_unknown_release_is_marked() -> None:
    assert fraction(version="0.5.99").assumed
    assert fraction(version="0.5.99").release == "0.5.23"
    assert fraction(version="0.5.17").release == "0.5.22"
    assert not fraction(version="0.5.22").assumed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mem_fraction_static": 1.0}, "--mem-fraction-static: 1.0"),
        ({"mem_fraction_static": 0}, "--mem-fraction-static: 0"),
        ({"mem_fraction_static": "nan"}, "finite"),
        ({"mem_fraction_static": "much"}, "not a number"),
        ({"tp_size": 0}, "--tp-size: 0 is below 1"),
        ({"tp_size": True}, "--tp-size"),
        ({"tp_size": 4, "attn_dp_size": 3}, "not a multiple"),
        ({"max_total_tokens": "1.5Ki"}, "no decimals"),
        ({"disaggregation_mode": "both"}, "--disaggregation-mode"),
        ({"cuda_graph_config": "{"}, "not JSON"),
        ({"cuda_graph_config": {"warmup": {}}}, "--cuda-graph-config"),
        ({"cuda_graph_backend_prefill": "tc_piecewise"}, "tc_piecewise"),
        ({"swa_full_tokens_ratio": -1}, "negative"),
    ],
)
def test_bad_arguments_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said.replace("(", r"\(")):
        read_arguments(given)


def test_spelling_of_arguments() -> None:
    same = [
        read_arguments({"mem-fraction-static": "0.7", "tensor-parallel-size": 2}, version="0.5.22"),
        read_arguments({"mem_fraction_static": 0.7, "tp_size": "2"}),
        read_arguments({"--mem-fraction-static": 0.7, "--tp-size": 2, "--host": "::"}),
    ]
    assert same[0] == same[1] == same[2]
    assert read_arguments({"max_total_tokens": "25.6k"}).max_total_tokens == 25600
    assert read_arguments({"context_length": "32Ki"}).context_length == 32768


@pytest.mark.parametrize("mib", [0, -1, float("nan"), float("inf")])
def test_a_capacity_is_a_positive_number(mib: float) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Capacity(mib)


def test_dwdp_is_attention_dp_without_graphs() -> None:
    answer = fraction(tp_size=8, dwdp_size=4, moe_a2a_backend="deepep")
    assert not answer.decode.on
    assert not answer.prefill.on
    assert terms(answer)["attention_dp"] == 3 * 512 * 4
    assert "deepep_decode" not in terms(answer)


def test_the_megamoe_runner_is_its_own_all_to_all() -> None:
    assert fraction(tp_size=8, moe_runner_backend="megamoe", moe_a2a_backend="mori").prefill.on
    assert not fraction(tp_size=8, moe_a2a_backend="mori").prefill.on


def test_a_models_own_prefill_graph_outranks_only_the_flag_for_all() -> None:
    inkling = ModelTraits(architecture="InklingForConditionalGeneration", multimodal=True)
    assert fraction(traits=inkling).prefill.backend == "full"
    assert fraction(traits=inkling, disable_cuda_graph=True).prefill.backend == "full"
    assert fraction(traits=inkling, disaggregation_mode="decode").prefill.backend == "full"
    assert fraction(traits=inkling, disable_prefill_cuda_graph=True).prefill.backend == "disabled"
    assert fraction(traits=inkling, cuda_graph_backend_prefill="breakable").prefill.backend == "breakable"
    glimmer = ModelTraits(architecture="MuseGlimmerForCausalLM")
    assert fraction(traits=glimmer).prefill.max_bs == 512
