# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a prefetch says of states that are still to be written. Pulls and downloads are tested with the real ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import prefetch
from ansible_collections.serving.sglang.plugins.module_utils.checks.driver_readings import KernelModule
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.image_manifest import Entry, ImageFacts, read_platform
from ansible_collections.serving.sglang.plugins.module_utils.image_reference import parse_reference
from ansible_collections.serving.sglang.plugins.module_utils.image_store import Present


@pytest.fixture(autouse=True)
def _run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "RUN_DIR", str(tmp_path / "run"))


def state(environment: Path) -> dict[str, Any]:
    model = "/usr"  # a folder that every user can read; what is below /tmp is hidden from a unit
    return {
        "schema": 1,
        "instance": "main",
        "port": 30000,
        "probe_url": "http://127.0.0.1:30000",
        "replica": "h1-main",
        "version": "0.5.22",
        "native": {"environment": str(environment)},
        "argv": [f"{environment}/bin/python"],
        "user": "root",
        "model": {"path": model, "local": True, "revision": None},
        "args": {"model-path": model},
        "environment": {},
        "credentials": None,
        "container": None,
    }


def fetch(states: list[dict[str, Any]], check_mode: bool) -> dict[str, Any]:
    params = {"states": states, "tls_verify": True, "check_tag": True, "timeout_s": 5.0}
    return prefetch.prefetch(params, check_mode)


def test_states_are_taken_as_given_and_no_file_is_read(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    result = fetch([state(tmp_path / "env")], check_mode=False)
    assert "failed" not in result, result["msg"]
    assert (result["changed"], [one["instance"] for one in result["instances"]]) == (False, ["main"])


def test_check_mode_expects_the_environment_that_a_deployment_makes(tmp_path: Path) -> None:
    missing = state(tmp_path / "none")
    checked = fetch([missing], check_mode=True)
    assert "failed" not in checked, checked["msg"]
    assert any("still to be made" in note for note in checked["notes"])
    run = fetch([missing], check_mode=False)
    assert run["failed"]
    assert "serving.sglang.deploy" in run["msg"]


def test_a_model_that_is_missing_fails(tmp_path: Path) -> None:
    wrong = state(tmp_path / "none")
    wrong["model"]["path"] = wrong["args"]["model-path"] = str(tmp_path / "gone")
    result = fetch([wrong], check_mode=True)
    assert result["failed"]
    assert "gone cannot be read" in result["msg"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "states has schema None"),
        ({"schema": 1, "instance": "main"}, "states: 'version' is missing"),
        ({"schema": 1, "instance": "../x"}, "does not match"),
        ({"schema": 1, "instance": "main", "container": "x"}, "'container' is str, expected a mapping"),
        ({"schema": 1, "instance": "main", "model": ["x"]}, "'model' is list, expected a mapping"),
    ],
)
def test_a_state_that_is_none_is_refused(state: dict[str, Any], said: str) -> None:
    result = fetch([state], check_mode=True)
    assert (result["failed"], result["kind"]) == (True, "desired_state")
    assert said in result["msg"]


def test_no_states_are_not_all_instances_of_the_host(tmp_path: Path) -> None:
    assert fetch([], check_mode=True)["instances"] == []


ONE, TWO, THREE = (f"sha256:{digit * 64}" for digit in "123")


@pytest.mark.parametrize(
    ("pin", "refused"),
    [
        # Only the tag was edited.
        (f"r.example/sglang:v0.5.23@{ONE}", True),
        (f"r.example/sglang:v0.5.23@{THREE}", False),
        (f"r.example/sglang:v0.5.22@{ONE}", False),
        # Another tag of the same release.
        (f"r.example/sglang:v0.5.22-kept@{ONE}", False),
        (f"other.example/sglang:v0.5.23@{ONE}", False),
        (f"r.example/sglang:v0.5.22-cu130@{ONE}", False),
        (f"r.example/sglang:v0.5.21-cu130@{TWO}", True),
        (f"r.example/sglang:v0.5.21-cu129-runtime@{TWO}", False),
        (f"r.example/sglang:v0.5.21-rocm720@{TWO}", False),
    ],
)
def test_a_tag_that_alone_was_edited_is_refused(pin: str, refused: bool) -> None:
    known = {f"r.example/sglang:v0.5.22@{ONE}", f"r.example/sglang:v0.5.21-cu129@{TWO}"}
    reference = parse_reference(pin)
    if refused:
        with pytest.raises(EngineError, match="its tag was edited and its digest was not"):
            prefetch.refuse_other_release(reference, known)
    else:
        prefetch.refuse_other_release(reference, known)


def test_the_pins_of_a_host_are_those_of_all_its_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, directory in (("DESIRED_DIR", "etc"), ("RUNNING_DIR", "running")):
        (tmp_path / directory).mkdir()
        monkeypatch.setattr(prefetch.desired_state, name, str(tmp_path / directory))
    pins = [f"r.example/sglang:v0.5.2{number}@{ONE}" for number in range(3)]
    (tmp_path / "etc" / "main.json").write_text(f'{{"container": {{"image": "{pins[0]}"}}}}')
    (tmp_path / "etc" / "main.previous.json").write_text(f'{{"desired": {{"container": {{"image": "{pins[1]}"}}}}}}')
    (tmp_path / "running" / "main.json").write_bytes(b"\xff" + f'"image": "{pins[2]}"'.encode())
    assert prefetch.pins_of_host() == set(pins)


def part() -> prefetch.Part:
    return prefetch.Part("image", "x")


@pytest.mark.parametrize(
    ("platforms", "cuda", "driver", "kind"),
    [
        (["linux/arm64"], "", "", "image.platform"),
        (["linux/arm64", "linux/amd64"], "", "", ""),
        ([], "", "", ""),
        (["linux/amd64"], "13.0", "570.86.15", "image.driver"),
        (["linux/amd64"], "13.0", "580.65.06", ""),
        (["linux/amd64"], "12.9", "", ""),
    ],
)
def test_an_image_that_does_not_fit_the_host_is_not_pulled(
    platforms: list[str], cuda: str, driver: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch.platform, "machine", lambda: "x86_64")
    entries = tuple(Entry(read_platform(each), ONE) for each in platforms)
    present = Present(ONE, "skopeo", True, entries, ImageFacts(cuda=cuda))
    reference = parse_reference(f"r.example/sglang:v0.5.22@{ONE}")
    if not kind:
        prefetch.refuse_misfit(reference, present, driver, part())
        return
    with pytest.raises(EngineError) as raised:
        prefetch.refuse_misfit(reference, present, driver, part())
    assert raised.value.kind == kind


def test_a_driver_matters_where_the_container_gets_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "read_kernel_module", lambda: KernelModule("580.65.06", "/proc"))
    assert prefetch.driver_for({"devices": ["nvidia.com/gpu=0"]}, part()) == "580.65.06"
    assert prefetch.driver_for({"gpus": "all"}, part()) == "580.65.06"
    assert prefetch.driver_for({"devices": [], "gpus": None}, part()) == ""
    assert prefetch.driver_for({"gpus": "all", "cuda_compat": True}, part()) == ""

    def fails() -> KernelModule:
        raise CouldNotTell("no /sys")

    monkeypatch.setattr(prefetch, "read_kernel_module", fails)
    noted = part()
    assert prefetch.driver_for({"gpus": "all"}, noted) == ""
    assert noted.notes == ["could not tell whether the driver is new enough: no /sys"]


def test_what_was_fetched_lately_is_known_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    assert prefetch.fetched_lately() == {}
    old, new = (parse_reference(f"r.example/sglang:v0.5.2{number}@{ONE}") for number in (2, 3))
    prefetch._note(old)
    now = time.time()
    monkeypatch.setattr(prefetch.time, "time", lambda: now + prefetch.YOUNG_S - 60)
    prefetch._note(new)
    assert set(prefetch.fetched_lately()) == {str(old), str(new)}
    monkeypatch.setattr(prefetch.time, "time", lambda: now + prefetch.YOUNG_S + 60)
    assert set(prefetch.fetched_lately()) == {str(new)}
    (tmp_path / "run" / prefetch.PINS).write_text("[")
    assert prefetch.fetched_lately() == {}
