# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The area memory of a preflight, on recorded cards."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import memory_area
from ansible_collections.serving.sglang.plugins.module_utils.checks.memory_area import examine
from ansible_collections.serving.sglang.plugins.module_utils.machine import Card, Host, Process, Readings

GIB = 1 << 30
HOST = Host(total_bytes=256 * GIB, available_bytes=240 * GIB)
H200 = Card(0, "GPU-a", "NVIDIA H200", total_mib=143771.0, free_mib=143000.0, used_mib=771.0, compute_capability="9.0")
L4 = Card(0, "GPU-b", "NVIDIA L4", total_mib=23034.0, free_mib=22500.0, used_mib=534.0, compute_capability="8.9")
MODELS = Path(__file__).resolve().parents[4] / "data" / "models"


def readings(*cards: Card, problems: tuple[dict[str, str], ...] = (), host: Host = HOST) -> Readings:
    totals = tuple(f"{card.total_mib:g}" for card in cards)
    return Readings("nvml" if cards else "none", cards, host, smi_totals=totals, problems=problems)


def instance(model: str, **more: Any) -> dict[str, Any]:
    path = str(MODELS / model) if not model.startswith(("/", "hub/")) else model
    desired = {
        "instance": "main",
        "version": "0.5.23",
        "model": {"path": path, "local": path.startswith("/")},
        "args": {"model-path": path, **more.pop("args", {})},
        "environment": more.pop("environment", {}),
        "cards": [0],
    }
    return {"name": "main", "desired": desired, **more}


def found(one: dict[str, Any], read: Readings) -> dict[str, str]:
    result = examine({"instances": [one]}, lambda: read, lambda: read.host)
    assert all(finding["instance"] == "main" for finding in result["findings"])
    return {finding["id"]: finding["severity"] for finding in result["findings"]}


def test_a_model_that_fits_is_fine() -> None:
    assert found(instance("qwen3-8b"), readings(H200)) == {"memory.no_pool": "ok"}


def test_a_model_that_does_not_fit_is_an_error() -> None:
    assert found(instance("glm-4.5-air"), readings(L4))["memory.no_pool"] == "error"


def test_a_neighbour_on_the_card_is_said() -> None:
    held = Process(7, "other", "somebody", 20000.0)
    card = Card(**{**H200.__dict__, "free_mib": 123000.0, "used_mib": 20771.0, "processes": (held,)})
    assert found(instance("qwen3-8b"), readings(card))["memory.foreign_process"] == "warning"


def test_a_model_on_the_hub_is_not_predicted() -> None:
    assert found(instance("hub/model"), readings(H200)) == {"memory.not_predicted": "warning"}


@pytest.mark.parametrize(
    ("model", "read", "reason"),
    [
        ("/nowhere/model", readings(H200), "there is no such file"),
        ("qwen3-8b", readings(), "no card could be asked"),
        ("qwen3-8b", readings(problems=({"text": "nvidia-smi did not end within 2 s"},)), "did not end within 2 s"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_the_reason(model: str, read: Readings, reason: str) -> None:
    (finding,) = examine({"instances": [instance(model)]}, lambda: read)["findings"]
    assert (finding["id"], finding["severity"]) == ("memory.not_predicted", "unknown")
    assert reason in finding["evidence"]


def test_on_a_processor_only_a_clear_refusal_is_said() -> None:
    one = instance("qwen3-8b", args={"device": "cpu", "max-total-tokens": 65536})
    assert found(one, readings())["memory.no_pool"] == "ok"


def test_a_fraction_that_leads_nowhere_is_an_error() -> None:
    assert found(instance("qwen3-8b", mem_fraction=0.05), readings(H200))["memory.no_pool"] == "error"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"mem_fraction": "most"}, "neither auto, choose nor a number"),
        ({"args": {"tp-size": 5}}, "which 5 ranks cannot share"),
        ({"cards": [3]}, "3 is not among the cards of the host: 0 (GPU-a)"),
    ],
)
def test_what_cannot_start_at_all_is_an_error(more: dict[str, Any], reason: str) -> None:
    one = instance("qwen3-8b", **more)
    one["desired"]["cards"] = more.get("cards", [0])
    (finding,) = examine({"instances": [one]}, lambda: readings(H200))["findings"]
    assert (finding["id"], finding["severity"]) == ("memory.no_pool", "error")
    assert reason in finding["evidence"]


def test_what_was_not_resolved_is_left_to_the_declarations() -> None:
    def read() -> Readings:
        raise AssertionError("no card need be asked")

    assert examine({"instances": [{"name": "main", "desired": None}]}, read) == {
        "readings": {"plans": {}},
        "findings": [],
    }


def broken_config(folder: Path, how: str) -> None:
    file = folder / "config.json"
    if how == "a FIFO":
        os.mkfifo(file)
    elif how == "a directory":
        file.mkdir()
    elif how == "nested too deeply":
        file.write_text("[" * 200_000)
    elif how == "more than the 16777216":
        with open(file, "wb") as stream:
            stream.truncate(20 << 30)
    elif how == "is not JSON":
        file.write_bytes(b"\xff{")
    else:
        file.write_text("[]")


@pytest.mark.parametrize(
    "how",
    ["a FIFO", "a directory", "nested too deeply", "more than the 16777216", "is not JSON", "holds a list"],
)
def test_a_configuration_that_can_never_load_is_an_error_of_that_instance_alone(tmp_path: Path, how: str) -> None:
    broken_config(tmp_path, how)
    wrong = {**instance(str(tmp_path)), "name": "wrong"}
    findings = examine({"instances": [wrong, instance("qwen3-8b")]}, lambda: readings(H200))["findings"]
    first, second = findings
    assert (first["instance"], first["id"], first["severity"]) == ("wrong", "memory.model_broken", "error")
    assert how in first["evidence"]
    assert "put the model on the host" not in first["fix"]
    assert (second["instance"], second["id"], second["severity"]) == ("main", "memory.no_pool", "ok")


def test_weights_that_are_a_pipe_are_unknown_of_that_instance(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((MODELS / "qwen3-8b" / "config.json").read_text())
    os.mkfifo(tmp_path / "model.safetensors")
    assert found(instance(str(tmp_path)), readings(H200)) == {"memory.model_broken": "error"}


def test_cards_that_do_not_answer_are_the_reason_and_no_lost_area(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_area, "CARDS_S", 0.2)
    never = threading.Event()
    (one,) = examine({"instances": [instance("qwen3-8b")]}, lambda: never.wait() and None)["findings"]  # type: ignore
    never.set()
    assert (one["id"], one["severity"]) == ("memory.not_predicted", "unknown")
    assert "nvidia-smi does not answer" in one["evidence"]


def test_on_a_processor_no_card_is_asked() -> None:
    def ask() -> Readings:
        raise AssertionError

    examine({"instances": [instance("qwen3-8b", args={"device": "cpu"})]}, ask)
