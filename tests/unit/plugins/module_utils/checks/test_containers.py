"""Engines, toolkit, CDI and running containers: read from recordings, and judged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    cdi_readings,
    container_checks,
    container_declared,
    container_readings,
    container_versions,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.cdi_readings import Cdi, CdiFile, CdiSpec
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.container_readings import (
    Containers,
    ContainerToolkit,
    Engine,
    ImageConfig,
    Running,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell, Output, Unknown
from ansible_collections.serving.sglang.plugins.module_utils.finding import Finding

CASES = {
    case["id"]: case["given"]
    for case in yaml.safe_load(
        (Path(__file__).resolve().parents[4] / "data" / "cases" / "containers.yml").read_text(encoding="utf-8")
    )
}
GPU = "GPU-d17572cc-10a2-4a90-04a1-4ea64aac04b2"
OTHER_GPU = "GPU-00000000-10a2-4a90-04a1-4ea64aac04b2"
DRIVER = "580.159.04"
SPEC = CdiSpec("0.5.0", "nvidia.com/gpu", ("0", GPU, "all"), (0, 5, 0), ("/dev/nvidia0",), (), (DRIVER,))
UNREAD = Unknown("it did not answer")
FINE_DOCKER = Engine(
    "docker",
    installed=True,
    version="28.2.2",
    rootless=False,
    cgroup_driver="systemd",
    cgroup_version="2",
    user_namespaces=False,
    live_restore=True,
    log_driver="journald",
    default_runtime="runc",
    runtimes=("runc",),
    cdi_directories=("/etc/cdi", "/var/run/cdi"),
)
FINE_PODMAN = Engine("podman", installed=True, version="5.4.2", rootless=False)
SERVER: dict[str, Any] = {
    "name": "main",
    "image": "lmsysorg/sglang:v0.5.22",
    "entrypoint": [],
    "command": ["python3", "-m", "sglang.launch_server"],
}


def cdi(*specs: CdiSpec | Unknown, path: str = "/etc/cdi/nvidia.yaml", everybody: bool = True) -> Cdi:
    return Cdi(tuple(CdiFile(path, spec, everybody) for spec in specs))


def host(runtime: str = "docker", declared: dict[str, Any] | None = None, **read: Any) -> Containers:
    """A host where all is well but for what is given."""
    fine: dict[str, Any] = {
        "docker": FINE_DOCKER if runtime == "docker" else Engine("docker"),
        "podman": FINE_PODMAN if runtime == "podman" else Engine("podman"),
        "toolkit": ContainerToolkit(True, "1.19.0", "auto"),
        "daemon_json": {},
        "cdi": cdi(SPEC),
        "cards": (GPU,),
        "driver": DRIVER,
        "nodes_without_link": (),
        "images": {SERVER["image"]: ImageConfig()},
        "running": (),
    }
    servers = container_readings.servers_of([{**SERVER, "runtime": runtime, **(declared or {})}])
    return Containers(servers=servers, **{**fine, **read})


def found(containers: Containers, kind: str) -> list[Finding]:
    return [
        finding
        for finding in run_checks(container_checks.CHECKS, containers)
        if finding.id == kind and finding.severity != "ok"
    ]


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_host_where_all_is_well(runtime: str) -> None:
    findings = run_checks(container_checks.CHECKS, host(runtime))
    assert {finding.severity for finding in findings} == {"ok"}
    assert len(findings) == len(container_checks.CHECKS)


# --- the cases ------------------------------------------------------------------------------------------------------


def test_case_podman_too_old_for_cdi() -> None:
    case = CASES["podman-too-old-for-cdi"]
    containers = host("podman", podman=replace(FINE_PODMAN, version=case["podman"]))
    assert case["device"].startswith(cdi_readings.KIND_OF_CARDS)
    (finding,) = found(containers, "podman.too_old")
    assert finding.severity == "error"
    assert "CDI needs podman 4.1, quadlets 4.4" in finding.summary
    (finding,) = found(host("podman", podman=replace(FINE_PODMAN, version="4.3.1")), "podman.too_old")
    assert "quadlets need podman 4.4" in finding.summary
    assert not found(host("podman", podman=replace(FINE_PODMAN, version="4.4.0")), "podman.too_old")
    on_cpu = {"arguments": {"device": "cpu"}}
    (finding,) = found(host("podman", on_cpu, podman=replace(FINE_PODMAN, version="3.0.1")), "podman.too_old")
    assert "CDI" not in finding.summary


def test_case_toolkit_newer_than_podman_understands() -> None:
    case = CASES["toolkit-newer-than-podman-understands"]
    version = case["cdi_spec_version"]
    assert case["ctk_lists_devices"]
    spec = replace(SPEC, version=version, needs=container_versions.parse_version(version) or ())
    containers = host(
        "podman",
        podman=replace(FINE_PODMAN, version=case["podman"]),
        toolkit=ContainerToolkit(True, case["toolkit"], "auto"),
        cdi=cdi(spec),
    )
    (finding,) = found(containers, "container.known_pair")
    assert finding.severity == "error"
    assert "1.19.1" in finding.evidence
    assert "4.9.3" in finding.evidence
    assert "nvidia-container-toolkit 1.19.0" in finding.fix
    assert "podman 5.x" in finding.fix
    # The specification is there: nobody is sent to write a missing one.
    assert not found(containers, "cdi.missing")
    assert "/etc/cdi/nvidia.yaml is there with cdiVersion 0.7.0" in finding.evidence
    (finding,) = found(containers, "cdi.version_not_understood")
    assert finding.severity == "error"
    # Either way out is one.
    for way_out in (
        {"podman": replace(FINE_PODMAN, version="5.4.2")},
        {"toolkit": ContainerToolkit(True, "1.19.0", "auto"), "cdi": cdi(SPEC)},
        {"cdi": cdi(SPEC)},
    ):
        fixed = replace(containers, **way_out)
        assert not found(fixed, "container.known_pair"), way_out
        assert not found(fixed, "cdi.version_not_understood"), way_out


def test_case_daemon_reload_took_the_cards() -> None:
    case = CASES["daemon-reload-took-the-cards"]
    before, after = tuple(case["device_allow_before"]), tuple(case["device_allow_after"])
    container = Running("sglang-main", "docker", True, False, after, before, case["nvidia_smi_inside"])
    (finding,) = found(host(running=(container,)), "container.lost_cards")
    assert finding.severity == "error"
    assert "has lost its devices through a reload" in finding.summary
    assert "must be recreated in a drained restart, after which the cause is removed" in finding.summary
    assert "/dev/char/195:0 rwm" in finding.evidence
    assert "char-pts rwm" in finding.evidence
    assert "Failed to initialize NVML" in finding.evidence
    # Each of the two pieces of evidence is enough; none of them is none.
    assert found(host(running=(replace(container, inside=""),)), "container.lost_cards")
    assert found(host(running=(replace(container, before=None),)), "container.lost_cards")
    kept = replace(container, allowed=before, inside="")
    assert not found(host(running=(kept,)), "container.lost_cards")
    only_at_risk = replace(container, before=None, inside=f"GPU 0: NVIDIA H200 (UUID: {GPU})")
    assert not found(host(running=(only_at_risk,)), "container.lost_cards")
    (finding,) = found(host(running=(only_at_risk,)), "container.reload_takes_cards")
    assert finding.severity == "warning"


def test_case_shared_memory_too_small_for_nccl() -> None:
    case = CASES["shared-memory-too-small-for-nccl"]
    declared = {"shm_size": case["shm_size"], "ipc": case["ipc"], "tp": case["tp"]}
    (finding,) = found(host(case["runtime"], declared), "container.shm_too_small")
    assert finding.severity == "error"
    assert "Docker's default of 64 MB" in finding.summary
    assert "refused" in finding.summary
    assert finding.fix == "shm_size: 32g, or ipc: host (a size has no effect with it)"
    (finding,) = found(host(case["runtime"], {**declared, "ipc": "host", "shm_size": "32g"}), "container.shm_no_effect")
    assert "32g" in finding.summary
    assert "no effect" in finding.summary


# --- shared memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "severity"),
    [
        ({"tp": 1}, None),
        ({"tp": 2}, "error"),
        ({"tp": 2, "shm_size": "64m"}, "error"),
        ({"tp": 2, "shm_size": "512m"}, "warning"),
        ({"tp": 2, "shm_size": "1g"}, None),
        ({"tp": 2, "shm_size": "32g"}, None),
        ({"tp": 2, "ipc": "host"}, None),
        ({"tp": 2, "ipc": "container:other"}, None),
        ({"tp": 1, "ipc": "none"}, "error"),
        ({"tp": 2, "shm_size": "much"}, "unknown"),
        ({"arguments": {"tp": 2, "pp-size": 2}}, "error"),
        ({"arguments": {"tp-size": "${TP}"}}, None),
    ],
)
def test_shared_memory(declared: dict[str, Any], severity: str | None) -> None:
    for runtime in ("docker", "podman"):
        findings = found(host(runtime, declared), "container.shm_too_small")
        assert {finding.severity for finding in findings} == ({severity} if severity else set())


def test_a_default_that_docker_was_told() -> None:
    told = {"default-shm-size": "8G"}
    assert not found(host("docker", {"tp": 8}, daemon_json=told), "container.shm_too_small")
    assert found(host("podman", {"tp": 8}, daemon_json=told), "container.shm_too_small")
    assert found(host("docker", {"tp": 8}, daemon_json={"default-shm-size": []}), "container.shm_too_small")


@given(st.integers(2, 64), st.integers(1, 1 << 40))
def test_more_shared_memory_is_never_worse(tp: int, size: int) -> None:
    order = ["error", "warning", "ok"]

    def verdict(text: str) -> int:
        findings = found(host("docker", {"tp": tp, "shm_size": text}), "container.shm_too_small")
        return order.index(findings[0].severity if findings else "ok")

    assert verdict(str(size)) <= verdict(str(size * 2))


# --- signals --------------------------------------------------------------------------------------------------------

PYTHON = "python3 -m sglang.launch_server --port 30000"


@pytest.mark.parametrize(
    ("words", "environment", "kind"),
    [
        (PYTHON, {}, "direct"),
        (f"tini -- {PYTHON}", {}, "direct"),
        (f"/usr/bin/tini -g -- {PYTHON}", {}, "group"),
        (f"tini -vg {PYTHON}", {}, "group"),
        (f"tini -p SIGTERM -- {PYTHON}", {}, "direct"),
        (f"/sbin/docker-init -- {PYTHON}", {}, "direct"),
        (f"/sbin/docker-init -- {PYTHON}", {"TINI_KILL_PROCESS_GROUP": "1"}, "group"),
        (f"dumb-init {PYTHON}", {}, "group"),
        (f"dumb-init --single-child -- {PYTHON}", {}, "direct"),
        (f"dumb-init {PYTHON}", {"DUMB_INIT_SETSID": "0"}, "direct"),
        (f"bash -c 'exec {PYTHON}'", {}, "direct"),
        (f"bash -lc 'source /venv/bin/activate && exec {PYTHON}'", {}, "direct"),
        (f"sh -c 'sleep 1; {PYTHON}'", {}, "kept"),
        (f"sh -c '{PYTHON} | tee /log'", {}, "kept"),
        (f"sh -c '{PYTHON}'", {}, "maybe kept"),
        (f"tini -- sh -c 'cd /x && {PYTHON}'", {}, "kept"),
        (f"/opt/nvidia/nvidia_entrypoint.sh {PYTHON}", {}, "direct"),
        (f"/start.sh {PYTHON}", {}, "not known"),
        ("bash /start", {}, "not known"),
        ("bash", {}, "not known"),
        ("", {}, "not known"),
    ],
)
def test_whom_a_stop_reaches(words: str, environment: dict[str, str], kind: str) -> None:
    split = container_readings._words(words) or ()
    assert container_declared.forwarding(split, environment).kind == kind


@pytest.mark.parametrize(
    ("declared", "image", "severity", "words"),
    [
        ({"entrypoint": ["tini", "-g", "--"]}, ImageConfig(), "error", "whole group"),
        ({"entrypoint": None}, ImageConfig(("tini", "-g", "--"), ()), "error", "whole group"),
        ({"entrypoint": None}, ImageConfig(("sh", "-c", "a; b"), ()), "error", "SIGKILL"),
        ({"entrypoint": "sh -c python3"}, ImageConfig(), "warning", "may not reach"),
        ({"entrypoint": ["/start.sh"]}, ImageConfig(), "unknown", "could not tell"),
        ({"entrypoint": None}, UNREAD, "unknown", "it did not answer"),
        ({}, ImageConfig(stop_signal="SIGINT"), "error", "SIGINT"),
        ({"stop_signal": "SIGTERM"}, ImageConfig(stop_signal="SIGINT"), None, ""),
        ({"entrypoint": []}, ImageConfig(("tini", "-g", "--"), ()), None, ""),
        ({"init": True}, ImageConfig(), None, ""),
        ({"init": True}, ImageConfig(environment={"TINI_KILL_PROCESS_GROUP": "1"}), "error", "whole group"),
        ({"entrypoint": None, "command": None}, ImageConfig((), ("bash",), "SIGTERM"), "unknown", "could not tell"),
    ],
)
def test_signals(declared: dict[str, Any], image: Any, severity: str | None, words: str) -> None:
    findings = found(host("docker", declared, images={SERVER["image"]: image}), "container.signals")
    assert {finding.severity for finding in findings} == ({severity} if severity else set())
    assert all(words in finding.summary + finding.evidence for finding in findings)


# --- every other fault ----------------------------------------------------------------------------------------------

GONE = replace(SPEC, missing=("/usr/lib/libcuda.so.570.1",))


@pytest.mark.parametrize(
    ("kind", "runtime", "read", "severity", "words"),
    [
        ("container.runtime_missing", "docker", {"docker": Engine("docker", installed=False)}, "error", "docker.io"),
        ("container.runtime_missing", "podman", {"podman": Engine("podman", installed=False)}, "error", "podman"),
        ("container.runtime_missing", "podman", {"podman": Engine("podman", installed=UNREAD)}, "unknown", "answer"),
        ("docker.daemon_unreachable", "docker", {"docker": replace(FINE_DOCKER, problem="no daemon")}, "error", "no d"),
        (
            "docker.daemon_unreachable",
            "docker",
            {"docker": replace(FINE_DOCKER, problem="Permission denied")},
            "error",
            "become",
        ),
        ("podman.too_old", "podman", {"podman": Engine("podman", installed=False)}, "unknown", "not installed"),
        ("podman.too_old", "podman", {"podman": replace(FINE_PODMAN, version="dev")}, "unknown", "'dev'"),
        ("container.toolkit_missing", "docker", {"toolkit": ContainerToolkit(False)}, "error", "apt-get"),
        ("container.toolkit_missing", "docker", {"toolkit": UNREAD}, "unknown", "answer"),
        ("container.known_pair", "podman", {"toolkit": ContainerToolkit(True, "1.17.0")}, "error", "1.17.1"),
        ("container.known_pair", "podman", {"toolkit": ContainerToolkit(True, "?")}, "unknown", "'?'"),
        ("cdi.missing", "podman", {"cdi": Cdi()}, "error", "nvidia-ctk cdi generate"),
        ("cdi.missing", "podman", {"cdi": UNREAD}, "unknown", "answer"),
        ("cdi.unreadable", "podman", {"cdi": cdi(Unknown("/etc/cdi/nvidia.yaml is empty"))}, "error", "is empty"),
        ("cdi.unreadable", "podman", {"cdi": cdi(Unknown("YAML that needs PyYAML"))}, "unknown", "python3-yaml"),
        ("cdi.stale_paths", "podman", {"cdi": cdi(GONE)}, "error", "libcuda.so.570.1"),
        ("cdi.stale_paths", "docker", {"cdi": cdi(GONE)}, "error", "libcuda.so.570.1"),
        ("cdi.stale_driver", "podman", {"driver": "580.200.01"}, "error", "580.200.01 is loaded"),
        ("cdi.stale_driver", "podman", {"driver": UNREAD}, "unknown", "answer"),
        ("cdi.devices_differ", "podman", {"cards": (GPU, OTHER_GPU)}, "error", OTHER_GPU),
        ("cdi.devices_differ", "podman", {"cards": (OTHER_GPU,)}, "error", f"gone: {GPU}"),
        ("cdi.devices_differ", "podman", {"cards": UNREAD}, "unknown", "answer"),
        ("cdi.devices_differ", "podman", {"cdi": cdi(replace(SPEC, devices=("0", "1")))}, "error", "names 2 cards"),
        ("cdi.named_twice", "podman", {"cdi": cdi(SPEC, SPEC)}, "error", "neither counts"),
        (
            "cdi.named_twice",
            "podman",
            {"cdi": Cdi((CdiFile("/etc/cdi/a.yaml", SPEC), CdiFile("/var/run/cdi/a.yaml", SPEC)))},
            "warning",
            "rm -- /etc/cdi/a.yaml",
        ),
        ("cdi.version_not_understood", "podman", {"cdi": cdi(replace(SPEC, needs=(1, 1, 0)))}, "unknown", "may not"),
        ("container.toolkit_mode", "docker", {"toolkit": ContainerToolkit(True, "1.19.0", "csv")}, "warning", "csv"),
        ("container.toolkit_mode", "docker", {"toolkit": ContainerToolkit(True, "1.19.0", UNREAD)}, "unknown", "answ"),
        ("docker.cgroup_driver", "docker", {"docker": replace(FINE_DOCKER, cgroup_driver="cgroupfs")}, "error", "v2"),
        ("docker.cgroup_driver", "docker", {"docker": replace(FINE_DOCKER, cgroup_driver=UNREAD)}, "unknown", "answer"),
        ("container.lost_cards", "docker", {"running": UNREAD}, "unknown", "answer"),
        ("container.char_links_missing", "docker", {"nodes_without_link": ("/dev/nvidia0 (195:0)",)}, "warning", "195"),
        ("docker.live_restore", "docker", {"docker": replace(FINE_DOCKER, live_restore=False)}, "warning", "drain"),
        ("docker.log_unbounded", "docker", {"docker": replace(FINE_DOCKER, log_driver="json-file")}, "warning", "max"),
        ("container.rootless", "podman", {"podman": replace(FINE_PODMAN, rootless=True)}, "warning", "podman"),
    ],
)
def test_a_fault_is_found_and_only_where_it_is(
    kind: str, runtime: str, read: dict[str, Any], severity: str, words: str
) -> None:
    (finding,) = found(host(runtime, **read), kind)
    assert finding.severity == severity
    assert words in f"{finding.summary} {finding.evidence} {finding.fix}"
    assert not found(host(runtime), kind)


def test_a_specification_that_root_alone_reads_is_no_fault_for_root() -> None:
    own = cdi(SPEC, everybody=False)
    assert not found(host("podman", cdi=own), "cdi.unreadable")
    (finding,) = found(host("podman", cdi=own, podman=replace(FINE_PODMAN, rootless=True)), "cdi.unreadable")
    assert finding.fix == "chmod a+r /etc/cdi/nvidia.yaml"


def test_parts_of_a_card_are_compared_as_parts() -> None:
    part = "MIG-63feeb45-94c6-5cb9-78ea-98e9b7a5be6b"
    spec = replace(SPEC, devices=("0:0", part, "all"))
    assert not found(host("podman", cdi=cdi(spec), cards=(GPU, part)), "cdi.devices_differ")
    assert found(host("podman", cdi=cdi(spec), cards=(GPU,)), "cdi.devices_differ")


def test_docker_that_reads_no_specifications_is_not_judged_by_them() -> None:
    by_hook = replace(FINE_DOCKER, version="24.0.7", cdi_directories=())
    containers = host("docker", docker=by_hook, cdi=cdi(GONE), toolkit=ContainerToolkit(True, "1.19.1"))
    for kind in ("cdi.stale_paths", "container.known_pair", "cdi.version_not_understood"):
        assert not found(containers, kind)


def test_privileges_and_user_namespaces() -> None:
    (finding,) = found(host("docker", {"privileged": True}), "container.privileged")
    assert finding.severity == "warning"
    remapping = replace(FINE_DOCKER, user_namespaces=True)
    (finding,) = found(host("docker", {"ipc": "host"}, docker=remapping), "container.user_namespace")
    assert finding.severity == "error"
    (finding,) = found(host("docker", docker=remapping), "container.user_namespace")
    assert finding.severity == "warning"
    assert not found(host("docker", {"userns": "host", "ipc": "host"}, docker=remapping), "container.user_namespace")
    assert found(host("podman", {"userns": "keep-id"}), "container.user_namespace")


def test_of_an_engine_that_is_not_there_nothing_is_called_fine() -> None:
    findings = run_checks(container_checks.CHECKS, host("podman", podman=Engine("podman", installed=False)))
    fine = {finding.id for finding in findings if finding.severity == "ok"}
    assert not {name for name in fine if name.startswith(("podman.", "cdi.version"))}


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "version", "highest"),
    [("podman", (3, 4), None), ("podman", (4, 3, 1), (0, 5, 0)), ("podman", (4, 9, 3), (0, 6, 0)),
     ("podman", (5, 0, 3), (0, 6, 0)),
     ("podman", (5, 1), (0, 7, 0)), ("docker", (24, 0, 7), None), ("docker", (26, 1, 0), (0, 7, 0))],
)  # fmt: skip
def test_what_an_engine_reads(engine: str, version: tuple[int, ...], highest: tuple[int, ...] | None) -> None:
    row = container_versions.understands(engine, version)
    assert (row.highest if row else None) == highest


@given(st.text(max_size=20))
def test_any_text_is_a_version_or_none(text: str) -> None:
    version = container_versions.parse_version(text)
    assert version is None or version


def test_versions_as_distributions_write_them() -> None:
    assert container_versions.parse_version("4.9.3+ds1-1ubuntu0.2") == (4, 9, 3)
    assert container_versions.parse_version("v5.0.0-rc1") == (5, 0, 0)


# --- readers --------------------------------------------------------------------------------------------------------

DOCKER_INFO: dict[str, Any] = {
    "ServerVersion": "28.2.2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
    "LiveRestoreEnabled": False,
    "LoggingDriver": "json-file",
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}
NO_DAEMON = {
    "ServerVersion": "",
    "ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."],
    "ClientInfo": {"Version": "28.2.2"},
}


def test_what_docker_says() -> None:
    docker = container_readings.docker_of(DOCKER_INFO)
    assert docker.version == "28.2.2"
    assert docker.cgroup_driver == "systemd"
    assert docker.runtimes == ("nvidia", "runc")
    assert docker.rootless is False
    rootless = container_readings.docker_of({**DOCKER_INFO, "SecurityOptions": ["name=rootless", "name=userns"]})
    assert rootless.rootless is True
    assert rootless.user_namespaces is True


def test_a_daemon_that_does_not_answer_is_not_a_missing_docker() -> None:
    docker = container_readings.docker_of(NO_DAEMON)
    assert docker.installed is True
    assert docker.version == "28.2.2"
    assert "Cannot connect" in docker.problem
    assert isinstance(docker.cgroup_driver, Unknown)
    containers = host(docker=docker)
    assert not found(containers, "container.runtime_missing")
    (finding,) = found(containers, "docker.daemon_unreachable")
    assert "Cannot connect" in finding.evidence
    for kind in ("docker.cgroup_driver", "docker.live_restore", "container.rootless"):
        (finding,) = found(containers, kind)
        assert finding.severity == "unknown"


def test_a_stand_in_of_podman_is_no_docker() -> None:
    docker = container_readings.docker_of({"host": {"arch": "amd64"}, "store": {}, "version": {"Version": "4.9.3"}})
    (finding,) = found(host(docker=docker), "docker.daemon_unreachable")
    assert "podman-docker" in finding.evidence


def test_podman_is_not_made_to_make_its_storage(commands: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(container_readings, "PODMAN_STORAGE", str(tmp_path / "none"))
    monkeypatch.setattr(container_readings.os, "geteuid", lambda: 0)
    asked: list[list[str]] = []

    def run(argv: list[str], limit_s: float, **_more: Any) -> Output:
        asked.append(argv)
        return said("podman version 5.4.2\n")

    monkeypatch.setattr(container_readings, "run_command", run)
    containers = container_readings.read_containers([{**SERVER, "runtime": "podman"}])
    assert [argv for argv in asked if argv[0] == "podman"] == [["podman", "--version"]]
    assert containers.running == ()
    assert isinstance(containers.images[SERVER["image"]], Unknown)


Ran = Callable[[dict[str, Output]], None]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Answers to commands by their first words; anything else is not installed."""

    def install(answers: dict[str, Output]) -> None:
        def run(argv: list[str], limit_s: float, **_more: Any) -> Output:
            line = " ".join(argv)
            for start, answer in answers.items():
                if line.startswith(start):
                    return answer
            raise CouldNotTell(f"{argv[0]} is not installed")

        monkeypatch.setattr(container_readings, "run_command", run)

    return install


def said(text: str, code: int = 0, complaint: str = "") -> Output:
    return Output(code, text, complaint)


def test_engines_that_are_there_garbled_or_missing(commands: Ran) -> None:
    commands({"podman --version": said("podman version 4.9.3\n")})
    assert container_readings.read_podman().version == "4.9.3"
    assert container_readings.read_docker() == Engine("docker", installed=False)
    assert container_readings.read_toolkit() == ContainerToolkit(False)
    commands({"podman --version": said("Error: cannot", 125), "docker info": said("[]"), "nvidia-ctk": said("?")})
    for read in (container_readings.read_podman, container_readings.read_docker, container_readings.read_toolkit):
        with pytest.raises(CouldNotTell):
            read()


def test_the_toolkit_and_its_mode(commands: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands({"nvidia-ctk": said("NVIDIA Container Toolkit CLI version 1.19.1\ncommit: 53b2\n")})
    config = tmp_path / "config.toml"
    monkeypatch.setattr(container_readings, "TOOLKIT_CONFIG", str(config))
    assert container_readings.read_toolkit() == ContainerToolkit(True, "1.19.1", "")
    config.write_text(
        '#mode = "x"\n[nvidia-container-cli]\nmode = "y"\n[nvidia-container-runtime]\n#mode = "auto"\nmode = "legacy"\n'
        '[nvidia-container-runtime.modes.cdi]\nmode = "z"\n'
    )
    assert container_readings.read_toolkit().mode == "legacy"


def test_settings_of_docker(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    assert container_readings.read_daemon_json(str(path)) == {}
    path.write_text("")
    assert container_readings.read_daemon_json(str(path)) == {}
    path.write_text('{"log-driver": "journald", "proxies": {"http-proxy": "http://user:secret@proxy"}}')
    assert container_readings.read_daemon_json(str(path)) == {"log-driver": "journald"}
    for garbled in ("{", "[]"):
        path.write_text(garbled)
        with pytest.raises(CouldNotTell):
            container_readings.read_daemon_json(str(path))


def test_cards_as_nvidia_smi_lists_them(commands: Ran) -> None:
    listed = f"GPU 0: NVIDIA H200 (UUID: {GPU})\n  MIG 1g.18gb     Device  0: (UUID: MIG-63feeb45-94c6)\n"
    commands({"nvidia-smi -L": said(listed)})
    assert container_readings.read_cards() == (GPU, "MIG-63feeb45-94c6")
    commands({"nvidia-smi -L": said("NVIDIA-SMI has failed", 9)})
    with pytest.raises(CouldNotTell, match="has failed"):
        container_readings.read_cards()


def container(name: str, identity: str, **host_config: Any) -> dict[str, Any]:
    return {
        "Id": identity,
        "Name": f"/{name}",
        "HostConfig": host_config,
        "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all", "EMPTY"]},
    }


def test_running_containers_with_cards(commands: Ran, tmp_path: Path) -> None:
    said_of = [
        container("legacy", "aa", DeviceRequests=[{"Driver": "", "Count": -1}]),
        container("by-cdi", "bb", DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]),
        container("by-runtime", "cc", Runtime="nvidia"),
        container("without", "dd", Runtime="runc", DeviceRequests=None, Devices=None),
    ]
    drop_in = tmp_path / "docker-aa.scope.d"
    drop_in.mkdir()
    (drop_in / "50-DeviceAllow.conf").write_text(
        "# made\n[Scope]\nDeviceAllow=/dev/char/195:0 rwm\nDeviceAllow=\nDeviceAllow=char-pts rwm\n"
    )
    kept = tmp_path / "docker-bb.scope.d"
    kept.mkdir()
    (kept / "50-DeviceAllow.conf").write_text("[Scope]\nDeviceAllow=\nDeviceAllow=/dev/char/195:0 rwm\n")
    commands(
        {
            "docker ps": said("aa\nbb\ncc\ndd\n"),
            "docker inspect": said(json.dumps(said_of)),
            "docker exec legacy nvidia-smi": said("Failed to initialize NVML: Unknown Error\n", 255),
        }
    )
    running = container_readings.read_running(["docker"], {"legacy": ["/dev/char/195:0 rwm"]}, str(tmp_path))
    assert [one.name for one in running] == ["legacy", "by-cdi", "by-runtime"]
    legacy, by_cdi, by_runtime = running
    assert legacy.allowed == ("char-pts rwm",)
    assert legacy.inside == "Failed to initialize NVML: Unknown Error"
    assert legacy.before == ("/dev/char/195:0 rwm",)
    assert by_cdi.by_cdi
    assert by_cdi.inside == ""
    assert isinstance(by_runtime.allowed, Unknown)
    findings = found(host(running=running), "container.lost_cards")
    assert [finding.summary.split()[1] for finding in findings] == ["legacy"]


def test_a_container_of_podman_with_a_card(commands: Ran, tmp_path: Path) -> None:
    # As podman 4.3.1 said it of a device that a CDI specification names.
    device = {"PathOnHost": "/dev/null", "PathInContainer": "/dev/nvidia0", "CgroupPermissions": ""}
    commands({"podman inspect": said(json.dumps([container("sglang-b", "ff", Devices=[device])]))})
    ((running, identity),) = container_readings.running_of(
        container_readings.run_command(["podman", "inspect"], 1).stdout, "podman"
    )
    assert (running.name, identity, running.by_cdi) == ("sglang-b", "ff", True)


@pytest.mark.parametrize("text", ["", "[1]", '[{"Id": "x"}]', "null"])
def test_garbled_containers_are_not_told(text: str, commands: Ran) -> None:
    commands({"docker ps": said("aa"), "docker inspect": said(text)})
    with pytest.raises(CouldNotTell, match="cannot be understood"):
        container_readings.read_running(["docker"], {})


def test_what_an_image_starts_with(commands: Ran) -> None:
    config = {"Entrypoint": ["tini", "-g", "--"], "Cmd": None, "StopSignal": "SIGINT", "Env": ["A=b=c", "D"]}
    commands({"docker image inspect": said(json.dumps([{"Config": config}]))})
    image = container_readings.read_image("docker", "x")
    assert image == ImageConfig(("tini", "-g", "--"), (), "SIGINT", {"A": "b=c", "D": ""})
    commands({"docker image inspect": said("[]", 1, "Error: No such image: x")})
    with pytest.raises(CouldNotTell, match="No such image"):
        container_readings.read_image("docker", "x")
    for garbled in ("[]", "x", "[{}]", '[{"Config": 3}]'):
        with pytest.raises(CouldNotTell):
            container_readings.image_of(garbled, "x")


def test_a_pin_is_asked_for_by_its_digest(commands: Ran) -> None:
    digest = f"sha256:{'1' * 64}"
    config = json.dumps([{"Config": {}, "Os": "linux", "Architecture": "arm64"}])
    commands({f"docker image inspect registry.example.com/sglang@{digest}": said(config)})
    image = container_readings.read_image("docker", f"registry.example.com/sglang:v0.5.22@{digest}")
    assert (image.system, image.architecture) == ("linux", "arm64")


@pytest.mark.parametrize(
    ("image", "config", "machine", "words"),
    [
        (
            "lmsysorg/sglang:v0.5.22",
            ImageConfig(system="linux", architecture="arm64"),
            "x86_64",
            "made for linux/arm64",
        ),
        ("lmsysorg/sglang:v0.5.22", ImageConfig(system="linux", architecture="amd64"), "x86_64", ""),
        (
            "lmsysorg/sglang:v0.5.22",
            ImageConfig(system="linux", architecture="amd64"),
            "aarch64",
            "made for linux/amd64",
        ),
        ("lmsysorg/sglang:v0.5.22", UNREAD, "x86_64", ""),
        ("lmsysorg/sglang:v0.5.22-arm64", UNREAD, "x86_64", "its tag says arm64"),
        ("lmsysorg/sglang:v0.5.22-amd64", UNREAD, "x86_64", ""),
        ("", UNREAD, "x86_64", ""),
    ],
)
def test_an_image_for_another_processor(image: str, config: Any, machine: str, words: str) -> None:
    containers = host(declared={"image": image}, images={image: config}, machine=machine)
    faults = found(containers, "container.image_platform")
    assert [fault.severity for fault in faults] == (["error"] if words else [])
    assert all(words in fault.summary and "main is refused" in fault.summary and fault.fix for fault in faults)


def test_only_what_is_declared_is_asked_for(commands: Ran) -> None:
    commands({})
    result = container_readings.examine({"instances": [{"name": "main", "runtime": "native"}, {"name": "other"}]})
    (finding,) = result["findings"]
    assert finding["severity"] == "ok"
    assert finding["summary"] == "no container runtime is declared"
    result = container_readings.examine({"instances": [{**SERVER, "runtime": "podman"}]})
    assert "docker" not in {finding["evidence"] for finding in result["findings"]}
    assert result["readings"]["docker"]["installed"] == {"unknown": container_readings.NOT_ASKED.reason}
    assert result["readings"]["podman"]["installed"] is False


def test_the_environment_of_a_container_is_not_returned() -> None:
    containers = host("docker", {"environment": {"HF_TOKEN": "hf_secret"}})
    assert "hf_secret" not in json.dumps(containers.as_dict())


@pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")
def test_device_nodes_without_a_link(tmp_path: Path) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    assert container_readings.read_nodes_without_link(str(tmp_path)) == ()


# --- specifications on the disk -------------------------------------------------------------------------------------


def content(**more: Any) -> dict[str, Any]:
    nodes = [{"path": "/dev/null"}, {"path": "/dev/nvidia99", "hostPath": "/dev/null"}]
    device = {"name": "0", "containerEdits": {"deviceNodes": nodes}}
    edits = {
        "mounts": [{"hostPath": "/usr/lib/libcuda.so.570.124.06", "containerPath": "/usr/lib/libcuda.so.570.124.06"}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/sh", "args": ["sh"]}],
    }
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device], "containerEdits": edits, **more}


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_specification_is_read_and_its_paths_looked_for(tmp_path: Path, dump: Callable[[Any], str]) -> None:
    suffix = "json" if dump is json.dumps else "yaml"
    (tmp_path / f"nvidia.{suffix}").write_text(dump(content()))
    (tmp_path / "README").write_text("no specification")
    (file,) = cdi_readings.read_cdi([str(tmp_path), str(tmp_path / "none")]).files
    assert isinstance(file.spec, CdiSpec)
    assert file.spec.paths == ("/usr/lib/libcuda.so.570.124.06", "/bin/sh", "/dev/null")
    assert file.spec.missing == ("/usr/lib/libcuda.so.570.124.06",)
    assert file.spec.drivers == ("570.124.06",)
    assert file.spec.needs == (0, 5, 0)
    assert file.spec.indices == {"0"}


@pytest.mark.parametrize(
    ("edits", "needs"),
    [({"additionalGids": [44]}, (0, 7, 0)), ({"netDevices": []}, (1, 1, 0)), ({}, (0, 3, 0))],
)
def test_what_the_fields_of_a_specification_need(edits: dict[str, Any], needs: tuple[int, ...]) -> None:
    spec = cdi_readings.spec_of(content(cdiVersion="0.3.0", devices=[], containerEdits=edits), "x")
    assert spec.needs == needs


@pytest.mark.parametrize(
    "text", ["", "  \n", "{", "[]", "a", "a: [", '{"cdiVersion": "0.5.0"}', '{"kind": 1, "devices": {}}', "\0\1"]
)
def test_a_garbled_specification_is_not_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    (file,) = cdi_readings.read_cdi([str(tmp_path)]).files
    assert isinstance(file.spec, Unknown)
    assert found(host("podman", cdi=Cdi((file,))), "cdi.unreadable")
    # What cannot be read is not missing.
    assert not found(host("podman", cdi=Cdi((file,))), "cdi.missing")


def test_yaml_that_needs_a_library_which_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> Any:
        raise ImportError(name)

    path = tmp_path / "nvidia.yaml"
    path.write_text(yaml.safe_dump(content(), default_flow_style=True))
    assert isinstance(cdi_readings.read_cdi([str(tmp_path)]).files[0].spec, CdiSpec)
    monkeypatch.setattr(cdi_readings.importlib, "import_module", no_library)
    (file,) = cdi_readings.read_cdi([str(tmp_path)]).files
    (finding,) = found(host("podman", cdi=Cdi((file,))), "cdi.unreadable")
    assert finding.severity == "unknown"
    # What the toolkit writes needs no library.
    path.write_text(yaml.safe_dump(content()))
    assert isinstance(cdi_readings.read_cdi([str(tmp_path)]).files[0].spec, CdiSpec)


@given(st.recursive(st.one_of(st.none(), st.integers(), st.text(max_size=5)),
                    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
                        st.sampled_from(["devices", "kind", "cdiVersion", "containerEdits", "name", "mounts",
                                         "deviceNodes", "hooks", "path", "hostPath"]), inner, max_size=6)),
                    max_leaves=20))  # fmt: skip
def test_any_content_is_a_specification_or_not_told(value: Any) -> None:
    try:
        text = json.dumps(value)
        cdi_readings.spec_of(cdi_readings.parse(text, "x"), "x")
    except CouldNotTell:
        pass


def test_every_kind_is_documented_once() -> None:
    kinds = {kind.id: kind for check in container_checks.CHECKS for kind in check.kinds}
    assert len(kinds) == sum(len(check.kinds) for check in container_checks.CHECKS)
    assert {kind.split(".")[0] for kind in kinds} == {"container", "docker", "podman", "cdi"}
    for kind in kinds.values():
        assert kind.meaning
        assert kind.fix
        assert kind.source
