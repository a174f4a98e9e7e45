"""What nothing points to, and what is kept whatever happens."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import cleanup, desired_state, prefetch
from ansible_collections.serving.sglang.plugins.module_utils.cleanup import (
    Environment,
    judge_environments,
    judge_images,
    pointers,
)
from ansible_collections.serving.sglang.plugins.module_utils.engine_images import Image
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

NAME = "registry.example.com:5000/ml/sglang"


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def image(number: int, *tags: str, name: str = NAME, **more: Any) -> Image:
    return Image(
        engine=more.get("engine", "podman"),
        id=f"{number:064x}",
        tags=tags,
        digests=(f"{name}@{digest(number)}", *more.get("digests", ())),
        created=more.get("created", f"2026-11-{number:02}T10:00:00Z"),
    )


def state(number: int) -> dict[str, Any]:
    run_image = f"{NAME}@{digest(number)}"
    return {"version": "0.5.22", "container": {"image": f"{NAME}:v0.5.22@{digest(number)}", "run_image": run_image}}


def native(environment: str) -> dict[str, Any]:
    return {
        "version": "0.5.22",
        "container": None,
        "argv": [f"/opt/sglang/{environment}/bin/python", "-m", "sglang.launch_server"],
        "environment": {"PATH": f"/opt/sglang/{environment}/bin:/opt/sglang/{environment}/cuda-home/bin:/usr/bin"},
    }


def unused(verdicts: list[cleanup.Verdict]) -> list[str]:
    return [verdict.name for verdict in verdicts if not verdict.kept]


def test_what_a_state_points_to_is_kept_and_the_rest_of_its_repository_is_not() -> None:
    states = pointers(
        {
            "/etc/sglang/main.json": state(3),
            "/etc/sglang/main.previous.json": {"schema": 1, "desired": state(2)},
            "/run/sglang/running/main.json": state(1),
        },
        "/opt/sglang",
    )
    images = [image(number) for number in range(1, 6)]
    verdicts = judge_images(images, {}, states)
    assert unused(verdicts) == [f"{NAME}@{digest(4)}", f"{NAME}@{digest(5)}"]
    reasons = {verdict.name: verdict.kept for verdict in verdicts}
    assert reasons[f"{NAME}@{digest(2)}"] == "/etc/sglang/main.previous.json points to it"


def test_what_a_deployment_under_way_has_fetched_is_kept() -> None:
    pin = f"{NAME}:v0.5.23@{digest(4)}"
    states = pointers({"/etc/sglang/main.json": state(3), "a prefetch of the last hour": [pin]}, "/opt/sglang")
    verdicts = judge_images([image(4), image(5)], {}, states)
    assert [verdict.kept for verdict in verdicts] == ["a prefetch of the last hour points to it", ""]


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, ""),
        ({"containers": {("podman", f"{4:064x}"): ["old-main"]}}, "the container old-main is made of it"),
        # The other engine's container is of the other engine's image.
        ({"containers": {("docker", f"{4:064x}"): ["old-main"]}}, ""),
        ({"keep": 1}, f"it is among the newest 1 of {NAME}"),
        ({"images": [image(4, "ghcr.io/team/own:v1")]}, "somebody has it as ghcr.io/team/own too"),
        # An index and the part for this platform are two digests of one image.
        ({"images": [image(4, digests=(f"{NAME}@{digest(3)}",))]}, "/etc/sglang/main.json points to it"),
    ],
)
def test_why_an_image_is_kept(changed: dict[str, Any], kept: str) -> None:
    states = pointers({"/etc/sglang/main.json": state(3)}, "/opt/sglang")
    images = changed.get("images", [image(4)])
    [verdict] = judge_images(images, changed.get("containers", {}), states, (), changed.get("keep", 0))
    assert verdict.kept == kept


def test_images_of_others_are_not_even_listed() -> None:
    theirs = image(1, "docker.io/library/nginx:1", name="docker.io/library/nginx")
    states = pointers({"/etc/sglang/main.json": state(3)}, "/opt/sglang")
    assert judge_images([theirs], {}, states) == []
    assert judge_images([image(1)], {}, pointers({}, "/opt/sglang")) == []
    # Unless they are asked for, under a short name too.
    [verdict] = judge_images([theirs], {}, states, ["nginx"])
    assert not verdict.kept


@given(
    st.lists(st.integers(1, 20), max_size=4),
    st.sets(st.integers(1, 20), max_size=12),
    st.sets(st.integers(1, 20), max_size=3),
    st.integers(0, 3),
)
def test_nothing_that_is_pointed_to_or_used_is_ever_removed(
    pointed: list[int], there: set[int], used: set[int], keep: int
) -> None:
    states = pointers(
        {f"/etc/sglang/i{number}.json": state(each) for number, each in enumerate(pointed)}, "/opt/sglang"
    )
    containers = {("podman", f"{number:064x}"): ["somebody"] for number in used}
    verdicts = judge_images([image(number) for number in there], containers, states, [NAME], keep)
    removed = {int(verdict.image.id, 16) for verdict in verdicts if verdict.image and not verdict.kept}
    assert removed.isdisjoint(pointed)
    assert removed.isdisjoint(used)
    spare = there - set(pointed) - used
    assert len(removed) == max(0, len(spare) - keep)
    assert not removed or max(removed) < min(spare - removed, default=99)


OLD = 2 * cleanup.YOUNG_S


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        (Environment("0.5.20", "/opt/sglang/0.5.20", True, OLD), ""),
        (Environment("0.5.20", "/opt/sglang/0.5.20", False, OLD), "the role did not make it"),
        (Environment("0.5.20", "/opt/sglang/0.5.20", True, 600), "it is 10 minutes old"),
        (Environment("0.5.20", "/opt/sglang/0.5.20", False, OLD, True), ""),
        (Environment("0.5.20", "/opt/sglang/0.5.20", False, 600, True), "it is 10 minutes old"),
        (Environment("0.5.20", "/opt/sglang/0.5.20", True, OLD, False, "process 7"), "process 7 uses it"),
        (Environment("0.5.20", "/opt/sglang/0.5.20", False, OLD, True, "process 7"), "process 7 uses it"),
        (Environment("0.5.22", "/opt/sglang/0.5.22", True, OLD), "/etc/sglang/main.json points to it"),
        (
            Environment("0.5.22-0a1b2c3d", "/opt/sglang/0.5.22-0a1b2c3d", True, OLD),
            "/etc/sglang/old.previous.json points",
        ),
    ],
)
def test_why_an_environment_is_kept(environment: Environment, kept: str) -> None:
    states = pointers(
        {
            "/etc/sglang/main.json": native("0.5.22"),
            "/etc/sglang/old.previous.json": {"desired": native("0.5.22-0a1b2c3d")},
        },
        "/opt/sglang",
    )
    [verdict] = judge_environments([environment], states)
    assert verdict.kept.startswith(kept)
    assert bool(verdict.kept) == bool(kept)


def test_the_newest_environments_can_be_kept_and_half_made_ones_do_not_count() -> None:
    found = [
        Environment("0.5.19", "", True, 3 * OLD),
        Environment("0.5.20", "", True, 2 * OLD),
        Environment("0.5.21", "", False, OLD, True),
    ]
    assert unused(judge_environments(found, pointers({}, "/opt/sglang"), 1)) == ["0.5.19", "0.5.21"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("etc", "running", "opt", "units", "run"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(desired_state, "DESIRED_DIR", str(tmp_path / "etc"))
    monkeypatch.setattr(desired_state, "RUNNING_DIR", str(tmp_path / "running"))
    monkeypatch.setattr(cleanup, "ENVIRONMENTS_DIR", str(tmp_path / "opt"))
    monkeypatch.setattr(cleanup, "UNITS_DIRS", (str(tmp_path / "units"),))
    monkeypatch.setattr(prefetch, "RUN_DIR", str(tmp_path / "run"))
    return tmp_path


def make(host: Path, name: str, mark: bool = True, note: bool = False, age_s: float = OLD) -> Path:
    path = host / "opt" / name
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").write_text("")
    files = [path / ".serving-sglang"] if mark else []
    files += [host / "opt" / f".{name}.building"] if note else []
    for file in files:
        file.write_text("")
        os.utime(file, (time.time() - age_s,) * 2)
    return path


GIVEN = {"remove": True, "repositories": [], "keep": 0, "engines": [], "timeout_s": 5}


def test_environments_are_removed_and_named_ones_are_left(host: Path) -> None:
    make(host, "0.5.20")
    make(host, "0.5.21", mark=False, note=True)
    make(host, "0.5.22")
    make(host, "brought", mark=False)
    make(host, "unit")
    (host / "opt" / "link").symlink_to("0.5.22")
    (host / "units" / "mine.service").write_text(f"[Service]\nExecStart={host}/opt/unit/bin/python -m x\n")
    (host / "etc" / "main.json").write_text(json.dumps({"schema": 1, "version": "0.5.22"}))
    for given_, check_mode in (({**GIVEN, "remove": False}, False), (GIVEN, True)):
        said = cleanup.clean_up(given_, check_mode)
        assert [each["name"] for each in said["unused"]] == ["0.5.20", "0.5.21"]
        assert said["changed"] == check_mode
        assert said["removed"] == []
        assert (host / "opt" / "0.5.20").is_dir()
    done = cleanup.clean_up(GIVEN, False)
    assert done["changed"]
    assert [each["name"] for each in done["removed"]] == ["0.5.20", "0.5.21"]
    assert sorted(os.listdir(host / "opt")) == ["0.5.22", "brought", "link", "unit"]
    assert not cleanup.clean_up(GIVEN, False)["changed"]


def test_a_state_that_cannot_be_read_keeps_everything(host: Path) -> None:
    make(host, "0.5.20")
    (host / "etc" / "main.previous.json").write_text("{")
    done = cleanup.clean_up(GIVEN, False)
    assert (done["failed"], done["kind"], done["changed"]) == (True, "cleanup.unreadable", False)
    assert "main.previous.json cannot be read" in done["msg"]
    assert (host / "opt" / "0.5.20").is_dir()


@pytest.mark.parametrize("name", ["etc/main.json", "etc/main.previous.json", "running/main.json"])
@pytest.mark.parametrize("text", ["{}", "null", "[1]", '{"version": "0.5.22"}'])
def test_a_state_that_is_none_keeps_everything(host: Path, name: str, text: str) -> None:
    make(host, "0.5.20")
    (host / name).write_text(text)
    done = cleanup.clean_up(GIVEN, False)
    assert (done["failed"], done["kind"], done["changed"]) == (True, "cleanup.unreadable", False)
    assert (host / "opt" / "0.5.20").is_dir()


def test_files_of_others_are_read_and_not_judged(host: Path) -> None:
    make(host, "0.5.20")
    (host / "etc" / "Notes.json").write_text("[]")
    assert cleanup.clean_up(GIVEN, False)["changed"]


def test_one_that_cannot_be_removed_does_not_stop_the_others(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0.5.19", "0.5.20"):
        make(host, name)
    remove = cleanup._remove

    def refuse(verdict: cleanup.Verdict) -> None:
        if verdict.name == "0.5.19":
            raise EngineError("cleanup.in_use", "process 7 began to use it")
        remove(verdict)

    monkeypatch.setattr(cleanup, "_remove", refuse)
    done = cleanup.clean_up(GIVEN, False)
    assert (done["failed"], done["kind"], done["changed"]) == (True, "cleanup.failed", True)
    assert done["msg"] == "environment 0.5.19 was not removed: process 7 began to use it"
    assert [each["name"] for each in done["removed"]] == ["0.5.20"]
