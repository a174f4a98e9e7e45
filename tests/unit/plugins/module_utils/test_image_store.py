# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tools say of an image, from recorded answers, and what is made of it when they say no."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import image_manifest
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Output
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.image_manifest import Garbled, Platform
from ansible_collections.serving.sglang.plugins.module_utils.image_reference import parse_reference
from ansible_collections.serving.sglang.plugins.module_utils.image_store import Asking, look

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "images"
INDEX = "sha256:89e44b327d3d8ad438fb3bceef473530a3d549c6fd39e402da7d24db9ae0d8b5"
AMD64 = "sha256:baa5df9d8081abcc1e16b41914643538ae4690beff14da7fbe05c4cdd0ff4ae6"
IMAGE = parse_reference("127.0.0.1:5055/lmsysorg/sglang:v0.5.22")
ARM = Platform("linux", "arm64")


def recorded(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


class Tool:
    """Gives the answers in their order, and keeps what was asked."""

    def __init__(self, *answers: Output | str) -> None:
        self.answers = [each if isinstance(each, Output) else Output(0, each, "") for each in answers]
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str], limit_s: float) -> Output:
        assert limit_s == 7
        self.asked.append(" ".join(words))
        return self.answers.pop(0)


def asking(tool: Tool, *there: str, **options: object) -> Asking:
    return Asking(run=tool, which=lambda name: f"/usr/bin/{name}" if name in there else None, timeout_s=7, **options)


def test_an_index_is_pinned_by_its_own_digest() -> None:
    tool = Tool(recorded("raw-index.json"), recorded("skopeo-config-arm64.json"))
    present = look(IMAGE, asking(tool, "skopeo", "docker"), ARM)
    assert (present.digest, present.index, present.tool) == (INDEX, True, "skopeo")
    assert {str(entry.platform): entry.digest for entry in present.entries}["linux/amd64"] == AMD64
    assert (present.facts.platform, present.facts.created) == (ARM, "2026-11-01T10:00:00Z")
    assert (present.facts.cuda, present.facts.entrypoint) == ("12.9.1", ("/opt/nvidia/nvidia_entrypoint.sh",))
    assert present.facts.labels == {"org.opencontainers.image.version": "0.5.22"}
    assert tool.asked == [
        "skopeo inspect --tls-verify=true --raw docker://127.0.0.1:5055/lmsysorg/sglang:v0.5.22",
        "skopeo --override-os=linux --override-arch=arm64 inspect --tls-verify=true --config "
        f"docker://127.0.0.1:5055/lmsysorg/sglang@{INDEX}",
    ]


def test_a_manifest_for_one_platform_is_pinned_by_its_digest(tmp_path: pathlib.Path) -> None:
    authfile = tmp_path / "auth.json"
    authfile.write_text("{}")
    tool = Tool(recorded("raw-manifest.json"), recorded("skopeo-config-arm64.json"))
    present = look(IMAGE.pinned(INDEX), asking(tool, "skopeo", authfile=str(authfile), tls_verify=False))
    assert (present.digest, present.index, present.platforms) == (AMD64, False, (ARM,))
    assert tool.asked[0] == (
        f"skopeo inspect --tls-verify=false --authfile={authfile} --raw docker://127.0.0.1:5055/lmsysorg/sglang:v0.5.22"
    )


def test_a_platform_that_is_not_there_costs_no_second_question() -> None:
    present = look(IMAGE, asking(Tool(recorded("raw-index.json")), "skopeo"), Platform("linux", "riscv64"))
    assert (present.digest, [str(each) for each in present.platforms]) == (INDEX, ["linux/amd64", "linux/arm64"])


def test_docker_with_its_plugin_says_the_same() -> None:
    tool = Tool("github.com/docker/buildx 0.13.1", recorded("raw-index.json"), recorded("buildx-image-arm64.json"))
    present = look(IMAGE, asking(tool, "docker"), ARM)
    skopeo = Tool(recorded("raw-index.json"), recorded("skopeo-config-arm64.json"))
    assert present.facts == look(IMAGE, asking(skopeo, "skopeo"), ARM).facts
    assert (present.digest, present.tool) == (INDEX, "docker buildx")
    assert tool.asked[2] == (
        'docker buildx imagetools inspect --format {{json (index .Image "linux/arm64")}} '
        f"127.0.0.1:5055/lmsysorg/sglang@{INDEX}"
    )


def test_docker_without_its_plugin_tells_one_platform_alone(tmp_path: pathlib.Path) -> None:
    no_buildx = Output(1, "", "docker: unknown command: docker buildx")
    present = look(IMAGE, asking(Tool(no_buildx, recorded("docker-manifest-one.json")), "docker"))
    assert (present.digest, present.index, present.platforms) == (AMD64, False, (Platform("linux", "amd64"),))
    with pytest.raises(EngineError, match="that of the whole, which alone is right on every host") as raised:
        look(IMAGE, asking(Tool(no_buildx, recorded("docker-manifest-several.json")), "docker"))
    assert raised.value.kind == "image.tool_missing"
    assert raised.value.facts["platforms"]["linux/amd64"] == AMD64
    # Without TLS the plugin is not asked: it has no switch for that.
    config = tmp_path / "config.json"
    config.write_text("{}")
    tool = Tool(recorded("docker-manifest-one.json"))
    look(IMAGE, asking(tool, "docker", tls_verify=False, authfile=str(config)))
    assert tool.asked[0].startswith(f"docker --config {tmp_path} manifest inspect --insecure --verbose ")


def test_docker_wants_a_name_for_its_credentials(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "auth.json"
    with pytest.raises(EngineError, match="auth.json is not there") as raised:
        look(IMAGE, asking(Tool(), "skopeo", authfile=str(file)))
    assert f"skopeo login --authfile {file} 127.0.0.1:5055" in raised.value.msg
    file.write_text("{}")
    with pytest.raises(EngineError, match="with the name config.json alone"):
        look(IMAGE, asking(Tool(), "docker", authfile=str(file)))


@pytest.mark.parametrize(
    ("there", "options", "says"),
    [
        ((), {}, "skopeo and docker are not installed"),
        (("docker",), {"engine": "skopeo"}, "skopeo is not installed"),
        (("podman",), {"engine": "podman"}, "podman does not tell which digest a tag has in a registry"),
        (("skopeo",), {"source": "local"}, "docker and podman are not installed on this host"),
        (("skopeo",), {"source": "local", "engine": "skopeo"}, "skopeo asks registries, not the storage of a host"),
    ],
)
def test_a_tool_that_is_missing(there, options, says) -> None:
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(), *there, **options))
    assert raised.value.kind == "image.tool_missing"
    assert says in raised.value.msg
    assert "Next step: " in raised.value.msg


# Each line as the tool printed it.
SKOPEO = 'time="2026-11-30T03:26:49Z" level=fatal msg="Error parsing image name \\"docker://127.0.0.1:5055/a:v1\\": {}"'
COMPLAINTS = [
    (SKOPEO.format("reading manifest v1 in 127.0.0.1:5055/a: manifest unknown: manifest unknown"), "no_such_tag"),
    (SKOPEO.format("reading manifest v1 in 127.0.0.1:5055/a: unauthorized: authentication required"), "unauthorized"),
    (SKOPEO.format('Get \\"http://127.0.0.1:5055/v2/\\": dial tcp: connect: connection refused'), "unreachable"),
    (SKOPEO.format("dial tcp: lookup nowhere.invalid: no such host"), "unreachable"),
    (SKOPEO.format("http: server gave HTTP response to HTTPS client"), "unreachable"),
    (SKOPEO.format("x509: certificate signed by unknown authority"), "unreachable"),
    (
        SKOPEO.format("pinging container registry 127.0.0.1:5055: invalid status code from registry 404 (Not Found)"),
        "garbled",
    ),
    (
        SKOPEO.format("pinging container registry x: invalid status code from registry 503 (Service Unavail"),
        "unreachable",
    ),
    (SKOPEO.format("toomanyrequests: You have reached your unauthenticated pull rate limit"), "rate_limited"),
    (SKOPEO.format("something that nobody has seen"), "garbled"),
    ("ERROR: 127.0.0.1:5055/lmsysorg/sglang:v1: not found", "no_such_tag"),
    ("ERROR: pull access denied, repository does not exist or may require authorization", "unauthorized"),
    ("ERROR: unexpected status from HEAD request to http://x/v2/: 503 Service Unavailable", "unreachable"),
    ("ERROR: invalid character '<' looking for beginning of value", "garbled"),
    ("no such manifest: 127.0.0.1:5055/lmsysorg/sglang:v1", "no_such_tag"),
    ('Get "http://127.0.0.1:5057/v2/a/manifests/v1": no basic auth credentials', "unauthorized"),
    ("error pinging v2 registry: tls: first record does not look like a TLS handshake", "unreachable"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "engine"),
    ("", "garbled"),
]


@pytest.mark.parametrize(("complaint", "kind"), COMPLAINTS)
def test_what_a_complaint_means(complaint, kind) -> None:
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(Output(1, "", complaint)), "skopeo"))
    assert raised.value.kind == f"image.{kind}"
    assert "Next step: " in raised.value.msg
    assert "level=fatal" not in raised.value.msg


def test_what_to_do_names_the_registry() -> None:
    complaint = SKOPEO.format("reading manifest v1: unauthorized: authentication required")
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(Output(1, "", complaint)), "skopeo"))
    assert raised.value.msg == (
        "the registry 127.0.0.1:5055 does not let these credentials read 127.0.0.1:5055/lmsysorg/sglang: Error parsing "
        'image name "docker://127.0.0.1:5055/a:v1": reading manifest v1: unauthorized: authentication required. Next '
        "step: log in: skopeo login 127.0.0.1:5055. Docker Hub says the same of a name that does not exist"
    )


def test_what_docker_calls_missing_may_be_another_thing() -> None:
    no_buildx, missing = Output(1, "", "unknown command: docker buildx"), Output(1, "", "no such manifest: x/y:v1")
    with pytest.raises(EngineError, match="it may also mean a registry without TLS") as raised:
        look(IMAGE, asking(Tool(no_buildx, missing), "docker"))
    assert raised.value.kind == "image.no_such_tag"
    with pytest.raises(EngineError, match="in the registry: x/y:v1: not found. Next step") as raised:
        look(IMAGE, asking(Tool("buildx", Output(1, "", "ERROR: x/y:v1: not found")), "docker"))
    assert "without TLS" not in raised.value.msg


def test_a_registry_that_hangs() -> None:
    def hangs(words: Sequence[str], limit_s: float) -> Output:
        raise CouldNotTell(f"`skopeo inspect` did not end within {limit_s:g} s")

    with pytest.raises(EngineError, match="did not end within 7 s") as raised:
        look(IMAGE, Asking(run=hangs, which=lambda name: name, timeout_s=7))
    assert raised.value.kind == "image.unreachable"


@pytest.mark.parametrize("answer", ["", "<html>Welcome</html>", "[]", "{}", '{"schemaVersion": 1}', '"x"', "null"])
def test_an_answer_that_is_none(answer) -> None:
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(answer), "skopeo"))
    assert raised.value.kind == "image.garbled"
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(recorded("raw-index.json"), answer), "skopeo"))
    assert raised.value.kind == "image.garbled"


def test_docker_stores_the_digest_of_the_index() -> None:
    tool = Tool(recorded("docker-index.json"))
    present = look(IMAGE.pinned(AMD64), asking(tool, "docker", source="local"))
    assert (present.digest, present.tool, present.index) == (INDEX, "docker", None)
    assert (present.facts.cuda, present.platforms) == ("12.9.1", (Platform("linux", "amd64"),))
    assert tool.asked == ["docker image inspect 127.0.0.1:5055/lmsysorg/sglang:v0.5.22"]


@pytest.mark.parametrize(("engine", "answer"), [("docker", "docker-two-digests.json"), ("podman", "podman-index.json")])
def test_several_digests_are_told_apart_by_the_pin_alone(engine, answer, monkeypatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    options = {"source": "local", "engine": engine}
    for digest in (INDEX, AMD64):
        assert look(IMAGE, asking(Tool(recorded(answer)), engine, **options), expected=digest).digest == digest
    with pytest.raises(EngineError, match="by 2 digests") as raised:
        look(IMAGE, asking(Tool(recorded(answer)), engine, **options))
    assert raised.value.kind == "image.ambiguous"
    with pytest.raises(EngineError, match="none is the pinned sha256:00") as raised:
        look(IMAGE, asking(Tool(recorded(answer)), engine, **options), expected="sha256:" + "0" * 64)
    assert raised.value.kind == "image.moved"


def test_what_a_host_does_not_have(monkeypatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(EngineError, match="knows no digest that it can be pulled by") as raised:
        look(IMAGE, asking(Tool(recorded("docker-imported.json")), "docker", source="local"))
    assert raised.value.kind == "image.no_digest"
    missing = Output(1, "[]", "Error response from daemon: no such image: x: No such image: x")
    with pytest.raises(EngineError, match="docker pull 127.0.0.1:5055") as raised:
        look(IMAGE, asking(Tool(missing), "docker", source="local"))
    assert raised.value.kind == "image.no_such_tag"
    # The second engine has it.
    present = look(IMAGE, asking(Tool(missing, recorded("podman-manifest.json")), "docker", "podman", source="local"))
    assert (present.digest, present.tool) == (AMD64, "podman")
    # One that could not be asked is the better reason.
    stopped = Output(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    unknown = Output(125, "[]", "Error: inspecting object: x: image not known")
    with pytest.raises(EngineError) as raised:
        look(IMAGE, asking(Tool(stopped, unknown), "docker", "podman", source="local"))
    assert raised.value.kind == "image.engine"


def test_podman_is_not_made_to_make_its_storage(monkeypatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.path.isdir", lambda path: False)
    with pytest.raises(EngineError, match="is not there") as raised:
        look(IMAGE, asking(Tool(), "podman", source="local"))
    assert raised.value.kind == "image.no_such_tag"


def test_build_records_are_no_platforms() -> None:
    index = json.loads(recorded("raw-index.json"))
    index["manifests"].append({"digest": AMD64, "platform": {"os": "unknown", "architecture": "unknown"}})
    index["manifests"] += [None, {"digest": AMD64}, {"platform": {"os": "linux", "architecture": "amd64"}}]
    manifest = image_manifest.read_manifest(json.dumps(index))
    assert [str(entry.platform) for entry in manifest.entries] == ["linux/amd64", "linux/arm64"]


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("linux/amd64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("x86_64", "linux/amd64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("linux/arm/v7", "linux/arm/v7"),
        ("Linux/AMD64", "linux/amd64"),
    ],
)
def test_platforms_by_all_their_names(text, platform) -> None:
    assert str(image_manifest.read_platform(text)) == platform


@pytest.mark.parametrize("text", ["", "linux/", "a/b/c/d", "linux amd64"])
def test_what_is_no_platform(text) -> None:
    with pytest.raises(ValueError, match="is no platform: write it as linux/amd64"):
        image_manifest.read_platform(text)


def test_cuda_is_read_from_either_variable() -> None:
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["NVIDIA_REQUIRE_CUDA=cuda>=12.9 brand=x"]}}
    assert image_manifest.read_config(json.dumps(config)).cuda == "12.9"
    config["config"] = {"Env": ["HF_TOKEN=secret", "CUDA_VERSION=13.0.1"], "Labels": None, "Entrypoint": None}
    facts = image_manifest.read_config(json.dumps(config))
    assert facts.cuda == "13.0.1"
    assert "secret" not in repr(facts)


KEYS = ["manifests", "platform", "digest", "os", "architecture", "config", "layers", "mediaType", "schemaVersion"]
KEYS += ["Env", "Labels", "Entrypoint", "Config", "RepoDigests", "Descriptor", "Architecture"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)
LOCAL = {"Architecture": "amd64", "RepoDigests": 5, "Config": {"Env": 5, "Labels": 5, "Entrypoint": 5}}
REMOTE = {"architecture": "amd64", "config": {"Env": 5, "Labels": 5, "Entrypoint": "x"}}


@given(values)
@example(LOCAL)
@example(REMOTE)
def test_whatever_comes_is_read_or_refused(value) -> None:
    for read in ("read_manifest", "read_config", "read_local", "read_described"):
        for text in (json.dumps(value), json.dumps([value])):
            with contextlib.suppress(Garbled):
                getattr(image_manifest, read)(text)
