# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images and models are brought to a host: podman pulls from a real registry, huggingface_hub downloads from a hub.

podman is that of the test hosts. Its images are layers of some bytes; no server runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.serving.sglang.plugins.module_utils import (
    cleanup,
    desired_state,
    engine_images,
    model_fetch,
    prefetch,
)
from ansible_collections.serving.sglang.plugins.modules import server_prefetch

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests"))
import engine_root  # noqa: E402
import small_hub  # noqa: E402
from registries import Layout, free_port, running_registry  # noqa: E402

SGLANG = engine_root.CACHE / "sglang" / "0.5.22"


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """skopeo, the registry and the root file system of the hosts; what is missing is made, as for test hosts."""
    if not (
        shutil.which("skopeo") and shutil.which("docker-registry") and engine_root.ROOT.is_dir() and SGLANG.is_dir()
    ):
        subprocess.run([str(CHECKOUT / "tests" / "lab" / "setup.sh")], check=True, stdout=sys.stderr)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registries") / "open") as address:
        yield address


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "images")


class Machine:
    """The files of a host in a folder, and the module that runs there."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.etc, self.run = path / "etc", path / "run"
        self.etc.mkdir()
        self.run.mkdir()
        self.hf_home = path / "huggingface"
        self.hf_home.mkdir()
        os.chown(self.hf_home, 65534, 65534)
        self.model = path / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        path.chmod(0o755)
        monkeypatch.setattr(desired_state, "DESIRED_DIR", str(self.etc))
        for module in (prefetch, model_fetch):
            monkeypatch.setattr(module, "RUN_DIR", str(self.run))
        # Folders of a test lie below one that the service user does not enter.
        monkeypatch.setattr(prefetch.model_reach, "why_unreadable", lambda *_words: "")

    def declare(self, name: str, pin: str = "", model: str = "", revision: str = "", **more: Any) -> None:
        container = None
        if pin:
            container = {
                "engine": "podman",
                "name": f"sglang-{name}",
                "image": pin,
                "run_image": by_digest(pin),
                "python": "python3",
            }
        path = model or str(self.model)
        desired = {
            "schema": 1,
            "instance": name,
            "replica": f"h1-{name}",
            "version": "0.5.22",
            "probe_url": "http://127.0.0.1:30000",
            "port": 30000,
            "user": "nobody",
            "model": {"path": path, "local": path.startswith("/"), "revision": revision or None},
            "args": {"model-path": path},
            "argv": [str(SGLANG / "bin" / "python")],
            "environment": {"HF_HOME": str(self.hf_home), "HOME": "/nowhere"},
            "container": container,
        }
        for key, value in more.items():
            desired[key] = {**desired[key], **value} if isinstance(desired.get(key), dict) else value
        (self.etc / f"{name}.json").write_text(json.dumps(desired))

    def module(self, **arguments: Any) -> dict[str, Any]:
        output = io.StringIO()
        given = {"tls_verify": False, "timeout_s": 60, **arguments}
        with patch_module_args(given), contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
            server_prefetch.main()
        result: dict[str, Any] = json.loads(output.getvalue())
        assert bool(ended.value.code) == result.get("failed", False)
        return result

    def predict_and_do(self, **arguments: Any) -> dict[str, Any]:
        """First only said, then done: both must be the same, and afterwards nothing is left to do."""
        said = self.module(_ansible_check_mode=True, **arguments)
        done = self.module(**arguments)
        assert "failed" not in done, done["msg"]
        assert states(said) == states(done)
        assert said["changed"] == done["changed"]
        again = self.module(**arguments)
        assert not again["changed"]
        assert "failed" not in again
        return done


def states(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["instance"], part["kind"], part["state"]) for each in result["instances"] for part in each["parts"]]


def refused(result: dict[str, Any], kind: str) -> str:
    assert (result.get("failed"), result.get("kind"), result["changed"]) == (True, kind, False), result
    message: str = result["msg"]
    return message


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    # pytest's own folders are for root alone, and the download runs as another user.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return Machine(tmp_path, monkeypatch)


@contextlib.contextmanager
def podman_of(path: Path, monkeypatch: pytest.MonkeyPatch, size: str = "") -> Iterator[engine_root.Podman]:
    with engine_root.Podman(path, size) as engine:
        monkeypatch.setenv("PATH", str(engine.programs), prepend=os.pathsep)
        monkeypatch.setattr(engine_images, "podman_root", lambda: str(engine.storage))
        yield engine


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[engine_root.Podman]:
    with podman_of(tmp_path / "podman", monkeypatch) as engine:
        yield engine


# --- images ---------------------------------------------------------------------------------------------------------


def test_an_image_is_pulled_once_verified_and_refused_when_its_tag_moves(
    machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout
) -> None:
    name = f"{registry}/lmsysorg/sglang"
    amd, arm = (layout.image(each, f"first for {each}", "12.9.1") for each in ("amd64", "arm64"))
    first = layout.push(layout.index(amd, arm), f"{name}:v0.5.22")
    for instance in ("main", "second"):
        machine.declare(instance, f"{name}:v0.5.22@{first}")
    done = machine.predict_and_do()
    assert states(done) == [
        ("main", "image", "pulled"),
        ("main", "model", "local"),
        ("second", "image", "pulled"),
        ("second", "model", "local"),
    ]
    assert done["changed"]
    assert done["bytes"] == sum(file.stat().st_size for file in _layers(layout, amd))
    assert f"{name}@{first}" in json.loads(podman("image", "inspect", f"{name}@{first}"))[0]["RepoDigests"]

    # What is there is started whatever became of the tag; what would be pulled is refused.
    second = layout.push(layout.image("amd64", "second", "12.9.1"), f"{name}:v0.5.22")
    assert not machine.module()["changed"]
    podman("image", "rm", f"{name}@{first}")
    for check_mode in (True, False):
        message = refused(machine.module(_ansible_check_mode=check_mode), "image.moved")
        assert message.startswith(f"instances main, second: the tag {name}:v0.5.22 was moved under its pin")
        assert first in message
        assert second in message
    assert podman("images", "--quiet") == ""
    assert machine.module(check_tag=False)["changed"]
    assert not machine.module()["changed"]


def _layers(layout: Layout, image: dict[str, Any]) -> list[Path]:
    blobs = layout.path / "blobs" / "sha256"
    manifest = json.loads((blobs / image["digest"].partition(":")[2]).read_text())
    return [blobs / layer["digest"].partition(":")[2] for layer in manifest["layers"]]


def test_a_second_image_costs_its_own_layers_alone(
    machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout
) -> None:
    name, base = f"{registry}/layers/sglang", os.urandom(200_000)
    one = layout.image("amd64", "one", "12.9.1", [base, os.urandom(1000)])
    two = layout.image("amd64", "two", "12.9.1", [base, os.urandom(2000)])
    for release, image in (("v0.5.22", one), ("v0.5.23", two)):
        digest = layout.push(image, f"{name}:{release}")
        machine.declare("main", f"{name}:{release}@{digest}")
        done = machine.module()
        assert done["changed"]
        needed = done["bytes"]
        layers = [file.stat().st_size for file in _layers(layout, image)]
        assert needed == (sum(layers) if image is one else layers[1])


def test_every_failure_is_said_and_the_rest_is_brought(
    machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout
) -> None:
    name = f"{registry}/several/sglang"
    digest = layout.push(layout.image("amd64", "good", "12.9.1"), f"{name}:v0.5.22")
    machine.declare("good", f"{name}:v0.5.22@{digest}")
    machine.declare("lost", f"{registry}/no/such:v0.5.22@{digest}")
    machine.declare("folder", model="/no/such/model")
    machine.declare("bare", argv=["/opt/sglang/9.9.9/bin/python"])
    (machine.etc / "broken.json").write_text("{")
    done = machine.module()
    assert done["failed"]
    assert done["changed"]
    lines = done["msg"].splitlines()
    names = ["broken", "bare", "folder", "lost"]
    assert [line.partition(":")[0] for line in lines] == [f"instance {name}" for name in names]
    assert "serving.sglang.deploy" in lines[1]
    assert "/no/such/model cannot be read" in lines[2]
    assert ("good", "image", "pulled") in states(done)
    assert "no_instance" in machine.module(instances=["nobody"])["kind"]


class Proxy:
    """Hands on what a registry says, slowly, until it is cut."""

    def __init__(self, target: str, bytes_per_s: int, port: int = 0) -> None:
        self.target, self.rate = target, bytes_per_s
        self.passed = 0
        self.server = socket.create_server(("127.0.0.1", port or free_port()))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.open: list[socket.socket] = [self.server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.server.accept()[0]
                host, port = self.target.split(":")
                behind = socket.create_connection((host, int(port)))
                self.open += [client, behind]
                threading.Thread(target=self._pass, args=(client, behind, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(behind, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                sink.sendall(data)
                if slow:
                    self.passed += len(data)
                    time.sleep(len(data) / self.rate)
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_a_registry_that_dies_in_the_middle_of_a_pull_and_one_that_is_too_slow(
    machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout
) -> None:
    digest = layout.push(
        layout.image("amd64", "large", "12.9.1", [os.urandom(400_000), os.urandom(3_000_000)]),
        f"{registry}/large/sglang:v0.5.22",
    )
    proxy = Proxy(registry, 1_000_000)
    machine.declare("main", f"{proxy.address}/large/sglang:v0.5.22@{digest}")
    lock = machine.run / "lock.json"
    lock.write_text("")
    os.utime(lock, (0, 0))
    message = refused(machine.module(timeout_s=1.0, touch=[str(lock), str(machine.run / "gone")]), "image.pull")
    assert "had not pulled" in message
    assert "after 1 s" in message
    assert time.time() - lock.stat().st_mtime < 30
    assert not (machine.run / "gone").exists()

    cutter = threading.Thread(target=_cut_at, args=(proxy, proxy.passed + 2_000_000), daemon=True)
    cutter.start()
    message = refused(machine.module(), "image.pull")
    cutter.join(5)
    assert f"podman could not pull {proxy.address}/large/sglang@{digest}" in message
    assert "What runs was not touched. Running again goes on" in message
    assert podman("images", "--quiet") == ""

    again = Proxy(registry, 100_000_000, int(proxy.address.rpartition(":")[2]))
    assert machine.module()["changed"]
    assert again.passed < 3_300_000, "the layer that was whole was pulled a second time"
    again.cut()


def _cut_at(proxy: Proxy, passed: int) -> None:
    while proxy.passed < passed:
        time.sleep(0.01)
    proxy.cut()


def test_a_disk_without_room_is_met_before_the_pull(
    machine: Machine, registry: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{registry}/disk/sglang"
    digest = layout.push(layout.image("amd64", "large", "12.9.1", [os.urandom(6_000_000)]), f"{name}:v0.5.22")
    machine.declare("main", f"{name}:v0.5.22@{digest}")
    with podman_of(tmp_path / "small", monkeypatch, "5m") as podman:
        for check_mode in (True, False):
            message = refused(machine.module(_ansible_check_mode=check_mode), "image.disk")
            assert f"{podman.storage}/graph needs 17.2 MiB (1 layers of 5.7 MiB unpacked, about 3 times" in message
            assert "Nothing was pulled" in message
        assert podman("images", "--quiet") == ""
        # Where the size cannot be told, the engine finds out.
        monkeypatch.setenv("PATH", str(podman.programs))
        done = machine.module()
        message = refused(done, "image.pull")
        assert "no space left on device" in message
        assert "make room on the disk of the engine's storage" in message
        assert [note.partition(":")[0] for note in done["notes"]] == ["main", "main"]


def test_two_at_once_pull_once(machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout) -> None:
    digest = layout.push(
        layout.image("amd64", "both", "12.9.1", [os.urandom(1_000_000)]), f"{registry}/both/sglang:v0.5.22"
    )
    proxy = Proxy(registry, 1_000_000)
    machine.declare("main", f"{proxy.address}/both/sglang:v0.5.22@{digest}")
    given = {"tls_verify": False, "check_tag": True, "timeout_s": 60}
    results: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: results.append(prefetch.prefetch(given, False))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proxy.cut()
    assert sorted(each["changed"] for each in results) == [False, True]
    assert all("failed" not in each for each in results)
    assert proxy.passed < 1_200_000


def test_only_what_nothing_points_to_is_removed(
    machine: Machine, podman: engine_root.Podman, registry: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "ENVIRONMENTS_DIR", str(machine.run / "none"))
    monkeypatch.setattr(desired_state, "RUNNING_DIR", str(machine.run))
    ours, theirs = f"{registry}/clean/sglang", f"{registry}/team/own"
    pins = {}
    for number in range(1, 7):
        digest = layout.push(layout.image("amd64", f"number {number}", "12.9.1"), f"{ours}:v0.5.2{number}")
        pins[number] = f"{ours}:v0.5.2{number}@{digest}"
        podman("pull", "--quiet", "--tls-verify=false", by_digest(pins[number]))
    machine.declare("main", pins[6])
    # 6 is desired, 5 the previous one, 4 that of a container, 3 has two tags, and 2 a name of somebody else's.
    desired = json.loads((machine.etc / "main.json").read_text())
    container = {**desired["container"], "image": pins[5], "run_image": by_digest(pins[5])}
    previous = {"schema": 1, "desired": {**desired, "container": container}}
    (machine.etc / "main.previous.json").write_text(json.dumps(previous))
    podman("create", "--pull=never", "--name", "somebody", by_digest(pins[4]), "true")
    podman("tag", by_digest(pins[3]), f"{ours}:one", f"{ours}:two")
    podman("tag", by_digest(pins[2]), f"{theirs}:kept")

    given = {"remove": True, "repositories": [], "keep": 0, "engines": ["podman"], "timeout_s": 5}
    said = cleanup.clean_up(given, True)
    done = cleanup.clean_up(given, False)
    assert "failed" not in done, done
    assert [each["id"] for each in said["unused"]] == [each["id"] for each in done["removed"]]
    assert len(done["removed"]) == 2
    assert {each["kept"] for each in done["kept"]} == {
        f"{machine.etc}/main.json points to it",
        f"{machine.etc}/main.previous.json points to it",
        "the container somebody is made of it",
        f"somebody has it as {theirs} too",
    }
    there = podman("image", "ls", "--digests", "--format", "{{.Digest}}").split()
    assert {pin.partition("@")[2] for number, pin in pins.items() if number in (2, 4, 5, 6)} == set(there)
    assert not cleanup.clean_up(given, False)["changed"]

    # What began to be used after the look is refused by the engine, and the message says so.
    podman("create", "--pull=never", "--name", "late", by_digest(pins[5]), "true")
    (machine.etc / "main.previous.json").unlink()
    monkeypatch.setattr(engine_images.Engine, "containers", lambda _engine: {})
    done = cleanup.clean_up(given, False)
    assert (done["failed"], done["changed"]) == (True, False)
    assert done["msg"].count("was not removed") == 2
    assert "in use by" in done["msg"] or "used by" in done["msg"]


def by_digest(pin: str) -> str:
    tagged, digest = pin.split("@")
    return f"{tagged.rpartition(':')[0]}@{digest}"


# --- models ---------------------------------------------------------------------------------------------------------

WEIGHTS = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "model-1.safetensors": b"1" * 5000,
    "model-2.safetensors": b"2" * 5000,
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
    "pytorch_model.bin": b"3" * 5000,
    "original/consolidated.00.pth": b"4" * 5000,
}


@pytest.fixture
def hub() -> Iterator[small_hub.Hub]:
    with small_hub.Hub({"acme/tiny": small_hub.Model(WEIGHTS)}) as hub:
        yield hub


def test_a_model_is_fetched_by_its_revision_and_then_needs_no_hub(machine: Machine, hub: small_hub.Hub) -> None:
    machine.declare("main", model="acme/tiny", revision="v1", environment={"HF_ENDPOINT": hub.url})
    done = machine.predict_and_do()
    assert states(done) == [("main", "environment", "there"), ("main", "model", "fetched")]
    model = done["instances"][0]["parts"][1]
    commit = hub.models["acme/tiny"].commit
    assert (model["commit"], model["name"]) == (commit, "acme/tiny@v1")
    read = {name: data for name, data in WEIGHTS.items() if not name.endswith((".bin", ".pth"))}
    assert model["bytes"] == sum(map(len, read.values()))
    assert sorted(hub.fetched()) == sorted(name.rpartition("/")[2] for name in read)
    snapshot = machine.hf_home / "hub" / "models--acme--tiny" / "snapshots" / commit
    assert {path.name for path in snapshot.iterdir()} == set(read)
    assert snapshot.stat().st_uid == 65534
    assert list(machine.run.glob("prefetch-*")) == []

    asked = len(hub.asked)
    machine.declare("main", model="acme/tiny", revision=commit, environment={"HF_ENDPOINT": hub.url})
    assert not machine.module()["changed"]
    assert len(hub.asked) == asked

    # One file lost is one file fetched.
    (snapshot / "model-2.safetensors").resolve().unlink()
    assert machine.predict_and_do()["changed"]
    assert hub.fetched().count("model-2.safetensors") == 2
    assert hub.fetched().count("model-1.safetensors") == 1


def test_a_model_that_moves_is_left_to_the_hub(machine: Machine, hub: small_hub.Hub) -> None:
    for revision in ("", "main"):
        machine.declare("main", model="acme/tiny", revision=revision, environment={"HF_ENDPOINT": hub.url})
        done = machine.module()
        assert states(done)[1] == ("main", "model", "not_pinned")
        assert not done["changed"]
        assert any("a restart depends on the hub" in note for note in done["notes"])
    assert hub.asked == []


def test_a_download_that_fails(machine: Machine, hub: small_hub.Hub) -> None:
    def declare(model: str, revision: str = "v1", **more: Any) -> None:
        environment = {"HF_ENDPOINT": hub.url, "HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}
        machine.declare("main", model=model, revision=revision, environment=environment, **more)

    declare("acme/tiny", "v9")
    assert "Next step: see the commits and tags" in refused(machine.module(), "model.no_such_revision")
    hub.models["acme/closed"] = small_hub.Model(WEIGHTS, token="hf_secret")
    declare("acme/closed")
    assert "which is not declared for this instance" in refused(machine.module(), "model.unauthorized")
    token = machine.run / "main.hf_token"
    token.write_text("hf_secret\n")
    token.chmod(0o600)
    declare("acme/closed", credentials={"hf_token": str(token)})
    done = machine.predict_and_do()
    assert states(done)[1] == ("main", "model", "fetched")
    assert "hf_secret" not in json.dumps(done)

    declare("acme/tiny")
    hub.slow_s = 30
    message = refused(machine.module(timeout_s=3), "model.fetch")
    assert "was not fetched after 3 s" in message
    hub.slow_s = 0
    # 10 KB do not go onto a disk of 8 KiB.
    with small_disk(machine.hf_home, "8k"):
        assert "and 8.0 KiB are free" in refused(machine.module(), "model.disk")


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_hub_that_is_gone_is_said_and_does_no_harm(machine: Machine) -> None:
    environment = {"HF_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    machine.declare("main", model="acme/tiny", revision="v1", environment=environment)
    message = refused(machine.module(), "model.unreachable")
    assert "acme/tiny@v1 was not fetched" in message
    assert "What runs was not touched" in message
