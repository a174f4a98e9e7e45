# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What registries and engines say of an image, as data. Nothing is asked here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .image_reference import ARCHITECTURES, NotAReference, parse_reference

_MANIFEST_OF = re.compile(r"application/vnd\.(?:docker\.distribution|oci\.image)\.(manifest\.list|index|manifest)\.v")


class Garbled(ValueError):
    """An answer that is none. The text says what was expected and what came."""


@dataclass(frozen=True)
class Platform:
    """What an image runs on, as registries write it."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))

    def serves(self, wanted: Platform) -> bool:
        """Whether an image for this runs where `wanted` is asked for. A variant counts only where both name one."""
        same = (self.os, self.architecture) == (wanted.os, wanted.architecture)
        return same and (not self.variant or not wanted.variant or self.variant == wanted.variant)


def read_platform(text: str) -> Platform:
    """From `linux/arm64`, `arm64`, or a machine's own word for it, as `aarch64`. Raises ValueError."""
    words = text.strip().split("/")
    if len(words) == 1:
        words = ["linux", *words]
    if len(words) > 3 or not all(re.fullmatch(r"[A-Za-z0-9_.-]+", word) for word in words):
        raise ValueError(f"{text!r} is no platform: write it as linux/amd64 or linux/arm64")
    return _platform(words[0], words[1], words[2] if len(words) == 3 else "")


def _platform(system: str, architecture: str, variant: str = "") -> Platform:
    architecture = ARCHITECTURES.get(architecture.lower(), architecture.lower())
    # Every 64-bit ARM is v8, and tools differ in whether they say so.
    if architecture == "arm64" and variant == "v8":
        variant = ""
    return Platform(system.lower(), architecture, variant)


@dataclass(frozen=True)
class Entry:
    """One platform of an index, and the digest of its own manifest."""

    platform: Platform
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a tag points to. Of an index, `digest` is that of the index: it is right on every platform."""

    digest: str
    index: bool
    entries: tuple[Entry, ...] = ()


def read_manifest(text: str) -> Manifest:
    """From the very bytes that the registry holds: their hash is the digest. Raises Garbled."""
    found = _json(text, "a manifest")
    if not isinstance(found, dict):
        raise Garbled(f"a manifest was expected and came: {_shown(text)}")
    if found.get("schemaVersion") == 1:
        raise Garbled("it is of schema 1, which engines no longer pull; push the image again with a current tool")
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    kind = _MANIFEST_OF.match(str(found.get("mediaType") or ""))
    if isinstance(found.get("manifests"), list) and (kind is None or kind[1] != "manifest"):
        return Manifest(digest, True, _entries(found["manifests"]))
    if isinstance(found.get("config"), dict) and isinstance(found.get("layers"), list):
        return Manifest(digest, False)
    raise Garbled(f"a manifest was expected and came: {_shown(text)}")


def _entries(manifests: Sequence[Any]) -> tuple[Entry, ...]:
    entries = []
    for each in manifests:
        platform = each.get("platform") if isinstance(each, dict) else None
        if not isinstance(platform, dict) or not isinstance(each.get("digest"), str):
            continue
        system, architecture = str(platform.get("os") or ""), str(platform.get("architecture") or "")
        # Build records (attestations) stand in an index as images of an unknown platform.
        if system and architecture and "unknown" not in (system, architecture):
            entries.append(Entry(_platform(system, architecture, str(platform.get("variant") or "")), each["digest"]))
    return tuple(entries)


@dataclass(frozen=True)
class Layer:
    """A layer of an image: what a registry sends of it, and the digest of its content, which engines know it by."""

    compressed_bytes: int
    content: str = ""


def read_layers(manifest: str, config: str) -> tuple[Layer, ...]:
    """From the manifest of one platform and its configuration. Raises Garbled."""
    found = _json(manifest, "a manifest with layers")
    layers = found.get("layers") if isinstance(found, dict) else None
    if not isinstance(layers, list):
        raise Garbled(f"a manifest with layers was expected and came: {_shown(manifest)}")
    sizes: list[int] = []
    for each in layers:
        size = each.get("size") if isinstance(each, dict) else None
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Garbled(f"layers with sizes were expected and came: {_shown(manifest)}")
        sizes.append(size)
    described = _json(config, "the configuration of an image")
    root = described.get("rootfs") if isinstance(described, dict) else None
    contents = _list(root.get("diff_ids") if isinstance(root, dict) else None)
    if len(contents) != len(sizes):
        contents = [""] * len(sizes)
    return tuple(Layer(size, str(content)) for size, content in zip(sizes, contents))


@dataclass(frozen=True)
class ImageFacts:
    """What an image says of itself. Of its environment only what tells CUDA is kept: the rest may hold secrets."""

    platform: Platform | None = None
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    cuda: str = ""
    cuda_required: str = ""


def read_config(text: str) -> ImageFacts:
    """From the configuration in a registry. Raises Garbled."""
    found = _json(text, "the configuration of an image")
    if not isinstance(found, dict) or not isinstance(found.get("architecture"), str):
        raise Garbled(f"the configuration of an image was expected and came: {_shown(text)}")
    platform = _platform(str(found.get("os") or "linux"), found["architecture"], str(found.get("variant") or ""))
    return _facts(platform, found.get("created"), found.get("config"))


@dataclass(frozen=True)
class LocalImage:
    """An image in the storage of a host.

    An engine may know it by several digests of one name: podman by the index's and the platform's own, any engine by
    those of tags that had the same image at different times. Which one is the index's is not said: podman's `Digest` is
    of whichever the image was pulled by first.
    """

    facts: ImageFacts
    # Each with the name it belongs to, in full.
    digests: tuple[tuple[str, str], ...]

    def digests_of(self, name: str) -> tuple[str, ...]:
        return tuple(digest for each, digest in self.digests if each == name)


def read_local(text: str) -> LocalImage:
    """From `docker image inspect` or `podman image inspect`. Raises Garbled."""
    found = _json(text, "a list with one image")
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise Garbled(f"a list with one image was expected and came: {_shown(text)}")
    image = found[0]
    if not isinstance(image.get("Architecture"), str):
        raise Garbled(f"an image without an architecture came: {_shown(text)}")
    platform = _platform(str(image.get("Os") or "linux"), image["Architecture"], str(image.get("Variant") or ""))
    digests = []
    for each in _list(image.get("RepoDigests")):
        try:
            reference = parse_reference(str(each))
        except NotAReference:
            continue
        digests.append((reference.name, reference.digest))
    facts = _facts(platform, image.get("Created"), image.get("Config"))
    return LocalImage(facts, tuple(dict.fromkeys(digests)))


@dataclass(frozen=True)
class Described:
    """What `docker manifest inspect --verbose` says: each platform by its own digest, and never that of an index."""

    index: bool
    entries: tuple[Entry, ...]


def read_described(text: str) -> Described:
    """From `docker manifest inspect --verbose`. Raises Garbled."""
    found = _json(text, "manifests with descriptors")
    index = isinstance(found, list)
    descriptors = [each.get("Descriptor") if isinstance(each, dict) else None for each in (found if index else [found])]
    entries = _entries([each for each in descriptors if each])
    if not entries:
        raise Garbled(f"manifests with descriptors were expected and came: {_shown(text)}")
    return Described(index, entries)


def _facts(platform: Platform, created: Any, config: Any) -> ImageFacts:
    config = config if isinstance(config, dict) else {}
    environment: dict[str, str] = {}
    for each in _list(config.get("Env")):
        name, _equals, value = str(each).partition("=")
        environment[name] = value
    labels = config.get("Labels")
    return ImageFacts(
        platform,
        str(created or ""),
        {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
        tuple(str(word) for word in _list(config.get("Entrypoint"))),
        environment.get("CUDA_VERSION", "") or _required(environment.get("NVIDIA_REQUIRE_CUDA", "")),
        environment.get("NVIDIA_REQUIRE_CUDA", ""),
    )


def _required(text: str) -> str:
    """The release of CUDA in NVIDIA's requirement, as `cuda>=12.9 brand=tesla,driver>=535,driver<536`."""
    found = re.match(r"cuda>=(\d+(?:\.\d+)*)", text)
    return found[1] if found else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Garbled(f"{expected} was expected and came: {_shown(text)}") from None


def _shown(text: str) -> str:
    words = " ".join(text.split())
    return repr(words[:120] + ("…" if len(words) > 120 else "")) if words else "nothing"
