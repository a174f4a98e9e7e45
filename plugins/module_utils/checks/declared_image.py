# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an instance in a container declares, as the areas of a preflight take it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import container_spec, spec
from ..image_reference import ImageReference, NotAReference, parse_reference, read_tag
from .container_declared import ADVISED_SHM
from .container_readings import ENGINES


def in_container(declared: Mapping[str, Any]) -> bool:
    return str(declared.get("runtime") or "native") in ENGINES


def reference_of(text: Any) -> ImageReference | None:
    """The image by its parts; None where the text names none."""
    try:
        return parse_reference(str(text or ""))
    except NotAReference:
        return None


def release_of_image(declared: Mapping[str, Any]) -> str:
    """The release that the tag of a container's image says; empty where there is none."""
    reference = reference_of(declared.get("image")) if in_container(declared) else None
    return read_tag(reference.tag).release if reference else ""


def container_part(
    declared: Mapping[str, Any], desired: Mapping[str, Any] | None, upgrade: bool = False
) -> dict[str, Any]:
    """What the areas are told of the container, as the role runs it: the image's own entry point does not count.

    `upgrade`: the image of the release that is asked about is not known yet, only its name.
    """
    if not in_container(declared):
        return {}
    found = container_spec.read({**declared, "mounts": _mappings(declared.get("mounts"))})
    container = (desired or {}).get("container") or {}
    image = str(declared.get("image") or "")
    reference = reference_of(image)
    if upgrade and reference:
        image = f"{reference.name}:v{declared.get('version')}"
    declared_mounts = [mount.as_dict() for mount in found.mounts]
    size = declared.get("shm_size") or (None if found.ipc == "host" else ADVISED_SHM)
    return {
        "image": image,
        "entrypoint": [found.python],
        "command": list(desired["argv"][1:]) if desired else ["-m", "sglang.launch_server"],
        "ipc": found.ipc,
        "shm_size": size,
        "mounts": list(container.get("mounts") or ()) or [*declared_mounts, *_own_mounts(declared)],
        "userns": _user_namespace(found.engine_arguments),
        "init": False,
        "privileged": False,
        "container_user": spec.USER,
        "cuda": declared.get("cuda"),
        "cuda_compat": declared.get("cuda_compat"),
    }


def _mappings(given: Any) -> list[Mapping[str, Any]]:
    return [each for each in given if isinstance(each, Mapping)] if isinstance(given, (list, tuple)) else []


def _own_mounts(declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the role mounts into every container."""
    places = (f"{spec.STATE_DIR}/{declared.get('name')}", spec.CACHE_DIR, str(declared.get("hf_home") or ""))
    return [{"source": place, "target": place, "read_only": False} for place in places if place.startswith("/")]


def _user_namespace(words: list[str]) -> str:
    return next((word.partition("=")[2] for word in words if word.startswith("--userns=")), "")
