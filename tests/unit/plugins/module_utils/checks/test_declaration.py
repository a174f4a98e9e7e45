# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations read for a preflight: refusals become findings, and what can be used is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import spec
from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    cache_readings,
    container_readings,
    declaration,
    driver_checks,
    model_reach,
    service_view,
    toolchain_readings,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.declaration import read_declaration
from ansible_collections.serving.sglang.plugins.module_utils.checks.wanted import Wanted, disk_needs, read_wanted

HOST = spec.Host("h1", "10.0.0.1")
DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 100}
ARGUMENTS = {"max-running-requests": 16, "max-queued-requests": 16}
MAIN = {"name": "main", "model": "/srv/models/tiny", "port": 30000, "cards": [0], "arguments": ARGUMENTS}


def validate(options: Any, values: Any) -> tuple[dict[str, Any], list[str]]:
    result = ArgumentSpecValidator(options).validate(values)
    return result.validated_parameters, result.error_messages


def read(*instances: Any, defaults: Any = DEFAULTS, upgrade_to: str = "") -> declaration.Declaration:
    return read_declaration(list(instances), defaults, HOST, validate, upgrade_to)


def said(found: declaration.Declaration) -> list[tuple[str, str, str]]:
    return [(one["id"], one.get("instance", ""), one["summary"]) for one in found.findings]


def test_a_good_declaration_has_no_finding_and_is_resolved() -> None:
    found = read(MAIN)
    assert said(found) == []
    (one,) = found.instances
    assert one["desired"]["grace"]["period_s"] > 0
    assert one["environment"]["SGLANG_MAX_NEW_TOKENS_LIMIT"] == "4096"
    expected = {"name": "main", "version": "0.5.22", "runtime": "native", "port": 30000, "cards": [0], "tp": 1}
    assert {key: one[key] for key in expected} == expected
    assert one["python"] == "/opt/sglang/0.5.22/bin/python"
    assert one["home"] == "/var/lib/sglang/main"


def test_values_are_brought_into_their_types_as_the_role_does() -> None:
    found = read({**MAIN, "port": "30000"}, defaults={**DEFAULTS, "slowest_tokens_per_s": "100"})
    assert said(found) == []
    assert found.instances[0]["port"] == 30000


def test_an_upgrade_is_read_as_if_it_were_declared() -> None:
    found = read({**MAIN, "version": "0.5.17"}, upgrade_to="0.5.23")
    assert found.instances[0]["version"] == "0.5.23"
    assert found.instances[0]["desired"]["version"] == "0.5.23"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"prot": 1}, "'prot' is no option of an instance; is port meant?"),
        ({"port": "abc"}, "option 'port'"),
        ({"memory": {"kind": "odd"}}, "must be one of: dedicated, shared, unified"),
        ({"name": "a-b"}, "a dash would nest"),
        ({"version": "latest"}, "does not say which release"),
        ({"model": None}, "model is missing"),
        ({"runtime": "docker"}, "image is missing"),
        ({"output_cap_tokens": 0}, "output_cap_tokens"),
        ({"cards": ["x"]}, "neither an index nor a UUID"),
    ],
)
def test_what_the_role_refuses_is_an_error(change: dict[str, Any], expected: str) -> None:
    found = read({**MAIN, **change})
    errors = [one for one in found.findings if one["severity"] == "error"]
    text = " ".join(one["summary"] for one in errors).replace("argument '", "option '").lower()
    assert expected.lower() in text
    assert {one["id"] for one in errors} == {"declaration.refused"}
    assert all("sglang_server_instances" in one["evidence"] for one in errors)
    # The other areas still look at what can be understood of it.
    assert len(found.instances) == 1


def test_a_finding_names_its_instance() -> None:
    found = read(MAIN, {**MAIN, "name": "other", "port": 30100, "cards": [1], "model": "x y"})
    assert [(one[0], one[1]) for one in said(found)] == [("declaration.refused", "other")]


def test_one_refused_instance_leaves_the_others() -> None:
    found = read(MAIN, {**MAIN, "name": "other", "port": 30100, "cards": [1], "version": "latest"})
    assert [bool(one["desired"]) for one in found.instances] == [True, False]


def test_two_instances_that_collide_are_refused_together_and_looked_at_alone() -> None:
    found = read(MAIN, {**MAIN, "name": "other"})
    assert all(one[0] == "declaration.refused" for one in said(found))
    assert said(found)
    assert all(one["desired"] for one in found.instances)


def test_a_doubt_is_a_warning() -> None:
    found = read({**MAIN, "host": "127.0.0.1"})
    assert [(one["id"], one["severity"], one["instance"]) for one in found.findings] == [
        ("declaration.doubtful", "warning", "main")
    ]


@pytest.mark.parametrize("instances", ["main", {"name": "main"}, None, 3])
def test_no_list_of_instances_is_refused(instances: Any) -> None:
    found = read_declaration(instances, {}, HOST, validate)
    assert [one["id"] for one in found.findings] == ["declaration.refused"]
    assert found.instances == []


def test_an_instance_that_is_no_mapping_leaves_the_others() -> None:
    found = read("main", MAIN)
    assert said(found) == [("declaration.refused", "", "instance number 1 is no mapping")]
    assert [one["name"] for one in found.instances] == ["main"]


def test_a_host_without_instances_is_said() -> None:
    assert [(one["id"], one["severity"]) for one in read().findings] == [("declaration.nothing", "warning")]


def test_wrong_defaults_are_refused_once() -> None:
    found = read(MAIN, {**MAIN, "name": "b", "port": 30100, "cards": [1]}, defaults={**DEFAULTS, "margin_s": "soon"})
    refused = [one for one in found.findings if one["id"] == "declaration.refused"]
    assert len(refused) == 1
    assert "what holds for all instances" in refused[0]["summary"]


def test_a_key_that_stands_in_the_arguments_too_is_refused_by_its_stand_in() -> None:
    found = read({**MAIN, "api_key": "stand-in-1", "environment": {"X_HEADER": "Bearer stand-in-1"}})
    assert any("also stands in what would be written" in one["summary"] for one in found.findings)


WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
VALUES = st.one_of(WORDS, st.lists(WORDS, max_size=3), st.dictionaries(st.text(max_size=5), WORDS, max_size=3))


KEYS = st.one_of(st.sampled_from(sorted(declaration.instance_options())), st.text(max_size=6))


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=3))
def test_whatever_is_declared_is_read(instances: list[dict[str, Any]]) -> None:
    found = read_declaration(instances, DEFAULTS, HOST, validate)
    assert len(found.instances) == len(instances)
    assert all(one["severity"] in ("error", "warning") for one in found.findings)


@given(
    st.dictionaries(
        st.one_of(WORDS, st.sampled_from(["tp-size", "max-running-requests", "device"])), VALUES, max_size=4
    ),
    st.dictionaries(WORDS, VALUES, max_size=3),
)
def test_whatever_arguments_and_environments_are_read(arguments: Any, environment: Any) -> None:
    found = read({**MAIN, "arguments": {**ARGUMENTS, **arguments}, "environment": environment}, {**MAIN, "name": "b"})
    assert len(found.instances) == 2


# --- the models -----------------------------------------------------------------------------------------------------


@pytest.fixture
def open_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of tests lie below /tmp, which a unit hides."""
    monkeypatch.setattr(service_view, "TEMPORARY", {})


@pytest.mark.usefixtures("open_tmp")
def test_a_model_that_is_there_is_fine(tmp_path: Path) -> None:
    found = declaration.examine({"instances": [{"name": "main", "model": str(tmp_path), "user": "root"}]})["findings"]
    assert [(one["id"], one["severity"], one.get("instance")) for one in found] == [
        ("declaration.model_missing", "ok", "main"),
        ("declaration.refused", "ok", None),
    ]


@pytest.mark.parametrize("name", ["none", "file/below"])
def test_a_model_that_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    found = declaration.look_for_model(str(tmp_path / name))
    assert (found.severity, found.summary) == ("error", f"{tmp_path / name} is not there")


def test_a_model_that_may_not_be_seen_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    found = declaration.look_for_model("/srv/models/x")
    assert (found.severity, found.evidence) == ("unknown", "/srv/models/x: Permission denied")


def test_a_hub_id_is_no_path() -> None:
    found = declaration.examine({"instances": [{"name": "main", "model": "Qwen/Qwen3-8B"}]})["findings"]
    assert [one["id"] for one in found] == ["declaration.refused"]


def reach(path: Path, user: str = "nobody") -> tuple[str, str, str]:
    found = declaration.examine({"instances": [{"name": "main", "model": str(path), "user": user}]})["findings"][0]
    return found["id"], found["severity"], found["evidence"]


@pytest.fixture
def model(tmp_path: Path, open_tmp: None) -> Path:
    """A model that everybody can read."""
    path = tmp_path / "models" / "tiny"
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    for folder in (path, *path.parents):
        if str(folder) not in ("/", "/tmp"):
            folder.chmod(0o755)
    return path


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what others may not")


def test_a_model_that_everybody_can_read_is_fine(model: Path) -> None:
    assert reach(model)[:2] == ("declaration.model_missing", "ok")


@AS_ROOT
def test_a_model_below_a_closed_folder_is_an_error_with_the_folder(model: Path) -> None:
    model.parent.chmod(0o700)
    identity, severity, evidence = reach(model)
    assert (identity, severity) == ("declaration.model_unreadable", "error")
    assert f"{model.parent} may not be entered (mode 0700)" in evidence
    assert reach(model, "no-such-user")[1] == "error"
    assert reach(model, "root")[1] == "ok"


@AS_ROOT
@pytest.mark.parametrize(("name", "mode"), [("config.json", 0o600), (".", 0o711)])
def test_a_model_whose_files_are_closed_is_an_error(model: Path, name: str, mode: int) -> None:
    (model / name).chmod(mode)
    assert reach(model)[:2] == ("declaration.model_unreadable", "error")


@AS_ROOT
def test_a_model_of_a_group_of_the_user_is_fine(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda user, group: [group, 4711])
    os.chown(model.parent, 0, 4711)
    model.parent.chmod(0o750)
    assert reach(model)[1] == "ok"


def test_a_link_into_a_home_is_hidden_by_the_unit_and_a_path_in_one_is_not(model: Path, monkeypatch: Any) -> None:
    real = model.parent.parent / "home"
    model.parent.rename(real)
    model.parent.symlink_to(real)
    monkeypatch.setattr(service_view, "HOMES", {str(real): "ProtectHome= of the unit hides it"})
    assert "ProtectHome= of the unit hides it" in reach(model)[2]
    assert reach(real / "tiny")[1] == "ok"


def test_a_model_in_tmp_is_hidden_by_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_view, "TEMPORARY", {str(tmp_path): "PrivateTmp= of the unit hides it"})
    assert "PrivateTmp= of the unit hides it" in model_reach.why_unreadable(str(tmp_path), "root", True)


def test_an_instance_with_a_wrong_type_shows_its_other_faults_too() -> None:
    broken = {**MAIN, "name": "Bad-Name", "port": "abc", "margin": 3}
    found = read(broken, {**MAIN, "name": "dup"}, {**MAIN, "name": "dup", "port": 30001})
    summaries = "\n".join(summary for _id, _name, summary in said(found))
    assert "option 'port'" in summaries or "argument 'port'" in summaries
    assert "'margin' is no option of an instance; is margin_s meant?" in summaries
    assert "the name does not match" in summaries
    assert "the name 'dup' is declared 2 times" in summaries
    # What was left out is not complained of a second time.
    assert "port is not set" not in summaries
    assert "port is missing" not in summaries


def test_a_wrong_default_is_said_once() -> None:
    found = read(MAIN, defaults={**DEFAULTS, "output_cap_tokens": [1]})
    (one,) = [summary for identity, _name, summary in said(found) if identity == "declaration.refused"]
    assert one.startswith("what holds for all instances: ")


# --- containers -----------------------------------------------------------------------------------------------------

DIGEST = f"sha256:{'1' * 64}"
IMAGE = f"registry.example.com/sglang:v0.5.22@{DIGEST}"
CONTAINER = {**MAIN, "runtime": "podman", "image": IMAGE}
SIZES = {key: value for key, value in DEFAULTS.items() if key != "version"}


def errors_of(found: declaration.Declaration) -> list[str]:
    return [one["summary"] for one in found.findings if one["severity"] == "error"]


def test_a_container_is_told_to_the_areas_as_the_role_runs_it() -> None:
    declared = {
        **CONTAINER,
        "image_python": "/opt/venv/bin/python",
        "mounts": [{"source": "/data/lora"}],
        "cuda": "13.0",
        "cuda_compat": True,
        "arguments": {**ARGUMENTS, "tp-size": 2},
        "cards": [0, 1],
        "environment": {"NCCL_DEBUG": "INFO"},
    }
    found = read(declared, defaults=SIZES)
    assert errors_of(found) == []
    (one,) = found.instances
    expected = {
        "version": "0.5.22",
        "declared_version": "0.5.22",
        "image": IMAGE,
        "python": "",
        "entrypoint": ["/opt/venv/bin/python"],
        "ipc": "private",
        "shm_size": "32g",
        "init": False,
        "privileged": False,
        "userns": "",
        "cuda": "13.0",
        "cuda_compat": True,
        "tp": 2,
    }
    assert {key: one[key] for key in expected} == expected
    assert one["command"][:2] == ["-m", "sglang.launch_server"]
    assert "/opt/sglang" not in one["environment"].get("PATH", "")
    mounts = {mount["target"]: mount["read_only"] for mount in one["mounts"]}
    assert mounts["/data/lora"]
    assert mounts["/srv/models/tiny"]
    assert not mounts["/var/cache/sglang"]

    (server,) = container_readings.servers_of(found.instances)
    assert (server.entrypoint, server.tp, server.needs_cards) == (("/opt/venv/bin/python",), 2, True)
    (wanted,) = read_wanted(found.instances)
    assert (wanted.image, wanted.cuda, wanted.cuda_compat, wanted.runtime) == (IMAGE, "13.0", True, "podman")
    assert toolchain_readings.environments_of({"instances": found.instances}) == {}
    needs = disk_needs({}, [wanted])
    assert [need.path for need in needs if "environment" in need.purpose] == []
    assert any(IMAGE in need.purpose for need in needs)
    caches = cache_readings.resolve(found.instances, 16)
    assert {use.lost for use in caches.uses if use.cache.kernels} == {""}
    assert {directory.user for directory in caches.directories} == {"sglang"}


def test_a_container_that_is_refused_is_told_as_far_as_it_is_understood() -> None:
    declared = {**CONTAINER, "port": "abc", "ipc": "host", "shm_size": "1g"}
    found = read(declared, defaults=SIZES)
    assert any("shm_size 1g has no effect with ipc: host" in text for text in errors_of(found))
    (one,) = found.instances
    assert (one["desired"], one["version"], one["image"], one["ipc"]) == (None, "0.5.22", IMAGE, "host")
    assert (one["entrypoint"], one["command"]) == (["python3"], ["-m", "sglang.launch_server"])
    assert {mount["target"] for mount in one["mounts"]} >= {"/var/cache/sglang", "/var/lib/sglang/main"}


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("registry.example.com/sglang:latest", "it is whatever was released last"),
        ("registry.example.com/sglang:v0.5.22", "has no digest: a tag can be moved"),
        (f"registry.example.com/sglang@{DIGEST}", "nobody sees which release it is"),
        (f"registry.example.com/sglang:nightly@{DIGEST}", "it was never released"),
        ("registry.example.com/sglang:v0.5.22@sha256:12", "malformed digest"),
    ],
)
def test_an_image_that_is_no_pin_is_refused_with_the_way_out(image: str, words: str) -> None:
    found = read({**CONTAINER, "image": image}, defaults=SIZES)
    refused = [one for one in found.findings if one["severity"] == "error"]
    assert [(one["id"], one["instance"]) for one in refused] == [("declaration.refused", "main")]
    assert words in refused[0]["summary"]
    assert "image_pin" in refused[0]["summary"]


def test_a_version_that_the_tag_does_not_say_is_refused() -> None:
    assert any(
        "the tag of the image says 0.5.22" in text for text in errors_of(read({**CONTAINER, "version": "0.5.23"}))
    )


def test_an_upgrade_of_a_container_is_looked_at_without_its_image() -> None:
    found = read(CONTAINER, defaults=SIZES, upgrade_to="0.5.23")
    (one,) = found.instances
    assert (one["declared_version"], one["version"]) == ("0.5.22", "0.5.23")
    assert one["image"] == "registry.example.com/sglang:v0.5.23"
    (wanted,) = read_wanted(found.instances)
    assert driver_checks.release_of(wanted) == (0, 5, 23)


@pytest.mark.parametrize(
    ("image", "version", "release", "cuda"),
    [
        ("lmsysorg/sglang:v0.5.19-cu129-amd64-runtime", "", (0, 5, 19), 12),
        ("registry.example.com:5000/team/sglang:v0.5.22@" + DIGEST, "", (0, 5, 22), 13),
        ("", "0.5.22+cu129", (0, 5, 22), 12),
        ("registry.example.com/sglang:v0.5.22-team3", "0.5.22", (0, 5, 22), 13),
    ],
)
def test_the_tag_is_read_once(image: str, version: str, release: tuple[int, ...], cuda: int) -> None:
    wanted = Wanted("main", version, runtime="docker" if image else "native", image=image)
    assert driver_checks.release_of(wanted) == release
    assert driver_checks.cuda_of(wanted)[0] == cuda


def test_a_model_that_the_user_of_a_container_cannot_read(tmp_path: Path) -> None:
    model, blobs = tmp_path / "model", tmp_path / "blobs"
    model.mkdir(mode=0o755)
    blobs.mkdir()
    (model / "config.json").write_text("{}")
    # Above the mount the folders are the container's own: nobody on the host may pass this one.
    tmp_path.chmod(0o700)
    mounts = [{"source": str(model)}]
    assert model_reach.why_unreadable_in_container(str(model), "nobody", mounts) == ""
    (model / "config.json").chmod(0o600)
    assert "nobody may not read" in model_reach.why_unreadable_in_container(str(model), "nobody", mounts)
    (model / "config.json").chmod(0o644)
    (blobs / "weights").write_text("x")
    (model / "model.safetensors").symlink_to(blobs / "weights")
    why = model_reach.why_unreadable_in_container(str(model), "nobody", mounts)
    assert why.endswith(
        f"is a link to {blobs}/weights, which the container does not see: name the folder in mounts too"
    )
    assert model_reach.why_unreadable_in_container(str(model), "nobody", [*mounts, {"source": str(blobs)}]) == ""


def test_the_model_of_a_container_is_looked_at(tmp_path: Path) -> None:
    instance = {"name": "main", "runtime": "podman", "model": str(tmp_path / "model"), "user": "nobody", "mounts": []}
    (tmp_path / "model").mkdir(mode=0o700)
    found = declaration.examine({"instances": [instance]})
    assert [(one["id"], one["severity"]) for one in found["findings"]] == [("declaration.model_unreadable", "error")]
    (tmp_path / "model").chmod(0o755)
    found = declaration.examine({"instances": [instance]})
    assert {one["severity"] for one in found["findings"]} == {"ok"}
