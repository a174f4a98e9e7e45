# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a tag to its pin: asks what the tag is, judges it against the pin that was there, and writes the new one."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from . import vars_file, whole_file
from .checks.reading import CouldNotTell
from .errors import EngineError
from .image_fit import misfit_of_driver, misfit_of_platform
from .image_manifest import Platform, read_platform
from .image_reference import EXAMPLE, ImageReference, NotAReference, parse_reference, read_tag, require
from .image_store import LOCAL, Asking, Present, look
from .long_command import time_limit
from .vars_file import Place


@dataclass(frozen=True)
class VarsFile:
    """The file that holds the pin, as it was read."""

    path: str
    variable: str
    text: str
    place: Place
    mode: int
    owner: tuple[int, int]


@dataclass
class Pin:
    """The pin, what is known of its image, and what was changed or would be in check mode."""

    reference: ImageReference
    present: Present
    replaced: str = ""
    changed: bool = False
    notes: list[str] = field(default_factory=list)
    diff: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        present, facts = self.present, self.present.facts
        tag = read_tag(self.reference.tag)
        return {
            "changed": self.changed,
            "pin": str(self.reference),
            "name": self.reference.name,
            "tag": self.reference.tag,
            "digest": self.reference.digest,
            "replaced": self.replaced or None,
            "index": present.index,
            "platforms": [str(each) for each in present.platforms],
            "platform_digests": {str(entry.platform): entry.digest for entry in present.entries},
            "facts_of": str(facts.platform) if facts.platform else None,
            "created": facts.created or None,
            "labels": dict(facts.labels),
            "entrypoint": list(facts.entrypoint),
            "cuda": facts.cuda or None,
            "cuda_required": facts.cuda_required or None,
            "tag_says": asdict(tag),
            "tool": present.tool,
            "notes": self.notes,
        }


def pin(params: Mapping[str, Any], check_mode: bool) -> Pin:
    """Resolve the tag and bring the pin into its file. Raises EngineError."""
    path, variable = str(params.get("path") or ""), str(params.get("variable") or "")
    if params.get("path") == "":
        raise EngineError(
            "image.vars_file", "path is empty, so no file would get the pin. Name the file, or leave path out"
        )
    file = None
    try:
        file = _read(path, variable, EXAMPLE) if path else None
    except EngineError:
        # Where the image is given, the pin is found out first, to say what is to be written by hand.
        if not params.get("image"):
            raise
    given = str(params.get("image") or (file.place.value if file else ""))
    reference = parse_reference(given)
    require(reference, need_digest=False)
    platform = _platform(params.get("platform"))
    _raise(misfit_of_platform(reference, (), platform))

    asking = Asking(
        engine=params["engine"],
        source=params["source"],
        authfile=str(params.get("authfile") or ""),
        tls_verify=bool(params["tls_verify"]),
        timeout_s=time_limit(params["timeout_s"]),
    )
    before = reference.digest or (_same_tag(file.place.value, reference) if file else "")
    present = look(reference, asking, platform, before)
    moved = bool(before) and before != present.digest
    if moved and not params["refresh"]:
        raise moved_under(reference, before, present, asking.source)
    _raise(misfit_of_platform(reference, present.platforms, platform))

    result = Pin(reference.pinned(present.digest), present, replaced=before if moved else "")
    _judge_driver(result, str(params.get("driver") or ""))
    if path:
        _write(result, file or _read(path, variable, str(result.reference)), check_mode)
    return result


def _platform(given: Any) -> Platform | None:
    if not given:
        return None
    try:
        return read_platform(str(given))
    except ValueError as error:
        raise EngineError("image.platform", str(error)) from None


def _raise(error: EngineError | None) -> None:
    if error:
        raise error


def _same_tag(value: str, reference: ImageReference) -> str:
    """The digest that the file has for this very tag. Of another tag, or of what is no reference, none holds."""
    try:
        there = parse_reference(value)
    except NotAReference:
        return ""
    return there.digest if there.tagged == reference.tagged else ""


def moved_under(reference: ImageReference, before: str, present: Present, source: str) -> EngineError:
    """What is said of a tag that points to another digest than its pin."""
    where = "on this host" if source == LOCAL else "in the registry"
    facts = {"pinned": before, "present": present.digest}
    platform = next((entry.platform for entry in present.entries if entry.digest == before), None)
    if platform:
        return EngineError(
            "image.platform_digest",
            f"{reference.tagged} is pinned by {before}, which is the digest of its part for {platform} and not of the "
            f"tag: {present.digest}. Hosts of another platform cannot pull by it. Next step: refresh: true takes the "
            "tag's own; the image stays the same",
            **facts,
        )
    made = f", made {present.facts.created}" if present.facts.created else ""
    return EngineError(
        "image.moved",
        f"the tag {reference.tagged} was moved under its pin: pinned is {before}, and {where} it is {present.digest} "
        f"now{made}. Nothing was changed. Next step: find out who moved it, since a release's tag should stay, or "
        "whether the digest was mistyped. Then take the new image with refresh: true, and roll it out as an upgrade; "
        "or give the pinned one a tag of your own before the registry deletes it: "
        f"{reference.pinned(before).by_digest}",
        **facts,
    )


def _judge_driver(result: Pin, driver: str) -> None:
    try:
        _raise(misfit_of_driver(result.reference, result.present.facts.cuda, driver))
    except CouldNotTell as error:
        result.notes.append(f"could not tell whether driver {driver} is new enough: {error}")


# --- the file -------------------------------------------------------------------------------------------------------


def _read(path: str, variable: str, wanted: str) -> VarsFile:
    # A link is followed: replacing it would leave the file it points to as it was.
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode):
            raise EngineError("image.vars_file", f"{path} is no file. Next step: give the file that has {variable}")
        with open(real, encoding="utf-8", newline="") as handle:
            text = handle.read()
    except FileNotFoundError:
        raise EngineError(
            "image.vars_file", f"{path} is not there. Next step: make it with the line {variable}: {wanted}"
        ) from None
    except UnicodeDecodeError as error:
        raise EngineError(
            "image.vars_file",
            f"{path} is not edited: it is no text in UTF-8 ({error}). Next step: write by hand: {variable}: {wanted}",
        ) from None
    except OSError as error:
        raise EngineError(
            "image.vars_file",
            f"{path} cannot be read: {error.strerror or error}. Next step: run as its owner, or correct the path",
        ) from None
    place = vars_file.find_variable(text, variable, path, wanted)
    return VarsFile(real, variable, text, place, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


def _write(result: Pin, file: VarsFile, check_mode: bool) -> None:
    value = str(result.reference)
    if file.place.value == value:
        return
    text = vars_file.with_value(file.text, file.place, value)
    result.changed = True
    result.replaced = file.place.value
    name = os.path.basename(file.path)
    result.diff = {
        "before_header": f"{name} (line {file.place.line})",
        "after_header": f"{name} (line {file.place.line})",
        "before": vars_file.line_at(file.text, file.place),
        "after": vars_file.line_at(text, file.place),
    }
    if check_mode:
        return
    try:
        whole_file.replace(file.path, text, file.mode, file.owner)
    except OSError as error:
        raise EngineError(
            "image.vars_file",
            f"{file.path} cannot be written: {error.strerror or error}. It is as it was. Next step: run as "
            f"its owner, with room on its disk; or write by hand: {file.variable}: {value}",
        ) from None
