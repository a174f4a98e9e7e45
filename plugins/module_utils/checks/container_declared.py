# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the way in which an instance's container is declared: shared memory, signals, privileges. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..limits import parse_size
from .check import Check, Kind, check
from .container_readings import DOCKER, Containers, ContainerServer
from .reading import Unknown, known

MIB = 1 << 20
# What docker and podman both give a container's /dev/shm.
DEFAULT_SHM_BYTES = 64 * MIB
ENOUGH_SHM_BYTES = 1024 * MIB
ADVISED_SHM = "32g"

SHM = Kind(
    "container.shm_too_small",
    ERROR,
    "the container's shared memory is too small for several cards",
    "NCCL passes data between the processes of a server through /dev/shm. With the 64 MB that a container gets by "
    "itself the start fails with an NCCL error, or a bus error ends a process later.",
    f"shm_size: {ADVISED_SHM}, or ipc: host",
    "sgl-project/sglang#5096; NCCL's own advice is 1 GB; SGLang's documentation takes 32g",
)
NO_EFFECT = Kind(
    "container.shm_no_effect",
    WARNING,
    "a size of the shared memory has no effect",
    "With the host's IPC namespace a container has the host's /dev/shm, whatever size it asks for.",
    "leave shm_size out, or ipc: host",
    "docker-run(1), --ipc and --shm-size",
)


@check(SHM, NO_EFFECT)
def shared_memory(containers: Containers) -> Iterator[Finding]:
    default = _default_shm(containers)
    for server in containers.servers:
        yield from judge_shm(server, default if server.runtime == DOCKER else DEFAULT_SHM_BYTES)


def _default_shm(containers: Containers) -> int:
    """docker's default can be changed for all containers."""
    if isinstance(containers.daemon_json, Unknown):
        return DEFAULT_SHM_BYTES
    try:
        return parse_size(containers.daemon_json.get("default-shm-size")) or DEFAULT_SHM_BYTES
    except ValueError:
        return DEFAULT_SHM_BYTES


def judge_shm(server: ContainerServer, default_bytes: int = DEFAULT_SHM_BYTES) -> Iterator[Finding]:
    if server.ipc == "host":
        if server.shm_size is not None:
            yield NO_EFFECT.found(
                f"shm_size {server.shm_size} of {server.name} has no effect: with ipc: host it has the host's /dev/shm",
                f"ipc: host, shm_size: {server.shm_size}",
                "leave shm_size out; the size of the host's is set by: `mount -o remount,size=32G /dev/shm`",
            )
        return
    if server.ipc.startswith("container:"):
        return  # it has the shared memory of another container
    evidence = f"runtime: {server.runtime}, ipc: {server.ipc or 'private'}, shm_size: {server.shm_size or 'default'}"
    fix = f"shm_size: {ADVISED_SHM}, or ipc: host (a size has no effect with it)"
    if server.ipc == "none":
        yield SHM.found(f"{server.name} has no /dev/shm at all, and SGLang needs one", evidence, fix)
        return
    try:
        size = parse_size(server.shm_size) if server.shm_size is not None else default_bytes
    except ValueError as error:
        yield SHM.found(f"shm_size of {server.name} is no size", str(error), fix, UNKNOWN)
        return
    if server.tp < 2 or size is None or size >= ENOUGH_SHM_BYTES:
        return
    whose = f"{server.runtime.capitalize()}'s default of " if server.shm_size is None else ""
    yield SHM.found(
        f"{server.name} is refused: {server.tp} cards and {whose}{size // MIB} MB of shared memory are too little for "
        "NCCL",
        evidence,
        fix,
        ERROR if size <= DEFAULT_SHM_BYTES else WARNING,
    )


SIGNALS = Kind(
    "container.signals",
    ERROR,
    "the container's first process passes SIGTERM to the wrong ones, or to nobody",
    "Only the server itself may get SIGTERM. One that reaches its whole group ends the schedulers at once, and running "
    "requests are lost; one that a shell keeps to itself ends in SIGKILL after the grace period.",
    "declare entrypoint: [] and the server's own command, so that the server is the first process",
    "SGLang's shutdown: the main process drains and ends its children itself",
)

GROUP = "group"
KEPT = "kept"
MAYBE_KEPT = "maybe kept"
DIRECT = "direct"
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Forwarding:
    """Whom the first process of a container passes SIGTERM to, and what says so."""

    kind: str
    why: str


_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_EXECS_ITS_ARGUMENTS = ("nvidia_entrypoint.sh", "entrypoint.d", "env", "nice", "numactl", "taskset", "setpriv", "gosu")
_COMPOUND = re.compile(r"&&|\|\||[;\n|&]")


def forwarding(words: Sequence[str], environment: Mapping[str, str]) -> Forwarding:
    """What becomes of a SIGTERM that the engine sends to the first process."""
    rest = list(words)
    while rest:
        first = os.path.basename(rest[0])
        if first in ("tini", "tini-static", "docker-init", "catatonit"):
            options, rest = _split_options(rest[1:])
            if any(re.fullmatch(r"-[a-z]*g[a-z]*", option) for option in options):
                return Forwarding(GROUP, f"{first} -g sends every signal to the group of the server")
            if environment.get("TINI_KILL_PROCESS_GROUP"):
                return Forwarding(GROUP, "TINI_KILL_PROCESS_GROUP makes tini send every signal to the group")
            continue
        if first == "dumb-init":
            options, rest = _split_options(rest[1:])
            if "-c" not in options and "--single-child" not in options and environment.get("DUMB_INIT_SETSID") != "0":
                return Forwarding(GROUP, "dumb-init sends every signal to the group, unless it has --single-child")
            continue
        if first in _SHELLS:
            return _of_shell(first, rest[1:])
        if first in _EXECS_ITS_ARGUMENTS:
            return Forwarding(DIRECT, f"{first} becomes what it starts")
        if first.endswith(".sh"):
            return Forwarding(NOT_KNOWN, f"whether {rest[0]} ends with exec cannot be seen from outside")
        return Forwarding(DIRECT, f"{first} is the first process")
    return Forwarding(NOT_KNOWN, "neither an entrypoint nor a command is known")


def _split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        options.append(option)
        if option in ("-p", "-e", "-r", "--rewrite") and rest:
            rest.pop(0)
    return options, rest


def _of_shell(shell: str, words: Sequence[str]) -> Forwarding:
    script = None
    for position, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word) and position + 1 < len(words):
            script = words[position + 1]
            break
    if script is None:
        what = words[0] if words else "nothing"
        return Forwarding(NOT_KNOWN, f"whether {shell} {what} ends with exec cannot be seen from outside")
    last = [part.strip() for part in _COMPOUND.split(script) if part.strip()]
    if last and re.match(r"exec\s", last[-1]):
        return Forwarding(DIRECT, f"{shell} -c ends with exec")
    if len(last) > 1:
        return Forwarding(KEPT, f"{shell} -c runs the server as its child and keeps SIGTERM to itself")
    return Forwarding(MAYBE_KEPT, f"{shell} -c without exec: whether the shell stays in front depends on the shell")


@check(SIGNALS)
def signals(containers: Containers) -> Iterator[Finding]:
    for server in containers.servers:
        yield from _signals_of(server, containers)


def _signals_of(server: ContainerServer, containers: Containers) -> Iterator[Finding]:
    image = containers.images.get(server.image)
    entrypoint, command, environment = server.entrypoint, server.command, dict(server.environment)
    if image is not None and not isinstance(image, Unknown):
        if entrypoint is None:
            entrypoint = image.entrypoint
            command = image.command if command is None else command
        environment = {**image.environment, **environment}
        if not server.stop_signal and image.stop_signal not in ("", "SIGTERM", "15", "TERM"):
            yield SIGNALS.found(
                f"the image of {server.name} asks to be stopped by {image.stop_signal}, not by SIGTERM",
                f"{server.image}: StopSignal {image.stop_signal}",
                "declare the stop signal SIGTERM",
            )
    if entrypoint is None:
        reason = image.reason if isinstance(image, Unknown) else "no image is declared"
        yield Finding(
            SIGNALS.id, UNKNOWN, f"could not tell what the container of {server.name} starts with", reason, SIGNALS.fix
        )
        return
    # The command that the collection gives starts the server itself.
    words = [*entrypoint, *(command if command is not None else ("python3", "-m", "sglang.launch_server"))]
    if server.init:
        words = ["docker-init", "--", *words]
    seen = forwarding(words, environment)
    evidence = f"{' '.join(words)[:200]}: {seen.why}"
    fix = SIGNALS.fix
    if seen.kind == GROUP:
        yield SIGNALS.found(
            f"a stop of {server.name} reaches the whole group: running requests are lost", evidence, fix
        )
    elif seen.kind == KEPT:
        yield SIGNALS.found(f"a stop of {server.name} does not reach the server: it ends in SIGKILL", evidence, fix)
    elif seen.kind == MAYBE_KEPT:
        yield SIGNALS.found(
            f"a stop of {server.name} may not reach the server",
            evidence,
            "put exec in front of the command, or declare it without a shell",
            WARNING,
        )
    elif seen.kind == NOT_KNOWN:
        yield SIGNALS.found(f"could not tell whom a stop of {server.name} reaches", evidence, fix, UNKNOWN)


PRIVILEGED = Kind(
    "container.privileged",
    WARNING,
    "a container is privileged",
    "It sees every card and every device of the host, so the cards of other instances too, and can change the host.",
    "leave privileged out; cards come as devices",
    "docker-run(1), --privileged",
)


@check(PRIVILEGED)
def privileged(containers: Containers) -> Iterator[Finding]:
    for server in containers.servers:
        if server.privileged:
            yield PRIVILEGED.found(
                f"{server.name} is privileged: it sees all cards, also those of other instances", "privileged: true"
            )


USER_NAMESPACE = Kind(
    "container.user_namespace",
    ERROR,
    "a user namespace does not go with what is declared",
    "Users of the container are others on the host: caches and weights belong to nobody that may write them, and "
    "docker refuses the host's namespaces.",
    "declare userns: host",
    "docker's documentation of userns-remap",
)


@check(USER_NAMESPACE)
def user_namespace(containers: Containers) -> Iterator[Finding]:
    for server in containers.servers:
        if server.runtime == DOCKER:
            docker = containers.docker
            remapped = server.userns != "host" and bool(known(docker.installed)) and known(docker.user_namespaces)
        else:
            remapped = server.userns not in ("", "host")
        if not remapped:
            continue
        refused = server.runtime == DOCKER and (server.ipc == "host" or server.privileged)
        what = "refuses ipc: host and privileged" if refused else "gives its files to other users of the host"
        yield USER_NAMESPACE.found(
            f"{server.name} runs in a user namespace, which {what}",
            f"userns: {server.userns or 'remapped by docker'}, ipc: {server.ipc or 'private'}",
            "userns: host",
            ERROR if refused else WARNING,
        )


DECLARED_CHECKS: tuple[Check[Containers], ...] = (shared_memory, signals, privileged, user_namespace)
