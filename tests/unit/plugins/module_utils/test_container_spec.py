# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances in containers: what is refused, and what docker and podman are told."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import container_spec, container_words, spec
from ansible_collections.serving.sglang.plugins.module_utils.desired_state import unit_files
from ansible_collections.serving.sglang.plugins.module_utils.unit_words import exec_word

DIGEST = "sha256:" + "1" * 64
IMAGE = f"registry.example:5000/sglang:v0.5.22-cu129@{DIGEST}"
HOST = spec.Host("h1", "10.77.0.11", user="998:997")
DEFAULTS = {"output_cap_tokens": 4096, "slowest_tokens_per_s": 100.0}
MAIN: dict[str, Any] = {
    "name": "main",
    "runtime": "podman",
    "image": IMAGE,
    "model": "/srv/models/tiny",
    "port": 30000,
    "cards": [1],
    "arguments": {"max-running-requests": 16, "max-queued-requests": 16},
}


def resolve(host: spec.Host = HOST, **changes: Any) -> spec.Outcome:
    return spec.resolve([{**MAIN, **changes}], DEFAULTS, host)


def one(host: spec.Host = HOST, **changes: Any) -> dict[str, Any]:
    outcome = resolve(host, **changes)
    assert outcome.problems == []
    return outcome.instances[0].desired


def test_what_the_engine_is_told() -> None:
    desired = one(mounts=[{"source": "/srv/plugins"}])
    assert desired["version"] == "0.5.22"
    assert desired["argv"][:3] == ["python3", "-m", "sglang.launch_server"]
    assert desired["container"] == {
        "engine": "podman",
        "name": "sglang-main",
        "image": IMAGE,
        "run_image": f"registry.example:5000/sglang@{DIGEST}",
        "python": "python3",
        "ipc": "private",
        "shm_size_bytes": 32 << 30,
        "mounts": [
            {"source": "/srv/models/tiny", "target": "/srv/models/tiny", "read_only": True},
            {"source": "/srv/plugins", "target": "/srv/plugins", "read_only": True},
            {"source": "/var/cache/sglang", "target": "/var/cache/sglang", "read_only": False},
            {"source": "/var/lib/sglang/main", "target": "/var/lib/sglang/main", "read_only": False},
        ],
        "devices": ["nvidia.com/gpu=1"],
        "gpus": None,
        "user": "998:997",
        "cgroup_parent": None,
        "stop_timeout_s": desired["grace"]["period_s"],
        "engine_arguments": [],
        "cuda_compat": False,
    }
    assert unit_files(desired) == [
        "/etc/containers/systemd/sglang-main.container",
        "/etc/systemd/system/sglang-main.slice",
    ]


def test_the_environment_is_that_of_a_native_server_but_for_what_the_image_has_itself() -> None:
    native = {**MAIN, "runtime": "native", "image": None, "version": "0.5.22"}
    there = spec.resolve([native], DEFAULTS, HOST).instances[0].desired["environment"]
    here = one()["environment"]
    assert set(there) - set(here) == {"PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}
    assert set(here) - set(there) == {"USER", "LOGNAME"}
    assert {name: here[name] for name in set(here) & set(there)} == {
        name: there[name] for name in set(here) & set(there)
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": None}, "image is missing"),
        ({"image": "sglang"}, "has no tag"),
        ({"image": "lmsysorg/sglang:latest"}, "the tag latest is not deployed"),
        ({"image": "lmsysorg/sglang:latest-runtime"}, "is not deployed"),
        ({"image": f"lmsysorg/sglang:dev@{DIGEST}"}, "is not deployed"),
        ({"image": f"lmsysorg/sglang:nightly-20261101@{DIGEST}"}, "nightly images are deleted"),
        ({"image": "lmsysorg/sglang:v0.5.22"}, "has no digest"),
        ({"image": f"lmsysorg/sglang@{DIGEST}"}, "a digest and no tag"),
        ({"image": "lmsysorg/sglang:v0.5.22@sha256:12"}, "malformed digest"),
        ({"version": "0.5.23"}, "version 0.5.23 is declared, and the tag of the image says 0.5.22"),
        ({"ipc": "host", "shm_size": "16g"}, "shm_size 16g has no effect with ipc: host"),
        ({"ipc": "shared"}, "it is private or host"),
        ({"shm_size": "lots"}, "shm_size: 'lots' is not a size"),
        ({"mounts": [{"source": "data"}]}, "mounts: source 'data' is not an absolute path"),
        ({"mounts": [{"source": "/"}]}, "is not an absolute path below /"),
        ({"mounts": [{"source": "/a:b"}]}, "has a ':'"),
        ({"mounts": [{"source": "/a", "target": "/b\\"}]}, "mounts: target '/b\\\\' has a '\\\\'"),
        ({"mounts": [{"source": "/a", "target": "/c"}, {"source": "/b", "target": "/c"}]}, "two have the target '/c'"),
        ({"model": "/srv/models/a,b"}, "the path '/srv/models/a,b' has a ','"),
        ({"model": "/srv/models/a\nb"}, "has a '\\n', which engines cannot be told"),
        ({"writable_paths": ["/srv/a:b"]}, "the path '/srv/a:b' has a ':'"),
        ({"arguments": {**MAIN["arguments"], "chat-template": "/srv/a:b"}}, "the path '/srv/a:b' has a ':'"),
        ({"mounts": [{"source": "/a", "target": "/a/../b"}]}, "is not written plainly: /b"),
        ({"mounts": [{"source": "/a/"}]}, "is not written plainly: /a"),
        ({"mounts": [{"source": "/a", "target": "/usr"}]}, "would hide /usr of the container"),
        ({"mounts": [{"source": "/a", "target": "/var/lib"}]}, "would hide /var/lib/sglang of the container"),
        ({"image_python": "python3 -x"}, "image_python 'python3 -x' is no interpreter"),
        ({"image_python": "$(id)"}, "is no interpreter"),
        ({"shm_size": "0"}, "shm_size 0 is none"),
        ({"shm_size": "99999999T"}, "it is from 1m to 16t"),
        ({"environment": {"A": "x\0y"}}, "has a NUL"),
        ({"engine_arguments": ["--privileged"]}, "--privileged is refused"),
        ({"engine_arguments": ["-u0"]}, "'-u0' is refused: what a short option says is not looked into"),
        ({"engine_arguments": ["-it"]}, "'-it' is refused"),
        ({"engine_arguments": ["-u=0"]}, "-u is refused: the server runs as the user sglang"),
        ({"engine_arguments": ["--rmi"]}, "--rmi is refused: a start never pulls"),
        ({"engine_arguments": ["--"]}, "-- is refused"),
        ({"engine_arguments": ["--cgroup-parent=/x"]}, "--cgroup-parent is refused"),
        ({"engine_arguments": ["/dev/x"]}, "'/dev/x' is no option"),
        ({"engine_arguments": ["--device"]}, "'--device' is refused: name a device for computing"),
        ({"engine_arguments": ["--pid=host"]}, "--pid is refused: the server is found as the first process"),
        ({"engine_arguments": ["--ulimit memlock=-1"]}, "the value follows after =. Write --ulimit=memlock=-1"),
        ({"engine_arguments": ["--ulimit"]}, "its value belongs to it, as --ulimit=VALUE"),
        ({"engine_arguments": ["--health-cmd=curl :30000/health"]}, "--health-cmd is refused: a probe"),
        ({"engine_arguments": ["--health-on-failure=kill"]}, "--health-on-failure is refused: a probe"),
        ({"engine_arguments": ["--healthcheck-command=false"]}, "--healthcheck-command is refused: a probe"),
        (
            {"engine_arguments": ["--timeout=60"]},
            "--timeout is refused: it is none of the options that the unit leaves",
        ),
        ({"engine_arguments": ["--Privileged"]}, "--Privileged is refused: it is none of the options"),
        ({"engine_arguments": ["--use-api-socket"]}, "--use-api-socket is refused: it is none of the options"),
        ({"mounts": [{"source": "//", "target": "/host"}]}, "source '//' is not written plainly: /"),
        ({"mounts": [{"source": "/run/docker.sock"}]}, "would make the server root of the host"),
        ({"mounts": [{"source": "/etc", "target": "/x", "read_only": False}]}, "belongs to the system of the host"),
        ({"mounts": [{"source": "/d", "target": "/var/lib/sglang/main"}]}, "Say read_only: false"),
        ({"writable_paths": ["//"]}, "'//' has more of the host than a server may write to"),
        ({"writable_paths": ["/var/lib/../../etc"]}, "'/var/lib/../../etc' belongs to the system of the host (/etc)"),
        ({"hf_home": "/usr/share/hf"}, "'/usr/share/hf' belongs to the system of the host (/usr)"),
        ({"environment": {"TRITON_CACHE_DIR": "/usr"}}, "the server would write to '/usr' belongs to"),
        ({"model": "/"}, "the path '/' is the whole host"),
        ({"mem_fraction": [1]}, "mem_fraction is [1]. It is auto"),
    ],
)
def test_refused(changes: dict[str, Any], said: str) -> None:
    problems = resolve(**changes).problems
    assert len(problems) == 1, problems
    assert said in problems[0]


@pytest.mark.parametrize(
    "word",
    [
        "--cap-add=ALL",
        "--cap-add=SYS_NICE,cap_sys_admin",
        '--cap-add="ALL"',
        '--cap-add=SYS_NICE,"SYS_ADMIN"',
        "--cap-add=SYS_MODULE",
        "--cap-add=",
        "--security-opt=seccomp=unconfined",
        "--security-opt=seccomp:unconfined",
        "--security-opt=apparmor=unconfined",
        "--security-opt=no-new-privileges=0",
        "--security-opt=no-new-privileges:FALSE",
        "--security-opt=unmask=ALL",
        "--security-opt=systempaths=unconfined",
        "--userns=keep-id",
        "--userns=",
        "--device=/dev",
        "--device=/dev/mem",
        "--device=/dev/sda",
        "--device=/dev/nvme0n1",
        "--device=/dev/infiniband/../sda",
        "--group-add=docker",
        "--group-add=0",
        "--runtime=/tmp/x",
    ],
)
def test_a_value_that_opens_the_host_is_refused(word: str) -> None:
    problems = resolve(engine_arguments=[word]).problems
    assert [f"engine_arguments: '{word}' is refused: " in problem for problem in problems] == [True], problems


def test_what_narrows_or_names_one_thing_is_taken() -> None:
    words = ["--cap-add=SYS_NICE,CAP_IPC_LOCK", "--security-opt=seccomp=/etc/x.json", "--security-opt=label=disable"]
    words += ["--userns=host", "--device=/dev/infiniband", "--device=/dev/infiniband/uverbs0:/dev/infiniband/uverbs0"]
    words += ["--device=nvidia.com/gpu=all", "--ulimit=memlock=-1:-1", "--group-add=110", "--add-host=db:10.0.0.1"]
    words += ["--cpuset-cpus=0-15,32-47", "--tmpfs=/tmp:size=8g", "--runtime=nvidia", "--read-only"]
    assert one(engine_arguments=words)["container"]["engine_arguments"] == words


def test_a_size_of_shared_memory_is_not_given_beside_that_of_the_host() -> None:
    desired = one(ipc="host")
    words = container_words.docker_words(one(ipc="host", runtime="docker"))
    assert desired["container"]["shm_size_bytes"] is None
    assert "--ipc=host" in words
    assert not [word for word in words if word.startswith("--shm-size")]


@pytest.mark.parametrize(
    ("engine", "facts", "cards", "devices", "gpus"),
    [
        ("podman", {}, None, ["nvidia.com/gpu=all"], None),
        ("podman", {}, [0, 3], ["nvidia.com/gpu=0", "nvidia.com/gpu=3"], None),
        ("docker", {"cdi": True}, [0], ["nvidia.com/gpu=0"], None),
        ("docker", {"cdi": False}, [0, 3], [], '"device=0,3"'),
        ("docker", {"cdi": False}, None, [], "all"),
    ],
)
def test_cards(
    engine: str, facts: dict[str, Any], cards: list[int] | None, devices: list[str], gpus: str | None
) -> None:
    host = spec.Host("h1", "h1", engines={engine: facts})
    container = one(host, runtime=engine, cards=cards)["container"]
    assert (container["devices"], container["gpus"]) == (devices, gpus)


def test_an_instance_on_the_cpu_asks_for_no_cards() -> None:
    arguments = {**MAIN["arguments"], "device": "cpu"}
    for engine in ("docker", "podman"):
        container = one(runtime=engine, cards=None, arguments=arguments)["container"]
        assert (container["devices"], container["gpus"]) == ([], None)


@pytest.mark.parametrize(
    ("driver", "parent"),
    [("systemd", "sglang-main.slice"), ("cgroupfs", "/sglang.slice/sglang-main.slice"), ("", "sglang-main.slice")],
)
def test_docker_is_told_the_slice_as_its_driver_takes_it(driver: str, parent: str) -> None:
    facts = container_spec.engine_facts({"docker": {"cgroup_driver": driver} if driver else {}})
    host = spec.Host("h1", "h1", engines=facts)
    assert one(host, runtime="docker")["container"]["cgroup_parent"] == parent


def test_engine_facts_of_readings() -> None:
    cards = {"files": [{"path": "/etc/cdi/nvidia.yaml", "spec": {"kind": "nvidia.com/gpu"}}]}
    with_cards = {"docker": {"cgroup_driver": "systemd", "cdi_directories": ["/etc/cdi"]}, "cdi": cards}
    assert container_spec.engine_facts(with_cards)["docker"] == {"cgroup_driver": "systemd", "cdi": True}
    assert container_spec.engine_facts({**with_cards, "cdi": {"files": []}})["docker"]["cdi"] is False
    without = {"docker": {"cgroup_driver": "cgroupfs", "cdi_directories": []}, "cdi": cards}
    assert container_spec.engine_facts(without)["docker"] == {"cgroup_driver": "cgroupfs", "cdi": False}
    failed = {"docker": {"cgroup_driver": {"unknown": "x"}, "cdi_directories": {"unknown": "x"}}}
    assert container_spec.engine_facts(failed)["docker"] == {"unknown": "its control groups: x"}
    garbled = {"files": [{"path": "/etc/cdi/nvidia.yaml", "spec": {"unknown": "no YAML"}}]}
    for cdi, why in ((garbled, "no YAML"), ({"unknown": "took too long"}, "took too long")):
        facts = container_spec.engine_facts({**with_cards, "cdi": cdi})["docker"]
        assert facts == {"cgroup_driver": "systemd", "cdi": False, "cdi_unknown": why}


@pytest.mark.parametrize(
    ("facts", "arguments", "said"),
    [
        ({"unknown": "its control groups: late"}, {"device": "cpu"}, "(its control groups: late)"),
        ({"cgroup_driver": "systemd", "cdi": False, "cdi_unknown": "late"}, {}, "knows the cards by CDI: late"),
    ],
)
def test_a_unit_is_not_made_of_what_could_not_be_read(facts: Any, arguments: Any, said: str) -> None:
    host = spec.Host("h1", "h1", engines={"docker": facts})
    (problem,) = resolve(host, runtime="docker", arguments={**MAIN["arguments"], **arguments}).problems
    assert said in problem
    assert "did not tell what its unit depends on" in problem
    assert resolve(host, runtime="podman").problems == []


def test_cards_that_nobody_needs_need_not_be_known() -> None:
    host = spec.Host("h1", "h1", engines={"docker": {"cgroup_driver": "systemd", "cdi": False, "cdi_unknown": "late"}})
    arguments = {**MAIN["arguments"], "device": "cpu"}
    assert resolve(host, runtime="docker", cards=None, arguments=arguments).problems == []


def test_secrets_reach_a_container_through_files_of_its_own_user() -> None:
    outcome = resolve(api_key="k-123456789", hf_token="hf-987654321", model="Qwen/Qwen3-8B", revision="abc")
    desired = outcome.instances[0].desired
    assert desired["argv"][-2:] == ["--config", "/run/sglang/credentials/main/config.yml"]
    assert desired["environment"]["HF_TOKEN_PATH"] == "/run/sglang/credentials/main/hf_token"
    mount = {"source": "/run/sglang/credentials/main", "target": "/run/sglang/credentials/main", "read_only": True}
    assert mount in desired["container"]["mounts"]
    assert "k-123456789" not in str(outcome.instances[0].as_dict())


def test_files_that_arguments_name_are_seen_in_the_container() -> None:
    arguments = {
        **MAIN["arguments"],
        "chat-template": "/srv/templates/a.jinja",
        "tokenizer-path": "/srv/models/tiny/tokenizer",
        "lora-paths": ["one=/srv/lora/one", "/srv/lora/two"],
        "speculative-draft-model-path": "org/hub-model",
    }
    targets = [mount["target"] for mount in one(arguments=arguments)["container"]["mounts"]]
    assert [target for target in targets if target.startswith("/srv")] == [
        "/srv/lora/one",
        "/srv/lora/two",
        "/srv/models/tiny",
        "/srv/templates/a.jinja",
    ]


# --- the words ------------------------------------------------------------------------------------------------------

# Keys of the section [Container] that podman 4.4.0 knows (pkg/systemd/quadlet/quadlet.go, supportedContainerKeys).
KEYS_OF_4_4 = {
    *("ContainerName", "Image", "Environment", "EnvironmentFile", "EnvironmentHost", "Exec", "NoNewPrivileges"),
    *("DropCapability", "AddCapability", "ReadOnly", "RemapUsers", "RemapUid", "RemapGid", "RemapUidSize", "Notify"),
    *("ExposeHostPort", "PublishPort", "User", "Group", "Volume", "PodmanArgs", "Label", "Annotation", "RunInit"),
    *("VolatileTmp", "Timezone", "SeccompProfile", "AddDevice", "Network"),
}


def test_a_quadlet_has_no_key_that_its_first_podman_does_not_know() -> None:
    desired = one(ipc="host", engine_arguments=["--device=/dev/infiniband"], environment={"A": "b c"})
    text = "\n".join(container_words.quadlet_lines(desired)).replace("\\\n", "")
    keys = {line.partition("=")[0] for line in text.splitlines()}
    assert keys <= KEYS_OF_4_4
    assert "PodmanArgs=--device=/dev/infiniband" in text


def test_both_engines_are_told_the_same() -> None:
    changes: dict[str, Any] = {"mounts": [{"source": "/a", "target": "/b"}], "environment": {"X": "1"}}
    docker = container_words.docker_words(one(runtime="docker", **changes))
    desired = one(**changes)
    lines = container_words.quadlet_lines(desired)
    grace = desired["container"]["stop_timeout_s"]
    for option in (
        f"--stop-timeout={grace}",
        "--stop-signal=SIGTERM",
        "--pull=never",
        "--entrypoint=python3",
        "--workdir=/var/lib/sglang/main",
        "--pids-limit=-1",
    ):
        assert option in docker
        assert f"PodmanArgs={option}" in lines
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges", "--init=false", "--network=host"} <= set(docker)
    assert {"DropCapability=all", "NoNewPrivileges=true", "RunInit=false", "Network=host"} <= set(lines)
    assert "--mount=type=bind,source=/a,target=/b,readonly" in docker
    assert "Volume=/a:/b:ro" in lines
    image = docker.index(desired["container"]["run_image"])
    assert docker[image + 1 :] == desired["argv"][1:]
    said = next("\n".join(lines[at:]) for at, line in enumerate(lines) if line.startswith("Exec="))
    assert shlex.split(said.removeprefix("Exec=").replace("\\\n", " ")) == desired["argv"][1:]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
def test_no_value_is_expanded_by_systemd(value: str) -> None:
    # What systemd makes of a word: %% is %, $$ is $; a single one would be a specifier or a variable.
    word = exec_word(f"--env=A={value}")
    assert not re.search(r"(?<!%)%(%%)*(?!%)", word)
    assert not re.search(r"(?<!\$)\$(\$\$)*(?!\$)", word)


def test_a_unit_waits_for_the_mounts_of_what_is_read() -> None:
    mounts = [{"source": "/data/templates"}, {"source": "/scratch", "read_only": False}]
    outcome = resolve(mounts=mounts, runtime="docker", api_key="k-123456789")
    unit = outcome.instances[0].unit
    assert unit["read_paths"] == ["/data/templates", "/scratch", "/srv/models/tiny"]
    assert "/var/cache/sglang" in unit["read_write_paths"]
    assert resolve(runtime="docker", model="Qwen/Qwen3-8B", revision="abc").instances[0].unit["read_paths"] == []
