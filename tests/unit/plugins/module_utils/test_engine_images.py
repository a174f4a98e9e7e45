"""What engines say of their storage, and what a pull needs of a disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Output
from ansible_collections.serving.sglang.plugins.module_utils.engine_images import (
    CONTAINERD_ROOT,
    Engine,
    Image,
    Storage,
    complaint,
    human,
    missing_layers,
    read_images,
    rooms,
    storage_of,
)
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.image_manifest import Garbled, Layer, read_layers
from ansible_collections.serving.sglang.plugins.module_utils.image_reference import parse_reference

DIGEST = "sha256:" + "a" * 64
MIB = 1 << 20


def test_images_of_both_engines_are_read_alike() -> None:
    docker = {
        "Id": "sha256:" + "1" * 64,
        "RepoTags": ["lmsysorg/sglang:v0.5.22"],
        "RepoDigests": [f"lmsysorg/sglang@{DIGEST}"],
        "Size": 7,
        "RootFS": {"Layers": ["sha256:x"]},
    }
    podman = {
        "Id": "1" * 64,
        "RepoTags": ["docker.io/lmsysorg/sglang:v0.5.22"],
        "RepoDigests": [f"docker.io/lmsysorg/sglang@{DIGEST}"],
        "Size": 7,
        "RootFS": {"Layers": ["sha256:x"]},
    }
    [one], [two] = read_images(json.dumps([docker]), "docker"), read_images(json.dumps([podman]), "podman")
    assert (one.id, one.tags, one.digests, one.layers) == (two.id, two.tags, two.digests, two.layers)
    assert one.has(parse_reference(f"lmsysorg/sglang:v0.5.22@{DIGEST}"))
    assert not one.has(parse_reference(f"ghcr.io/lmsysorg/sglang:v0.5.22@{DIGEST}"))
    assert one.repositories == {"docker.io/lmsysorg/sglang"}


def test_an_image_without_names_is_read() -> None:
    [one] = read_images(json.dumps([{"Id": "1" * 64, "RepoTags": None, "RepoDigests": ["<none>@<none>"]}]), "docker")
    assert (one.tags, one.digests, one.shown) == ((), (), "1" * 12)


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[{"no": "id"}]'])
def test_garbled_images_are_said(text: str) -> None:
    with pytest.raises(CouldNotTell, match="cannot be understood"):
        read_images(text, "podman")


def layers(*contents: str) -> tuple[Layer, ...]:
    return tuple(Layer(number + 1, content) for number, content in enumerate(contents))


@pytest.mark.parametrize(
    ("wanted", "there", "missing"),
    [
        (layers("a", "b", "c"), [], 3),
        (layers("a", "b", "c"), [("a", "b")], 1),
        (layers("a", "b", "c"), [("x",), ("a",), ("a", "b", "z")], 1),
        # A layer counts on top of the same ones alone.
        (layers("a", "b", "c"), [("b", "c")], 3),
        (layers("a"), [("a", "b")], 0),
        # Where the configuration does not name its layers, none is known to be there.
        (layers("", ""), [("", "")], 2),
    ],
)
def test_the_layers_that_a_pull_brings(wanted: tuple[Layer, ...], there: list[tuple[str, ...]], missing: int) -> None:
    images = [Image("podman", "1", layers=each) for each in there]
    assert len(missing_layers(wanted, images)) == missing


def test_what_a_pull_needs_where() -> None:
    wanted = (Layer(10 * MIB), Layer(30 * MIB))
    storage = Storage("/var/lib/containers/storage", "/var/tmp")
    [room] = rooms(wanted, storage, {storage.root: 160 * MIB, storage.temporary: 160 * MIB}, True)
    assert (room.needed_bytes, room.enough) == (160 * MIB, True)
    assert room.what == "2 layers of 40.0 MiB, and about 120.0 MiB unpacked"
    root, temporary = rooms(wanted, storage, {storage.root: 119 * MIB, storage.temporary: 40 * MIB}, False)
    assert (root.needed_bytes, root.enough) == (120 * MIB, False)
    assert (temporary.needed_bytes, temporary.enough) == (40 * MIB, True)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text


@pytest.mark.parametrize(
    ("engine", "info", "root", "temporary"),
    [
        ("podman", {"store": {"graphRoot": "/data/graph", "imageCopyTmpDir": "/data/tmp"}}, "/data/graph", "/data/tmp"),
        ("podman", {"store": {"graphRoot": "/data/graph"}}, "/data/graph", "/var/tmp"),
        (
            "docker",
            {"DockerRootDir": "/var/lib/docker", "DriverStatus": [["Backing Filesystem", "extfs"]]},
            *["/var/lib/docker"] * 2,
        ),
        (
            "docker",
            {"DockerRootDir": "/var/lib/docker", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]},
            CONTAINERD_ROOT,
            CONTAINERD_ROOT,
        ),
        # The program docker of podman-docker.
        ("docker", {"store": {"graphRoot": "/data/graph"}}, "/data/graph", "/var/tmp"),
    ],
)
def test_where_the_storage_is(engine: str, info: dict[str, Any], root: str, temporary: str) -> None:
    assert storage_of(engine, info) == Storage(root, temporary)


WARNING = 'time="2026-11-30T06:19:11Z" level=warning msg="Using cgroups-v1 which is deprecated in favor of v2"\n'


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            f"{WARNING}Error: initializing source: pinging: connection refused\n",
            "initializing source: pinging: connection refused",
        ),
        ("Error response from daemon: no space left on device", "no space left on device"),
        (f'Trying to pull…\n{WARNING}time="x" level=error msg="it \\"broke\\"."\n', 'it "broke"'),
        ("", "nothing"),
    ],
)
def test_the_complaint_is_the_engines_own_and_no_warning(said: str, text: str) -> None:
    assert complaint(Output(125, "", said)) == text


def engine(answers: dict[str, Output], name: str = "docker") -> Engine:
    return Engine(name, run=lambda words, _limit: answers[words[1]])


def test_an_engine_that_does_not_answer_is_no_missing_image() -> None:
    lost = Output(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?")
    with pytest.raises(EngineError, match="systemctl start docker") as raised:
        engine({"image": lost}).image(f"x@{DIGEST}")
    assert raised.value.kind == "image.engine"
    assert engine({"image": Output(1, "[]", "Error: No such image: x")}).image("x") is None


def test_containers_are_known_by_the_image_that_they_are_made_of() -> None:
    inspected = [{"Id": "c1", "Name": "/main", "Image": "sha256:" + "1" * 64}, {"Id": "c2", "Image": "2" * 64}]
    answers = {"ps": Output(0, "c1\nc2\n", ""), "container": Output(0, json.dumps(inspected), "")}
    assert engine(answers).containers() == {"1" * 64: ["main"], "2" * 64: ["c2"]}


def test_layers_have_sizes_and_contents() -> None:
    manifest = json.dumps({"layers": [{"size": 5}, {"size": 7}]})
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:a", "sha256:b"]}})
    assert read_layers(manifest, config) == (Layer(5, "sha256:a"), Layer(7, "sha256:b"))
    # A configuration that does not match says nothing of them.
    assert read_layers(manifest, "{}") == (Layer(5), Layer(7))
    for wrong in ('{"layers": [{"size": -1}]}', '{"layers": [{"size": true}]}', '{"layers": 3}', "[]"):
        with pytest.raises(Garbled):
            read_layers(wrong, config)
