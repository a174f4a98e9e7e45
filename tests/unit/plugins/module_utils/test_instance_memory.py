"""The memory part of the desired state: made once, kept, made again, and compared with what a server measured."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import instance_memory, pool_check
from ansible_collections.serving.sglang.plugins.module_utils.instance_memory import plan_instances
from ansible_collections.serving.sglang.plugins.module_utils.machine import Card, Host, Readings
from ansible_collections.serving.sglang.plugins.module_utils.spec import Host as SpecHost
from ansible_collections.serving.sglang.plugins.module_utils.spec import resolve, wishes

TESTS = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TESTS))
import references  # noqa: E402

GIB = 1 << 30
CARD = Card(0, uuid="GPU-a", name="NVIDIA H200", total_mib=143771.0, free_mib=143156.0, compute_capability="9.0")
READINGS = Readings("nvml", (CARD,), Host(128 * GIB, 120 * GIB), smi_totals=("143771",))
HOST = SpecHost("h1", "10.0.0.1")


@pytest.fixture
def desired_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(instance_memory, "path_of", lambda instance: str(tmp_path / f"{instance}.json"))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(references.MODELS / "qwen3-8b", tmp_path / "model")
    return tmp_path / "model"


def declared(model: Path | str, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "main",
            "model": str(model),
            "port": 30000,
            "version": "0.5.22",
            "cards": [0],
            "output_cap_tokens": 1000,
            "slowest_tokens_per_s": 20.0,
            **more,
        }
    ]


def run(instances: list[dict[str, Any]], folder: Path, readings: Readings = READINGS, again: bool = False) -> Any:
    """What server_spec does: resolve, plan, resolve again; and what the role does: write the file."""
    first = resolve(instances, {}, HOST)
    assert first.problems == []
    planned = plan_instances([one.desired for one in first.instances], wishes(instances, {}), again, lambda: readings)
    if planned.problems:
        return planned
    (second,) = resolve(instances, {}, HOST, planned.parts).instances
    (folder / "main.json").write_text(json.dumps(second.desired), encoding="utf-8")
    return second.desired


def test_auto_says_what_sglang_will_do_and_passes_nothing(desired_dir: Path, model: Path) -> None:
    desired = run(declared(model), desired_dir)
    memory = desired["memory"]
    assert (memory["policy"], memory["fraction"], memory["argument"]) == ("auto", 0.903, None)
    assert "mem-fraction-static" not in desired["args"]
    assert memory["prediction"]["max_total_num_tokens"] == pytest.approx(803_500, rel=0.001)
    assert len(memory["lines"]) == 3
    assert memory["binding"]
    assert {reason["name"] for reason in memory["reasons"]} >= {"before", "after", "slack"}


@pytest.mark.parametrize(("policy", "value"), [("choose", 0.903), (0.8, 0.8), ("0.75", 0.75)])
def test_a_chosen_or_given_fraction_is_passed(desired_dir: Path, model: Path, policy: Any, value: float) -> None:
    desired = run(declared(model, mem_fraction=policy), desired_dir)
    assert desired["args"]["mem-fraction-static"] == value
    assert desired["argv"][desired["argv"].index("--mem-fraction-static") + 1] == str(value)


def test_a_second_run_changes_nothing_although_free_memory_has_moved(desired_dir: Path, model: Path) -> None:
    instances = declared(model, mem_fraction="choose", memory={"kind": "shared"})
    first = run(instances, desired_dir)
    busy = replace(READINGS, cards=(replace(CARD, free_mib=60000.0),))
    assert run(instances, desired_dir, busy) == first
    assert (
        run(declared(model, mem_fraction="choose", memory={"kind": "shared"}, port=30001), desired_dir, busy)["memory"]
        == first["memory"]
    ), "a port has no bearing"
    assert run(instances, desired_dir, busy, again=True)["memory"]["fraction"] < first["memory"]["fraction"]


@pytest.mark.parametrize("change", ["arguments", "version", "model", "card", "policy", "options"])
def test_a_choice_is_made_anew_when_an_input_changes(desired_dir: Path, model: Path, change: str) -> None:
    first = run(declared(model, mem_fraction="choose"), desired_dir)
    more: dict[str, Any] = {"mem_fraction": "choose"}
    readings = READINGS
    if change == "arguments":
        more["arguments"] = {"chunked-prefill-size": 4096}
    elif change == "version":
        more["version"] = "0.5.23"
    elif change == "model":
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 40}), encoding="utf-8")
    elif change == "card":
        readings = replace(READINGS, cards=(replace(CARD, total_mib=81559.0),), smi_totals=("81559",))
    elif change == "policy":
        more["mem_fraction"] = 0.8
    else:
        more["memory"] = {"wanted_tokens": 1000}
    assert run(declared(model, **more), desired_dir, readings)["memory"]["inputs_key"] != first["memory"]["inputs_key"]


def test_what_cannot_be_planned_stops_a_choice_and_not_sglangs_own(desired_dir: Path, model: Path) -> None:
    hub = run(declared("Qwen/Qwen3-8B"), desired_dir)
    assert hub["memory"]["fraction"] is None
    assert "no folder on this host" in hub["memory"]["problem"]
    refused = run(declared("Qwen/Qwen3-8B", mem_fraction="choose"), desired_dir)
    assert "instance 'main': mem_fraction choose" in refused.problems[0]
    small = replace(READINGS, cards=(replace(CARD, total_mib=15360.0, free_mib=14900.0),), smi_totals=("15360",))
    too_small = run(declared(model, mem_fraction="choose"), desired_dir, small)
    assert "does not fit" in too_small.problems[0]
    broken = replace(READINGS, cards=(replace(CARD, problem="lost: fell off the bus"),))
    assert "machine kind cannot be told" in run(declared(model, mem_fraction="choose"), desired_dir, broken).problems[0]
    outside = run(declared(model, mem_fraction=1.5), desired_dir)
    assert "1.5 is not between 0 and 1" in outside.problems[0]


def test_two_ways_to_say_it_are_one_too_many(model: Path) -> None:
    both = declared(model, mem_fraction="choose", arguments={"mem-fraction-static": 0.8})
    assert any("Keep one of them" in problem for problem in resolve(both, {}, HOST).problems)
    one = declared(model, arguments={"mem-fraction-static": 0.8})
    assert resolve(one, {}, HOST).problems == []


def test_a_cpu_server_is_planned_and_not_held_to_it(desired_dir: Path, model: Path) -> None:
    instances = declared(model, cards=None, arguments={"device": "cpu"}, environment={"SGLANG_USE_CPU_ENGINE": "1"})
    desired = run(instances, desired_dir, Readings("none", (), Host(64 * GIB, 60 * GIB)))
    assert desired["memory"]["kind"] == "unified"
    assert not desired["memory"]["binding"]


MEMORY = {"fraction": 0.9, "binding": True, "prediction": {"max_total_num_tokens": 500_000}}


@pytest.mark.parametrize(
    ("memory", "measured", "fits", "said"),
    [
        (MEMORY, 495_000, True, ""),
        (MEMORY, 600_000, True, ""),
        (MEMORY, 400_000, True, "500000 were predicted"),
        (MEMORY, 1741, False, "Memory was held elsewhere"),
        ({**MEMORY, "binding": False}, 1741, True, "1741 tokens"),
        (None, 1741, True, ""),
        ({"prediction": None}, 1741, True, ""),
        (MEMORY, None, True, ""),
    ],
)
def test_the_measured_pool_is_compared(memory: Any, measured: int | None, fits: bool, said: str) -> None:
    answer, text = pool_check.compare(memory, measured)
    assert answer is fits
    assert said in text
    assert bool(text) is bool(said)


def test_a_given_number_is_refused_only_when_no_pool_follows(desired_dir: Path, model: Path) -> None:
    l4 = Card(0, uuid="GPU-b", name="NVIDIA L4", total_mib=23034.0, free_mib=22560.0, compute_capability="8.9")
    small = replace(READINGS, cards=(l4,), smi_totals=("23034",))
    works = run(declared(model, mem_fraction=0.9), desired_dir, small)
    assert works["args"]["mem-fraction-static"] == 0.9
    assert any("outside of what can work" in text for text in works["memory"]["warnings"])
    refused = run(declared(model, mem_fraction=0.5), desired_dir, small)
    assert "no pool" in refused.problems[0]
    none = run(declared(model, mem_fraction="choose"), desired_dir, small)
    assert "no feasible fraction" in none.problems[0]
    assert "--chunked-prefill-size 2048" in none.problems[0]


def test_an_unknown_architecture_is_deployed_and_not_chosen_for(desired_dir: Path, model: Path) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "architectures": ["NewForCausalLM"]}), encoding="utf-8")
    auto = run(declared(model), desired_dir)
    assert auto["memory"]["fraction"] == 0.903
    assert not auto["memory"]["binding"]
    shared = run(declared(model, mem_fraction="choose", memory={"kind": "shared"}), desired_dir)
    assert "NewForCausalLM" in shared.problems[0]


def test_a_configuration_that_is_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert len(instance_memory._fingerprint(str(tmp_path))) == 16
