# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as Ansible runs it: what it returns, how it refuses, and that no secret leaves it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import container_readings
from ansible_collections.serving.sglang.plugins.modules import server_spec

DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 100}
MAIN = {"name": "main", "model": "/srv/models/tiny", "port": 30000, "cards": [0]}


@pytest.fixture
def run(tmp_path):
    def run_module(*instances: Any, given: Any = None, **defaults: Any) -> tuple[int, dict[str, Any]]:
        arguments = {
            "host_name": "h1",
            "address": "10.77.0.11",
            "instances": list(instances),
            "defaults": {**DEFAULTS, **defaults},
            **(given or {}),
        }
        file = tmp_path / "arguments.json"
        file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        path = pathlib.Path(server_spec.__file__)
        done = subprocess.run(
            [sys.executable, path, file],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, json.loads(done.stdout)

    return run_module


def test_returns_what_the_files_are_written_from(run) -> None:
    status, result = run(MAIN)
    assert (status, result["changed"]) == (0, False)
    assert result["versions"] == ["0.5.22"]
    assert result["instances"][0]["desired"]["replica"] == "h1-main"
    # What is doubtful is shown by Ansible too.
    (note,) = result["notes"]
    assert note in str(result["warnings"])


def test_refuses_with_all_problems(run) -> None:
    status, result = run({**MAIN, "name": "a-b", "version": "latest"}, {"name": "two"})
    assert status == 1
    assert len(result["problems"]) == 5
    assert all(problem in result["msg"] for problem in result["problems"])
    assert result["msg"].startswith("h1: 5 problems in its instances; nothing was touched:\n- ")


def test_no_secret_leaves_it(run) -> None:
    _, result = run({**MAIN, "api_key": "k-client-123"}, hf_token="hf_token_789")
    text = json.dumps(result)
    assert "k-client-123" not in text
    assert "hf_token_789" not in text
    assert result["instances"][0]["credentials"] == ["api_key", "hf_token"]


def test_a_wrong_type_is_told_by_instance_key_and_value(run) -> None:
    wrong = {
        "name": "two",
        "prt": 3,
        "port": "abc",
        "cards_shared": "perhaps",
        "drain_on_timeout": "kill",
        "memory": {"kind": "big", "wanted_tokens": "many"},
        "writable_paths": {"a": 1},
        "model": None,
    }
    status, result = run(MAIN, wrong, {"port": 1.5}, margin_s="long")
    assert status == 1
    assert result["problems"] == [
        "instance 'two': prt is unknown, perhaps port is meant",
        "instance 'two': port is 'abc', expected a whole number",
        "instance 'two': cards_shared is 'perhaps', expected true or false",
        "instance 'two': drain_on_timeout is 'kill', expected one of fail, abort",
        "instance 'two': memory.kind is 'big', expected one of dedicated, shared, unified",
        "instance 'two': memory.wanted_tokens is 'many', expected a whole number",
        "instance 'two': writable_paths is {'a': 1}, expected a list, each text",
        "instance 'number 3': port is 1.5, expected a whole number",
        "defaults: margin_s is 'long', expected a whole number",
    ]
    assert result["msg"].startswith("h1: 9 problems in its instances; nothing was touched:\n- instance 'two': prt")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"memory": True}, "memory is True, expected a mapping"),
        ({"memory": [None]}, "memory[0] is None, expected a mapping of its keys"),
        ({"port": "infinity"}, "port is 'infinity', expected a whole number"),
        ({"margin_s": float("inf")}, "margin_s is inf, expected a whole number"),
    ],
)
def test_a_type_that_ansible_trips_over_is_told_as_any_other(run, wrong, said) -> None:
    status, result = run({**MAIN, **wrong, "api_key": "k-client-123", "host": "10.0.0"})
    assert (status, result["problems"]) == (1, [f"instance 'main': {said}"])
    assert "k-client-123" not in json.dumps(result)


def test_defaults_that_are_no_mapping(run) -> None:
    status, result = run(MAIN, given={"defaults": True})
    assert (status, result["problems"]) == (1, ["defaults is of type bool, expected a mapping"])


def test_an_instance_that_is_no_mapping(run) -> None:
    status, result = run(MAIN, "main")
    assert status == 1
    assert "Elements value for option 'instances'" in result["msg"]
    assert len(result["msg"]) < 200


def test_readings_are_taken_as_container_info_returns_them(run) -> None:
    instance = {"name": "main", "runtime": "podman", "image": "r.example/sglang:v0.5.22"}
    engines = container_readings.examine({"instances": [instance]})["readings"]
    assert engines["servers"]
    status, result = run(MAIN, given={"engines": engines})
    assert status == 0, result


@pytest.mark.parametrize("given", [{"engines": {"docker": "x"}}, {"cuda_homes": {"0.5.22": ["/opt"]}}])
def test_readings_that_are_none_are_refused(run, given) -> None:
    status, result = run(MAIN, given=given)
    assert status == 1
    (problem,) = result["problems"]
    assert "expected what the module" in problem


def test_no_secret_is_in_a_refusal(run) -> None:
    _, result = run({**MAIN, "port": "abc", "api_key": "k-client-123"}, hf_token="hf_token_789")
    assert len(result["problems"]) == 1
    text = json.dumps(result)
    assert "k-client-123" not in text
    assert "hf_token_789" not in text
