# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readings of a machine: a value, or the reason why it could not be read. No reader may hold up the others.

Every reader runs in a thread of its own with a time limit, so a hung file system or driver costs one reading and never
the run.
"""

# This is no module and has no AnsibleModule to run commands with.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class Unknown:
    """Stands in the place of a reading that failed. `reason` says what was tried and what came of it."""

    reason: str


# Not `T | Unknown`: the name is evaluated when the module is imported, and hosts have Python 3.9.
Reading = Union[T, Unknown]


class CouldNotTell(Exception):
    """Raised by a check that needs a reading which failed, and by a reader that fails. The text is the reason."""


def known(reading: Reading[T]) -> T:
    """The value of a reading; raises CouldNotTell with its reason where there is none."""
    if isinstance(reading, Unknown):
        raise CouldNotTell(reading.reason)
    return reading


@dataclass(frozen=True)
class Output:
    """What a command said. `code` is its exit status."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """The last line of what it complained about, for a message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else "nothing"


def run_command(
    argv: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None, text_in: str | None = None
) -> Output:
    """Run a command and wait at most `limit_s`. Raises CouldNotTell when it is missing, forbidden or too slow.

    A garbled byte of its output becomes a replacement character. A non-zero exit status is for the caller to judge.
    """
    # C.UTF-8: messages are matched, and some tools answer in the language of the session.
    variables = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}
    try:
        # A session of its own, so that what a wrapper script started can be ended together with it.
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if text_in is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CouldNotTell(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise CouldNotTell(f"{argv[0]} could not be run: {error.strerror or error}") from None
    try:
        stdout, stderr = process.communicate(text_in, timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end_session(process)
        raise CouldNotTell(f"`{' '.join(argv[:4])}` did not end within {limit_s:g} s") from None
    return Output(process.returncode, stdout, stderr)


def _end_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # What hangs inside the kernel does not die of a signal: it is not waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def read_text(path: str, limit_bytes: int = 1 << 20) -> str:
    """The text of a file, at most so much of it. Raises CouldNotTell with the path and what the system said."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit_bytes)
    except OSError as error:
        raise CouldNotTell(f"{path}: {error.strerror or error}") from None


def read_first(path: str) -> str | None:
    """As read_text, for a file that may rightly be missing: None then."""
    try:
        return read_text(path)
    except CouldNotTell:
        if not os.path.lexists(path):
            return None
        raise


@dataclass(frozen=True)
class Reader:
    """A function that reads one thing of the machine, and how long it may take."""

    read: Callable[[], Any]
    limit_s: float = 2.0


def gather(readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Run all readers at once. Each name has its value, or an Unknown with the reason.

    Returns when all are done or the longest limit has passed; what is still at work then is left behind, in a daemon
    thread that ends with the process.
    """
    results: dict[str, Any] = {}

    def work(name: str, reader: Reader) -> None:
        try:
            results[name] = reader.read()
        except CouldNotTell as error:
            results[name] = Unknown(str(error))
        except (Exception, SystemExit) as error:
            # A reader that meets what nobody thought of must not take the other readings with it.
            results[name] = Unknown(f"reading {name} failed: {type(error).__name__}: {error}")

    started = time.monotonic()
    threads: dict[str, threading.Thread] = {}
    for name, reader in readers.items():
        thread = threading.Thread(target=work, args=(name, reader), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # At the limit of tasks of a control group or a user no further thread is to be had.
            results[name] = Unknown(f"reading {name} could not be begun: {error}")
        else:
            threads[name] = thread
    for name, thread in threads.items():
        thread.join(max(0.0, started + readers[name].limit_s - time.monotonic()))
    # A copy: a late thread may still write into `results`.
    done = dict(results)
    for name, reader in readers.items():
        done.setdefault(name, Unknown(f"reading {name} took longer than its limit of {reader.limit_s:g} s"))
    return {name: done[name] for name in readers}
