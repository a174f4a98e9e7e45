# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an instance declares about its container, read and judged: image, shared memory, mounts, cards. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks.cdi_readings import KIND_OF_CARDS
from .checks.container_declared import ADVISED_SHM
from .checks.container_readings import DOCKER, PODMAN
from .errors import EngineError
from .image_reference import ImageReference, parse_reference, read_tag, refuse
from .limits import parse_size

OPTIONS = ("image", "image_python", "ipc", "shm_size", "mounts", "engine_arguments", "cuda", "cuda_compat")
# Where the unit puts what LoadCredential= gave it, for the user that the server runs as in its container.
CREDENTIALS_DIR = "/run/sglang/credentials"
OWN_DIRECTORIES = (CREDENTIALS_DIR, "/var/lib/sglang", "/var/cache/sglang")

_PROGRAM = re.compile(r"/?[A-Za-z0-9_.][A-Za-z0-9_.+/-]*")
LEAST_SHM_BYTES, MOST_SHM_BYTES = 1 << 20, 1 << 44
# What a container has itself, and must keep.
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/run")

# Options of the engine that the unit itself rests on, and what an instance says instead.
_OURS = {
    "--privileged": "it would see every card and device of the host; give it devices, as --device=/dev/infiniband",
    "--name": "the unit finds its container by its name",
    "--rm": "the unit removes its container",
    "--rmi": "a start never pulls, so the image has to stay",
    "--replace": "the unit removes what has its container's name",
    "--cidfile": "the unit finds its container by its name",
    "--sdnotify": "the unit follows the container",
    "--tty": "the journal has the log",
    "--interactive": "the journal has the log",
    "--attach": "the journal has the log",
    "--help": "no server would be started",
    "--": "the options end before the image",
    "--detach": "the unit follows the container",
    "-d": "the unit follows the container",
    "--restart": "systemd restarts the server",
    "--init": "the server is the first process, so that SIGTERM reaches it alone",
    "--entrypoint": "say image_python, or build the image otherwise",
    "--pull": "a start never pulls; the image is fetched before",
    "--stop-timeout": "it is the grace period, computed from output_cap_tokens and slowest_tokens_per_s",
    "--stop-signal": "SGLang drains on SIGTERM",
    "--cgroup-parent": "the limits of the instance stand on its slice",
    "--cgroups": "the limits of the instance stand on its slice",
    "--memory": "say memory_max",
    "-m": "say memory_max",
    "--memory-swap": "say memory_swap_max",
    "--user": "the server runs as the user sglang, as caches and models expect",
    "-u": "the server runs as the user sglang, as caches and models expect",
    "--env": "say environment",
    "-e": "say environment",
    "--env-file": "say environment",
    "--env-host": "say environment",
    "--volume": "say mounts",
    "-v": "say mounts",
    "--mount": "say mounts",
    "--volumes-from": "say mounts",
    "--network": "the server listens on the host's own port",
    "--net": "the server listens on the host's own port",
    "--ipc": "say ipc",
    "--shm-size": "say shm_size",
    "--gpus": "say cards",
    "--log-driver": "the journal has the log",
    "--workdir": "it is the directory of the instance",
    "-w": "it is the directory of the instance",
    "--pid": "the server is found as the first process of its own process namespace",
    "--uidmap": "the server runs as the user sglang, as caches and models expect",
    "--gidmap": "the server runs as the user sglang, as caches and models expect",
    "--subuidname": "the server runs as the user sglang, as caches and models expect",
    "--subgidname": "the server runs as the user sglang, as caches and models expect",
    "--cap-drop": "all capabilities are dropped",
    "--pids-limit": "the limits of the instance stand on its slice",
    "--device-cgroup-rule": "it would open devices that nobody named; give each, as --device=/dev/infiniband/uverbs0",
}
# Options whose name begins so, and why none of them is taken.
_OURS_BY_PREFIX = {
    "--health": "a probe that the engine acts on ends the busiest server; gateways and the status playbook ask it",
    "--memory-": "say memory_max, or memory_high",
}
# What the unit leaves free, and the values that are taken of each. What is not here is not known to leave the host and
# the server apart: engines have a hundred options and aliases, and each release adds some.
_ANY = r"[^\"']+"
_CAPABILITY = r"(CAP_)?(SYS_NICE|IPC_LOCK|SYS_RESOURCE|SYS_PTRACE|PERFMON|NET_RAW|NET_BIND_SERVICE)"
_DEVICE = (
    r"[a-z0-9.-]+/[a-z0-9_.-]+=[A-Za-z0-9_.:-]+"
    r"|/dev/(infiniband|nvidia|dri|kfd|gdrdrv|dxg|accel|fuse|knem|xpmem|hugepages|nvme-fabrics|vfio)[A-Za-z0-9_./:-]*"
)
_FREE = {
    "--add-host": _ANY,
    "--annotation": _ANY,
    "--blkio-weight": r"[0-9]+",
    "--cap-add": rf"(?i){_CAPABILITY}(,{_CAPABILITY})*",
    "--cpu-shares": r"[0-9]+",
    "--cpus": r"[0-9.]+",
    "--cpuset-cpus": r"[0-9,-]+",
    "--cpuset-mems": r"[0-9,-]+",
    "--device": rf"(?!.*\.\.)(?:{_DEVICE})",
    "--group-add": r"keep-groups|video|render|rdma|[1-9][0-9]*",
    "--label": _ANY,
    "--oom-score-adj": r"-?[0-9]+",
    "--read-only": r"(|true|false)",
    "--runtime": r"nvidia",
    "--security-opt": r"seccomp[=:]/.+|apparmor[=:](?!unconfined).+|label[=:].+",
    "--tmpfs": r"/(tmp|var/tmp|scratch)[A-Za-z0-9_./-]*(:[A-Za-z0-9=,]+)?",
    "--tz": _ANY,
    "--ulimit": r"[a-z]+=-?[0-9]+(:-?[0-9]+)?|host",
    "--umask": r"0?[0-7]{3}",
    "--userns": r"host",
}
# What is said of a value that is not taken, beside that it is not.
_INSTEAD = {
    "--cap-add": "name what is needed of SYS_NICE, IPC_LOCK, SYS_RESOURCE, SYS_PTRACE, PERFMON, NET_RAW and "
    "NET_BIND_SERVICE; more of them is nearly --privileged",
    "--device": "name a device for computing, as /dev/infiniband or a name of CDI, no disk and no memory of the host",
    "--group-add": "name video, render, rdma, or a number",
    "--runtime": "only nvidia is known",
    "--security-opt": "give a profile, as seccomp=/etc/sglang/x.json; without one every call of the kernel is open",
    "--userns": "the server runs as the user sglang, as caches and models expect. Only host is that",
}
# Sockets by which an engine does what it is told, as root.
_SOCKETS = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock")
# Arguments of SGLang that name a file or a folder which the server reads.
_READ_ARGUMENTS = (
    "chat-template",
    "completion-template",
    "debug-tensor-dump-input-file",
    "decrypted-config-file",
    "decrypted-draft-config-file",
    "flexkv-config-file",
    "kt-weight-path",
    "lmcache-config-file",
    "modelopt-checkpoint-restore-path",
    "pdmux-config-path",
    "quantization-param-path",
    "speculative-adaptive-config",
    "speculative-draft-model-path",
    "speculative-dspark-confidence-sts-path",
    "speculative-dspark-sps-table-path",
    "speculative-ngram-external-corpus-path",
    "ssl-ca-certs",
    "ssl-certfile",
    "ssl-keyfile",
    "tokenizer-path",
    "uno-lora-path",
)


@dataclass(frozen=True)
class Mount:
    """A directory or file of the host that the container sees."""

    source: str
    target: str
    read_only: bool = True

    def as_dict(self) -> dict[str, Any]:
        return {"source": self.source, "target": self.target, "read_only": self.read_only}


@dataclass
class Declared:
    """What an instance says of its container, and what is wrong with it."""

    engine: str
    image: ImageReference | None = None
    python: str = "python3"
    ipc: str = "private"
    shm_size_bytes: int | None = None
    mounts: list[Mount] = field(default_factory=list)
    engine_arguments: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def release(self) -> str:
        """The release of SGLang that the image's tag says; empty where there is no image that may be deployed."""
        return read_tag(self.image.tag).release if self.image else ""


def read(declared: Mapping[str, Any]) -> Declared:
    """Read the declaration of an instance whose runtime is an engine."""
    found = Declared(str(declared["runtime"]), python=str(declared.get("image_python") or "python3"))
    if not _PROGRAM.fullmatch(found.python):
        found.problems.append(
            f"image_python {found.python!r} is no interpreter: it is a name, as python3.12, or an absolute path"
        )
    _read_image(found, str(declared.get("image") or ""))
    _read_shared_memory(found, declared)
    for mount in declared.get("mounts") or ():
        _read_mount(found, mount)
    _read_engine_arguments(found, declared.get("engine_arguments") or ())
    return found


def foreign_options(declared: Mapping[str, Any]) -> list[str]:
    """The options of containers that an instance without one declares itself."""
    return [name for name in OPTIONS if declared.get(name) not in (None, [], "", False)]


def _read_image(found: Declared, text: str) -> None:
    if not text:
        found.problems.append(
            f"image is missing: runtime {found.engine} runs a pinned image, as "
            "docker.io/lmsysorg/sglang:v0.5.22@sha256:…; the module image_pin finds the digest of a tag"
        )
        return
    try:
        reference = parse_reference(text)
    except EngineError as error:
        found.problems.append(f"image: {error.msg}")
        return
    problem = refuse(reference)
    if problem:
        found.problems.append(f"image: {problem}")
        return
    found.image = reference


def _read_shared_memory(found: Declared, declared: Mapping[str, Any]) -> None:
    found.ipc = str(declared.get("ipc") or "private")
    size = declared.get("shm_size")
    if found.ipc not in ("private", "host"):
        found.problems.append(f"ipc is '{found.ipc}': it is private or host")
    elif found.ipc == "host" and size:
        found.problems.append(
            f"shm_size {size} has no effect with ipc: host, whose /dev/shm is the host's own. Leave one of them out"
        )
    elif found.ipc == "private":
        try:
            found.shm_size_bytes = parse_size(size or ADVISED_SHM)
        except ValueError as error:
            found.problems.append(f"shm_size: {error}")
            return
        if not LEAST_SHM_BYTES <= (found.shm_size_bytes or 0) <= MOST_SHM_BYTES:
            found.problems.append(f"shm_size {size} is none: it is from 1m to 16t, as 32g, or say ipc: host")


def _read_mount(found: Declared, mount: Mapping[str, Any]) -> None:
    source = str(mount.get("source") or "")
    target = str(mount.get("target") or source)
    for name, path in (("source", source), ("target", target)):
        if not path.startswith("/") or path == "/":
            found.problems.append(f"mounts: {name} '{path}' is not an absolute path below /")
            return
        if plain(path) != path:
            found.problems.append(f"mounts: {name} '{path}' is not written plainly: {plain(path)}")
            return
        problem = unspeakable(path)
        if problem:
            found.problems.append(f"mounts: {name} {problem}")
            return
    # Something within such a place may be mounted.
    own = next((place for place in (*_SYSTEM, *OWN_DIRECTORIES) if covers(target, place)), "")
    if own:
        found.problems.append(f"mounts: target '{target}' would hide {own} of the container. Choose another one")
        return
    if any(mount.target == target for mount in found.mounts):
        found.problems.append(f"mounts: two have the target '{target}', and a container sees one of them. Keep one")
        return
    read_only = True if mount.get("read_only") is None else bool(mount.get("read_only"))
    if os.path.basename(source) in _SOCKETS:
        found.problems.append(f"mounts: source '{source}' would make the server root of the host. Leave it out")
        return
    theirs = "" if read_only else unfit_to_write(source)
    if theirs:
        found.problems.append(f"mounts: source {theirs}. Say read_only: true, or choose another one")
        return
    found.mounts.append(Mount(source, target, read_only))


def covers(above: str, path: str) -> bool:
    """Whether what is at one path has the other in it, or is it."""
    return path == above or path.startswith(above + "/")


def plain(path: str) -> str:
    """A path as the kernel reads it: POSIX lets two leading slashes mean something else, and Linux does not."""
    return "/" + os.path.normpath(path).lstrip("/")


def unfit_to_write(path: str) -> str:
    """Why a server must not write to a path of the host; empty where it may."""
    there = plain(path)
    if there in ("/", "/run", "/var", "/root", "/boot"):
        return f"'{path}' has more of the host than a server may write to"
    if there.startswith(("/usr/local/", "/dev/shm/", "/run/")):
        return ""
    own = next((place for place in _SYSTEM if covers(place, there)), "")
    return f"'{path}' belongs to the system of the host ({own})" if own else ""


def unspeakable(path: str) -> str:
    """Why neither engine can be told to mount a path; empty where both can."""
    bad = next((letter for letter in path if letter in ':,"\\\x7f' or letter < " "), "")
    return f"{path!r} has a {bad!r}, which engines cannot be told. Rename it" if bad else ""


def _read_engine_arguments(found: Declared, words: Sequence[Any]) -> None:
    for word in map(str, words):
        name, _equals, value = word.partition("=")
        if not word.startswith("-"):
            found.problems.append(
                f"engine_arguments: '{word}' is no option. Write each as one word with its value, as "
                "--device=/dev/infiniband"
            )
        elif why := _why_ours(name):
            found.problems.append(f"engine_arguments: {name} is refused: {why}")
        elif not word.startswith("--"):
            # `-u0` and `-it` are several words in one, which only the engine can tell apart.
            found.problems.append(
                f"engine_arguments: '{word}' is refused: what a short option says is not looked into. Write the long "
                "one, as --device=/dev/infiniband"
            )
        elif len(word.split()) > 1 and word.split()[0] in _FREE:
            option, value = word.split(None, 1)
            found.problems.append(
                f"engine_arguments: '{word}' is refused: the value follows after =. Write {option}={value}"
            )
        elif name not in _FREE:
            found.problems.append(
                f"engine_arguments: {name} is refused: it is none of the options that the unit leaves free: "
                f"{', '.join(_FREE)}. What else a container needs belongs into its image, or into an option of the "
                "instance"
            )
        elif not re.fullmatch(_FREE[name], value):
            manual = "write it as the engine's manual has it, without quotes" if value else "its value belongs to it"
            instead = _INSTEAD.get(name, f"{manual}, as {name}=VALUE")
            found.problems.append(f"engine_arguments: '{word}' is refused: {instead}")
        else:
            found.engine_arguments.append(word)


def _why_ours(name: str) -> str:
    """Why an option is not for engine_arguments; empty where it is."""
    if name in _OURS:
        return _OURS[name]
    return next((why for prefix, why in _OURS_BY_PREFIX.items() if name.startswith(prefix)), "")


# --- what the container sees ----------------------------------------------------------------------------------------


def mounts_of(
    found: Declared, writable: Sequence[str], model: str, arguments: Mapping[str, Any], credentials: str
) -> list[Mount]:
    """Everything of the host that the container sees, the same at the same place as for a native server."""
    mounts = {mount.target: mount for mount in found.mounts}
    for path in writable:
        mounts.setdefault(path, Mount(path, path, read_only=False))
    read = [model] if model else []
    read += [str(arguments[name]) for name in _READ_ARGUMENTS if arguments.get(name)]
    read += _adapters(arguments.get("lora-paths"))
    read += [credentials] if credentials else []
    for path in read:
        if path.startswith("/") and not any(covers(target.rstrip("/"), path) for target in mounts):
            mounts[path] = Mount(path, path)
    return [mounts[target] for target in sorted(mounts)]


def _adapters(value: Any) -> list[str]:
    """The folders of LoRA adapters: `name=/path` or a path each."""
    values = value if isinstance(value, (list, tuple)) else [value] if isinstance(value, str) else []
    return [str(each).partition("=")[2] or str(each) for each in values if isinstance(each, str)]


def devices_of(engine: str, needs_cards: bool, cards: Sequence[Any] | None, cdi: bool) -> tuple[list[str], str | None]:
    """The cards as the engine is told them: names of CDI, or the value of docker's --gpus.

    CDI's names are those that `nvidia-ctk cdi generate` gives: by index, by UUID, and `all`.
    """
    if not needs_cards:
        return [], None
    if engine == PODMAN or cdi:
        return [f"nvidia.com/gpu={card}" for card in (cards or ["all"])], None
    return [], '"device=' + ",".join(str(card) for card in cards) + '"' if cards else "all"


def cgroup_parent(engine: str, slice_name: str, driver: str) -> str | None:
    """What docker is told as the parent of the container's group. podman's containers join by their unit's Slice=."""
    if engine == PODMAN:
        return None
    return f"/sglang.slice/{slice_name}" if driver == "cgroupfs" else slice_name


def engine_facts(readings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What units depend on, from what container_info read. `unknown` says why something of it could not be read."""
    docker, cdi = readings.get(DOCKER) or {}, readings.get("cdi") or {}
    directories, driver = docker.get("cdi_directories"), docker.get("cgroup_driver")
    facts: dict[str, Any] = {}
    if isinstance(driver, str):
        facts["cgroup_driver"] = driver
    elif isinstance(driver, dict):
        facts["unknown"] = f"its control groups: {driver.get('unknown')}"
    if isinstance(directories, (list, tuple)):
        specs = [file.get("spec") or {} for file in cdi.get("files") or ()]
        unread = [str(spec["unknown"]) for spec in specs if "unknown" in spec]
        unread += [str(cdi["unknown"])] if "unknown" in cdi else []
        facts["cdi"] = bool(directories) and any(str(spec.get("kind")) == KIND_OF_CARDS for spec in specs)
        if directories and not facts["cdi"] and unread:
            facts["cdi_unknown"] = "; ".join(unread)
    return {DOCKER: facts, PODMAN: {}}
