# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a running server was started from counts, not what is on disk by now."""

from __future__ import annotations

import json

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import desired_state, observe
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.server_client import Keys
from ansible_collections.serving.sglang.plugins.module_utils.systemd import Unit

RUNNING = Unit("sglang-main.service", load_state="loaded", active_state="active", sub_state="running")
STOPPED = Unit("sglang-main.service", load_state="loaded", active_state="inactive")
ENDING = Unit("sglang-main.service", load_state="loaded", active_state="deactivating", sub_state="stop-sigterm")


def text(**changes):
    small = {"schema": 1, "instance": "main", "version": "0.5.23", "port": 31000, "probe_url": "http://127.0.0.1:31000"}
    return json.dumps({**small, **changes})


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(desired_state, "RUNNING_DIR", str(tmp_path / "running"))
    monkeypatch.setattr(observe, "_CREDENTIALS", str(tmp_path / "credentials"))
    (tmp_path / "running").mkdir()
    (tmp_path / "credentials" / "sglang-main.service").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(("unit", "port"), [(RUNNING, 30000), (ENDING, 30000), (STOPPED, 31000)])
def test_a_running_server_is_asked_where_it_listens(host, unit, port):
    (host / "running" / "main.json").write_text(text(port=30000, version="0.5.17"))
    found = observe.running_desired(desired_state.parse(text(), "main.json"), unit)
    assert found.port == port
    assert found.release.has_ready is (port == 31000)


@pytest.mark.parametrize("copy", [None, b"{", b'{"schema": 1}', b"\xff\xfe{"])
def test_without_a_usable_copy_the_file_on_disk_counts(host, copy):
    if copy is not None:
        (host / "running" / "main.json").write_bytes(copy)
    assert observe.running_desired(desired_state.parse(text(), "main.json"), RUNNING).port == 31000


def test_a_running_server_is_spoken_to_with_the_keys_it_was_started_with(host):
    (host / "new.yml").write_text("api-key: new\n")
    (host / "credentials" / "sglang-main.service" / "a_token").write_bytes(b"hf_\xff")
    (host / "credentials" / "sglang-main.service" / "config.yml").write_text("api-key: old\nadmin-api-key: oldadmin\n")
    desired = desired_state.parse(text(credentials={"config": str(host / "new.yml")}), "main.json")
    assert observe.keys_of(desired, RUNNING) == Keys("old", "oldadmin")
    assert observe.keys_of(desired, STOPPED) == Keys("new")


def test_a_credentials_file_that_is_gone_is_told(host):
    desired = desired_state.parse(text(credentials={"config": str(host / "gone.yml")}), "main.json")
    with pytest.raises(EngineError, match="cannot be read"):
        observe.keys_of(desired, STOPPED)
    assert observe.keys_of(desired_state.parse(text(), "main.json"), STOPPED) == Keys()


@pytest.mark.parametrize(
    ("changes", "path"),
    [({}, "/ready"), ({"version": "0.5.17"}, "/health"), ({"rank": 1, "nnodes": 2}, "/health")],
)
def test_which_endpoint_says_that_a_server_takes_traffic(changes, path):
    assert observe.ready_path(desired_state.parse(text(**changes), "main.json")) == path
