"""Plans as the module mem_fraction makes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import fraction_plan
from ansible_collections.serving.sglang.plugins.module_utils.kv_cell import PoolError
from ansible_collections.serving.sglang.plugins.module_utils.memory_arguments import ArgumentError
from ansible_collections.serving.sglang.plugins.module_utils.model_config import ModelError

TESTS = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TESTS))
import references  # noqa: E402

GIB = 1 << 30


def params(name: str = "qwen3-8b", **more: Any) -> dict[str, Any]:
    return {
        "model": str(references.MODELS / name),
        "version": "0.5.22",
        "arguments": {},
        "environment": {},
        "mem_fraction": "choose",
        "capacity_mib": 143771.0,
        "compute_major": 9,
        "request_tokens": [2048],
        **more,
    }


def plan(name: str = "qwen3-8b", **more: Any) -> dict[str, Any]:
    return fraction_plan.from_params(params(name, **more))


def readings(*cards: dict[str, Any], **host: int) -> dict[str, Any]:
    return {
        "cards": [{"index": number, "uuid": f"GPU-{number}", **card} for number, card in enumerate(cards)],
        "host": {"total_bytes": 128 * GIB, "available_bytes": 120 * GIB, **host},
        "smi_totals": [str(card.get("total_mib", "[N/A]")) for card in cards],
    }


L40S = {"name": "NVIDIA L40S", "total_mib": 46068.0, "free_mib": 45400.0, "compute_capability": "8.9"}


def test_a_plan_is_plain_data_and_says_everything() -> None:
    result = json.loads(json.dumps(plan()))
    assert (result["fraction"], result["feasible"], result["source"]) == (0.903, True, "automatic")
    assert len(result["lines"]) == 3
    assert result["automatic"]["terms"][1]["name"] == "activations"
    assert result["prediction"]["requests"] == {"2048": 392}
    assert [candidate["fraction"] for candidate in result["candidates"]] == [0.863, 0.883, 0.903, 0.923, 0.943]
    assert result["estimate"]["measured"] is False
    assert result["model"]["weights_source"].startswith("estimated")
    assert result["warnings_found"] == []


def test_measured_memory_replaces_the_estimate() -> None:
    result = plan(before_gib=139.22, after_gib=123.85)
    assert result["estimate"]["measured"]
    assert result["prediction"]["max_total_num_tokens"] == pytest.approx(803502, rel=0.0002)


def test_numbers_and_auto() -> None:
    assert plan(mem_fraction=0.7)["source"] == "given"
    assert plan(mem_fraction="0.7")["fraction"] == 0.7
    assert plan(mem_fraction="auto")["source"] == "auto"
    assert plan(arguments={"mem-fraction-static": 0.6})["fraction"] == 0.6
    low = plan(mem_fraction=0.05)
    assert not low["feasible"]
    assert low["prediction"]["asks_above"] == 0.11
    assert any("outside of what can work" in text for text in low["warnings_found"])


def test_a_choice_is_kept_by_its_inputs() -> None:
    first = plan(kind="shared", free_mib=100_000.0)
    moved = plan(kind="shared", free_mib=80_000.0, kept=first)
    assert moved["kept"]
    assert moved["fraction"] == first["fraction"]
    assert plan(kind="shared", free_mib=80_000.0)["fraction"] < first["fraction"]
    other = plan(kind="shared", free_mib=80_000.0, kept=first, arguments={"tp-size": 2})
    assert not other["kept"]
    full = plan(kind="shared", free_mib=35_000.0, kept=first)
    assert any("is kept" in text for text in full["warnings_found"])


def test_readings_of_the_host() -> None:
    result = plan(capacity_mib=None, compute_major=None, readings=readings(L40S))
    assert result["capacity"]["mib"] == 46068
    assert result["capacity"]["compute_major"] == 8
    assert result["fraction"] == 0.843
    shared = plan(
        capacity_mib=None,
        readings=readings({**L40S, "free_mib": 33000.0, "processes": [{"pid": 7, "name": "x", "used_mib": 12000.0}]}),
    )
    assert shared["kind"]["kind"] == "shared"
    assert shared["fraction"] < 0.843
    assert [finding["id"] for finding in shared["findings"]] == ["memory.foreign_process"]
    second = plan(capacity_mib=None, readings=readings({**L40S, "free_mib": 3000.0}, L40S), cards=["GPU-1"])
    assert second["feasible"]


def test_unbalanced_ranks_are_found() -> None:
    result = plan(
        capacity_mib=None,
        readings=readings(L40S, {**L40S, "free_mib": 30000.0}),
        arguments={"tp-size": 2},
        kind="dedicated",
    )
    assert "memory.unbalanced_cards" in [finding["id"] for finding in result["findings"]]


def test_unified_memory() -> None:
    result = plan(
        "qwen3-30b-a3b",
        capacity_mib=None,
        compute_major=None,
        readings={
            **readings(
                {"name": "NVIDIA GB10", "memory_status": "not_supported", "compute_capability": "12.1"},
                total_bytes=130663165952,
                available_bytes=int(112.59 * GIB),
                free_bytes=40 * GIB,
            ),
            "cuda_totals_mib": [124610.0],
        },
        shm_gib=64.0,
    )
    assert result["kind"]["kind"] == "unified"
    assert (result["fraction"], result["automatic"]["fraction"]) == (0.69, 0.888)
    assert {finding["id"] for finding in result["findings"]} == {"memory.page_cache", "memory.shm_same_pool"}


def test_the_own_servers_memory_is_not_counted_against_it() -> None:
    used = {"pid": 7, "name": "sglang", "used_mib": 30000.0, "ours": True}
    busy = plan(capacity_mib=None, readings=readings({**L40S, "free_mib": 15400.0, "processes": [used]}))
    free = plan(capacity_mib=None, readings=readings(L40S))
    assert busy["fraction"] == free["fraction"]
    assert busy["prediction"]["max_total_num_tokens"] == free["prediction"]["max_total_num_tokens"]


def test_a_mac() -> None:
    given = {"platform": "mps", "environment": {"SGLANG_USE_MLX": "1"}, "capacity_mib": 53043.0, "free_mib": 28477.0}
    chosen = plan("qwen3-8b", weights_gib=0.31, **given)
    assert chosen["feasible"]
    assert chosen["fraction"] < 0.69
    assert chosen["automatic"]["fraction"] == 0.871
    assert "SGLang's own value is 0.871, which leaves 3.59 GiB" in chosen["lines"][0]
    auto = plan("qwen3-8b", weights_gib=0.31, mem_fraction="auto", **given)
    assert auto["fraction"] == 0.871
    assert any("outside of what can work" in text for text in auto["warnings_found"])
    too_small = plan("qwen3-8b", weights_gib=0.31, **{**given, "free_mib": 8000.0})
    assert too_small["fraction"] is None
    with pytest.raises(PoolError, match="Metal's limit"):
        plan("qwen3-8b", platform="mps", environment={"SGLANG_USE_MLX": "1"})


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"mem_fraction": 1.0}, PoolError, "1.0 is not between"),
        ({"mem_fraction": "most"}, PoolError, "neither auto"),
        ({"capacity_mib": -5.0}, PoolError, "capacity_mib"),
        ({"capacity_mib": float("nan")}, PoolError, "capacity_mib"),
        ({"weights_gib": float("inf")}, PoolError, "weights_gib"),
        ({"wanted_tokens": -1}, PoolError, "wanted_tokens"),
        ({"request_tokens": [0]}, PoolError, "request_tokens"),
        ({"arguments": {"tp-size": 3}}, PoolError, "num_attention_heads is 32"),
        ({"arguments": {"tp-size": "two"}}, ArgumentError, "--tp-size"),
        ({"model": "/nowhere"}, ModelError, "/nowhere/config.json"),
        ({"capacity_mib": 8192.0}, PoolError, "the model does not fit"),
        ({"capacity_mib": None, "free_mib": None}, PoolError, "neither the capacity nor the free memory"),
        ({"readings": readings(L40S), "cards": [5]}, PoolError, "5 is not among the cards"),
        ({"before_gib": 10.0, "after_gib": 12.0}, PoolError, "more than before"),
        ({"neighbours_may_take_gib": float("nan")}, PoolError, "neighbours_may_take_gib"),
    ],
)
def test_bad_input_is_named(more: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        fraction_plan.from_params({**params(), **more})


def test_host_memory() -> None:
    assert plan()["host_memory"] == {"pinned_gib": 0, "warm_gib": 2.9, "cold_gib": 3.5, "compiling_gib": 24.5}
    cached = plan(mem_fraction=0.2, arguments={"enable-hierarchical-cache": True, "cpu-offload-gb": 4})
    pool_gib = cached["prediction"]["pool_gib"]
    assert cached["host_memory"]["pinned_gib"] == pytest.approx(2 * pool_gib + 4, abs=0.01)
    sized = plan(arguments={"enable-hierarchical-cache": True, "hicache-size": 20, "tp-size": 4})
    assert sized["host_memory"]["pinned_gib"] == 80


def test_an_unknown_architecture_returns_what_is_certain(tmp_path: Path) -> None:
    config = json.loads((references.MODELS / "qwen3-8b" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["NewForCausalLM"]}), encoding="utf-8")
    given = params(model=str(tmp_path))
    result = fraction_plan.from_params(given)
    assert (result["fraction"], result["feasible"], result["prediction"]) == (0.903, None, None)
    assert "NewForCausalLM" in result["lines"][1]
    assert not result["model"]["known"]
    assert result["model"]["context_length"] == 40960
    shared = fraction_plan.from_params({**given, "kind": "shared"})
    assert shared["fraction"] is None
    assert fraction_plan.from_params({**given, "kind": "shared", "mem_fraction": 0.5})["fraction"] == 0.5
