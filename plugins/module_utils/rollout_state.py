# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a managed host remembers of a rollout: the lock, and how far each instance came.

It lives on the hosts because nothing else is shared by a laptop, an automation controller and a colleague. Whoever
holds the lock keeps touching its file, and its age by the host's own clock says whether somebody still does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import host_job, whole_file

DIRECTORY = "/var/lib/sglang/rollout"
LOCK = "lock.json"
RECORDS = "instances"


class LockHeld(Exception):
    """Somebody else holds the lock; ``holder`` is what the lock file says."""

    def __init__(self, holder: dict[str, Any]) -> None:
        self.holder = holder
        super().__init__(
            f"the lock is held by rollout {holder.get('run')} of {holder.get('owner')} (process {holder.get('pid')}), "
            f"last sign of life {holder.get('age_s', 0):.0f} s ago. Wait until it has ended, then run again."
        )


class JobBegun(Exception):
    """A job began on the host after the rollout looked at it: the plan rests on what is no longer so."""

    def __init__(self, instances: Sequence[str]) -> None:
        files = ", ".join(host_job.status_path(instance) for instance in instances)
        super().__init__(
            f"a start or stop of {', '.join(instances)} began while the rollout was planned, perhaps by a deployment, "
            f"and the plan does not know of it. Wait until it has ended ({files}), then run again."
        )


class LockLost(Exception):
    """The lock is no longer ours: this rollout must not go on."""


class StateError(ValueError):
    """A file of the rollout state that cannot be read; the message names it and the way out."""


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as handle:
            content = json.load(handle)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read ({error}); look at it and remove it, then run again") from error
    if not isinstance(content, dict):
        raise StateError(
            f"{path} holds {type(content).__name__} where an object is expected; remove it, then run again"
        )
    return content


def _write(path: str, content: dict[str, Any]) -> None:
    whole_file.replace(path, json.dumps(content, sort_keys=True) + "\n", 0o644, sync=True)


def read_lock(directory: str = DIRECTORY) -> dict[str, Any] | None:
    """The lock as its holder wrote it, with ``age_s`` (seconds since its last sign of life); None when free."""
    path = os.path.join(directory, LOCK)
    lock = _read(path)
    if lock is not None:
        try:
            lock["age_s"] = max(0.0, time.time() - os.stat(path).st_mtime)
        except FileNotFoundError:
            return None
    return lock


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """Whoever looks at the lock and then changes it does so alone; claims on a host are made on that host."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with open(os.path.join(directory, ".guard"), "w", encoding="utf-8") as guard:
        fcntl.flock(guard.fileno(), fcntl.LOCK_EX)
        yield


def would_take(
    claim: Mapping[str, Any],
    break_tokens: Sequence[str] = (),
    jobs_seen: Mapping[str, str] | None = None,
    directory: str = DIRECTORY,
) -> bool:
    """Whether ``take_lock`` would change anything; raises what it would raise."""
    held = read_lock(directory)
    if held is not None and held.get("token") == claim["token"]:
        return False
    if held is not None and held.get("token") not in break_tokens:
        raise LockHeld(held)
    if jobs_seen is not None:
        begun = [instance for instance, job in host_job.last_jobs().items() if jobs_seen.get(instance) != job]
        if begun:
            raise JobBegun(begun)
    return True


def take_lock(
    claim: dict[str, Any],
    break_tokens: Sequence[str] = (),
    jobs_seen: Mapping[str, str] | None = None,
    directory: str = DIRECTORY,
) -> bool:
    """Claim the host for the rollout in ``claim`` (keys run, token, owner, controller, pid).

    True when it was taken, False when this claim held it already. A lock whose token is in ``break_tokens`` is
    replaced. Raises LockHeld otherwise. Of two that claim or break at once, exactly one succeeds. ``jobs_seen`` is
    what ``host_job.last_jobs`` said when the rollout was planned; raises JobBegun when another job is there now.
    """
    with _alone(directory):
        if not would_take(claim, break_tokens, jobs_seen, directory):
            return False
        _write(os.path.join(directory, LOCK), dict(claim, taken_at=time.time()))
    return True


def refuse_claimed(stale_tokens: Sequence[str] = (), directory: str = DIRECTORY) -> None:
    """Raise LockHeld when a rollout holds the host, unless its claim is known to be stale."""
    lock = read_lock(directory)
    if lock is not None and lock.get("token") not in stale_tokens:
        raise LockHeld(lock)


@contextlib.contextmanager
def unclaimed(stale_tokens: Sequence[str] = (), directory: str = DIRECTORY) -> Iterator[None]:
    """Hold off claims while a job is begun: either it meets the claim, or whoever claims next meets its status file.

    Raises LockHeld as ``refuse_claimed`` does.
    """
    with _alone(directory):
        refuse_claimed(stale_tokens, directory)
        yield


def release_lock(token: str, directory: str = DIRECTORY) -> bool:
    """Give the lock back. False when it was not ours (any more); that one is left alone."""
    if read_lock(directory) is None:
        return False
    with _alone(directory):
        lock = read_lock(directory)
        if lock is None or lock.get("token") != token:
            return False
        os.unlink(os.path.join(directory, LOCK))
    return True


def check_lock(token: str, directory: str = DIRECTORY) -> None:
    """Give a sign of life, or raise LockLost when the lock is not ours."""
    lock = read_lock(directory)
    if lock is None:
        raise LockLost("this rollout's lock is gone from the host: somebody released it. Stop, look at who, run again.")
    if lock.get("token") != token:
        raise LockLost(
            f"this rollout lost its lock to rollout {lock.get('run')} of {lock.get('owner')}, which found it without a "
            "sign of life. Nothing more is done by this one."
        )
    os.utime(os.path.join(directory, LOCK))


def read_record(instance: str, directory: str = DIRECTORY) -> dict[str, Any] | None:
    """How far a run came with ``instance``: keys run, step, at (UNIX seconds); None when no rollout touched it."""
    return _read(os.path.join(directory, RECORDS, f"{instance}.json"))


def write_record(instance: str, run: str, step: str, directory: str = DIRECTORY) -> bool:
    """Remember that ``run`` came to ``step`` with ``instance``. False when that was remembered already."""
    known = read_record(instance, directory)
    if known is not None and known.get("run") == run and known.get("step") == step:
        return False
    _write(os.path.join(directory, RECORDS, f"{instance}.json"), {"run": run, "step": step, "at": time.time()})
    return True
