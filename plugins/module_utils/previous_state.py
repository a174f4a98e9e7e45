# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state that an instance served with before the one on disk: kept by a deployment, put back by a rollback.

The rules are pure; what reads and writes the files is at the end. What is kept is the texts of the files, so that what
comes back is what was there, byte for byte.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from . import desired_state, engine_images, served_states, systemd, whole_file
from .errors import EngineError

SCHEMA = 1
ENABLED_DIR = "/etc/systemd/system/multi-user.target.wants"

DEPLOYMENT = "deployment"
ROLLBACK = "rollback"
UNDO = "undo"
"""Who put a state aside: a deployment that wrote a newer one, a rollback, or a rollback that was taken back."""


@dataclass(frozen=True)
class Kept:
    """A state that was put aside: the whole desired state, and the text of each of its files by absolute path."""

    kept_at: str
    desired: dict[str, Any]
    files: dict[str, str]
    by: str = DEPLOYMENT
    to: str = ""
    """While a rollback writes: the digest of the state that takes the place of this one."""

    @property
    def text(self) -> str:
        """The text of the desired-state file."""
        return self.files[desired_state.path_of(str(self.desired["instance"]))]

    def render(self) -> str:
        content = {
            "schema": SCHEMA,
            "kept_at": self.kept_at,
            "by": self.by,
            "desired": self.desired,
            "files": self.files,
            **({"to": self.to} if self.to else {}),
        }
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def path_of(instance: str) -> str:
    return os.path.join(desired_state.DESIRED_DIR, f"{instance}.previous.json")


def put_aside_path(instance: str) -> str:
    """Holds what a rollback replaces while it writes: what is on disk is then neither the one nor the other."""
    return os.path.join(desired_state.DESIRED_DIR, f".{instance}.replaced.json")


def parse(text: str, where: str) -> Kept:
    """A kept state as it was written; refuses what cannot be put back whole."""
    try:
        data = json.loads(text)
        schema, desired, files = data["schema"], data["desired"], data["files"]
        kept = Kept(
            kept_at=str(data["kept_at"]),
            desired=dict(desired),
            files={str(path): str(content) for path, content in files.items()},
            by=str(data.get("by") or DEPLOYMENT),
            to=str(data.get("to") or ""),
        )
        inside = json.loads(kept.text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            "previous_state",
            f"{where} is not a kept state ({type(error).__name__}: {error}). Remove it; the next deployment that "
            "changes the instance keeps what serves then.",
        ) from error
    if schema != SCHEMA:
        raise EngineError(
            "previous_state", f"{where} has schema {schema!r}, this version of serving.sglang reads schema {SCHEMA}."
        )
    if inside != kept.desired:
        raise EngineError(
            "previous_state", f"{where} contradicts itself: its desired state is not the one in its files. Remove it."
        )
    return kept


def render_desired(desired: Mapping[str, Any]) -> str:
    """The text of a desired-state file, as the role writes it."""
    return json.dumps(desired, indent=2, sort_keys=True, separators=(",", ": ")) + "\n"


# --- rules ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a host has of an instance. None where there is no such file."""

    instance: str
    disk: str | None = None
    running: str | None = None
    previous: Kept | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    served: tuple[str, ...] | None = None
    """Digests of the states that served; None: nothing was ever noted, by an older release of this collection."""
    serves_now: bool = False
    """Whether it serves at this moment with what is on disk."""

    @property
    def desired(self) -> dict[str, Any]:
        """The desired state on disk; empty when it is none."""
        try:
            data = json.loads(self.disk or "")
        except ValueError:
            return {}
        return data if isinstance(data, dict) and data.get("instance") == self.instance else {}

    @property
    def pending(self) -> bool:
        """What was started last is not what is on disk."""
        return self.running is not None and self.running != self.disk

    @property
    def disk_served(self) -> bool:
        """Whether what is on disk is known to have served."""
        if self.disk is None:
            return False
        if self.serves_now:
            return True
        if self.served is None:
            return self.running == self.disk
        return served_states.digest(self.disk) in self.served


@dataclass(frozen=True)
class Keeping:
    """What becomes of the kept state when a newer one is about to be written. ``write`` is None: it stays as it is."""

    write: Kept | None
    why: str
    warning: str = ""


def whole(found: Found) -> bool:
    """Whether every file of the state on disk is there, so that it could be put back."""
    desired = found.desired
    return bool(desired) and all(path in found.files for path in desired_state.unit_files(desired))


def keeping(found: Found, new: Mapping[str, Any], now: str) -> Keeping:
    """What to keep of an instance before the desired state ``new`` is written."""
    if found.disk is None:
        return Keeping(None, "the instance is new")
    if found.desired == new:
        return Keeping(None, "its desired state does not change")
    kept = found.previous
    goes_back = kept is not None and kept.desired == new
    if found.disk_served and (not found.pending or goes_back):
        if not whole(found):
            return Keeping(
                None,
                "what is on disk is not whole",
                f"The state of instance {found.instance} cannot be kept: a file of its unit is missing. A rollback "
                "will not come back to it.",
            )
        if kept is not None and kept.desired == found.desired and kept.files == dict(found.files):
            return _left(found, "it is kept already")
        return Keeping(Kept(now, found.desired, dict(found.files)), "it has served")
    if found.pending and kept is None:
        return Keeping(
            None,
            "a restart is pending and what runs was not kept",
            f"What instance {found.instance} runs with was not kept before it was replaced on disk: a rollback has "
            "nothing to come back to. Restart it with the rollout playbook before you change it again.",
        )
    if found.pending:
        return _left(found, "a restart is pending: what is kept is what served")
    return _left(found, "what is on disk has never served")


def _left(found: Found, why: str) -> Keeping:
    """What is kept stays. Once another state is deployed it is no longer what a rollback has put aside."""
    kept = found.previous
    if kept is None or kept.by == DEPLOYMENT:
        return Keeping(None, why)
    return Keeping(Kept(kept.kept_at, kept.desired, kept.files), why)


@dataclass(frozen=True)
class Restoring:
    """What a rollback writes and removes. ``aside`` becomes the kept state. Nothing at all when it was done before."""

    write: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    aside: Kept | None = None
    desired: Mapping[str, Any] = field(default_factory=dict)


def _kinds(desired: Mapping[str, Any]) -> list[str]:
    credentials = desired.get("credentials") or {}
    return [name for name in ("config", "hf_token") if credentials.get(name)]


def is_restored(found: Found, undo: bool = False) -> bool:
    """Whether the rollback (with ``undo``, the taking back of one) has been at this instance already."""
    kept = found.previous
    return kept is not None and (kept.by != ROLLBACK if undo else kept.by == ROLLBACK)


def restoring(found: Found, undo: bool, now: str) -> Restoring:
    """How an instance comes back to what is kept.

    Raises EngineError where there is nothing to come back to, or it would not fit what is on the host today.
    """
    if found.disk is None:
        raise EngineError("no_instance", f"There is no instance {found.instance!r} on this host: deploy it first.")
    kept = found.previous
    if kept is None:
        raise EngineError(
            "no_previous",
            f"Instance {found.instance} has no previous state on this host ({path_of(found.instance)} does not exist): "
            "no deployment has replaced one that served. Declare what it shall be and run the deploy playbook.",
        )
    if is_restored(found, undo):
        return Restoring(desired=found.desired)
    if kept.desired == found.desired:
        raise EngineError(
            "no_previous",
            f"The previous state of instance {found.instance} is the one on disk: there is nothing to come back to.",
        )
    today = found.desired
    if _kinds(today) != _kinds(kept.desired):
        was, now_has = (", ".join(_kinds(one)) or "none" for one in (kept.desired, today))
        raise EngineError(
            "credentials",
            f"The previous state of instance {found.instance} was made for other credentials (then: {was}; today: "
            f"{now_has}), and secrets are not kept. Deploy the old declaration with its keys instead; that is pending "
            "until a rollout restarts it.",
        )
    desired, files = dict(kept.desired), dict(kept.files)
    fingerprint = (today.get("credentials") or {}).get("fingerprint")
    if _kinds(today) and desired["credentials"].get("fingerprint") != fingerprint:
        # The keys of today stay, and so does what tells that they were changed.
        desired["credentials"] = {**desired["credentials"], "fingerprint": fingerprint}
        files[desired_state.path_of(found.instance)] = render_desired(desired)
    aside = Kept(now, today, dict(found.files), UNDO if undo else ROLLBACK)
    return Restoring(
        write=files,
        remove=tuple(sorted(set(aside.files) - set(files))),
        aside=aside,
        desired=desired,
    )


# --- the host -------------------------------------------------------------------------------------------------------


def _text(path: str, errors: str = "strict") -> str | None:
    try:
        with open(path, encoding="utf-8", errors=errors) as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(
            "previous_state", f"{path} cannot be read: {error}. Repair or remove it, then run again."
        ) from error


def read_kept(instance: str) -> Kept | None:
    """The kept state of an instance; None when there is none."""
    path = path_of(instance)
    text = _text(path)
    return None if text is None else parse(text, path)


def read(instance: str) -> Found:
    """What the host has of an instance, except whether it serves now."""
    state_path = desired_state.path_of(instance)
    # What is no text is no state either: it differs from any other, and a deployment writes it anew.
    disk = _text(state_path, "replace")
    found = Found(instance, disk, _text(desired_state.running_path_of(instance), "replace"), read_kept(instance))
    served = served_states.read(instance)
    texts: dict[str, str] = {} if disk is None else {state_path: disk}
    for path in desired_state.unit_files(found.desired) if found.desired else ():
        text = _text(path)
        if text is not None:
            texts[path] = text
    begun = _begun(instance, disk)
    return Found(
        instance,
        disk,
        found.running,
        found.previous,
        dict(begun.files) if begun is not None else texts,
        None if served is None else tuple(served),
    )


def _begun(instance: str, disk: str | None) -> Kept | None:
    """What a rollback that was cut off had put aside, where the desired state on disk is still that one."""
    path = put_aside_path(instance)
    text = _text(path)
    if text is None:
        return None
    kept = parse(text, path)
    return kept if kept.text == disk else None


def now_text() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def keep(instance: str, kept: Kept | None) -> None:
    """Write the kept state, or leave it, and forget what a rollback that was cut off had begun."""
    if kept is not None:
        whole_file.replace(path_of(instance), kept.render(), 0o644, sync=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(put_aside_path(instance))


def cut_off(instance: str) -> Kept | None:
    """What a rollback has put aside that was cut off when all files were written and only this was not kept."""
    path = put_aside_path(instance)
    text, disk = _text(path), _text(desired_state.path_of(instance))
    if text is None or disk is None:
        return None
    aside = parse(text, path)
    return replace(aside, to="") if aside.to == served_states.digest(disk) else None


def write(instance: str, plan: Restoring) -> None:
    """Write what comes back. Cut off anywhere, the next call finds what was put aside and does it again."""
    if plan.aside is None:
        return
    state_path = desired_state.path_of(instance)
    aside = replace(plan.aside, to=served_states.digest(plan.write[state_path]))
    whole_file.replace(put_aside_path(instance), aside.render(), 0o644, sync=True)
    for path in plan.remove:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    for path in sorted(plan.write):
        if path != state_path:
            whole_file.replace(path, plan.write[path], 0o644, sync=True)
    _enable(plan)
    # The desired state is the last one: what is there tells how far this came.
    whole_file.replace(state_path, plan.write[state_path], 0o644, sync=True)
    keep(instance, plan.aside)


def _enable(plan: Restoring) -> None:
    """What `systemctl enable` does, for units that are files of their own; a Quadlet says it itself."""
    for path in [*plan.remove, *plan.write]:
        if os.path.dirname(path) != desired_state.UNIT_DIR or not path.endswith(".service"):
            continue
        link = os.path.join(ENABLED_DIR, os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):
            if path in plan.remove or os.path.realpath(link) != os.path.realpath(path):
                os.unlink(link)
        if path in plan.write and not os.path.lexists(link):
            os.makedirs(ENABLED_DIR, exist_ok=True)
            os.symlink(path, link)


def needs_reload(plan: Restoring) -> bool:
    """Whether systemd has not read what is on disk."""
    return any(_unread(unit) for unit in sorted({str(plan.desired[key]) for key in ("unit", "slice")}))


def reload_units(plan: Restoring) -> None:
    """Have systemd read its units anew. A Quadlet that it cannot read makes no unit at all, and says so nowhere."""
    systemd.run(["systemctl", "daemon-reload"], timeout_s=90.0)
    unit = str(plan.desired["unit"])
    if not systemd.show(unit).exists:
        raise EngineError(
            "no_unit",
            f"The files of the previous state are back, and systemd makes no unit {unit} of them. Run the deploy "
            "playbook with the old declaration, which writes them as this host needs them.",
        )


def _unread(unit: str) -> bool:
    seen = systemd.show(unit)
    return seen.need_daemon_reload or not seen.exists


def refuse_missing(desired: Mapping[str, Any]) -> None:
    """Refuse a state whose environment or image is gone from the host."""
    version = desired.get("version")
    way_out = (
        f"Declare {version} again and run the deploy playbook, which brings it; the restart is then pending until a "
        "rollout. Nothing was changed."
    )
    container = desired.get("container")
    if isinstance(container, Mapping):
        engine = str(container.get("engine"))
        if engine_images.Engine(engine).image(str(container.get("run_image"))) is None:
            raise EngineError(
                "image_gone",
                f"The image {container.get('image')} of the previous state ({version}) is not in {engine}'s store. "
                f"{way_out}",
            )
        return
    python = str((desired.get("argv") or [""])[0])
    root, name = os.path.split(os.path.dirname(os.path.dirname(python)))
    if not os.path.exists(python) or os.path.exists(f"{root}/.{name}.building"):
        raise EngineError(
            "environment_gone",
            f"The environment {root}/{name} of the previous state is gone or not whole ({python} is what it would "
            f"run). {way_out}",
        )
