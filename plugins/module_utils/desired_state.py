# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the desired-state files under /etc/sglang: what an instance is meant to be."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import EngineError
from .releases import Release, release_for

DESIRED_DIR = "/etc/sglang"
RUNNING_DIR = "/run/sglang/running"
UNIT_DIR = "/etc/systemd/system"
QUADLET_DIR = "/etc/containers/systemd"
INSTANCE_NAME = re.compile(r"^[a-z0-9][a-z0-9_]{0,31}$")


@dataclass(frozen=True)
class Limits:
    """Memory limits of the instance's slice, in bytes; None where none was asked for."""

    memory_max_bytes: int | None = None
    memory_high_bytes: int | None = None
    memory_swap_max_bytes: int | None = None

    @property
    def any(self) -> bool:
        return any(
            value is not None for value in (self.memory_max_bytes, self.memory_high_bytes, self.memory_swap_max_bytes)
        )


@dataclass(frozen=True)
class Desired:
    """The parts of a desired-state file that the engine reads."""

    instance: str
    replica: str
    unit: str
    slice: str
    version: str
    probe_url: str
    port: int
    rank: int = 0
    nnodes: int = 1
    model_path: str = ""
    served_name: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    credentials_config: str | None = None
    limits: Limits = Limits()
    drain_timeout_s: float = 60.0
    drain_on_timeout: str = "fail"
    grace_period_s: float = 150.0
    start_deadline_s: float = 900.0
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def container(self) -> dict[str, Any] | None:
        """What the container engine is told; None for a native server."""
        part = self.raw.get("container")
        return part if isinstance(part, dict) and part else None

    @property
    def release(self) -> Release:
        return release_for(self.version)

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument of the server by its flag name without the dashes in front."""
        return self.args.get(name, self.args.get(name.replace("-", "_"), default))

    @property
    def skips_tokenizer(self) -> bool:
        return bool(self.argument("skip-tokenizer-init", False))

    @property
    def disaggregated(self) -> bool:
        return str(self.argument("disaggregation-mode", "null")) not in ("null", "None", "")

    @property
    def tokenizer_workers(self) -> int:
        return _whole(self.argument("tokenizer-worker-num", 1), 1)


def _whole(value: Any, default: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def path_of(instance: str) -> str:
    return os.path.join(DESIRED_DIR, f"{instance}.json")


def running_path_of(instance: str) -> str:
    return os.path.join(RUNNING_DIR, f"{instance}.json")


def unit_files(desired: Mapping[str, Any]) -> list[str]:
    """The files that systemd makes the instance's unit and slice from, by the content of its desired-state file."""
    name = str(desired["instance"])
    container = desired.get("container") or {}
    unit = f"{UNIT_DIR}/sglang-{name}.service"
    if container.get("engine") == "podman":
        unit = f"{QUADLET_DIR}/sglang-{name}.container"
    return [unit, f"{UNIT_DIR}/sglang-{name}.slice"]


def _get(data: dict[str, Any], name: str, types: tuple[type, ...], where: str) -> Any:
    if name not in data:
        raise EngineError("desired_state", f"{where}: '{name}' is missing. Run the role sglang_server again.")
    value = data[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join(kind.__name__ for kind in types)
        raise EngineError(
            "desired_state",
            f"{where}: '{name}' is {type(value).__name__}, expected {wanted}. Run the role sglang_server again.",
        )
    return value


def _part(data: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, (dict, type(None))):
        raise EngineError(
            "desired_state",
            f"{where}: '{name}' is {type(value).__name__}, expected a mapping. Run the role sglang_server again.",
        )
    return value or {}


def _bytes_or_none(data: dict[str, Any], name: str, where: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise EngineError("desired_state", f"{where}: limits.{name} is {value!r}, expected bytes as a whole number.")
    return value


_AGAIN = "Run the role sglang_server again; it writes the file whole."
_PARTS = ("args", "container", "credentials", "drain", "environment", "grace", "limits", "model", "native", "start")


def parse(text: str, where: str) -> Desired:
    """A desired-state file's text as `Desired`; refuses what it cannot rely on, saying which part."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise EngineError(
            "desired_state",
            f"{where} is not valid JSON ({error}). {_AGAIN}",
        ) from error
    if not isinstance(data, dict):
        raise EngineError("desired_state", f"{where} holds {type(data).__name__}, expected a mapping. {_AGAIN}")
    if data.get("schema") != 1:
        raise EngineError(
            "desired_state",
            f"{where} has schema {data.get('schema')!r}, this version of serving.sglang reads schema 1.",
        )
    instance = _get(data, "instance", (str,), where)
    if not INSTANCE_NAME.match(instance):
        raise EngineError("desired_state", f"{where}: instance {instance!r} does not match {INSTANCE_NAME.pattern}.")
    parts = {name: _part(data, name, where) for name in _PARTS}
    model, limits, drain = parts["model"], parts["limits"], parts["drain"]
    grace, start, credentials = parts["grace"], parts["start"], parts["credentials"]
    return Desired(
        instance=instance,
        replica=str(data.get("replica") or instance),
        unit=str(data.get("unit") or f"sglang-{instance}.service"),
        slice=str(data.get("slice") or f"sglang-{instance}.slice"),
        version=_get(data, "version", (str,), where),
        probe_url=_get(data, "probe_url", (str,), where).rstrip("/"),
        port=_get(data, "port", (int,), where),
        rank=_whole(data.get("rank"), 0),
        nnodes=_whole(data.get("nnodes"), 1),
        model_path=str(model.get("path") or ""),
        served_name=str(model.get("served_name") or model.get("path") or ""),
        args=parts["args"],
        environment={str(key): str(value) for key, value in parts["environment"].items()},
        credentials_config=credentials.get("config"),
        limits=Limits(
            memory_max_bytes=_bytes_or_none(limits, "memory_max_bytes", where),
            memory_high_bytes=_bytes_or_none(limits, "memory_high_bytes", where),
            memory_swap_max_bytes=_bytes_or_none(limits, "memory_swap_max_bytes", where),
        ),
        drain_timeout_s=_seconds(drain, "timeout_s", 60.0, where),
        drain_on_timeout=str(drain.get("on_timeout") or "fail"),
        grace_period_s=_seconds(grace, "period_s", 150.0, where),
        start_deadline_s=_seconds(start, "deadline_s", 900.0, where),
        raw=data,
    )


def _seconds(data: dict[str, Any], name: str, default: float, where: str) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise EngineError("desired_state", f"{where}: {name} is {value!r}, expected seconds.")
    return float(value)


def read(instance: str) -> Desired:
    """The desired state of an instance of this host."""
    if not INSTANCE_NAME.match(instance):
        raise EngineError("bad_instance", f"Instance name {instance!r} does not match {INSTANCE_NAME.pattern}.")
    path = path_of(instance)
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read()
    except FileNotFoundError as error:
        known = ", ".join(instances()) or "none"
        raise EngineError(
            "no_instance",
            f"There is no instance {instance!r} on this host: {path} does not exist. Instances here: {known}. "
            "Declare it in sglang_server_instances and run the playbook serving.sglang.deploy.",
        ) from error
    except OSError as error:
        raise EngineError("desired_state", f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise EngineError("desired_state", f"{path} is no text ({error}). {_AGAIN}") from error
    desired = parse(text, path)
    if desired.instance != instance:
        raise EngineError("desired_state", f"{path} describes instance {desired.instance!r}, not {instance!r}.")
    return desired


def instances() -> list[str]:
    """Names of the instances that have a desired-state file on this host."""
    try:
        names = os.listdir(DESIRED_DIR)
    except OSError:
        return []
    return sorted(name[:-5] for name in names if name.endswith(".json") and INSTANCE_NAME.match(name[:-5]))


def restart_pending(instance: str, unit_active: bool) -> bool | None:
    """True when the running server was started from another desired state than the one on disk.

    None when it runs but left no copy of what it was started from.
    """
    if not unit_active:
        return False
    try:
        with open(path_of(instance), "rb") as handle:
            wanted = handle.read()
        with open(running_path_of(instance), "rb") as handle:
            running = handle.read()
    except OSError:
        return None
    return wanted != running
