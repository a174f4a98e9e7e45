# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a host's instances declare to what each of them shall be: the content of its desired-state file.

Pure: it reads nothing and changes nothing. Everything that is wrong is said at once.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from . import cards, container_spec, container_words, grace, port_plan, server_args, unit_words
from .checks import args_checks, args_release
from .checks.args_declared import variable_text
from .checks.container_readings import PODMAN
from .container_spec import covers
from .desired_state import DESIRED_DIR, INSTANCE_NAME, QUADLET_DIR, UNIT_DIR, Limits, unit_files
from .environments import environment_name, environment_of, lock_problems
from .finding import ERROR, OK, Finding
from .limits import read_limits
from .model_cache import depends_on_hub
from .releases import Release, release_for
from .server_flags import KINDS

SCHEMA = 1
# Part of the desired state: raise it when the unit's template changes what an instance that runs should have.
UNIT_REVISION = 1

CREDENTIALS_DIR = f"{DESIRED_DIR}/credentials"
STATE_DIR = "/var/lib/sglang"
CACHE_DIR = "/var/cache/sglang"
USER = "sglang"
RESTART_S = 10
START_LIMIT_BURST = 3
# Units and directories of the collection that an instance of this name would take.
RESERVED_NAMES = ("gateway", "drift", "rollout", "job")
RUNTIMES = ("native", "docker", "podman")
SECRETS = ("api_key", "admin_api_key", "hf_token")

# Variables by which SGLang and what it is built on find their caches. SGLANG_JIT_CACHE_DIR does not follow
# SGLANG_CACHE_DIR; the others do, and are named so that no release and no library puts them elsewhere.
CACHES = {
    "SGLANG_CACHE_DIR": "sglang",
    "SGLANG_JIT_CACHE_DIR": "jit",
    "SGLANG_DG_CACHE_DIR": "deep_gemm",
    "SGLANG_CUTE_AOT_CACHE_DIR": "cute_aot",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TILELANG_CACHE_DIR": "tilelang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "nv",
    "XDG_CACHE_HOME": "xdg",
}
DEFAULTS: dict[str, Any] = {
    "runtime": "native",
    "host": "0.0.0.0",
    "drain_on_timeout": "fail",
    "margin_s": grace.MARGIN_S,
    "start_deadline_s": 900,
    "hf_home": f"{CACHE_DIR}/huggingface",
}

# Three numbers at least: YAML reads a bare 0.10 as 0.1.
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)+(?:\.?(?:a|b|rc|post)[0-9]+)*(?:\+[A-Za-z0-9.]+)?")
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_REPLICA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LINE_TO_PASTE = re.compile(r"[a-z0-9_-]+: ")
# As the longest grace period: a start or a drain that takes longer than a day is none.
_LONGEST_S = grace.LONGEST_GRACE_S
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_HIDDEN_BY_PROTECT_HOME = ("/home/", "/root/", "/run/user/")
_WRITTEN_ARGUMENTS = (
    "crash-dump-folder",
    "debug-tensor-dump-output-folder",
    "download-dir",
    "export-metrics-to-file-dir",
    "file-storage-path",
    "ple-offload-dir",
    "spec-trace-dir",
)
_WHOLE_ARGUMENTS = (
    "attn-dp-size",
    "base-gpu-id",
    "disaggregation-bootstrap-port",
    "dp-size",
    "engine-info-bootstrap-port",
    "gpu-id-step",
    "grpc-port",
    "max-queued-requests",
    "max-running-requests",
    "nccl-port",
    "nnodes",
    "pp-size",
    "smg-http-sidecar-port",
    "tokenizer-worker-num",
    "tp-size",
)


@dataclass(frozen=True)
class Host:
    """What is known of the host: its name in the inventory, the address that gateways use, its cards.

    `cuda_homes` has the toolkit of the environments that have one of their own, by the name of the environment.
    `engines` says of each container engine what its units depend on: `cgroup_driver` and whether it knows the cards by
    `cdi`. `user` is the service user as UID:GID, which a container needs as numbers. `locks` has what was read of each
    declared lock, by its path as it is declared. `upgrade`: the declared versions are a release that is asked about,
    so the tags of the declared images need not say it.
    """

    name: str
    address: str
    gpus: Sequence[Mapping[str, Any]] = ()
    cuda_homes: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    user: str = ""
    locks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    upgrade: bool = False


@dataclass(frozen=True)
class Resolved:
    """One instance: its desired state and what its unit, slice and credentials files need besides."""

    desired: dict[str, Any]
    unit: dict[str, Any]
    slice: dict[str, Any]
    credentials: list[str]
    directories: list[str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.desired["instance"],
            "desired": self.desired,
            "unit": self.unit,
            "slice": self.slice,
            "credentials": self.credentials,
            "directories": self.directories,
            "container_check": _container_check(self.desired),
        }


def _container_check(desired: Mapping[str, Any]) -> dict[str, Any] | None:
    """The instance as container_info takes it, for the checks of its engine."""
    container = desired["container"]
    if not container:
        return None
    return {
        "name": desired["instance"],
        "runtime": desired["runtime"],
        "version": desired["version"],
        "image": container["image"],
        "arguments": desired["args"],
        "environment": desired["environment"],
        "ipc": container["ipc"],
        "shm_size": container["shm_size_bytes"],
        "entrypoint": [container["python"]],
        "command": desired["argv"][1:],
        "container_user": desired["user"],
        "stop_signal": "SIGTERM",
    }


@dataclass
class Outcome:
    """All instances of a host, or everything that is wrong with them."""

    instances: list[Resolved] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def versions(self) -> list[str]:
        """The releases that native instances need an environment of."""
        return sorted({str(one.desired["version"]) for one in self.instances if one.desired["container"] is None})

    @property
    def environments(self) -> list[dict[str, Any]]:
        """The virtual environments that the native instances run from, each once, by their names."""
        found = {
            native["environment"]: {
                "name": native["environment"].rpartition("/")[2],
                "path": native["environment"],
                "version": instance.desired["version"],
                "lock_sha256": native["lock_sha256"],
            }
            for instance in self.instances
            for native in [instance.desired["native"]]
            if native
        }
        return [found[path] for path in sorted(found)]


@dataclass
class _Draft:
    """One instance on its way: the declaration with the host's defaults, and what was found about it."""

    name: str
    declared: dict[str, Any]
    own: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    claim: cards.Claim = field(init=False)
    container: container_spec.Declared | None = None

    def __post_init__(self) -> None:
        self.claim = cards.Claim(self.name, None, needs_cards=False)

    def wrong(self, text: str) -> None:
        self.problems.append(f"instance '{self.name}': {text}")

    def doubtful(self, text: str) -> None:
        self.warnings.append(f"instance '{self.name}': {text}")

    def whole(self, argument: str, default: int) -> int:
        return int(self.arguments.get(argument, default))


def resolve(
    instances: Sequence[Mapping[str, Any]],
    defaults: Mapping[str, Any],
    host: Host,
    memory: Mapping[str, Mapping[str, Any]] | None = None,
) -> Outcome:
    """The desired state of every declared instance, or every problem that the declarations have.

    `memory` is the memory part of each, which instance_memory plans from what a first pass resolved.
    """
    outcome = Outcome()
    drafts = [_draft(position, declared, defaults) for position, declared in enumerate(instances)]
    resolved = [_resolve_one(draft, host, (memory or {}).get(draft.name)) for draft in drafts]
    for draft in drafts:
        outcome.problems += draft.problems
        outcome.warnings += draft.warnings
    outcome.problems += _together(drafts, host)
    if not outcome.problems:
        outcome.instances = [one for one in resolved if one is not None]
    return outcome


def wishes(instances: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each instance declares about its memory, by its name."""
    drafts = [_draft(position, declared, defaults) for position, declared in enumerate(instances)]
    return {draft.name: {key: draft.declared.get(key) for key in ("mem_fraction", "memory")} for draft in drafts}


def _draft(position: int, declared: Mapping[str, Any], defaults: Mapping[str, Any]) -> _Draft:
    merged = {**DEFAULTS, **{key: value for key, value in defaults.items() if value is not None}}
    merged.update({key: value for key, value in declared.items() if value is not None})
    for key in ("arguments", "environment"):
        merged[key] = {**(defaults.get(key) or {}), **(declared.get(key) or {})}
    return _Draft(str(declared.get("name") or f"number {position + 1}"), merged, own=dict(declared))


def _resolve_one(draft: _Draft, host: Host, memory: Mapping[str, Any] | None) -> Resolved | None:
    declared = draft.declared
    _check_name(draft)
    version = _check_version(draft, host)
    lock = _check_lock(draft, version, host)
    model = _check_model(draft)
    _check_port(draft)
    # Without a version the rest is still read against a release, so that its problems are said in the same run.
    release = release_for(version or max(KINDS))
    _check_arguments(draft, version or max(KINDS))
    _check_the_rest(draft)
    _check_cards(draft)
    limits = _check_limits(draft)
    times = _check_times(draft, release)
    if draft.problems or version is None or model is None or times is None:
        return None
    if release.assumed:
        draft.doubtful(
            f"version {version} is not one of the releases whose behaviour is known here; that of {release.version} is "
            "assumed"
        )
    args = {**model.arguments, "host": declared["host"], "port": declared["port"], **draft.arguments}
    if memory is not None and memory.get("argument") is not None:
        args["mem-fraction-static"] = memory["argument"]
    paths = _writable_paths(draft)
    environment_dir = environment_of(version, lock)
    cuda_home = host.cuda_homes.get(environment_name(version, lock))
    environment = _environment(draft, environment_dir, release, model, cuda_home)
    credentials = [secret for secret in SECRETS if declared.get(secret)]
    has_config = bool({"api_key", "admin_api_key"} & set(credentials))
    container = _container(draft, host, paths, model, times) if draft.container else None
    python = container["python"] if container else f"{environment_dir}/bin/python"
    config = f"{_credentials_seen_at(draft)}/config.yml" if container else server_args.CREDENTIALS_CONFIG
    argv = server_args.command_line(python, args, version, config if has_config else "")
    deadline_s = int(declared["start_deadline_s"])
    scheme = "https" if args.get("ssl-certfile") else "http"
    desired = {
        "schema": SCHEMA,
        "unit_revision": UNIT_REVISION,
        "instance": draft.name,
        "replica": _replica(draft, host),
        "rank": 0,
        "nnodes": 1,
        "unit": f"sglang-{draft.name}.service",
        "slice": f"sglang-{draft.name}.slice",
        "runtime": declared["runtime"],
        "version": version,
        "version_assumed": release.assumed,
        "native": None if container else {"environment": environment_dir, "lock_sha256": lock or None},
        "model": _model_part(model, args),
        "host": declared["host"],
        "port": declared["port"],
        "scheme": scheme,
        "probe_url": f"{scheme}://{_bracketed(_probe_address(str(declared['host'])))}:{declared['port']}",
        "worker_url": declared.get("worker_url") or f"{scheme}://{_bracketed(host.address)}:{declared['port']}",
        "cards": list(draft.claim.cards or ()),
        "cards_shared": draft.claim.shared,
        "args": args,
        "argv": argv,
        "environment": environment,
        "credentials": _credentials(draft, credentials, has_config),
        "user": USER,
        "group": USER,
        "limits": {
            "memory_max_bytes": limits.memory_max_bytes,
            "memory_high_bytes": limits.memory_high_bytes,
            "memory_swap_max_bytes": limits.memory_swap_max_bytes,
        },
        "drain": _drain(declared, times),
        "grace": {
            "period_s": times.grace_period_s,
            "arithmetic": times.grace_arithmetic,
            "output_cap_tokens": declared["output_cap_tokens"],
            "slowest_tokens_per_s": declared["slowest_tokens_per_s"],
            "running_at_once": draft.arguments.get("max-running-requests"),
            "waiting": draft.arguments.get("max-queued-requests"),
            "margin_s": declared["margin_s"],
        },
        "start": {
            "deadline_s": deadline_s,
            "limit_burst": START_LIMIT_BURST,
            "limit_interval_s": START_LIMIT_BURST * (deadline_s + RESTART_S),
            "restart_s": RESTART_S,
        },
        "writable_paths": paths,
        "container": container,
        "memory": None if memory is None else dict(memory),
    }
    _check_leak(draft, desired)
    return Resolved(
        desired=desired,
        unit=_unit(draft, desired, credentials, has_config),
        slice={"lines": _slice_lines(desired["limits"])},
        credentials=credentials,
        directories=[path for path in paths if not any(covers(own, path) for own in (STATE_DIR, CACHE_DIR))],
    )


# --- one instance ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    path: str
    local: bool
    arguments: dict[str, Any]


def _check_name(draft: _Draft) -> None:
    name = draft.declared.get("name")
    if not name:
        draft.wrong("name is missing")
    elif not INSTANCE_NAME.fullmatch(str(name)):
        draft.wrong(
            f"the name does not match {INSTANCE_NAME.pattern}: lower-case letters, digits and underscores, at most 32. "
            "A dash would nest the instance's slice in another one"
        )
    elif name in RESERVED_NAMES:
        draft.wrong(
            f"the name is reserved ({', '.join(RESERVED_NAMES)} are used by other units or directories). Choose another"
        )


def _check_version(draft: _Draft, host: Host) -> str | None:
    runtime = draft.declared.get("runtime", "native")
    if runtime not in RUNTIMES:
        draft.wrong(f"runtime '{runtime}' is unknown: there are {', '.join(RUNTIMES)}")
    elif runtime != "native":
        return _version_of_image(draft, host)
    else:
        foreign = container_spec.foreign_options(draft.own)
        if foreign:
            draft.wrong(f"{', '.join(foreign)}: of no effect with runtime native. Say runtime: podman or docker")
    return _plain_version(draft)


def _plain_version(draft: _Draft) -> str | None:
    version = str(draft.declared.get("version") or "")
    if not version:
        draft.wrong("version is missing: set it on the instance, or sglang_server_version for the host, as 0.5.22")
        return None
    if version[0] in "vV" and _VERSION.fullmatch(version[1:]):
        draft.wrong(f"version '{version}': write {version[1:]} without the {version[0]}")
        return None
    if not _VERSION.fullmatch(version):
        draft.wrong(
            f"version '{version}' does not say which release: another one would run after the next installation. "
            "Name one, as 0.5.22"
        )
        return None
    return version


def _version_of_image(draft: _Draft, host: Host) -> str | None:
    """The release that the image's tag says. Where a version is declared too, they are the same."""
    draft.container = container_spec.read(draft.declared)
    for text in draft.container.problems:
        draft.wrong(text)
    declared = _plain_version(draft) if draft.declared.get("version") else None
    release = draft.container.release
    if declared and release and declared != release and not host.upgrade:
        draft.wrong(
            f"version {declared} is declared, and the tag of the image says {release}. Leave version out, or correct "
            "one of them"
        )
    return declared or release or None


def _check_lock(draft: _Draft, version: str | None, host: Host) -> str:
    """The hash of the declared lock; empty without one, and for a container, whose image has everything."""
    path = str(draft.declared.get("lock") or "")
    if draft.container and draft.own.get("lock"):
        draft.wrong(f"lock {path}: of no effect with runtime {draft.container.engine}. The image says what is in it")
    if not path or draft.container:
        return ""
    lock = host.locks.get(path)
    for text in lock_problems(path, version or "", lock):
        draft.wrong(text)
    return str((lock or {}).get("sha256") or "")


def _check_model(draft: _Draft) -> _Model | None:
    path = str(draft.declared.get("model") or "")
    revision = draft.declared.get("revision")
    if not path:
        draft.wrong("model is missing: an absolute path on the host, or a hub id as Qwen/Qwen3-8B")
        return None
    local = path.startswith("/")
    if not local and not _HUB_ID.fullmatch(path):
        draft.wrong(f"model '{path}' is neither an absolute path nor a hub id as Qwen/Qwen3-8B")
        return None
    arguments: dict[str, Any] = {"model-path": path}
    if revision and local:
        draft.doubtful("revision has no effect: the model is a local path")
    elif not local and str(revision or "main") == "main":
        lacks = "revision main, a branch that moves" if revision else "no revision"
        draft.doubtful(
            f"model '{path}' has {lacks}: a restart may load other weights than the ones that serve now. Name a commit "
            "of it"
        )
    if revision and not local:
        arguments["revision"] = str(revision)
    served = draft.declared.get("served_model_name")
    if served:
        arguments["served-model-name"] = str(served)
    return _Model(path, local, arguments)


def _check_arguments(draft: _Draft, version: str) -> None:
    """What the checks find is refused or said here; the module args_check reports the same."""
    # A replica over several hosts is refused below, whatever else such a declaration lacks.
    port = draft.declared.get("port")
    # A port that is none is refused with the others of the host.
    port = port if isinstance(port, int) and 1 <= port <= 65535 else None
    single = {**draft.declared, "port": port, "nnodes": 1, "arguments": {**draft.declared["arguments"], "nnodes": None}}
    for finding in args_checks.check_instance(single, version):
        if finding.severity == ERROR:
            draft.wrong(sentence_of(finding))
        # A release that nothing is known of is a reservation of its own.
        elif finding.severity != OK and finding.id != args_release.ASSUMED.id:
            draft.doubtful(sentence_of(finding))
    arguments = draft.declared["arguments"]
    for name, option in (("served-model-name", "served_model_name"), ("revision", "revision")):
        if arguments.get(name) is not None and draft.declared.get(option):
            draft.wrong(f"argument '{name}': {option} is declared too. Keep one of them")
    draft.arguments = server_args.canonical(arguments)
    for name in _WHOLE_ARGUMENTS:
        if name in draft.arguments:
            # What is no whole number was found above.
            value = str(draft.arguments.pop(name))
            if re.fullmatch(r"-?[0-9]+", value):
                draft.arguments[name] = int(value)
    fraction = draft.declared.get("mem_fraction")
    if draft.arguments.get("mem-fraction-static") is not None and fraction not in (None, "auto"):
        draft.wrong(f"argument 'mem-fraction-static': mem_fraction is {fraction} too. Keep one of them")
    if max(draft.whole("nnodes", 1), int(draft.declared.get("nnodes") or 1)) > 1:
        draft.wrong(
            "nnodes is larger than 1: a replica over several hosts is not available yet. "
            "Declare one instance per host with as many cards as the host has"
        )
    for name in ("node-rank", "dist-init-addr"):
        if draft.arguments.get(name):
            draft.wrong(f"argument '{name}' belongs to a replica over several hosts, which is not available yet")


def sentence_of(finding: Finding) -> str:
    """A finding on the arguments as a refusal says it."""
    fix = finding.fix.strip()
    # Some fixes are what the summary says, as a line to paste: a report shows them apart, a sentence says them once.
    if " " not in fix or fix.lower() in finding.summary.lower() or fix.endswith(": …"):
        return finding.summary
    if _LINE_TO_PASTE.match(fix):
        return f"{finding.summary}. Write {fix}"
    return f"{finding.summary}. {fix[:1].upper()}{fix[1:]}"


def _check_port(draft: _Draft) -> None:
    if not isinstance(draft.declared.get("port"), int):
        draft.wrong("port is missing: each instance of a host needs its own")
    elif isinstance(draft.declared["port"], bool):
        draft.wrong(f"port is {draft.declared['port']}, expected a number, as 30000")


def _check_limits(draft: _Draft) -> Limits:
    names = ("memory_max", "memory_high", "memory_swap_max")
    limits, problems, warnings = read_limits(*(draft.declared.get(name) for name in names))
    for text in problems:
        draft.wrong(text)
    for text in warnings:
        draft.doubtful(text)
    return limits


def _check_the_rest(draft: _Draft) -> None:
    declared = draft.declared
    if not _is_address(str(declared["host"])):
        draft.wrong(f"host '{declared['host']}' is no address to listen on, as 0.0.0.0 or 10.0.0.11")
    url = declared.get("worker_url")
    if url and not _is_worker_url(str(url)):
        draft.wrong(f"worker_url '{url}' is not a URL as http://10.0.0.11:30000 (no path)")
    replica = declared.get("replica")
    if replica and not _REPLICA_NAME.fullmatch(str(replica)):
        draft.wrong(
            f"replica '{str(replica)[:80]}' is no name: letters, digits, dots, dashes and underscores, at most 128, "
            "beginning with a letter or a digit"
        )
    nnodes = declared.get("nnodes")
    if nnodes is not None and int(nnodes) < 1:
        draft.wrong(f"nnodes is {nnodes}, expected at least 1")
    if str(declared["host"]) in ("127.0.0.1", "localhost", "::1") and not declared.get("worker_url"):
        draft.doubtful(f"host {declared['host']}: only a gateway on this very host reaches the server")
    for path in declared.get("writable_paths") or ():
        if not str(path).startswith("/"):
            draft.wrong(f"writable_paths: '{path}' is not an absolute path")
    if not str(declared["hf_home"]).startswith("/"):
        draft.wrong(f"hf_home '{declared['hf_home']}' is not an absolute path")
    for name in ("model", "hf_home"):
        path = str(declared.get(name) or "")
        if path.startswith("/") and container_spec.plain(path) != (path.rstrip("/") or "/"):
            draft.wrong(f"{name} '{path}' is not written plainly: {container_spec.plain(path)}")
    for path in _written_places(draft):
        theirs = container_spec.unfit_to_write(path) if path.startswith("/") else ""
        if theirs:
            draft.wrong(f"the server would write to {theirs}. Choose a directory of its own, as {CACHE_DIR}/hf")
    fraction = declared.get("mem_fraction")
    if isinstance(fraction, bool) or not isinstance(fraction, (str, int, float, type(None))):
        draft.wrong(f"mem_fraction is {fraction!r}. It is auto, choose or a number, as 0.85")
    if not 1 <= int(declared["start_deadline_s"]) <= _LONGEST_S:
        draft.wrong(f"start_deadline_s is {declared['start_deadline_s']}, expected 1 to {_LONGEST_S} seconds")
    for name in SECRETS:
        secret = str(declared.get(name) or "")
        if secret.strip() != secret or not secret.isascii() or not secret.isprintable():
            draft.wrong(
                f"{name} has a blank at an end, a line break, or a letter outside of ASCII, which no header of HTTP "
                "can carry. Look at where it comes from"
            )


def _check_times(draft: _Draft, release: Release) -> grace.Times | None:
    declared = draft.declared
    cap, rate = declared.get("output_cap_tokens"), declared.get("slowest_tokens_per_s")
    running = draft.arguments.get("max-running-requests")
    waiting = draft.arguments.get("max-queued-requests")
    wrong = [
        f"{name} is {value}, expected at least {least}"
        for name, value, least in (
            ("output_cap_tokens", cap or None, 1),  # none at all is refused below, with what it is for
            ("margin_s", declared["margin_s"], 0),
            ("drain_timeout_s", declared.get("drain_timeout_s"), 0),
            ("max-queued-requests", waiting, 0),
        )
        if value is not None and value < least
    ]
    if rate is not None and not 0 <= rate < math.inf:
        wrong.append(f"slowest_tokens_per_s is {rate}, expected a finite number above 0")
    for text in wrong:
        draft.wrong(text)
    # What is below one here is refused with the arguments.
    if wrong or (running is not None and running < 1):
        return None
    refusal = grace.refusal(cap, rate, release)
    if refusal:
        draft.wrong(refusal)
        return None
    load = grace.Load(int(cap or 0), float(rate or 0), running, waiting, declared["margin_s"])
    endless = grace.endless(load, release)
    if endless:
        draft.wrong(endless)
        return None
    times = grace.times(load, release)
    for note in times.notes:
        draft.doubtful(note)
    given = declared.get("drain_timeout_s")
    if given is not None and given > _LONGEST_S:
        draft.wrong(f"drain_timeout_s is {given}, expected at most {_LONGEST_S} seconds, a day")
    if given is not None and given < times.drain_timeout_s:
        ends = "cuts off what is left" if declared["drain_on_timeout"] == "abort" else "ends without a stop"
        draft.doubtful(
            f"drain_timeout_s is {given}, and the longest answers may take {times.drain_timeout_s} s: a drain that "
            f"takes longer {ends}. Leave it out, and it is computed"
        )
    return times


def _check_leak(draft: _Draft, desired: Mapping[str, Any]) -> None:
    if "\\u0000" in json.dumps(desired):
        draft.wrong("a value of the environment, the arguments or a path has a NUL, which no program can be given")
    text = json.dumps(desired, ensure_ascii=False)
    for secret in SECRETS:
        value = draft.declared.get(secret)
        # In JSON a quote, a backslash or a new line is written as two letters.
        if value and json.dumps(str(value), ensure_ascii=False)[1:-1] in text:
            draft.wrong(
                f"the value of {secret} also stands in what would be written where every user of the host can read it "
                "(arguments, environment, names or paths). Remove it there, or use a longer one"
            )


def _check_cards(draft: _Draft) -> None:
    given = draft.declared.get("cards")
    on_cpu = draft.arguments.get("device") == "cpu"
    parsed: list[cards.Card] = []
    for card in given or ():
        try:
            parsed.append(cards.parse_card(card))
        except ValueError as error:
            draft.wrong(f"cards: {error}")
    if on_cpu and parsed:
        draft.doubtful("cards have no effect: argument 'device' is cpu")
    elif parsed:
        _check_count(draft, len(parsed))
    draft.claim = cards.Claim(
        instance=draft.name,
        cards=tuple(parsed) if given else None,
        shared=bool(draft.declared.get("cards_shared")),
        needs_cards=not on_cpu,
    )


def _check_count(draft: _Draft, given: int) -> None:
    if "base-gpu-id" in draft.arguments or "gpu-id-step" in draft.arguments:
        return
    sizes = {name: draft.whole(name, 1) for name in ("tp-size", "pp-size")}
    if not draft.arguments.get("enable-dp-attention"):
        sizes["dp-size"] = draft.whole("dp-size", 1)
    needed = math.prod(sizes.values())
    product = " x ".join(f"{name} {size}" for name, size in sizes.items())
    if needed > given:
        draft.wrong(f"{product} needs {needed} cards and {given} are declared")
    elif needed < given:
        draft.doubtful(f"{given} cards are declared and {product} uses {needed}; the others stay idle")


def _drain(declared: Mapping[str, Any], times: grace.Times) -> dict[str, Any]:
    given = declared.get("drain_timeout_s")
    return {
        "timeout_s": times.drain_timeout_s if given is None else given,
        "on_timeout": declared["drain_on_timeout"],
        "arithmetic": times.drain_arithmetic
        if given is None
        else f"{given} s as declared (computed: {times.drain_arithmetic})",
    }


def _environment(
    draft: _Draft, environment_dir: str, release: Release, model: _Model, cuda_home: str | None
) -> dict[str, str]:
    declared = draft.declared
    # A declared toolkit wins, by either name that SGLang reads.
    if not draft.claim.needs_cards or {"CUDA_HOME", "CUDA_PATH"} & set(declared["environment"]):
        cuda_home = None
    environment = {
        "HOME": f"{STATE_DIR}/{draft.name}",
        **_system_of(draft, environment_dir, cuda_home),
        "PYTHONUNBUFFERED": "1",
        **{name: f"{CACHE_DIR}/{directory}" for name, directory in CACHES.items()},
        "HF_HOME": str(declared["hf_home"]),
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        release.output_cap_variable: str(declared["output_cap_tokens"]),
    }
    # What is fetched before a start is asked of nobody at the start.
    args = {**model.arguments, **draft.arguments}
    if not depends_on_hub({"model": _model_part(model, args), "args": args}):
        environment["HF_HUB_OFFLINE"] = "1"
    # A container sees only its own cards, and numbers them from 0.
    if draft.claim.needs_cards and not draft.container:
        environment.update(cards.visible_devices(draft.claim.cards))
    if declared.get("hf_token"):
        environment["HF_TOKEN_PATH"] = f"{_credentials_seen_at(draft)}/hf_token"
    environment.update({str(name): variable_text(value) for name, value in declared["environment"].items()})
    return dict(sorted(environment.items()))


def _model_part(model: _Model, args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "path": model.path,
        "local": model.local,
        "revision": args.get("revision"),
        "served_name": args.get("served-model-name", model.path),
    }


def _system_of(draft: _Draft, environment_dir: str, cuda_home: str | None) -> dict[str, str]:
    """Where programs are found. An image has its own PATH and toolkit, and does not know the user by name."""
    if draft.container:
        return {"USER": USER, "LOGNAME": USER}
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "PATH": f"{environment_dir}/bin:{cuda_home or '/usr/local/cuda'}/bin:{system}",
        **({"CUDA_HOME": cuda_home} if cuda_home else {}),
    }


def _credentials_seen_at(draft: _Draft) -> str:
    """The directory that the server finds its credentials in."""
    if draft.container:
        return f"{container_spec.CREDENTIALS_DIR}/{draft.name}"
    return f"/run/credentials/sglang-{draft.name}.service"


def _container(
    draft: _Draft, host: Host, writable: Sequence[str], model: _Model, times: grace.Times
) -> dict[str, Any] | None:
    """What the engine is told, beside the environment and the server's own words."""
    found = draft.container
    if found is None or found.image is None:
        return None
    engine = host.engines.get(found.engine) or {}
    unknown = [str(engine["unknown"])] if engine.get("unknown") else []
    if draft.claim.needs_cards and engine.get("cdi_unknown"):
        unknown.append(f"whether it knows the cards by CDI: {engine['cdi_unknown']}")
    if unknown:
        draft.wrong(
            f"{found.engine} did not tell what its unit depends on ({'; '.join(unknown)}). See why, with "
            f"`{found.engine} info`, and run again"
        )
    devices, gpus = container_spec.devices_of(
        found.engine, draft.claim.needs_cards, draft.claim.cards, bool(engine.get("cdi", True))
    )
    credentials = _credentials_seen_at(draft) if any(draft.declared.get(secret) for secret in SECRETS) else ""
    mounts = container_spec.mounts_of(found, writable, model.path if model.local else "", draft.arguments, credentials)
    # What was declared as a mount was looked at there.
    for path in sorted({mount.source for mount in mounts} - {mount.source for mount in found.mounts}):
        problem = container_spec.unspeakable(path)
        if problem:
            draft.wrong(f"the path {problem}")
        elif container_spec.plain(path) == "/":
            draft.wrong(f"the path '{path}' is the whole host. Name the folder or file that the server reads")
    for mount in found.mounts:
        if mount.target in writable and mount.read_only:
            draft.wrong(f"mounts: the server writes to '{mount.target}'. Say read_only: false")
    driver = str(engine.get("cgroup_driver") or "systemd")
    return {
        "engine": found.engine,
        "name": f"sglang-{draft.name}",
        "image": str(found.image),
        "run_image": found.image.by_digest,
        "python": found.python,
        "ipc": found.ipc,
        "shm_size_bytes": found.shm_size_bytes,
        "mounts": [mount.as_dict() for mount in mounts],
        "devices": devices,
        "gpus": gpus,
        "user": host.user or USER,
        "cgroup_parent": container_spec.cgroup_parent(found.engine, f"sglang-{draft.name}.slice", driver),
        "stop_timeout_s": times.grace_period_s,
        "engine_arguments": found.engine_arguments,
        "cuda_compat": bool(draft.declared.get("cuda_compat")),
    }


def _written_places(draft: _Draft) -> list[str]:
    """What is declared as a place that the server writes to."""
    declared = draft.declared
    paths = [str(declared["hf_home"])]
    paths += [str(path) for path in declared.get("writable_paths") or ()]
    paths += [str(declared["environment"][name]) for name in CACHES if declared["environment"].get(name)]
    return paths + [str(draft.arguments[name]) for name in _WRITTEN_ARGUMENTS if draft.arguments.get(name)]


def _writable_paths(draft: _Draft) -> list[str]:
    paths = [f"{STATE_DIR}/{draft.name}", CACHE_DIR, *_written_places(draft)]
    absolute = sorted({path.rstrip("/") for path in paths if path.startswith("/") and path != "/"})
    return [path for path in absolute if not any(path.startswith(other + "/") for other in absolute)]


def _credentials(draft: _Draft, names: Sequence[str], has_config: bool) -> dict[str, Any] | None:
    if not names:
        return None
    return {
        "config": f"{CREDENTIALS_DIR}/{draft.name}.yml" if has_config else None,
        "hf_token": f"{CREDENTIALS_DIR}/{draft.name}.hf_token" if "hf_token" in names else None,
        "fingerprint": _fingerprint(draft.name, [str(draft.declared[name]) for name in names]),
    }


def _fingerprint(instance: str, secrets: Sequence[str]) -> str:
    """Tells that a secret was changed, in 32 bits that are slow to guess from."""
    text = json.dumps(list(secrets)).encode()
    return hashlib.pbkdf2_hmac("sha256", text, f"serving.sglang/{instance}".encode(), 200_000)[:4].hex()


def _unit(draft: _Draft, desired: Mapping[str, Any], credentials: Sequence[str], has_config: bool) -> dict[str, Any]:
    load = []
    if has_config:
        load.append(f"config.yml:{desired['credentials']['config']}")
    if "hf_token" in credentials:
        load.append(f"hf_token:{desired['credentials']['hf_token']}")
    unit = {
        **_unit_files(desired),
        "read_write_paths": [unit_words.path_word(path) for path in desired["writable_paths"]],
        "load_credentials": load,
        "read_paths": [unit_words.path_word(path) for path in _read_paths(desired)],
    }
    if desired["container"]:
        return {**unit, **_container_unit(desired)}
    paths = [
        *desired["writable_paths"],
        desired["model"]["path"],
        *(str(value) for value in desired["args"].values()),
        *desired["environment"].values(),
    ]
    in_home = any((path + "/").startswith(_HIDDEN_BY_PROTECT_HOME) for path in paths)
    return {
        **unit,
        "exec_start": unit_words.exec_line(desired["argv"], [server_args.CREDENTIALS_CONFIG] if has_config else []),
        "environment": [unit_words.environment_line(name, value) for name, value in desired["environment"].items()],
        "protect_home": "read-only" if in_home else "true",
    }


def _read_paths(desired: Mapping[str, Any]) -> list[str]:
    """What the server reads of the host, whose mounts have to be there before it starts."""
    if not desired["container"]:
        return [str(desired["model"]["path"])] if desired["model"]["local"] else []
    sources = [str(mount["source"]) for mount in desired["container"]["mounts"]]
    made = (*desired["writable_paths"], container_spec.CREDENTIALS_DIR)
    return [path for path in sources if not any(covers(place, path) for place in made)]


def _unit_files(desired: Mapping[str, Any]) -> dict[str, Any]:
    """The file that systemd or podman makes the unit of, and those that another runtime would have."""
    service = f"{UNIT_DIR}/{desired['unit']}"
    path = unit_files(desired)[0]
    if path == service:
        return {"path": path, "absent": [f"{QUADLET_DIR}/sglang-{desired['instance']}.container"]}
    # systemd takes a unit of /etc before one that is made of a Quadlet.
    return {"path": path, "absent": [service, f"{UNIT_DIR}/multi-user.target.wants/{desired['unit']}"]}


def _container_unit(desired: Mapping[str, Any]) -> dict[str, Any]:
    stop_s = desired["container"]["stop_timeout_s"] + container_words.STOP_MARGIN_S
    if desired["runtime"] == PODMAN:
        return {"lines": container_words.quadlet_lines(desired), "stop_s": stop_s}
    return {"exec_start": container_words.docker_line(desired), "stop_s": stop_s}


def _slice_lines(limits: Mapping[str, int | None]) -> list[str]:
    names = {
        "MemoryMax": "memory_max_bytes",
        "MemoryHigh": "memory_high_bytes",
        "MemorySwapMax": "memory_swap_max_bytes",
    }
    return [f"{setting}={limits[name]}" for setting, name in names.items() if limits[name] is not None]


def _probe_address(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def _is_worker_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = _is_address(parts.hostname or "")
        return host and parts.scheme in ("http", "https") and parts.port != 0 and text.endswith(f"//{parts.netloc}")
    except ValueError:  # as of a port above 65535
        return False


def _is_address(text: str) -> bool:
    """Whether a text is an IP address, bare or in brackets, or a name of a host."""
    try:
        ipaddress.ip_address(text[1:-1] if re.fullmatch(r"\[.*\]", text) else text)
    except ValueError:
        # What has only digits and dots is an address with a slip.
        return len(text) <= 253 and bool(_HOST_NAME.fullmatch(text)) and not re.fullmatch(r"[0-9.]+", text)
    return True


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


# --- the instances of a host together -------------------------------------------------------------------------------


def _together(drafts: Sequence[_Draft], host: Host) -> list[str]:
    named = {draft.name: draft for draft in drafts}
    uses = {
        name: port_plan.ports_used(draft.declared["port"], draft.arguments)
        for name, draft in named.items()
        if isinstance(draft.declared.get("port"), int)
    }
    address = []
    if not _is_address(host.address) and not all(draft.declared.get("worker_url") for draft in drafts):
        address.append(
            f"the address of the host, '{host.address}', is neither an IP address nor a name: gateways would not reach "
            "it. Set sglang_server_address"
        )
    return [
        *address,
        *_twice("name", [draft.name for draft in drafts]),
        *_twice("replica", [_replica(draft, host) for draft in named.values()]),
        *port_plan.port_conflicts(uses),
        *cards.conflicts([draft.claim for draft in named.values()], host.gpus),
    ]


def _replica(draft: _Draft, host: Host) -> str:
    return str(draft.declared.get("replica") or f"{host.name}-{draft.name}")


def _twice(what: str, values: Sequence[str]) -> list[str]:
    return [
        f"the {what} '{value}' is declared {values.count(value)} times on this host"
        for value in sorted(set(values))
        if values.count(value) > 1
    ]
