# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declared instances want of a host: cards, ports, a CUDA release, and space on its disks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cards import Card, parse_card
from ..port_plan import PortUse, ports_used
from .instance_shape import WRONG_KEYS, instances_of
from .reading import CouldNotTell, read_first

GIB = 1 << 30
DAEMON_JSON = "/etc/docker/daemon.json"
STORAGE_CONF = "/etc/containers/storage.conf"
CONTAINERS = ("docker", "podman")
# Where compilers, pip and systemd-run put what they need for a moment.
TEMPORARY = ("/tmp", "/var/tmp")


@dataclass(frozen=True)
class Wanted:
    """An instance as it is declared, as far as the host matters to it."""

    name: str
    version: str = ""
    runtime: str = "native"
    device: str = "cuda"
    cards: tuple[Card, ...] | None = None
    shared: bool = False
    image: str = ""
    cuda: str = ""
    cuda_compat: bool | None = None
    host: str = "0.0.0.0"
    ports: tuple[PortUse, ...] = ()
    python: str = ""
    nnodes: int = 1
    problem: str = ""

    @property
    def unit(self) -> str:
        return f"sglang-{self.name}.service"

    @property
    def slice(self) -> str:
        return f"sglang-{self.name}.slice"

    @property
    def on_cuda(self) -> bool:
        return self.device == "cuda"


@dataclass(frozen=True)
class DiskNeed:
    """Space that a path must have, for what, and where the figure comes from."""

    path: str
    bytes: int
    purpose: str
    source: str
    # Whether what needs it may be there already, which is not looked into here.
    may_be_there: bool = False


def read_wanted(instances: Any) -> tuple[Wanted, ...]:
    """The declared instances; what is wrong with one is noted and the others are looked at."""
    return tuple(_wanted(position, each) for position, each in enumerate(instances_of(instances)))


def _wanted(position: int, given: Mapping[str, Any]) -> Wanted:
    name = str(given.get("name") or f"number {position + 1}")
    arguments = {str(key).replace("_", "-"): value for key, value in (given.get("arguments") or {}).items()}
    problems: list[str] = list(given.get(WRONG_KEYS) or ())
    ports: tuple[PortUse, ...] = ()
    if given.get("port") is not None:
        try:
            ports = tuple(ports_used(int(given["port"]), arguments))
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            problems.append(f"port: {error}")
    cards: tuple[Card, ...] | None = None
    if given.get("cards"):
        try:
            cards = tuple(parse_card(card) for card in given["cards"])
        except (TypeError, ValueError, ArithmeticError) as error:
            problems.append(f"cards: {error}")
    compat = given.get("cuda_compat")
    return Wanted(
        name=name,
        version=str(given.get("version") or ""),
        runtime=str(given.get("runtime") or "native"),
        device=str(arguments.get("device") or given.get("device") or "cuda"),
        cards=cards,
        shared=bool(given.get("cards_shared")),
        image=str(given.get("image") or ""),
        cuda=str(given.get("cuda") or ""),
        cuda_compat=None if compat is None else bool(compat),
        host=str(arguments.get("host") or given.get("host") or "0.0.0.0"),
        ports=ports,
        python=str(given.get("python") or ""),
        nnodes=int(str(given["nnodes"])) if re.fullmatch(r"[0-9]{1,6}", str(given.get("nnodes") or "")) else 1,
        problem="; ".join(problems),
    )


def disk_needs(params: Mapping[str, Any], wanted: Sequence[Wanted]) -> tuple[DiskNeed, ...]:
    """What the declared instances need on disk. Every figure can be given; the source says where it is from."""

    def size(name: str, default: float) -> tuple[int, str]:
        given = params.get(name)
        try:
            chosen = float(default if given is None else given)
            int(chosen * GIB)
        except (TypeError, ValueError, ArithmeticError):
            chosen, given = default, None
        return int(chosen * GIB), f"{name}: {chosen:g} GiB" + (", the default" if given is None else "")

    needs: list[DiskNeed] = []
    caches, source = size("disk_cache_gib", 10)
    if wanted:
        needs.append(DiskNeed(str(params.get("cache_dir") or "/var/cache/sglang"), caches, "kernel caches", source))
    environment, source = size("disk_environment_gib", 15)
    for python in sorted({each.python for each in wanted if each.python and each.runtime not in CONTAINERS}):
        if not os.path.exists(python):
            root = os.path.dirname(os.path.dirname(python))
            needs.append(DiskNeed(root, environment, "an environment of SGLang", source))
    image, source = size("disk_image_gib", 45)
    for engine, default in (("docker", docker_root()), ("podman", podman_root())):
        for each in sorted({each.image for each in wanted if each.runtime == engine and each.image}):
            needs.append(DiskNeed(default, image, f"the image {each}", source, may_be_there=True))
    more_needs = params.get("disk_needs")
    for more in more_needs if isinstance(more_needs, (list, tuple)) else ():
        if isinstance(more, Mapping) and more.get("path"):
            try:
                amount = int(float(more.get("gib") or 0) * GIB)
            except (TypeError, ValueError, ArithmeticError):
                continue
            needs.append(DiskNeed(str(more["path"]), amount, str(more.get("purpose") or "declared"), "disk_needs"))
    return tuple(needs)


def docker_root() -> str:
    return _configured(DAEMON_JSON, r'"data-root"\s*:\s*"([^"]+)"', "/var/lib/docker")


def podman_root() -> str:
    return _configured(STORAGE_CONF, r'^\s*graphroot\s*=\s*"([^"]+)"', "/var/lib/containers/storage")


def _configured(path: str, pattern: str, default: str) -> str:
    try:
        match = re.search(pattern, read_first(path) or "", re.MULTILINE)
    except CouldNotTell:
        return default
    return match.group(1) if match else default
