# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a host against the argument specification of the role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.filter.preflight import FilterModule
from ansible_collections.serving.sglang.plugins.module_utils.checks import preflight

ROLE = Path(__file__).resolve().parents[5] / "roles" / "sglang_server"
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
look = FilterModule().filters()["role_variables"]


def test_the_defaults_of_the_role_are_right() -> None:
    values = {name: value for name, value in DEFAULTS.items() if "{{" not in str(value)}
    assert look(values, SPECS, list(DEFAULTS)) == {"refused": [], "unknown": []}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cuda_home", "atuo", "is auto meant?"),
        ("cuda_home", [1], "expected"),
        ("start_throttle", "lots", "is 'lots', expected a whole number"),
        ("cuda_wheels", "nvidia", "is 'nvidia', expected a list, each text"),
        ("start", "perhaps", "expected true or false"),
        ("pip_environment", "PIP_INDEX_URL=https://user:word@host", "is of type str, expected a mapping"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: Any, said: str) -> None:
    (text,) = look({f"sglang_server_{name}": value}, SPECS)["refused"]
    assert text.startswith(f"sglang_server_{name} is ")
    assert said in text
    assert "word@host" not in text


@pytest.mark.parametrize("value", ["auto", "none", "/usr/local/cuda"])
def test_what_a_toolkit_may_be(value: str) -> None:
    assert look({"sglang_server_cuda_home": value}, SPECS)["refused"] == []


def test_a_misspelt_variable_is_said_with_the_one_that_is_meant() -> None:
    names = ["sglang_server_verson", "sglang_server_version", "sglang_server_preflight", "ansible_host"]
    (text,) = look({}, SPECS, names)["unknown"]
    assert text == "sglang_server_verson is no variable of the role sglang_server; is sglang_server_version meant?"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_value_is_judged(value: Any) -> None:
    look({f"sglang_server_{name}": value for name in ("cuda_home", "start", "pip_environment", "gpus")}, SPECS)


def validate(options: Any, values: Any) -> tuple[dict[str, Any], list[str]]:
    return dict(values), []


def look_at(monkeypatch: pytest.MonkeyPatch, **params: Any) -> list[dict[str, Any]]:
    monkeypatch.setattr(preflight, "EXAMINERS", {"declaration": preflight.declaration.examine})
    given = {"instances": [], "defaults": {}, **params}
    return [one for one in preflight.preflight(given, validate)["findings"] if one["severity"] != "ok"]


def test_what_the_playbook_found_is_reported_beside_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look_at(monkeypatch, variable_problems=["x is wrong"], unknown_variables=["y is no variable"])
    assert [(one["id"], one["severity"]) for one in found] == [
        ("declaration.nothing", "warning"),
        ("declaration.refused", "error"),
        ("declaration.unknown_variable", "warning"),
    ]


def test_an_interpreter_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"name": "main", "version": "9.9.9", "model": "hub/model", "port": 30000}
    texts = [found["summary"] for found in look_at(monkeypatch, instances=[one], python="/nowhere")]
    assert any(text.startswith("sglang_server_python is /nowhere, which is no program on this host") for text in texts)
    texts = [found["summary"] for found in look_at(monkeypatch, instances=[one], python="python3")]
    assert not any("sglang_server_python" in text for text in texts)
