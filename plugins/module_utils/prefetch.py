# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Brings what the instances of a host start from to the host, before anything that runs is touched.

Images by their digests, models by their revisions. Everything that is wrong with any of them is said at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import desired_state, model_cache, model_fetch, whole_file
from .checks import model_reach
from .checks.driver_readings import read_kernel_module
from .checks.reading import CouldNotTell
from .engine_images import Engine, human, missing_layers, room_for
from .errors import EngineError
from .image_fit import misfit_of_driver, misfit_of_platform
from .image_manifest import read_platform
from .image_pin import moved_under
from .image_reference import ImageReference, NotAReference, parse_reference, read_tag
from .image_store import REGISTRY, SKOPEO, Asking, Present, look, weigh
from .long_command import signs_of_life, time_limit
from .model_cache import Wanted

RUN_DIR = "/run/sglang"
LOCK = "prefetch.lock"
# The pins that were asked for, each with the time in seconds since 1970.
PINS = "prefetched.json"
# What was fetched since then may belong to a deployment that is under way: it writes its states afterwards.
YOUNG_S = 3600.0
# Between two looks at a lock that another run holds.
LOCK_S = 0.2
# An answer of a registry, not a pull.
ASK_S = 60.0
THERE, PULLED, FETCHED, NOT_PINNED, LOCAL, FAILED = "there", "pulled", "fetched", "not_pinned", "local", "failed"


@dataclass(frozen=True)
class Options:
    """How to fetch, and how long it may take."""

    authfile: str = ""
    tls_verify: bool = True
    check_tag: bool = True
    timeout_s: float = 7200.0
    check_mode: bool = False


@dataclass
class Part:
    """One thing that instances start from: an image, an environment or a model."""

    kind: str
    name: str
    state: str = ""
    bytes: int | None = None
    seconds: float = 0.0
    commit: str = ""
    notes: list[str] = field(default_factory=list)
    error: EngineError | None = None

    @property
    def changed(self) -> bool:
        return self.state in (PULLED, FETCHED)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "state": self.state,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "commit": self.commit or None,
            "notes": self.notes,
        }


@dataclass
class Run:
    """One run: what was done already is not done a second time for the next instance."""

    options: Options
    keeps: Sequence[int] = ()
    parts: dict[tuple[str, ...], Part] = field(default_factory=dict)


def prefetch(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module server_prefetch returns, with `failed` where something could not be fetched."""
    # A deployment fetches for states that it has not written yet.
    try:
        options = Options(
            authfile=str(params.get("authfile") or ""),
            tls_verify=bool(params["tls_verify"]),
            check_tag=bool(params["check_tag"]),
            timeout_s=time_limit(params["timeout_s"]),
            check_mode=check_mode,
        )
        parsed = [desired_state.parse(json.dumps(state), "states") for state in params.get("states") or ()]
    except EngineError as error:
        return _failed([error.msg], error.kind, {"changed": False, "instances": [], "notes": []})
    planned = {state.instance: state.raw for state in parsed}
    names = params.get("instances")
    if params.get("states") is not None:
        names = list(planned)
    names = desired_state.instances() if names is None else list(dict.fromkeys(map(str, names)))
    begin = time.monotonic()
    with signs_of_life(() if check_mode else params.get("touch") or ()):
        try:
            with alone(options) as lock:
                found = _all(names, planned, Run(options, lock))
        except EngineError as error:
            return _failed([error.msg], error.kind, {"changed": False, "instances": [], "notes": []})
    result, errors = found
    result["elapsed_s"] = round(time.monotonic() - begin, 3)
    if errors:
        return _failed([text for text, _error in errors], errors[0][1].kind, result)
    return result


def _failed(messages: Sequence[str], kind: str, result: Mapping[str, Any]) -> dict[str, Any]:
    return {**result, "failed": True, "kind": kind, "msg": "\n".join(messages)}


@contextlib.contextmanager
def alone(options: Options) -> Iterator[Sequence[int]]:
    """Hold the lock of the host: who comes second waits, and then finds done what it came for.

    What an engine pulls holds it too. A run that was killed leaves the lock to the pull that it began.
    """
    if options.check_mode:
        yield ()
        return
    path = os.path.join(RUN_DIR, LOCK)
    try:
        os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EngineError(
            "prefetch.lock", f"{path} cannot be opened: {error.strerror}. Next step: run with become: true"
        ) from None
    try:
        until = time.monotonic() + options.timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise EngineError(
                        "prefetch.lock",
                        f"another run fetches on this host, and did not end within {options.timeout_s:g} s. Next step: "
                        f"see what it waits for (fuser -v {path}), then run again",
                    ) from None
                time.sleep(LOCK_S)
        yield (handle,)
    finally:
        os.close(handle)


def _all(
    names: Sequence[str], planned: Mapping[str, Mapping[str, Any]], run: Run
) -> tuple[dict[str, Any], list[tuple[str, EngineError]]]:
    instances: list[dict[str, Any]] = []
    errors: list[tuple[str, EngineError]] = []
    failed: dict[int, tuple[Part, list[str]]] = {}
    notes: list[str] = []
    for name in names:
        own: list[str] = []
        try:
            desired = planned.get(name) or desired_state.read(name).raw
        except EngineError as error:
            errors.append((f"instance {name}: {error.msg}", error))
            continue
        software = _software(desired, run, to_be_made=bool(planned) and run.options.check_mode)
        parts = [software, *_models(desired, run, software)]
        for part in parts:
            own += part.notes
            if part.error:
                failed.setdefault(id(part), (part, []))[1].append(name)
        own += [f"a restart depends on the hub: {reason}" for reason in model_cache.depends_on_hub(desired)]
        notes += [f"{name}: {note}" for note in own]
        instances.append(
            {
                "instance": name,
                "replica": desired.get("replica"),
                "parts": [part.as_dict() for part in parts],
                "changed": any(part.changed for part in parts),
                "notes": own,
            }
        )
    for part, whose in failed.values():
        if part.error:
            of = f"instance{'s' if len(whose) > 1 else ''} {', '.join(whose)}"
            errors.append((f"{of}: {part.error.msg}", part.error))
    done = run.parts.values()
    return (
        {
            "changed": any(part.changed for part in done),
            "instances": instances,
            "bytes": sum(part.bytes or 0 for part in done if part.changed),
            "notes": notes,
        },
        errors,
    )


def _once(run: Run, kind: str, name: str, *more: str) -> tuple[Part, bool]:
    """The part of this name, and whether it is new in this run."""
    key = (kind, name, *more)
    new = key not in run.parts
    return run.parts.setdefault(key, Part(kind, name)), new


# --- what runs the server -------------------------------------------------------------------------------------------


def _software(desired: Mapping[str, Any], run: Run, to_be_made: bool) -> Part:
    container = desired.get("container")
    if container:
        return _image(container, run)
    python = model_fetch.python_of(desired)
    part, new = _once(run, "environment", python)
    if new:
        part.state = THERE
        if not os.path.exists(python) and to_be_made:
            part.notes.append(f"{python} is still to be made")
        elif not os.path.exists(python):
            part.state = FAILED
            part.error = EngineError(
                "prefetch.environment",
                f"{python} is not there. Next step: run the playbook serving.sglang.deploy, which makes it",
            )
    return part


def _image(container: Mapping[str, Any], run: Run) -> Part:
    pin = str(container.get("image") or container.get("run_image") or "")
    part, new = _once(run, "image", pin, str(container.get("engine")))
    if not new:
        return part
    begin = time.monotonic()
    try:
        reference = parse_reference(pin)
        if not reference.digest:
            raise EngineError("image.refused", f"{pin} has no digest. Next step: have image_pin add it, and deploy")
        options = run.options
        engine = Engine(str(container.get("engine")), options.authfile, options.tls_verify, keeps=run.keeps)
        _bring(container, reference, engine, part, options)
    except (EngineError, NotAReference) as error:
        part.state, part.error = FAILED, _saying_untouched(error)
    part.seconds = time.monotonic() - begin
    return part


def fetched_lately() -> dict[str, float]:
    """The pins that a prefetch on this host had to do with in the last hour."""
    try:
        with open(os.path.join(RUN_DIR, PINS), encoding="utf-8") as handle:
            pins = json.load(handle)
        return {str(pin): float(at) for pin, at in pins.items() if float(at) > time.time() - YOUNG_S}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _note(reference: ImageReference) -> None:
    pins = {**fetched_lately(), str(reference): time.time()}
    with contextlib.suppress(OSError):
        whole_file.replace(os.path.join(RUN_DIR, PINS), json.dumps(pins), 0o644)


def _saying_untouched(error: EngineError) -> EngineError:
    """What a registry or a pin lacks is said by others, who do not know that a server may be running."""
    if "not touched" in error.msg:
        return error
    return EngineError(error.kind, f"{error.msg.rstrip('.')}. What runs was not touched", **error.facts)


_PIN = re.compile(r'"image": "([^"\s]+@sha256:[0-9a-f]{64})"')


def pins_of_host() -> set[str]:
    """The pins in the states of the host: what is declared, what runs, and what was before."""
    found: set[str] = set()
    for directory in (desired_state.DESIRED_DIR, desired_state.RUNNING_DIR):
        for path in glob.glob(os.path.join(directory, "*.json")):
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as handle:
                found.update(_PIN.findall(handle.read()))
    return found


def refuse_other_release(reference: ImageReference, pins: Collection[str]) -> None:
    """Refuse a pin whose tag names another release, CUDA or ROCm than the same digest has had on this host.

    A digest that is there is not asked for anywhere, so a tag that alone was edited would deploy the old image by the
    new name.
    """
    if str(reference) in pins:
        return
    said = read_tag(reference.tag)
    for pin in sorted(pins):
        try:
            other = parse_reference(pin)
        except NotAReference:
            continue
        if other.by_digest != reference.by_digest:
            continue
        had = read_tag(other.tag)
        # What only one of them says need not be another thing.
        pairs = ((said.release, had.release), (said.cuda, had.cuda), (said.rocm, had.rocm))
        if any(one and two and one != two for one, two in pairs):
            raise EngineError(
                "image.other_release",
                f"{reference} has the digest that this host knows as {other.tagged}: its tag was edited and its digest "
                f"was not. Next step: run image_pin for {reference.tagged}, which writes the digest of that tag",
            )


def _bring(
    container: Mapping[str, Any], reference: ImageReference, engine: Engine, part: Part, options: Options
) -> None:
    if options.check_tag:
        refuse_other_release(reference, pins_of_host())
    if not options.check_mode:
        _note(reference)
    image = engine.image(reference.by_digest)
    if image is not None and image.has(reference):
        part.state = THERE
        return
    # docker reads credentials of its own alone.
    authfile = options.authfile if shutil.which(SKOPEO) else ""
    asking = Asking(authfile=authfile, tls_verify=options.tls_verify, timeout_s=ASK_S)
    if options.check_tag:
        _check_tag(container, reference, asking, part)
    _check_room(reference, asking, engine, part)
    if not options.check_mode:
        engine.pull(reference, options.timeout_s)
        image = engine.image(reference.by_digest)
        if image is None or not image.has(reference):
            known = ", ".join(image.digests) if image else "nothing"
            raise EngineError(
                "image.not_verified",
                f"{engine.name} pulled {reference.by_digest} and does not know it by this digest afterwards (it knows "
                f"{known}). What runs was not touched. Next step: look at `{engine.name} image inspect "
                f"{reference.by_digest}`, remove the image and run again",
            )
    part.state = PULLED


def driver_for(container: Mapping[str, Any], part: Part) -> str:
    """The driver that an image with cards must fit; empty where it need not, or where none can be told."""
    if not (container.get("devices") or container.get("gpus")) or container.get("cuda_compat"):
        return ""
    try:
        return read_kernel_module().version or ""
    except CouldNotTell as error:
        part.notes.append(f"could not tell whether the driver is new enough: {error}")
        return ""


def _check_tag(container: Mapping[str, Any], reference: ImageReference, asking: Asking, part: Part) -> None:
    """Refuse what was moved or does not fit the host. Where no tool can tell, go on: the engine pulls by digest."""
    try:
        present = look(reference, asking, _platform(), reference.digest)
    except EngineError as error:
        if error.kind not in ("image.tool_missing", "image.engine"):
            raise
        part.notes.append(f"could not tell whether the tag {reference.tagged} was moved: {error.msg}")
        return
    if present.digest != reference.digest:
        raise moved_under(reference, reference.digest, present, REGISTRY)
    refuse_misfit(reference, present, driver_for(container, part), part)


def refuse_misfit(reference: ImageReference, present: Present, driver: str, part: Part) -> None:
    """Refuse an image of another platform, or one whose CUDA needs a newer driver than this host has."""
    error = misfit_of_platform(reference, present.platforms, _platform())
    try:
        error = error or misfit_of_driver(reference, present.facts.cuda, driver)
    except CouldNotTell as unknown:
        part.notes.append(f"could not tell whether driver {driver} is new enough for {reference.tagged}: {unknown}")
    if error:
        raise error


def _check_room(reference: ImageReference, asking: Asking, engine: Engine, part: Part) -> None:
    try:
        layers = missing_layers(weigh(reference, asking, _platform()), engine.images())
        needs = room_for(layers, engine.storage())
    except (EngineError, CouldNotTell) as error:
        kind = error.kind if isinstance(error, EngineError) else "image.tool_missing"
        if kind not in ("image.tool_missing", "image.engine", "image.garbled"):
            raise
        part.notes.append(f"could not tell whether the disk has room for {reference}: {error}")
        return
    part.bytes = sum(layer.compressed_bytes for layer in layers)
    short = [room for room in needs if not room.enough]
    if short:
        text = "; ".join(
            f"{room.path} needs {human(room.needed_bytes)} ({room.what}) and has {human(room.free_bytes)} free"
            for room in short
        )
        raise EngineError(
            "image.disk",
            f"there is no room for {reference}: {text}. Nothing was pulled, and what runs was not touched. Next step: "
            "remove images that nothing points to (the playbook serving.sglang.cleanup shows them), or have the "
            f"storage of {engine.name} on a larger disk",
        )


def _platform() -> Any:
    return read_platform(platform.machine() or "amd64")


# --- what the server loads ------------------------------------------------------------------------------------------


def _models(desired: Mapping[str, Any], run: Run, software: Part) -> list[Part]:
    place = model_fetch.place_of(desired, run.keeps)
    wanted = model_cache.wanted_by(desired)
    container = desired.get("container")
    mounts = container.get("mounts") or () if container else None
    return [_model(_on_the_host(each, desired), place, run, software, mounts) for each in wanted if each.path]


def _on_the_host(wanted: Wanted, desired: Mapping[str, Any]) -> Wanted:
    """A container may see a folder of the host under another path."""
    for mount in (desired.get("container") or {}).get("mounts") or ():
        source, target = str(mount.get("source") or ""), str(mount.get("target") or "")
        if wanted.local and target and (wanted.path + "/").startswith(target.rstrip("/") + "/"):
            return replace(wanted, path=source.rstrip("/") + wanted.path[len(target.rstrip("/")) :])
    return wanted


def _model(
    wanted: Wanted,
    place: model_fetch.Place,
    run: Run,
    software: Part,
    mounts: Sequence[Mapping[str, Any]] | None,
) -> Part:
    part, new = _once(run, wanted.what, str(wanted), place.cache, *wanted.ignored, place.image)
    if not new:
        return part
    begin = time.monotonic()
    try:
        if wanted.local:
            _check_folder(wanted, place.user, part, mounts)
        elif wanted.moving:
            part.state = NOT_PINNED
            part.notes.append(
                f"{wanted.what} {wanted.path} was not fetched: "
                + ("main is a branch and moves" if wanted.revision else "it has no revision")
                + ". Declare a commit or a tag"
            )
        else:
            _bring_model(wanted, place, part, run.options, software)
    except EngineError as error:
        part.state, part.error = FAILED, error
    part.seconds = time.monotonic() - begin
    return part


def _check_folder(wanted: Wanted, user: str, part: Part, mounts: Sequence[Mapping[str, Any]] | None) -> None:
    part.state = LOCAL
    try:
        there = os.listdir(wanted.path) if os.path.isdir(wanted.path) else [os.stat(wanted.path)]
    except OSError as error:
        raise EngineError(
            "model.missing",
            f"the {wanted.what} {wanted.path} cannot be read: {error.strerror}. Next step: put its files there",
        ) from None
    if not there:
        raise EngineError("model.missing", f"the {wanted.what} {wanted.path} is empty. Next step: put its files there")
    try:
        # The folders above one that is mounted are the container's own.
        if mounts is None:
            why = model_reach.why_unreadable(wanted.path, user, False)
        else:
            why = model_reach.why_unreadable_in_container(wanted.path, user, mounts)
    except (CouldNotTell, OSError) as error:
        part.notes.append(f"could not tell whether {user} can read the {wanted.what} {wanted.path}: {error}")
        return
    if why:
        raise EngineError("model.missing", f"the {wanted.what} cannot be read: {why}. Next step: let {user} read it")


def _bring_model(wanted: Wanted, place: model_fetch.Place, part: Part, options: Options, software: Part) -> None:
    found = model_cache.look_in_cache(place.cache, wanted)
    if found.whole:
        part.state, part.commit, part.bytes = THERE, found.commit, found.bytes
        return
    if software.error:
        # What would fetch it is not there, which is said.
        part.state = FAILED
        part.notes.append(f"{wanted} was not fetched: {software.name} is missing, and fetches it")
        return
    if options.check_mode:
        part.state, part.commit = FETCHED, found.commit
        return
    fetched = model_fetch.fetch(wanted, place, options.timeout_s)
    part.notes += fetched.notes
    part.commit, part.bytes = fetched.commit, fetched.bytes
    found = model_cache.look_in_cache(place.cache, wanted)
    if not found.whole or found.commit != fetched.commit:
        why = found.why or f"it is of commit {found.commit}"
        raise EngineError(
            "model.not_verified",
            f"{wanted} was fetched and is not whole afterwards: {why}. What runs was not touched. Next step: look at "
            f"{model_cache.folder_of(place.cache, wanted.path)}, and run again",
        )
    part.state = FETCHED
