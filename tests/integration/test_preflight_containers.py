# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preflight of instances in containers, on a host with podman and docker and on one with neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
STATE = Path(os.environ.get("SGLANG_TEST_STATE", "/run/serving-sglang-lab"))
WITH, WITHOUT = "preflight-engines", "preflight-none"
IMAGE = f"registry.example.com/sglang:v0.5.22@sha256:{'1' * 64}"
RUNTIMES = ("podman", "docker")
SIZES = {"max-running-requests": 16, "max-queued-requests": 16}
ON_CPU = {"device": "cpu", "max-total-tokens": 65536, **SIZES}


def instance(runtime: str, **more: Any) -> dict[str, Any]:
    return {"name": runtime, "runtime": runtime, "image": IMAGE, "model": "/srv/models/tiny", "port": 30000, **more}


@pytest.fixture(scope="module", autouse=True)
def fleets() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.fail("test hosts are containers with systemd: run these tests as root")
    subprocess.run([CHECKOUT / "tests" / "lab" / "setup.sh"], check=True, stdout=sys.stderr)
    for fleet, suite in ((WITH, "trixie"), (WITHOUT, "bookworm")):
        words = ["up", "--fleet", fleet, "--servers", "1", "--suite", suite]
        subprocess.run([HOSTS, *words], check=True, stdout=sys.stderr)
    yield
    for fleet in (WITH, WITHOUT):
        subprocess.run([HOSTS, "down", "--fleet", fleet], check=True, stdout=sys.stderr)


def look(folder: Path, *instances: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is found that is not fine, by its id."""
    return {one["id"]: one for one in findings(folder, instances, WITH)}


def look_by_instance(folder: Path, *instances: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The same for each instance; what is said of the host counts for all of them."""
    found = findings(folder, instances, WITH)
    return {
        each["name"]: {one["id"]: one for one in found if one.get("instance") in (None, "", each["name"])}
        for each in instances
    }


def findings(folder: Path, instances: Sequence[dict[str, Any]], fleet: str) -> list[dict[str, Any]]:
    """What is found that is not fine. Readings get more time than usual, as the machine may be busy."""
    report = folder / "preflight.json"
    given = {
        "sglang_server_output_cap_tokens": 2500,
        "sglang_server_slowest_tokens_per_s": 50,
        "sglang_server_instances": list(instances),
        "sglang_preflight_json": str(report),
        "sglang_preflight_patience": 10,
    }
    command = [HOSTS, "exec", "--fleet", fleet, "--", CHECKOUT / "tests" / "dev" / "run", "ansible-playbook"]
    command += ["--inventory", STATE / fleet / "inventory.yml", "-e", json.dumps(given), "serving.sglang.preflight"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())["hosts"]["h1"]["findings"]
    return [one for one in found if one["severity"] != "ok"]


def shell(script: str) -> None:
    subprocess.run([HOSTS, "ssh", "--fleet", WITH, "h1", script], check=True, capture_output=True, timeout=120)


def both(**more: Any) -> list[dict[str, Any]]:
    """An instance of each engine; one look at the host costs most of a test's time."""
    return [instance(runtime, port=port, **more) for port, runtime in enumerate(RUNTIMES, 30000)]


def test_an_instance_on_the_processor_needs_an_engine_and_no_cards(tmp_path: Path) -> None:
    found = look(tmp_path, *both(arguments=ON_CPU))
    wrong = {name: one["summary"] for name, one in found.items() if one["severity"] == "error"}
    assert set(wrong) <= {"host.disk_full", "disk.space"}, wrong
    # Nothing of the host's own Python is asked for: what runs is in the image.
    assert not {name for name in found if name.partition(".")[0] in ("python", "environment", "cuda", "compiler")}, (
        found
    )
    assert not {name for name in found if name.startswith("cdi.")}, found


def test_an_instance_on_cards_without_toolkit_and_specification(tmp_path: Path) -> None:
    wanted = {"cards": [0, 1], "cards_shared": True, "arguments": {"tp-size": 2, **SIZES}, "shm_size": "64m"}
    by_runtime = look_by_instance(tmp_path, *both(**wanted))
    for runtime in RUNTIMES:
        found = by_runtime[runtime]
        assert {"container.toolkit_missing", "container.shm_too_small", "driver.missing"} <= set(found), list(found)
        assert "64 MB of shared memory are too little for NCCL" in found["container.shm_too_small"]["summary"]
        assert found["container.shm_too_small"]["fix"].startswith("shm_size: 32g")
    assert "nvidia-ctk cdi generate" in by_runtime["podman"]["cdi.missing"]["fix"]


def test_what_the_declaration_itself_says(tmp_path: Path) -> None:
    found = look(tmp_path, instance("podman", image="registry.example.com/sglang:latest", arguments=ON_CPU))
    assert "the tag latest is not deployed" in found["declaration.refused"]["summary"]
    arm = IMAGE.replace("v0.5.22@", "v0.5.22-arm64@")
    found = look(tmp_path, instance("docker", image=arm, arguments=ON_CPU))
    assert "its tag says arm64" in found["container.image_platform"]["summary"]
    shell("install -d -m 0700 /srv/closed && cp -r /srv/models/tiny /srv/closed/")
    shell("chmod 0600 /srv/closed/tiny/config.json")
    found = look(tmp_path, instance("podman", model="/srv/closed/tiny", arguments=ON_CPU))
    # The folder above is not in the container; the file is.
    assert "config.json" in found["declaration.model_unreadable"]["evidence"]


def test_a_host_without_the_engine(tmp_path: Path) -> None:
    found = findings(tmp_path, both(arguments=ON_CPU), WITHOUT)
    missing = {one["summary"]: one["fix"] for one in found if one["id"] == "container.runtime_missing"}
    assert set(missing) == {f"{runtime} is not installed, and {runtime} need it" for runtime in RUNTIMES}
    assert all("apt-get install" in fix for fix in missing.values())
