# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Environments that the role installs from a lock on a test host, with pip and with uv, from real wheels."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("SGLANG_TEST_CACHE", "/var/cache/serving-sglang"))
UV = "uv==0.13.9"
SGLANG = "sglang==0.5.22"


def wheel_of(requirement: str) -> Path:
    """The wheel on this machine, which the hosts see as /srv/wheels."""
    name, version = requirement.replace("-", "_").split("==")
    (path,) = (CACHE / "wheels").glob(f"{name}-{version}-*.whl")
    return path


def version_of(name: str) -> str:
    (path,) = (CACHE / "wheels").glob(f"{name}-*.whl")
    return f"{name}=={path.name.split('-')[1]}"


def hashed(*requirements: str) -> str:
    return "".join(
        f"{each} \\\n    --hash=sha256:{hashlib.sha256(wheel_of(each).read_bytes()).hexdigest()}\n"
        for each in requirements
    )


@pytest.fixture(scope="module")
def uv_on_host(host: Any) -> str:
    """A folder on the host with the wheel of uv. It is fetched once on this machine."""
    place = CACHE / "uv-wheels"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(place.glob(f"{UV.replace('==', '-')}-*.whl")):
            with tempfile.TemporaryDirectory(dir=place) as scratch:
                words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
                subprocess.run([*words, "--dest", scratch, UV], check=True, stdout=sys.stderr, timeout=600)
                for path in Path(scratch).glob("*.whl"):
                    path.replace(place / path.name)
    (wheel,) = place.glob(f"{UV.replace('==', '-')}-*.whl")
    copy = {"ansible.builtin.copy": {"src": str(wheel), "dest": "/srv/uv/", "mode": "0644"}}
    host.play([{"hosts": "h1", "gather_facts": False, "tasks": [copy]}])
    return "/srv/uv"


class Deployed:
    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = " ".join(text.split())
        self.changed = "changed=0" not in text


def deploy(host: Any, lock: Path | None, check: bool = False, **variables: Any) -> Deployed:
    """The role with one instance that runs from the lock."""
    instance = host.variables["sglang_server_instances"][0]
    given = {
        **host.variables,
        "sglang_server_instances": [instance],
        "sglang_server_cuda_home": "none",
        **({"sglang_server_lock": str(lock)} if lock else {}),
        **variables,
    }
    process = host.playbook([{"hosts": "h1", "vars": given, "roles": ["serving.sglang.sglang_server"]}], check)
    output, _nothing = process.communicate(timeout=600)
    return Deployed(process.returncode, output)


def desired(host: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.shell("cat /etc/sglang/main.json"))
    return found


def environments(host: Any) -> list[str]:
    return sorted(host.shell("ls -A /opt/sglang").split())


def packages(host: Any, environment: str) -> list[str]:
    listed = json.loads(host.shell(f"{environment}/bin/python -m pip list --format=json"))
    return sorted(f"{one['name'].replace('_', '-').lower()}=={one['version']}" for one in listed)


def without_tools(names: list[str]) -> list[str]:
    return [name for name in names if name.split("==")[0] not in ("pip", "setuptools", "uv")]


@pytest.mark.full
def test_an_environment_from_a_lock_and_another_lock(host: Any, tmp_path: Path) -> None:
    typing, protobuf = version_of("typing_extensions"), version_of("protobuf")
    there = environments(host)
    lock = tmp_path / "sglang.lock"
    lock.write_text(f"# made by hand\n{SGLANG}\n{typing}\n")

    predicted = deploy(host, lock, check=True)
    assert predicted.code == 0, predicted.text
    assert predicted.changed
    assert environments(host) == there

    done = deploy(host, lock)
    assert done.code == 0, done.text
    # What the lock leaves out is said, and not installed behind its back.
    assert "and pip misses: sglang 0.5.22 requires" in done.text
    native = desired(host)["native"]
    first = native["environment"]
    assert first == f"/opt/sglang/0.5.22-{native['lock_sha256'][:8]}"
    assert desired(host)["argv"][0] == f"{first}/bin/python"
    assert environments(host) == sorted([*there, first.rpartition("/")[2]])
    assert host.shell(f"cat {first}/.serving-sglang") == f"{SGLANG}\nlock={native['lock_sha256']}\n"
    assert host.shell(f"cat {first}/serving-sglang.lock") == lock.read_text()
    assert without_tools(packages(host, first)) == sorted([SGLANG, typing.replace("_", "-")])

    # A comment is no other lock.
    lock.write_text(f"# made again\n{SGLANG}\n\n{typing}\n")
    again = deploy(host, lock)
    assert (again.code, again.changed) == (0, False), again.text
    assert not deploy(host, lock, check=True).changed

    before = host.shell(f"find {first} -printf '%p %T@ %i\\n' | sort | sha256sum")
    lock.write_text(f"{SGLANG}\n{protobuf}\n")
    other = deploy(host, lock)
    assert other.code == 0, other.text
    second = desired(host)["native"]["environment"]
    assert second != first
    assert without_tools(packages(host, second)) == sorted([SGLANG, protobuf])
    # What servers may run from was not touched, so going back makes nothing.
    assert host.shell(f"find {first} -printf '%p %T@ %i\\n' | sort | sha256sum") == before
    lock.write_text(f"{SGLANG}\n{typing}\n")
    back = deploy(host, lock)
    assert back.code == 0, back.text
    assert desired(host)["native"]["environment"] == first
    assert "TASK [serving.sglang.sglang_server : Create the virtual environment]" not in back.text

    # One that was renamed is told and left as it is.
    host.shell(f"mv {first} {first}.kept && cp -a {second} {first}")
    refused = deploy(host, lock)
    assert refused.code == 2
    assert "It was not changed: servers may run from it" in refused.text
    assert host.shell(f"cat {first}/.serving-sglang") == host.shell(f"cat {second}/.serving-sglang")
    host.shell(f"rm -rf {first} {first}.kept {second}")


@pytest.mark.full
@pytest.mark.parametrize("where", ["the environment", pytest.param("the host", marks=pytest.mark.full)])
def test_uv_with_hashes(host: Any, uv_on_host: str, tmp_path: Path, where: str) -> None:
    lock = tmp_path / "sglang.lock"
    lock.write_text(hashed(SGLANG, version_of("typing_extensions" if where == "the host" else "protobuf")))
    given: dict[str, Any] = {
        "sglang_server_installer": "uv",
        "sglang_server_pip_arguments": ["--no-index", "--find-links=/srv/wheels", f"--find-links={uv_on_host}"],
    }
    if where == "the host":
        host.shell(
            f"python3 -m venv /srv/uv-venv && /srv/uv-venv/bin/pip install -q --no-index --find-links {uv_on_host} uv "
            "&& ln -sf /srv/uv-venv/bin/uv /usr/local/bin/uv"
        )
    done = deploy(host, lock, **given)
    assert done.code == 0, done.text
    native = desired(host)["native"]["environment"]
    installed = packages(host, native)
    assert SGLANG in installed
    assert (UV in installed) == (where == "the environment")
    assert host.shell(f"cat {native}/lib/python3.11/site-packages/sglang-*.dist-info/INSTALLER") == "uv"
    assert not deploy(host, lock, **given).changed
    host.shell(f"rm -rf {native} /usr/local/bin/uv")


@pytest.mark.full
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_wheel_with_another_hash_is_not_installed(host: Any, uv_on_host: str, tmp_path: Path, installer: str) -> None:
    lock = tmp_path / "sglang.lock"
    right = hashed(SGLANG, version_of("typing_extensions"))
    digest = right.splitlines()[-1].rpartition(":")[2]
    lock.write_text(right.replace(digest, "0" * 64))
    given = {
        "sglang_server_installer": installer,
        "sglang_server_pip_arguments": ["--no-index", "--find-links=/srv/wheels", f"--find-links={uv_on_host}"],
    }
    before = desired(host)
    refused = deploy(host, lock, **given)
    assert refused.code == 2
    assert digest in refused.text, refused.text
    assert desired(host) == before
    (half,) = [name for name in environments(host) if not name.startswith(".") and "-" in name]
    assert not host.shell(f"ls /opt/sglang/{half}/.serving-sglang", check=False)

    # Run again with the right one: the name is another, and what was left half-made stands in nobody's way.
    lock.write_text(right)
    done = deploy(host, lock, **given)
    assert done.code == 0, done.text
    native = desired(host)["native"]["environment"]
    assert SGLANG in packages(host, native)
    host.shell(f"rm -rf {native} /opt/sglang/{half} /opt/sglang/.{half}.building")


@pytest.mark.full
def test_a_server_that_runs_goes_on_when_a_lock_is_declared(host: Any, tmp_path: Path) -> None:
    assert deploy(host, None).code == 0
    started = host.module("server_start", instance="main")
    assert not started.get("failed"), started["msg"]
    pid = host.shell("systemctl show -P MainPID sglang-main")
    lock = tmp_path / "sglang.lock"
    lock.write_text(f"{SGLANG}\n")
    done = deploy(host, lock)
    assert done.code == 0, done.text
    assert "Restart pending on h1: main" in done.text
    assert host.shell("systemctl show -P MainPID sglang-main") == pid
    assert host.info()["restart_pending"]
    assert host.http("GET", "/ready")[0] == 200
    # Back without a lock nothing is pending any more.
    back = deploy(host, None)
    assert "Restart pending" not in back.text
    assert not host.info()["restart_pending"]
    host.module("server_stop", instance="main")


def test_what_is_refused_before_anything_is_touched(host: Any, tmp_path: Path) -> None:
    lock = tmp_path / "sglang.lock"
    lock.write_text("sglang==0.5.23\ntorch>=2\n")
    before = environments(host)
    refused = deploy(host, lock)
    assert refused.code == 2
    assert f"lock {lock}: line 2: 'torch>=2' names no exact version" in refused.text
    assert "has sglang 0.5.23 and version is 0.5.22" in refused.text
    gone = deploy(host, tmp_path / "none.lock")
    assert f"lock {tmp_path}/none.lock: there is no such file on the controller" in gone.text
    lock.write_text(f"{SGLANG}\n")
    beside = deploy(host, lock, sglang_server_pip_requirements=["torch==2.13.0"])
    assert "A lock has everything that is installed" in beside.text
    assert environments(host) == before
