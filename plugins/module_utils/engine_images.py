# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images in the storage of docker and podman: which are there, by which digests, and the room that there is.

Pulling and removing go through the engine's own commands. What is asked of a registry is in image_store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks.file_systems import space_of
from .checks.reading import CouldNotTell, Output, run_command
from .checks.wanted import podman_root
from .errors import EngineError
from .hub_download import existing
from .image_manifest import Layer
from .image_reference import ImageReference, NotAReference, parse_reference
from .image_store import DOCKER, PODMAN, Run, way_out
from .long_command import TookTooLong, Who, run_long

ENGINES = (DOCKER, PODMAN)
ASK_S = 60.0
REMOVE_S = 1800.0
MANY = 50
# How many bytes of a file system a compressed byte of a layer becomes. 700 MB of an installation of SGLang (PyTorch for
# the CPU, transformers, SGLang itself) were 190 MB with gzip: 3.7. Images with the libraries of CUDA, which compress
# less, are reported with 4 to 5 GB compressed and 10 to 11 GB on disk: 2.3. Debian with Python has 91 and 251 MB: 2.8.
# Neither docker nor podman says it before.
UNPACKED = 3.0
CONTAINERD_ROOT = "/var/lib/containerd"


@dataclass(frozen=True)
class Image:
    """An image that an engine has. Names and digests are full: with the registry."""

    engine: str
    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size_bytes: int = 0
    created: str = ""
    # The content of its layers, the lowest first.
    layers: tuple[str, ...] = ()

    @property
    def repositories(self) -> frozenset[str]:
        return frozenset(filter(None, (repository_of(name) for name in (*self.tags, *self.digests))))

    def has(self, reference: ImageReference) -> bool:
        return reference.by_digest in self.digests

    @property
    def shown(self) -> str:
        names = self.tags or self.digests
        return names[0] if names else self.id.replace("sha256:", "")[:12]


def repository_of(name: str) -> str:
    """The name of an image with its registry, and without tag and digest; empty where it is none."""
    try:
        return parse_reference(name).name
    except NotAReference:
        return ""


def read_images(text: str, engine: str) -> tuple[Image, ...]:
    """From `ENGINE image inspect`. Raises CouldNotTell."""
    try:
        found = json.loads(text)
        return tuple(
            Image(
                engine=engine,
                id=str(each["Id"]).replace("sha256:", ""),
                tags=_full(each.get("RepoTags")),
                digests=_full(each.get("RepoDigests")),
                size_bytes=int(each.get("Size") or 0),
                created=str(each.get("Created") or ""),
                layers=tuple(map(str, (each.get("RootFS") or {}).get("Layers") or ())),
            )
            for each in found
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CouldNotTell(f"what {engine} says of its images cannot be understood: {text[:120]!r}") from None


def _full(names: Any) -> tuple[str, ...]:
    """Names as the other engine writes them too; an image without a name has none."""
    found: list[str] = []
    for name in names or ():
        if "<none>" in str(name):
            continue
        try:
            found.append(str(parse_reference(str(name))))
        except NotAReference:
            found.append(str(name))
    return tuple(dict.fromkeys(found))


def missing_layers(wanted: Sequence[Layer], images: Iterable[Image]) -> tuple[Layer, ...]:
    """The layers that a pull has to bring: engines have a layer only on top of the same ones."""
    contents = [layer.content for layer in wanted]
    there = 0
    for image in images:
        same = 0
        for own, wish in zip(image.layers, contents):
            if own != wish or not wish:
                break
            same += 1
        there = max(there, same)
    return tuple(wanted[there:])


@dataclass(frozen=True)
class Storage:
    """Where an engine puts layers, and where it keeps them compressed until all are unpacked."""

    root: str
    temporary: str


@dataclass(frozen=True)
class Room:
    """What a path must have for a pull, and what it has."""

    path: str
    needed_bytes: int
    free_bytes: int
    what: str

    @property
    def enough(self) -> bool:
        return self.free_bytes >= self.needed_bytes


def rooms(layers: Sequence[Layer], storage: Storage, free: dict[str, int], same: bool) -> tuple[Room, ...]:
    """What a pull of these layers needs where. `free` has the free bytes of both paths; `same`: on one file system."""
    compressed = sum(layer.compressed_bytes for layer in layers)
    unpacked = int(compressed * UNPACKED)
    how = f"{len(layers)} layers of {human(compressed)}"
    if same:
        what = f"{how}, and about {human(unpacked)} unpacked"
        return (Room(storage.root, compressed + unpacked, free[storage.root], what),)
    return (
        Room(storage.root, unpacked, free[storage.root], f"{how} unpacked, about {UNPACKED:g} times as large"),
        Room(storage.temporary, compressed, free[storage.temporary], f"{how}, until they are unpacked"),
    )


def human(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} bytes"


# --- the engines ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """docker or podman of this host. Authfile and TLS are podman's; docker has both in a configuration of its own."""

    name: str
    authfile: str = ""
    tls_verify: bool = True
    run: Run = run_command
    # What a pull keeps open, as a lock.
    keeps: Sequence[int] = field(default=())

    @property
    def empty(self) -> bool:
        """Whether podman has no storage. It would make one as soon as it is asked what is in it."""
        return self.name == PODMAN and os.geteuid() == 0 and not os.path.isdir(podman_root())

    def ask(self, *words: str) -> str:
        """What the engine answers. Raises EngineError."""
        output = self._asked(*words)
        if output.code != 0:
            raise EngineError(
                "image.engine", f"`{self.name} {' '.join(words[:3])}` failed: {complaint(output)}. {self._way}"
            )
        return output.stdout

    def _asked(self, *words: str) -> Output:
        try:
            return self.run([self.name, *words], ASK_S)
        except CouldNotTell as error:
            raise EngineError("image.engine", f"{self.name} could not be asked: {error}. {self._way}") from None

    @property
    def _way(self) -> str:
        if self.name == DOCKER:
            return "Next step: install docker, or start its daemon: systemctl start docker.service"
        return "Next step: install podman, or see why it does not answer: podman info"

    def image(self, name: str) -> Image | None:
        """One image by a name or a reference by digest; None where it is not there."""
        if self.empty:
            return None
        output = self._asked("image", "inspect", name)
        if output.code != 0:
            if re.search(r"no such image|image not known|not found", output.stderr.lower()):
                return None
            raise EngineError(
                "image.engine", f"`{self.name} image inspect {name}` failed: {complaint(output)}. {self._way}"
            )
        images = self._read(output.stdout)
        return images[0] if images else None

    def images(self) -> tuple[Image, ...]:
        if self.empty:
            return ()
        ids = tuple(dict.fromkeys(self.ask("image", "ls", "--quiet", "--no-trunc").split()))
        found: list[Image] = []
        for begin in range(0, len(ids), MANY):
            found += self._read(self.ask("image", "inspect", *ids[begin : begin + MANY]))
        return tuple(found)

    def _read(self, text: str) -> tuple[Image, ...]:
        try:
            return read_images(text, self.name)
        except CouldNotTell as error:
            raise EngineError("image.engine", f"{error}. {self._way}") from None

    def containers(self) -> dict[str, list[str]]:
        """The names of all containers, running or not, by the id of their image."""
        if self.empty:
            return {}
        ids = self.ask("ps", "--all", "--quiet", "--no-trunc").split()
        found: dict[str, list[str]] = {}
        for begin in range(0, len(ids), MANY):
            said = self.ask("container", "inspect", *ids[begin : begin + MANY])
            try:
                for each in json.loads(said):
                    image = str(each["Image"]).replace("sha256:", "")
                    found.setdefault(image, []).append(str(each.get("Name") or each["Id"]).lstrip("/"))
            except (ValueError, LookupError, TypeError):
                raise EngineError(
                    "image.engine", f"what {self.name} says of its containers cannot be understood"
                ) from None
        return found

    def storage(self) -> Storage:
        try:
            info = json.loads(self.ask("info", "--format", "{{json .}}" if self.name == DOCKER else "json"))
            return storage_of(self.name, info)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise EngineError(
                "image.engine", f"`{self.name} info` does not say where its storage is. {self._way}"
            ) from None

    def pull(self, reference: ImageReference, limit_s: float) -> None:
        """Bring the image of a digest to this host. Raises EngineError."""
        options: list[str] = []
        if self.name == PODMAN:
            options = [f"--tls-verify={'true' if self.tls_verify else 'false'}"]
            options += [f"--authfile={self.authfile}"] if self.authfile else []
        words = [self.name, "pull", "--quiet", *options, reference.by_digest]
        try:
            output = run_long(words, limit_s, Who(keeps=self.keeps))
        except TookTooLong as late:
            raise EngineError(
                "image.pull",
                f"{self.name} had not pulled {reference.by_digest} after {limit_s:g} s and was ended (it said: "
                f"{late}). {UNTOUCHED} Next step: see how fast the registry is, or give it more time with timeout_s",
            ) from None
        except CouldNotTell as error:
            raise EngineError("image.engine", f"{error}. {self._way}") from None
        if output.code != 0:
            said = complaint(output)
            way = way_out(output.stderr or output.stdout, reference, self.authfile)
            raise EngineError(
                "image.pull",
                f"{self.name} could not pull {reference.by_digest}: {said}. {UNTOUCHED}"
                + (f" Next step: {way}" if way else ""),
            )

    def remove(self, image: Image) -> None:
        """Remove an image that nothing uses; the engine refuses where something does. Raises EngineError.

        Tags are taken away first: engines refuse an id with several names unless they are forced. With the last one
        the image goes, unless a digest still names it.
        """
        used = self.containers().get(image.id)
        if used:
            raise EngineError("cleanup.in_use", f"the container {used[0]} is made of it by now")
        for tag in image.tags:
            self._remove(tag)
        if self.image(image.id) is not None:
            self._remove(image.id)

    def _remove(self, name: str) -> None:
        # Deleting tens of gigabytes takes longer than an answer.
        try:
            output = run_long([self.name, "image", "rm", name], REMOVE_S)
        except (TookTooLong, CouldNotTell) as error:
            raise EngineError("image.engine", f"`{self.name} image rm {name}` did not end well: {error}") from None
        if output.code != 0:
            raise EngineError("image.engine", f"`{self.name} image rm {name}` failed: {complaint(output)}. {self._way}")


UNTOUCHED = "What runs was not touched. Running again goes on with the layers that are missing."


def complaint(output: Output) -> str:
    """The engine's own message: the last line that is no progress, without the wrapping of its log."""
    lines = [line.strip() for line in (output.stderr.strip() or output.stdout.strip()).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(?i)\berror\b|level=(?:error|fatal)|failed|denied", line)]
    said = (errors or lines or ["nothing"])[-1]
    wrapped = re.search(r'msg="((?:[^"\\]|\\.)*)"', said)
    text = (
        wrapped[1].replace('\\"', '"') if wrapped else re.sub(r"^(?:Error:|Error response from daemon:)\s*", "", said)
    )
    return text[:600].rstrip(".")


def storage_of(engine: str, info: dict[str, Any]) -> Storage:
    """From `ENGINE info` as JSON."""
    if engine == PODMAN or "store" in info:
        store = info["store"]
        return Storage(str(store["graphRoot"]), str(store.get("imageCopyTmpDir") or "/var/tmp"))
    root = str(info["DockerRootDir"])
    drivers = [pair for pair in info.get("DriverStatus") or () if len(pair) == 2]
    if ["driver-type", "io.containerd.snapshotter.v1"] in [list(pair) for pair in drivers]:
        # The daemon's own directory has no images then.
        return Storage(CONTAINERD_ROOT, CONTAINERD_ROOT)
    return Storage(root, root)


def room_for(layers: Sequence[Layer], storage: Storage) -> tuple[Room, ...]:
    """What a pull of these layers needs on this host, and what is there. Raises CouldNotTell."""
    paths = {path: existing(path) for path in (storage.root, storage.temporary)}
    free = {path: space_of(place).free_bytes for path, place in paths.items()}
    devices = {os.stat(place).st_dev for place in paths.values()}
    return rooms(layers, storage, free, len(devices) == 1)
