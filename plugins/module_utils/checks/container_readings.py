# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container side of a host: engines, NVIDIA's toolkit, CDI, and what runs. It reads and does not decide.

Only what the declared runtimes need is asked for. Nothing is started but the engines' own commands that read.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..image_reference import NotAReference, parse_reference
from ..server_args import canonical
from . import cdi_readings
from .cdi_readings import Cdi
from .instance_shape import NOT_CUDA, instances_of
from .plain import plain
from .reading import CouldNotTell, Output, Reader, Reading, Unknown, gather, known, read_first, run_command

DOCKER, PODMAN = "docker", "podman"
ENGINES = (DOCKER, PODMAN)
# A whole preflight of a host takes at most 3 s, so that is how long one reading may take, whatever its commands may.
LIMIT_S = 1.8
COMMAND_S = 60.0
# Where several are asked in a row, none of them may take more of the reading's time than this.
SHARE_OF_A_ROW = 0.4
NOT_ASKED = Unknown("no declared runtime needs it, so it was not read")
NVIDIA_MAJOR = 195
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
DAEMON_JSON = "/etc/docker/daemon.json"
PODMAN_STORAGE = "/var/lib/containers/storage"


@dataclass(frozen=True)
class ContainerServer:
    """A declared instance that runs in a container. None: not declared."""

    name: str
    runtime: str
    image: str = ""
    tp: int = 1
    shm_size: str | None = None
    ipc: str = ""
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    init: bool = False
    privileged: bool = False
    userns: str = ""
    needs_cards: bool = True
    user: str = "root"
    stop_signal: str = ""

    @property
    def unit(self) -> str:
        return f"sglang-{self.name}.service"


@dataclass(frozen=True)
class Engine:
    """docker or podman on the host. `problem`: it is installed, and its daemon does not answer."""

    name: str
    installed: Reading[bool] = NOT_ASKED
    version: Reading[str] = NOT_ASKED
    problem: str = ""
    rootless: Reading[bool] = NOT_ASKED
    cgroup_driver: Reading[str] = NOT_ASKED
    cgroup_version: Reading[str] = NOT_ASKED
    user_namespaces: Reading[bool] = NOT_ASKED
    live_restore: Reading[bool] = NOT_ASKED
    log_driver: Reading[str] = NOT_ASKED
    default_runtime: Reading[str] = NOT_ASKED
    runtimes: Reading[tuple[str, ...]] = NOT_ASKED
    cdi_directories: Reading[tuple[str, ...]] = NOT_ASKED


@dataclass(frozen=True)
class ContainerToolkit:
    """NVIDIA's container toolkit. `mode` is empty where its settings do not name one."""

    installed: bool
    version: str = ""
    mode: Reading[str] = ""


@dataclass(frozen=True)
class ImageConfig:
    """What an image starts with."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    stop_signal: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    architecture: str = ""


@dataclass(frozen=True)
class Running:
    """A running container. `allowed` are the devices that its unit names; `before` those of an earlier reading.

    `inside` is what nvidia-smi says in it. It is asked only where the unit names no card.
    """

    name: str
    engine: str
    wants_cards: bool
    by_cdi: bool = False
    allowed: Reading[tuple[str, ...]] = NOT_ASKED
    before: tuple[str, ...] | None = None
    inside: str = ""


@dataclass(frozen=True)
class Containers:
    """Everything of the container side that the rules ask for."""

    servers: tuple[ContainerServer, ...] = ()
    docker: Engine = Engine(DOCKER)
    podman: Engine = Engine(PODMAN)
    toolkit: Reading[ContainerToolkit] = NOT_ASKED
    daemon_json: Reading[Mapping[str, Any]] = NOT_ASKED
    cdi: Reading[Cdi] = NOT_ASKED
    cards: Reading[tuple[str, ...]] = NOT_ASKED
    driver: Reading[str] = NOT_ASKED
    nodes_without_link: Reading[tuple[str, ...]] = NOT_ASKED
    images: Mapping[str, Reading[ImageConfig]] = field(default_factory=dict)
    # The word of the kernel for its processor, as x86_64.
    machine: str = ""
    running: Reading[tuple[Running, ...]] = NOT_ASKED

    def engine(self, name: str) -> Engine:
        return self.docker if name == DOCKER else self.podman

    def of(self, runtime: str) -> list[ContainerServer]:
        return [server for server in self.servers if server.runtime == runtime]

    @property
    def engines(self) -> list[Engine]:
        """Those that a declared instance needs."""
        return [self.engine(name) for name in ENGINES if self.of(name)]

    def as_dict(self) -> dict[str, Any]:
        # An environment may hold what is nobody's business; what the rules need of it is in their findings.
        servers = [{**plain(server), "environment": sorted(server.environment)} for server in self.servers]
        images = {
            name: image if isinstance(image, Unknown) else {**plain(image), "environment": sorted(image.environment)}
            for name, image in self.images.items()
        }
        return {
            "servers": servers,
            "images": plain(images),
            "docker": plain(self.docker),
            "podman": plain(self.podman),
            "toolkit": plain(self.toolkit),
            "daemon_json": plain(self.daemon_json),
            "cdi": plain(self.cdi),
            "cards": plain(self.cards),
            "driver": plain(self.driver),
            "nodes_without_link": plain(self.nodes_without_link),
            "running": plain(self.running),
        }


# --- what is declared -----------------------------------------------------------------------------------------------


def servers_of(instances: Sequence[Mapping[str, Any]]) -> tuple[ContainerServer, ...]:
    """The declared instances that run in containers."""
    return tuple(_server(one) for one in instances if str(one.get("runtime") or "native") in ENGINES)


def _server(instance: Mapping[str, Any]) -> ContainerServer:
    arguments = canonical(instance.get("arguments") or {})
    shm_size, user = instance.get("shm_size"), instance.get("container_user")
    return ContainerServer(
        name=str(instance.get("name") or "sglang"),
        runtime=str(instance["runtime"]),
        image=str(instance.get("image") or ""),
        tp=_whole(instance.get("tp"), _whole(arguments.get("tp-size"), 1) * _whole(arguments.get("pp-size"), 1)),
        shm_size=None if shm_size in (None, "", "default") else str(shm_size),
        ipc=str(instance.get("ipc") or ""),
        entrypoint=_words(instance.get("entrypoint")),
        command=_words(instance.get("command")),
        environment={str(key): str(value) for key, value in (instance.get("environment") or {}).items()},
        init=bool(instance.get("init")),
        privileged=bool(instance.get("privileged")),
        userns=str(instance.get("userns") or ""),
        needs_cards=arguments.get("device", instance.get("device")) not in NOT_CUDA,
        user=str(user or "root"),
        stop_signal=str(instance.get("stop_signal") or ""),
    )


def _whole(value: Any, otherwise: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, ArithmeticError):
        return otherwise


def _words(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError:
            return (value,)
    return tuple(str(word) for word in value)


# --- engines --------------------------------------------------------------------------------------------------------


def _json(output: Output, what: str) -> Mapping[str, Any]:
    try:
        content = json.loads(output.stdout)
    except ValueError:
        raise CouldNotTell(f"`{what}` said {output.said[:200]!r}, which is no JSON") from None
    if not isinstance(content, dict):
        raise CouldNotTell(f"`{what}` said {output.stdout[:80]!r}")
    return content


def _is_missing(error: CouldNotTell) -> bool:
    return str(error).endswith("is not installed")


def read_docker() -> Engine:
    """docker with what its daemon says. A daemon that does not answer is not a docker that is not there."""
    what = "docker info"
    try:
        output = run_command([DOCKER, "info", "--format", "{{json .}}"], COMMAND_S)
    except CouldNotTell as error:
        if _is_missing(error):
            return Engine(DOCKER, installed=False)
        raise
    return docker_of(_json(output, what), output.stderr)


def docker_of(info: Mapping[str, Any], complaint: str = "") -> Engine:
    """From what `docker info` says."""
    client = info.get("ClientInfo") or {}
    if "host" in info and "store" in info:
        complaint, info = "the program docker is a stand-in that calls podman (package podman-docker)", {}
    errors = [str(error) for error in info.get("ServerErrors") or ()]
    if errors or not info.get("ServerVersion"):
        reason = "; ".join(errors) or _last_line(complaint) or "the daemon said nothing"
        version = client.get("Version")
        lost = Unknown(f"docker's daemon does not answer: {reason}")
        return Engine(
            DOCKER,
            installed=True,
            version=str(version) if version else lost,
            problem=reason,
            rootless=lost,
            cgroup_driver=lost,
            cgroup_version=lost,
            user_namespaces=lost,
            live_restore=lost,
            log_driver=lost,
            default_runtime=lost,
            runtimes=lost,
            cdi_directories=lost,
        )
    security = " ".join(str(option) for option in info.get("SecurityOptions") or ())
    return Engine(
        DOCKER,
        installed=True,
        version=str(info["ServerVersion"]),
        rootless="name=rootless" in security,
        cgroup_driver=_said(info, "CgroupDriver"),
        cgroup_version=_said(info, "CgroupVersion"),
        user_namespaces="name=userns" in security,
        live_restore=bool(info.get("LiveRestoreEnabled")),
        log_driver=_said(info, "LoggingDriver"),
        default_runtime=_said(info, "DefaultRuntime"),
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        cdi_directories=tuple(info.get("CDISpecDirs") or ()),
    )


def _said(info: Mapping[str, Any], key: str) -> Reading[str]:
    value = info.get(key)
    return str(value) if value else Unknown(f"docker info does not say {key}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def read_podman() -> Engine:
    """podman, by `--version`: its subcommands make its storage where there is none yet, also the one named version."""
    try:
        output = run_command([PODMAN, "--version"], COMMAND_S)
    except CouldNotTell as error:
        if _is_missing(error):
            return Engine(PODMAN, installed=False)
        raise
    return podman_of(output.stdout, os.geteuid() != 0)


def podman_of(said: str, rootless: bool) -> Engine:
    """From what `podman --version` says."""
    match = _PODMAN_VERSION.search(said)
    if match is None:
        raise CouldNotTell(f"`podman --version` said {said[:200]!r}")
    return Engine(PODMAN, installed=True, version=match[1], rootless=rootless)


# --- NVIDIA ---------------------------------------------------------------------------------------------------------

_PODMAN_VERSION = re.compile(r"podman version (\d\S*)")
_TOOLKIT_VERSION = re.compile(r"version (\d+\.\d+\.\d+\S*)")
_MODE = re.compile(r'^\s*mode\s*=\s*"([^"]*)"', re.MULTILINE)
_SECTION = re.compile(r"^\s*\[([^]]+)\]\s*$", re.MULTILINE)
_KERNEL_MODULE = re.compile(r"^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", re.MULTILINE)
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F/-]+)")


def read_toolkit() -> ContainerToolkit:
    try:
        output = run_command(["nvidia-ctk", "--version"], COMMAND_S)
    except CouldNotTell as error:
        if _is_missing(error):
            return ContainerToolkit(installed=False)
        raise
    match = _TOOLKIT_VERSION.search(output.stdout)
    if match is None:
        raise CouldNotTell(f"`nvidia-ctk --version` said {output.said[:200]!r}")
    try:
        text = read_first(TOOLKIT_CONFIG)
        mode: Reading[str] = toolkit_mode(text or "")
    except CouldNotTell as error:
        mode = Unknown(str(error))
    return ContainerToolkit(True, match[1], mode)


def toolkit_mode(text: str) -> str:
    """`mode` of the section [nvidia-container-runtime]; empty when it does not stand there."""
    sections = [(match[1].strip(), match.end()) for match in _SECTION.finditer(text)]
    for position, (name, start) in enumerate(sections):
        if name == "nvidia-container-runtime":
            end = sections[position + 1][1] if position + 1 < len(sections) else len(text)
            match = _MODE.search(text, start, end)
            return match[1] if match else ""
    return ""


def read_daemon_json(path: str = DAEMON_JSON) -> Mapping[str, Any]:
    """docker's settings; empty when there are none."""
    text = read_first(path)
    if text is None or not text.strip():
        return {}
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CouldNotTell(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise CouldNotTell(f"{path} is no mapping")
    # Only what the rules ask for: the file may hold the addresses and keys of registries and proxies.
    names = ("runtimes", "default-runtime", "exec-opts", "features", "cdi-spec-dirs", "live-restore", "log-driver")
    kept = {name: content[name] for name in (*names, "log-opts", "default-shm-size", "userns-remap") if name in content}
    return kept


def read_cards() -> tuple[str, ...]:
    """The UUIDs of the cards and their parts, as nvidia-smi lists them."""
    output = run_command(["nvidia-smi", "-L"], COMMAND_S)
    if output.code != 0:
        raise CouldNotTell(f"nvidia-smi -L failed: {output.said}")
    return tuple(_UUID.findall(output.stdout))


def read_driver() -> str:
    """The release of the kernel's driver module that is loaded."""
    text = read_first("/proc/driver/nvidia/version")
    if text is None:
        raise CouldNotTell("/proc/driver/nvidia/version is not there: no NVIDIA driver is loaded")
    match = _KERNEL_MODULE.search(text)
    if match is None:
        raise CouldNotTell("/proc/driver/nvidia/version names no release")
    return match[1]


def read_nodes_without_link(dev: str = "/dev") -> tuple[str, ...]:
    """NVIDIA's device nodes that /dev/char has no link for."""
    found: list[str] = []
    for name in sorted(os.listdir(dev)):
        if not name.startswith("nvidia"):
            continue
        info = os.stat(os.path.join(dev, name))
        if stat.S_ISCHR(info.st_mode):
            link = f"{dev}/char/{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
            if not os.path.exists(link):
                found.append(f"{dev}/{name} ({os.path.basename(link)})")
    return tuple(found)


# --- images and containers ------------------------------------------------------------------------------------------


def _has_storage(engine: str) -> bool:
    """podman makes its storage as soon as it is asked what is in it, and this only looks."""
    return engine != PODMAN or os.geteuid() != 0 or os.path.isdir(PODMAN_STORAGE)


def read_image(engine: str, image: str) -> ImageConfig:
    if not _has_storage(engine):
        raise CouldNotTell(f"image {image} is not on the host: {PODMAN_STORAGE} is not there")
    output = run_command([engine, "image", "inspect", _asked_for(image)], COMMAND_S)
    if output.code != 0:
        raise CouldNotTell(f"image {image} cannot be inspected (is it on the host?): {output.said}")
    return image_of(output.stdout, image)


def _asked_for(image: str) -> str:
    """A pin by its digest: not every engine finds it by tag and digest."""
    try:
        reference = parse_reference(image)
    except NotAReference:
        return image
    return reference.by_digest if reference.digest else image


def image_of(text: str, image: str) -> ImageConfig:
    """From what `image inspect` says."""
    try:
        said = json.loads(text)[0]
        config = said["Config"] or {}
        environment = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        return ImageConfig(
            entrypoint=_words(config.get("Entrypoint")) or (),
            command=_words(config.get("Cmd")) or (),
            stop_signal=str(config.get("StopSignal") or ""),
            environment=environment,
            system=str(said.get("Os") or ""),
            architecture=str(said.get("Architecture") or ""),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CouldNotTell(f"what is said of image {image} cannot be understood") from None


def read_running(
    engines: Sequence[str],
    before: Mapping[str, Sequence[str]],
    run: str = "/run/systemd/transient",
    limit_s: float = LIMIT_S,
) -> tuple[Running, ...]:
    """The running containers that were given cards."""
    found: list[Running] = []
    row_s = SHARE_OF_A_ROW * limit_s
    for engine in engines:
        if not _has_storage(engine):
            continue
        try:
            output = run_command([engine, "ps", "-q", "--no-trunc"], row_s)
        except CouldNotTell as error:
            if _is_missing(error):
                continue  # another reading says so
            raise
        if output.code != 0:
            raise CouldNotTell(f"`{engine} ps` failed: {output.said}")
        ids = output.stdout.split()
        if not ids:
            continue
        output = run_command([engine, "inspect", *ids], row_s)
        for container in running_of(output.stdout, engine):
            found.append(_with_rules(*container, before, run, row_s))
    return tuple(found)


def running_of(text: str, engine: str) -> list[tuple[Running, str]]:
    """The containers with cards from what `inspect` says, each with its id."""
    try:
        said = json.loads(text)
        return [(running, str(one["Id"])) for one in said for running in [_running(one, engine)] if running.wants_cards]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CouldNotTell(f"`{engine} inspect` cannot be understood") from None


def _running(one: Mapping[str, Any], engine: str) -> Running:
    host = one.get("HostConfig") or {}
    requests, given = host.get("DeviceRequests") or [], host.get("Devices") or []
    devices = [f"{(device or {}).get('PathOnHost')} {(device or {}).get('PathInContainer')}" for device in given]
    environment = dict(entry.partition("=")[::2] for entry in (one.get("Config") or {}).get("Env") or ())
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    by_runtime = host.get("Runtime") == "nvidia" and visible not in ("", "void", "none")
    by_cdi = any(request.get("Driver") == "cdi" for request in requests)
    by_node = any("nvidia" in device for device in devices)
    wants = bool(requests) or by_runtime or by_node
    return Running(str(one["Name"]).lstrip("/"), engine, wants, by_cdi or by_node)


def _with_rules(
    container: Running, identity: str, before: Mapping[str, Sequence[str]], run: str, row_s: float
) -> Running:
    scope = ("docker" if container.engine == DOCKER else "libpod") + f"-{identity}.scope"
    path = f"{run}/{scope}.d/50-DeviceAllow.conf"
    allowed: Reading[tuple[str, ...]]
    inside = ""
    try:
        text = read_first(path)
        allowed = Unknown(f"{path} is not there: systemd does not keep its devices") if text is None else rules_of(text)
    except CouldNotTell as error:
        allowed = Unknown(str(error))
    if not isinstance(allowed, Unknown) and not names_cards(allowed):
        inside = _nvidia_smi_inside(container, row_s)
    earlier = before.get(container.name)
    return Running(
        container.name,
        container.engine,
        container.wants_cards,
        container.by_cdi,
        allowed,
        None if earlier is None else tuple(earlier),
        inside,
    )


def rules_of(text: str) -> tuple[str, ...]:
    """The devices of a DeviceAllow drop-in. An empty assignment takes back what stands before it."""
    rules: list[str] = []
    for line in text.splitlines():
        key, _equals, value = line.strip().partition("=")
        if key == "DeviceAllow":
            rules = [*rules, value.strip()] if value.strip() else []
    return tuple(rules)


def names_cards(rules: Sequence[str]) -> bool:
    return any(f"/dev/char/{NVIDIA_MAJOR}:" in rule or "nvidia" in rule for rule in rules)


def _nvidia_smi_inside(container: Running, row_s: float) -> str:
    try:
        output = run_command([container.engine, "exec", container.name, "nvidia-smi", "-L"], row_s)
    except CouldNotTell as error:
        return str(error)
    return output.said


# --- all of it ------------------------------------------------------------------------------------------------------


def read_containers(
    instances: Sequence[Mapping[str, Any]],
    rules_before: Mapping[str, Sequence[str]] | None = None,
    limit_s: float = LIMIT_S,
) -> Containers:
    """Read what the declared runtimes need, side by side. `rules_before`: devices by container from an earlier run.

    `limit_s` is how long each reading may take.
    """
    servers = servers_of(instances)
    engines = [engine for engine in ENGINES if any(server.runtime == engine for server in servers)]
    if not engines:
        return Containers()
    images = {server.image: server.runtime for server in servers if server.image}
    readers: dict[str, Reader] = {
        "toolkit": Reader(read_toolkit, limit_s),
        "cdi": Reader(cdi_readings.read_cdi, limit_s),
        "cards": Reader(read_cards, limit_s),
        "driver": Reader(read_driver, limit_s),
        "running": Reader(functools.partial(read_running, engines, rules_before or {}, limit_s=limit_s), limit_s),
    }
    if DOCKER in engines:
        readers[DOCKER] = Reader(read_docker, limit_s)
        readers["daemon_json"] = Reader(read_daemon_json, limit_s)
        readers["nodes_without_link"] = Reader(read_nodes_without_link, limit_s)
    if PODMAN in engines:
        readers[PODMAN] = Reader(read_podman, limit_s)
    for image, engine in images.items():
        readers[f"image {image}"] = Reader(functools.partial(read_image, engine, image), limit_s)
    read = gather(readers)
    said = {f"image {image}": image for image in images}
    return Containers(
        servers=servers,
        docker=_engine(DOCKER, read.get(DOCKER)),
        podman=_engine(PODMAN, read.get(PODMAN)),
        images={image: read[name] for name, image in said.items()},
        machine=platform.machine(),
        **{name: value for name, value in read.items() if name not in ENGINES and name not in said},
    )


def _engine(name: str, read: Any) -> Engine:
    if read is None:
        return Engine(name)
    if isinstance(read, Unknown):
        return Engine(name, read, read, "", read, read, read, read, read, read, read, read, read)
    return known(read)  # type: ignore[no-any-return]


def _rules_before(given: Any) -> dict[str, Sequence[str]]:
    if not isinstance(given, Mapping):
        return {}
    return {str(name): tuple(map(str, rules)) for name, rules in given.items() if isinstance(rules, (list, tuple))}


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """The container side of a host: what was read, and what follows from it."""
    # The checks import the readings.
    from . import container_checks
    from .check import as_dicts, run_checks

    before, limit_s = params.get("device_rules_before"), float(params.get("timeout_s") or LIMIT_S)
    containers = read_containers(instances_of(params.get("instances")), _rules_before(before), limit_s)
    if not containers.servers:
        finding = container_checks.RUNTIME_MISSING.fine("no container runtime is declared")
        return {"readings": containers.as_dict(), "findings": as_dicts([finding])}
    return {
        "readings": containers.as_dict(),
        "findings": as_dicts(run_checks(container_checks.CHECKS, containers)),
    }
