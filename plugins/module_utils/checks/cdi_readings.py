# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CDI specifications of a host: what they name, and what of it is there. It reads and does not decide."""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import yaml_subset
from .container_versions import Version, parse_version
from .reading import CouldNotTell, Reading, Unknown, read_text

# The later directory wins where both name a device.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
KIND_OF_CARDS = "nvidia.com/gpu"

_DRIVER = re.compile(r"lib(?:cuda|nvidia|nvcuvid|nv)[a-z0-9-]*\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
# What each version of the format brought, by the key that uses it.
_NEEDS: tuple[tuple[str, Version], ...] = (
    ("netDevices", (1, 1, 0)),
    ("intelRdt", (0, 7, 0)),
    ("additionalGids", (0, 7, 0)),
    ("annotations", (0, 6, 0)),
)


@dataclass(frozen=True)
class CdiSpec:
    """What one specification says.

    `needs` is the version of the format that its fields need, whatever it calls itself. `missing` are the paths of the
    host that it names and that are not there; `drivers` the releases in the names of the driver's libraries.
    """

    version: str
    kind: str
    devices: tuple[str, ...]
    needs: Version = ()
    paths: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(name for name in self.devices if name.startswith(("GPU-", "MIG-")))

    @property
    def indices(self) -> frozenset[str]:
        """Cards by number, as `0` or `gpu0`; parts of cards (`0:1`) are not among them."""
        return frozenset(name.replace("gpu", "") for name in self.devices if re.fullmatch(r"(?:gpu)?\d+", name))


@dataclass(frozen=True)
class CdiFile:
    """A file in a directory of specifications. `everybody` says that users other than root may read it."""

    path: str
    spec: Reading[CdiSpec]
    everybody: bool = True


@dataclass(frozen=True)
class Cdi:
    """All specifications of a host."""

    files: tuple[CdiFile, ...] = ()
    directories: tuple[str, ...] = field(default=DIRECTORIES)

    def of_cards(self) -> list[CdiFile]:
        """Those that name cards, and those of which nobody can tell."""
        return [file for file in self.files if isinstance(file.spec, Unknown) or file.spec.kind == KIND_OF_CARDS]


def parse(text: str, path: str) -> Mapping[str, Any]:
    """The content of a specification. Raises CouldNotTell when it is garbled, or YAML that cannot be read here."""
    if not text.strip():
        raise CouldNotTell(f"{path} is empty")
    try:
        content = json.loads(text)
    except ValueError:
        try:
            content = _yaml(text)
        except ValueError as error:
            raise CouldNotTell(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise CouldNotTell(f"{path} is no mapping")
    return content


def _yaml(text: str) -> Any:
    """Our own reader first: it is there everywhere. PyYAML, where it is there, for what somebody wrote by hand."""
    try:
        return yaml_subset.parse(text)
    except yaml_subset.NotThisSubset as refusal:
        try:
            yaml = importlib.import_module("yaml")
        except ImportError:
            raise ValueError(f"YAML that needs PyYAML, which this host does not have ({refusal})") from None
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error).splitlines()[0]) from None


def spec_of(content: Mapping[str, Any], path: str) -> CdiSpec:
    """What the content says, and which of its paths are there."""
    version, kind, devices = content.get("cdiVersion"), content.get("kind"), content.get("devices")
    if not version or not kind or not isinstance(devices, list):
        raise CouldNotTell(f"{path} has no cdiVersion, no kind or no list of devices: it is no CDI specification")
    names = tuple(str(device.get("name")) for device in devices if isinstance(device, dict))
    paths = tuple(dict.fromkeys(_paths(content)))
    missing = tuple(each for each in paths if not os.path.exists(each))
    drivers = {match[1] for each in paths for match in [_DRIVER.search(each)] if match}
    return CdiSpec(str(version), str(kind), names, _needs(content, names), paths, missing, tuple(sorted(drivers)))


def _edits(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    holders = [content, *(device for device in content.get("devices") or () if isinstance(device, dict))]
    for holder in holders:
        edits = holder.get("containerEdits")
        if isinstance(edits, dict):
            yield edits


def _paths(content: Mapping[str, Any]) -> Iterator[str]:
    """Everything of the host that a container gets: device nodes, mounts, and the programs of hooks."""
    for edits in _edits(content):
        for node in _dicts(edits.get("deviceNodes")):
            yield from _path(node.get("hostPath") or node.get("path"))
        for mount in _dicts(edits.get("mounts")):
            yield from _path(mount.get("hostPath"))
        for hook in _dicts(edits.get("hooks")):
            yield from _path(hook.get("path"))


def _path(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("/"):
        yield value


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _needs(content: Mapping[str, Any], names: Sequence[str]) -> Version:
    needs: Version = parse_version(str(content.get("cdiVersion"))) or ()
    for edits in _edits(content):
        for key, version in _NEEDS:
            if key in edits:
                needs = max(needs, version)
        if any("hostPath" in node for node in _dicts(edits.get("deviceNodes"))):
            needs = max(needs, (0, 5, 0))
    if any(name[:1].isdigit() for name in names):
        needs = max(needs, (0, 5, 0))
    return needs


def read_cdi(directories: Sequence[str] = DIRECTORIES) -> Cdi:
    """Every specification in these directories, in the order in which an engine reads them."""
    files: list[CdiFile] = []
    seen: set[str] = set()
    for directory in directories:
        real = os.path.realpath(directory)
        if real in seen:
            continue
        seen.add(real)
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CouldNotTell(f"{directory}: {error.strerror}") from None
        for name in names:
            if name.endswith((".yaml", ".json")):
                files.append(_read_file(os.path.join(directory, name)))
    return Cdi(tuple(files), tuple(directories))


def _read_file(path: str) -> CdiFile:
    try:
        everybody = bool(os.stat(path).st_mode & stat.S_IROTH) and bool(
            os.stat(os.path.dirname(path)).st_mode & stat.S_IXOTH
        )
        return CdiFile(path, spec_of(parse(read_text(path), path), path), everybody)
    except CouldNotTell as error:
        return CdiFile(path, Unknown(str(error)))
    except OSError as error:
        return CdiFile(path, Unknown(f"{path}: {error.strerror}"))
