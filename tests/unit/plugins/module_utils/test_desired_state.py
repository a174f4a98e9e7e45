# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Desired-state files: what is read, and what is refused with which words."""

from __future__ import annotations

import json

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import desired_state
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

WHOLE = {
    "schema": 1,
    "instance": "main",
    "replica": "h1-main",
    "unit": "sglang-main.service",
    "slice": "sglang-main.slice",
    "version": "0.5.22",
    "model": {"path": "/srv/models/tiny", "served_name": "tiny"},
    "port": 30000,
    "probe_url": "http://127.0.0.1:30000/",
    "args": {"tokenizer-worker-num": 2, "skip_tokenizer_init": True},
    "environment": {"OMP_NUM_THREADS": 1},
    "credentials": {"config": "/etc/sglang/credentials/main.yml"},
    "limits": {"memory_max_bytes": 8589934592, "memory_high_bytes": None, "memory_swap_max_bytes": 0},
    "drain": {"timeout_s": 30, "on_timeout": "abort"},
    "grace": {"period_s": 200},
    "start": {"deadline_s": 600},
}


def text(**changes):
    return json.dumps({**WHOLE, **changes})


def test_everything_is_read():
    desired = desired_state.parse(text(), "main.json")
    assert desired.probe_url == "http://127.0.0.1:30000"
    assert desired.credentials_config == "/etc/sglang/credentials/main.yml"
    assert desired.limits.memory_max_bytes == 8 * 2**30
    assert desired.limits.memory_swap_max_bytes == 0
    assert desired.limits.any
    assert (desired.drain_timeout_s, desired.drain_on_timeout) == (30, "abort")
    assert (desired.grace_period_s, desired.start_deadline_s) == (200, 600)
    assert desired.tokenizer_workers == 2
    assert desired.skips_tokenizer
    assert desired.environment == {"OMP_NUM_THREADS": "1"}
    assert not desired.disaggregated


def test_a_small_file_has_defaults():
    small = {key: WHOLE[key] for key in ("schema", "instance", "version", "port", "probe_url")}
    desired = desired_state.parse(json.dumps({**small, "credentials": None}), "main.json")
    assert desired.unit == "sglang-main.service"
    assert desired.slice == "sglang-main.slice"
    assert desired.drain_on_timeout == "fail"
    assert desired.credentials_config is None
    assert not desired.limits.any


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[]", "holds list, expected a mapping. Run the role sglang_server again"),
        (text(schema=2), "schema 2"),
        (text(instance="Main!"), "does not match"),
        (text(version=None), "'version' is NoneType"),
        (text(port="30000"), "'port' is str"),
        (text(port=True), "'port' is bool"),
        (text(limits={"memory_max_bytes": "8G"}), "memory_max_bytes"),
        (text(drain={"timeout_s": -1}), "timeout_s"),
        (json.dumps({key: value for key, value in WHOLE.items() if key != "probe_url"}), "'probe_url' is missing"),
    ],
)
def test_what_cannot_be_relied_on_is_refused(content, words):
    with pytest.raises(EngineError, match=words) as caught:
        desired_state.parse(content, "main.json")
    assert caught.value.kind == "desired_state"
    assert "main.json" in caught.value.msg


@pytest.fixture
def host(tmp_path, monkeypatch):
    etc, run = tmp_path / "etc", tmp_path / "run"
    etc.mkdir()
    run.mkdir()
    monkeypatch.setattr(desired_state, "DESIRED_DIR", str(etc))
    monkeypatch.setattr(desired_state, "RUNNING_DIR", str(run))
    return etc, run


def test_an_unknown_instance_names_those_that_are_there(host):
    etc, _run = host
    (etc / "main.json").write_text(text())
    (etc / "notes.txt").write_text("x")
    with pytest.raises(EngineError, match="Instances here: main") as caught:
        desired_state.read("other")
    assert caught.value.kind == "no_instance"
    assert desired_state.instances() == ["main"]


@pytest.mark.parametrize("name", ["../main", "a/b", "", "Main", "a" * 40])
def test_a_name_that_is_no_name_reads_no_file(host, name):
    with pytest.raises(EngineError, match="does not match"):
        desired_state.read(name)


def test_a_file_of_another_instance_is_refused(host):
    etc, _run = host
    (etc / "other.json").write_text(text())
    with pytest.raises(EngineError, match="describes instance 'main'"):
        desired_state.read("other")


def test_a_file_that_is_no_text_is_refused(host):
    etc, _run = host
    (etc / "main.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(EngineError, match="main.json is no text") as caught:
        desired_state.read("main")
    assert caught.value.kind == "desired_state"


def test_restart_pending(host):
    etc, run = host
    (etc / "main.json").write_text("1")
    assert desired_state.restart_pending("main", unit_active=True) is None
    (run / "main.json").write_text("1")
    assert desired_state.restart_pending("main", unit_active=True) is False
    (etc / "main.json").write_text("2")
    assert desired_state.restart_pending("main", unit_active=True) is True
    assert desired_state.restart_pending("main", unit_active=False) is False
