# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A preflight of one host: all areas side by side, and none that holds up the others."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import preflight, reading

FINE = {"id": "a.b", "severity": "ok", "summary": "", "evidence": "", "fix": ""}


def area(*findings: dict[str, Any], seconds: float = 0.0):
    def examine(params: Any) -> dict[str, Any]:
        time.sleep(seconds)
        return {"readings": {"given": params.get("x")}, "findings": list(findings)}

    return examine


def test_every_finding_has_its_area_and_keeps_its_instance() -> None:
    found = preflight.look(
        {"x": 1}, {"one": area(FINE), "two": area({**FINE, "severity": "error", "instance": "main"})}
    )
    assert [(one["area"], one.get("instance")) for one in found["findings"]] == [("one", None), ("two", "main")]
    assert found["readings"] == {"one": {"given": 1}, "two": {"given": 1}}
    assert found["outcome"] == "differs"


def test_the_areas_run_side_by_side() -> None:
    started = time.monotonic()
    found = preflight.look({}, {str(number): area(FINE, seconds=0.3) for number in range(6)})
    assert time.monotonic() - started < 1.0
    assert all(0.25 < seconds < 1 for seconds in found["elapsed_s"].values())


def test_a_hung_area_is_unknown_within_the_limit_and_the_others_are_there() -> None:
    never = threading.Event()
    started = time.monotonic()
    found = preflight.look({}, {"hung": lambda params: never.wait() and {}, "fine": area(FINE)}, limit_s=0.3)
    assert time.monotonic() - started < 1.5
    assert [(one["id"], one["severity"], one["area"]) for one in found["findings"]] == [
        ("preflight.not_looked_at", "unknown", "hung"),
        ("a.b", "ok", "fine"),
    ]
    assert "longer than its limit of 0.3 s" in found["findings"][0]["evidence"]
    assert found["elapsed_s"]["hung"] == 0.3
    assert found["outcome"] == "unknown"
    never.set()


def test_an_area_that_breaks_is_unknown() -> None:
    def broken(params: Any) -> dict[str, Any]:
        raise KeyError("torch")

    found = preflight.look({}, {"broken": broken})
    assert found["outcome"] == "unknown"
    assert found["readings"]["broken"] == {"unknown": "reading broken failed: KeyError: 'torch'"}


def test_declarations_that_nobody_thought_of_leave_the_host(monkeypatch) -> None:
    monkeypatch.setattr(preflight, "look", lambda params: params)

    def validate(options: Any, values: Any) -> Any:
        raise RecursionError

    found = preflight.preflight({"instances": [{"name": "x"}], "defaults": {}}, validate)
    (one,) = found["declaration_findings"]
    assert (one["id"], one["severity"], one["evidence"]) == ("declaration.refused", "error", "RecursionError: ")


def test_declarations_that_could_not_be_evaluated_are_said(monkeypatch) -> None:
    monkeypatch.setattr(preflight, "look", lambda params: params)
    found = preflight.preflight({"declaration_problem": "'rack' is undefined"}, lambda options, values: (values, []))
    (one,) = found["declaration_findings"]
    assert (one["severity"], one["evidence"]) == ("error", "'rack' is undefined")
    assert found["instances"] == []


LOCK = {"path": "locks/0.5.22.txt", "version": "0.5.22", "sha256": "ab" * 32, "problems": []}


@pytest.mark.parametrize(("locks", "said"), [([LOCK], []), ([], ["lock locks/0.5.22.txt was not read"])])
def test_a_declared_lock_is_looked_for_among_those_that_were_read(monkeypatch, locks: Any, said: list[str]) -> None:
    monkeypatch.setattr(preflight, "look", lambda params: params)
    instance = {"name": "main", "model": "Qwen/Qwen3-8B", "port": 30000, "lock": LOCK["path"]}
    params = {"instances": [instance], "defaults": {"version": "0.5.22"}, "locks": locks, "host_name": "h1"}
    found = preflight.preflight(params, lambda options, values: (values, []))
    texts = [one["summary"] for one in found["declaration_findings"]]
    assert [text for text in texts if "lock" in text] == said
    assert ("0.5.22-abababab/" in found["instances"][0]["python"]) == (not said)


@pytest.mark.parametrize(
    ("given", "limit_s", "said"),
    [
        (None, 1.0, []),
        (1, 1.0, []),
        ("4", 4.0, []),
        (100, 100.0, []),
        (0, 1.0, ["sglang_preflight_patience is 0, expected a number from 1 to 100; it was taken as 1"]),
        (101, 1.0, ["sglang_preflight_patience is 101, expected a number from 1 to 100; it was taken as 1"]),
        (True, 1.0, ["sglang_preflight_patience is True, expected a number from 1 to 100; it was taken as 1"]),
        ("nan", 1.0, ["sglang_preflight_patience is 'nan', expected a number from 1 to 100; it was taken as 1"]),
        ([2], 1.0, ["sglang_preflight_patience is [2], expected a number from 1 to 100; it was taken as 1"]),
    ],
)
def test_patience_is_a_factor_on_the_limits(monkeypatch, given: Any, limit_s: float, said: list[str]) -> None:
    monkeypatch.setattr(preflight, "look", lambda params: {**params, "limit_s": reading.patient(1.0)})
    found = preflight.preflight(
        {"instances": [], "defaults": {}, "patience": given}, lambda options, values: (values, [])
    )
    assert found["limit_s"] == limit_s
    texts = [one["summary"] for one in found["declaration_findings"]]
    assert [text for text in texts if "patience" in text] == said
    assert reading.patient(1.0) == 1.0
