"""The table of a fleet's memory, from results of every kind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible_collections.serving.sglang.plugins.module_utils import fraction_plan, size_report

TESTS = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TESTS))
import references  # noqa: E402


def answer(name: str, capacity_mib: float) -> dict[str, Any]:
    given = {
        "model": str(references.MODELS / name),
        "version": "0.5.22",
        "mem_fraction": "choose",
        "capacity_mib": capacity_mib,
        "compute_major": 8,
        "request_tokens": [4096],
    }
    return {**fraction_plan.from_params(given), "item": {"name": "main", "model": name}}


def test_every_kind_of_result_has_its_line() -> None:
    results: dict[str, dict[str, Any]] = {
        "h100": {"results": [answer("qwen3-8b", 81559)]},
        "l4": {"results": [answer("llama-3.1-8b", 23034)]},
        "small": {"results": [{"failed": True, "msg": "does not fit", "item": {"name": "main"}}]},
        "gone": {"results": [{"skipped": True, "item": {"name": "main"}}]},
        "nothing": {},
    }
    lines = size_report.lines(results)
    assert lines[0].split()[:3] == ["host", "instance", "kind"]
    text = "\n".join(lines)
    assert "of 4096" in text
    assert "not feasible" in text
    assert "small main: does not fit" in text
    assert "gone main: the host could not be read" in text
    assert "nothing: not read" in text
    assert "l4 main: what would open it" in text
    entries = size_report.data(results)
    assert [entry["host"] for entry in entries] == list(results)
    assert entries[0]["feasible"]
    assert entries[1]["fraction"] is None
