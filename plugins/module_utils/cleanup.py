# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which images and environments of a host nothing points to any more, and their removal.

The rules take what was read and touch nothing. What cannot be read keeps everything that it might point to.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import desired_state
from .checks.reading import CouldNotTell, read_text
from .engine_images import ENGINES, Engine, Image, repository_of
from .environments import ENVIRONMENTS_DIR
from .errors import EngineError
from .long_command import signs_of_life, time_limit
from .prefetch import YOUNG_S, Options, alone, fetched_lately

UNITS_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/etc/containers/systemd")
MARK = ".serving-sglang"
IMAGE, ENVIRONMENT = "image", "environment"


@dataclass(frozen=True)
class Pointers:
    """What the states of a host point to, with the file that does."""

    digests: Mapping[str, str] = field(default_factory=dict)
    repositories: frozenset[str] = frozenset()
    environments: Mapping[str, str] = field(default_factory=dict)


def pointers(states: Mapping[str, Any], root: str) -> Pointers:
    """From the content of each state's file: what stands anywhere in it counts."""
    digests: dict[str, str] = {}
    repositories: set[str] = set()
    environments: dict[str, str] = {}
    below = re.compile(re.escape(root) + r"/([^/\s:\"']+)")
    for file, state in states.items():
        for text in _strings(state):
            for digest in re.findall(r"sha256:[0-9a-f]{64}", text):
                digests.setdefault(digest, file)
                name = repository_of(text)
                if name:
                    repositories.add(name)
            for name in below.findall(text):
                environments.setdefault(name, file)
        # Older states name their environment by the release alone.
        for each in _states_in(state):
            if each.get("version") and not each.get("container"):
                environments.setdefault(str(each["version"]), file)
    return Pointers(digests, frozenset(repositories), environments)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)


def _states_in(value: Any) -> Iterable[Mapping[str, Any]]:
    """The desired states in a file: itself, or those that a file of the previous state holds."""
    if isinstance(value, Mapping):
        if "version" in value:
            yield value
        for each in value.values():
            if isinstance(each, Mapping):
                yield from _states_in(each)


@dataclass(frozen=True)
class Environment:
    """A directory under /opt/sglang. `made`: by the role. Its age is that of the note that says so.

    `half_made`: there is a note that it is being made, whose age it is then.
    """

    name: str
    path: str
    made: bool
    age_s: float = 0.0
    half_made: bool = False
    # What uses it besides the states: a process or a unit.
    used_by: str = ""


@dataclass(frozen=True)
class Verdict:
    """Something that could be removed, and why it is kept; empty where nothing keeps it."""

    kind: str
    name: str
    kept: str = ""
    bytes: int | None = None
    image: Image | None = None
    path: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "engine": self.image.engine if self.image else None,
            "id": self.image.id if self.image else None,
            "bytes": self.bytes,
            "kept": self.kept or None,
        }


def judge_images(
    images: Iterable[Image],
    containers: Mapping[tuple[str, str], Sequence[str]],
    states: Pointers,
    repositories: Iterable[str] = (),
    keep: int = 0,
) -> list[Verdict]:
    """The images of the repositories that are ours. Others are not even listed.

    `containers` has the names of the containers of each image, by engine and id.
    """
    ours = states.repositories | {repository_of(name) or name for name in repositories}
    verdicts, spare = [], dict.fromkeys(sorted(ours), keep)
    for image in sorted(images, key=lambda image: (image.created, image.id), reverse=True):
        own = image.repositories & ours
        if not own:
            continue
        kept = _why_image_is_kept(image, containers.get((image.engine, image.id), ()), states, ours)
        newest = [name for name in sorted(own) if spare[name] > 0]
        if not kept and newest:
            spare[newest[0]] -= 1
            kept = f"it is among the newest {keep} of {newest[0]}"
        verdicts.append(Verdict(IMAGE, image.shown, kept, image.size_bytes, image))
    return sorted(verdicts, key=lambda verdict: verdict.name)


def _why_image_is_kept(image: Image, containers: Sequence[str], states: Pointers, ours: Iterable[str]) -> str:
    for name in image.digests:
        file = states.digests.get(name.rpartition("@")[2])
        if file:
            return f"{file} points to it"
    if containers:
        return f"the container {containers[0]} is made of it"
    others = sorted(image.repositories - set(ours))
    if others:
        return f"somebody has it as {others[0]} too"
    return ""


def judge_environments(found: Iterable[Environment], states: Pointers, keep: int = 0) -> list[Verdict]:
    """The environments under /opt/sglang."""
    verdicts = []
    spare = keep
    for each in sorted(found, key=lambda one: (one.age_s, one.name)):
        kept = _why_environment_is_kept(each, states)
        if not kept and not each.half_made and spare > 0:
            spare -= 1
            kept = f"it is among the newest {keep} environments"
        verdicts.append(Verdict(ENVIRONMENT, each.name, kept, path=each.path))
    return sorted(verdicts, key=lambda verdict: verdict.name)


def _why_environment_is_kept(each: Environment, states: Pointers) -> str:
    if each.name in states.environments:
        return f"{states.environments[each.name]} points to it"
    if each.used_by:
        return f"{each.used_by} uses it"
    if not each.made and not each.half_made:
        return "the role did not make it"
    if each.age_s < YOUNG_S:
        return f"it is {max(0, int(each.age_s / 60))} minutes old: the deployment that made it may be under way"
    return ""


# --- readers --------------------------------------------------------------------------------------------------------


def read_states() -> dict[str, Any]:
    """The content of every file that points to something, by its path. Raises EngineError: a file that cannot be read
    may point to anything."""
    states: dict[str, Any] = {}
    for folder in (desired_state.DESIRED_DIR, desired_state.RUNNING_DIR):
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(folder, str(error.strerror)) from None
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(".json") or not os.path.isfile(path):
                continue
            try:
                states[path] = json.loads(read_text(path, 16 << 20))
            except (CouldNotTell, ValueError) as error:
                raise _unreadable(path, str(error)) from None
            if _is_of_an_instance(name) and not (isinstance(states[path], dict) and states[path].get("schema")):
                raise _unreadable(path, "it is no state of an instance")
    return states


def _is_of_an_instance(file: str) -> bool:
    name = file[: -len(".json")].removesuffix(".previous")
    return bool(desired_state.INSTANCE_NAME.fullmatch(name))


def _unreadable(path: str, why: str) -> EngineError:
    folder, name = os.path.split(path)
    way = "run the role sglang_server again, which writes it, or remove it"
    if folder == desired_state.RUNNING_DIR:
        way = "restart the instance with the playbook serving.sglang.rollout, which writes it; remove it if none runs"
    elif name.endswith(".previous.json"):
        way = "remove it: a rollback cannot come back to it, and a deployment keeps what serves then"
    return EngineError(
        "cleanup.unreadable",
        f"{path} cannot be read ({why}), and what it points to is not known. Nothing was removed. Next step: {way}",
    )


def read_environments(root: str, mentioned: Mapping[str, str]) -> list[Environment]:
    """What lies under a root. `mentioned`: what processes and units name, with who does."""
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(root, str(error.strerror)) from None
    notes = {name[1 : -len(".building")] for name in names if name.startswith(".") and name.endswith(".building")}
    found, now = [], time.time()
    for name in sorted({name for name in names if not name.startswith(".")} | notes):
        path = os.path.join(root, name)
        half_made = name in notes
        if not half_made and (os.path.islink(path) or not os.path.isdir(path)):
            continue
        mark = os.path.join(path, MARK)
        made = os.path.exists(mark)
        note = os.path.join(root, f".{name}.building") if half_made else mark if made else path
        found.append(Environment(name, path, made, now - os.lstat(note).st_mtime, half_made, mentioned.get(name, "")))
    return found


def read_mentions(root: str, proc: str = "/proc") -> dict[str, str]:
    """The names below a root that processes run with and units name, each with who does."""
    below = re.compile(re.escape(root) + r"/([^/\s:\"'\0]+)")
    found: dict[str, str] = {}
    for pid in sorted(filter(str.isdigit, os.listdir(proc)), key=int):
        if int(pid) == os.getpid():
            continue
        for part in ("cmdline", "maps"):
            try:
                text = read_text(f"{proc}/{pid}/{part}", 8 << 20)
            except CouldNotTell:
                continue  # it ended
            for name in below.findall(text):
                found.setdefault(name, f"process {pid}")
    for folder in UNITS_DIRS:
        for where, _folders, files in os.walk(folder):
            for file in files:
                try:
                    text = read_text(os.path.join(where, file))
                except CouldNotTell:
                    continue  # a link to nowhere
                for name in below.findall(text):
                    found.setdefault(name, os.path.join(where, file))
    return found


# --- the work -------------------------------------------------------------------------------------------------------


def clean_up(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module server_cleanup returns, with `failed` where something could not be removed."""
    remove = bool(params["remove"]) and not check_mode
    # A prefetch that is under way has not told anybody yet what it pulls for.
    try:
        options = Options(timeout_s=time_limit(params["timeout_s"]), check_mode=not remove)
        with signs_of_life(()), alone(options):
            return _clean_up(params, remove)
    except EngineError as error:
        return {"changed": False, "failed": True, "kind": error.kind, "msg": error.msg, "notes": [], "removed": []}


def _clean_up(params: Mapping[str, Any], remove: bool) -> dict[str, Any]:
    states = pointers({**read_states(), "a prefetch of the last hour": list(fetched_lately())}, ENVIRONMENTS_DIR)
    notes: list[str] = []
    images, containers = _stored(params["engines"], notes)
    verdicts = judge_images(images, containers, states, params["repositories"], int(params["keep"]))
    environments = read_environments(ENVIRONMENTS_DIR, read_mentions(ENVIRONMENTS_DIR))
    verdicts += judge_environments(environments, states, int(params["keep"]))
    unused = [verdict for verdict in verdicts if not verdict.kept]
    removed, errors = [], []
    for verdict in unused if remove else []:
        try:
            _remove(verdict)
        except EngineError as error:
            errors.append(f"{verdict.kind} {verdict.name} was not removed: {error.msg}")
        else:
            removed.append(verdict)
    wanted = bool(params["remove"])
    result = {
        "changed": bool(removed) if remove else wanted and bool(unused),
        "unused": [verdict.as_dict() for verdict in unused],
        "kept": [verdict.as_dict() for verdict in verdicts if verdict.kept],
        "removed": [verdict.as_dict() for verdict in removed],
        "notes": notes,
    }
    if errors:
        return {**result, "failed": True, "kind": "cleanup.failed", "msg": "\n".join(errors)}
    return result


def _stored(engines: Sequence[str], notes: list[str]) -> tuple[list[Image], dict[tuple[str, str], Sequence[str]]]:
    images: list[Image] = []
    containers: dict[tuple[str, str], Sequence[str]] = {}
    for name in ENGINES:
        if name not in engines or not shutil.which(name):
            continue
        engine = Engine(name)
        try:
            own, used = engine.images(), engine.containers()
        except EngineError as error:
            notes.append(f"the images of {name} were left alone: {error.msg}")
            continue
        images += own
        containers.update({(name, image): names for image, names in used.items()})
    return images, containers


def _remove(verdict: Verdict) -> None:
    if verdict.image is not None:
        # Not forced: what began to use it since refuses.
        Engine(verdict.image.engine).remove(verdict.image)
        return
    used_by = read_mentions(ENVIRONMENTS_DIR).get(verdict.name)
    if used_by:
        raise EngineError("cleanup.in_use", f"{used_by} began to use it. Next step: run again when it does not")
    folder, name = os.path.split(verdict.path)
    note = os.path.join(folder, f".{name}.building")
    try:
        # With the note a removal that is cut off leaves a half-made environment, and none that looks whole.
        with open(note, "a", encoding="utf-8"):
            pass
        if os.path.isdir(verdict.path) and not os.path.islink(verdict.path):
            shutil.rmtree(verdict.path)
        os.unlink(note)
    except OSError as error:
        raise EngineError("cleanup.failed", f"{error.filename or verdict.path}: {error.strerror or error}") from None
