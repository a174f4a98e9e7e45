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
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union

T = TypeVar("T")

# A factor on every limit below: each is for a host that has a processor to spare, and a busy one answers later.
_patience = 1.0


@contextlib.contextmanager
def patience(factor: float) -> Iterator[None]:
    """Give every reading and command that is begun within the block `factor` times its limit (1 or more)."""
    global _patience  # the threads of the readers, and theirs, all belong to the one block
    before, _patience = _patience, factor
    try:
        yield
    finally:
        _patience = before


def patient(limit_s: float) -> float:
    """A limit in seconds with the factor that holds now."""
    return _patience * limit_s


@dataclass(frozen=True)
class Unknown:
    """Stands in the place of a reading that failed. `reason` says what was tried and what came of it.

    `fix` says what to do about it, where that is more than making something readable.
    """

    reason: str
    fix: str = ""


# Not `T | Unknown`: the name is evaluated when the module is imported, and hosts have Python 3.9.
Reading = Union[T, Unknown]


class CouldNotTell(Exception):
    """Raised by a check that needs a reading which failed, and by a reader that fails. The text is the reason."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


def known(reading: Reading[T]) -> T:
    """The value of a reading; raises CouldNotTell with its reason where there is none."""
    if isinstance(reading, Unknown):
        raise CouldNotTell(reading.reason, reading.fix)
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


# No command that is asked says more; what does is no answer.
OUTPUT_BYTES = 16 << 20
# What a child that outlives its command may still have to say.
LAST_WORDS_S = 0.2
_DRIVER_TOOLS = ("nvidia-smi",)
_BUSY = ", a preflight of a host that is only busy with -e sglang_preflight_patience=4"


def run_command(
    argv: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    text_in: str | None = None,
    limit_bytes: int = OUTPUT_BYTES,
) -> Output:
    """Run a command and wait at most `limit_s`. Raises CouldNotTell when it is missing, forbidden, too slow or floods.

    A garbled byte of its output becomes a replacement character. A non-zero exit status is for the caller to judge.
    What it leaves behind and holds its output is ended with it.
    """
    # C.UTF-8: messages are matched, and some tools answer in the language of the session.
    variables = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}
    limit_s = _within_reading(patient(limit_s))
    try:
        # A session of its own, so that what a wrapper script started can be ended together with it.
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if text_in is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CouldNotTell(f"{argv[0]} is not installed", _installation(argv[0])) from None
    except OSError as error:
        raise CouldNotTell(f"{argv[0]} could not be run: {error.strerror or error}") from None
    held = True
    try:
        stdout, stderr, held = _talk(process, (text_in or "").encode(), limit_s, limit_bytes)
    except subprocess.TimeoutExpired:
        fix = f"see why it hangs: `time {shlex.join(argv[:4])}`; then run again{_BUSY}"
        raise CouldNotTell(f"`{' '.join(argv[:4])}` did not end within {limit_s:.3g} s", fix) from None
    except OverflowError:
        reason = f"`{' '.join(argv[:4])}` said more than {limit_bytes} bytes, and was ended"
        raise CouldNotTell(reason, f"see what {argv[0]} is: `type -a {argv[0]}`") from None
    finally:
        if held:
            _end_session(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                _close(stream)
    return Output(process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _installation(program: str) -> str:
    if os.path.basename(program) in _DRIVER_TOOLS:
        return "install NVIDIA's driver with its utilities, which bring nvidia-smi"
    return f"install what brings {program}, or put it on the PATH of root, and run again"


def _talk(
    process: subprocess.Popen[bytes], text_in: bytes, limit_s: float, limit_bytes: int
) -> tuple[bytes, bytes, bool]:
    """What a command says on both streams, and whether something else holds them when it has ended.

    Raises TimeoutExpired, and OverflowError when it says too much.
    """
    until = time.monotonic() + limit_s
    ended_at: float | None = None
    held = False
    said: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in said:
            selector.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            now = time.monotonic()
            if process.poll() is not None and ended_at is None:
                ended_at = now
            if ended_at is not None and now > ended_at + LAST_WORDS_S:
                held = True
                break
            if now > until:
                raise subprocess.TimeoutExpired(process.args, limit_s)
            for key, _events in selector.select(max(0.0, min(0.05, until - now))):
                stream = key.fileobj
                if stream is process.stdin and process.stdin is not None:
                    text_in = _write(process, text_in)
                    if not text_in:
                        selector.unregister(process.stdin)
                        _close(process.stdin)
                    continue
                read = os.read(key.fd, 1 << 16)
                said[stream] += read
                if not read:
                    selector.unregister(key.fd)
                elif len(said[stream]) > limit_bytes:
                    raise OverflowError
    process.wait(max(0.0, until - time.monotonic()))
    return bytes(said[process.stdout]), bytes(said[process.stderr]), held


def _write(process: subprocess.Popen[bytes], text_in: bytes) -> bytes:
    """What is left to be written after as much as the command takes now."""
    try:
        return text_in[os.write(process.stdin.fileno(), text_in[: 1 << 16]) :] if process.stdin and text_in else b""
    except BlockingIOError:
        return text_in
    except OSError:
        return b""  # it does not read it


def _close(stream: Any) -> None:
    with contextlib.suppress(OSError):
        stream.close()


def _end_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # What hangs inside the kernel does not die of a signal: it is not waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)


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
    """A function that reads one thing of the machine, and how long it may take. `late` says what it waits for then."""

    read: Callable[[], Any]
    limit_s: float = 1.8
    late: str = ""


# What a reading keeps of its limit for what it does with the readings that it gathers itself.
KEPT_SHARE = 0.12


class _Deadline(threading.local):
    """When the reading of this thread is given up, and what it keeps for itself before that."""

    at: float | None = None
    kept_s: float = 0.0


_deadline = _Deadline()


def _within_reading(limit_s: float) -> float:
    """A limit that ends before the reading that this thread works for is given up."""
    if _deadline.at is None:
        return limit_s
    return max(0.05, min(limit_s, _deadline.at - _deadline.kept_s - time.monotonic()))


def gather(readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Run all readers at once. Each name has its value, or an Unknown with the reason.

    Returns when all are done or the longest limit has passed; what is still at work then is left behind, in a daemon
    thread that ends with the process. Inside a reading it returns early enough for that reading to be of use.
    """
    results: dict[str, Any] = {}
    started = time.monotonic()
    latest = None if _deadline.at is None else _deadline.at - _deadline.kept_s
    ends = {name: started + patient(reader.limit_s) for name, reader in readers.items()}
    if latest is not None:
        ends = {name: max(started + 0.05, min(end, latest)) for name, end in ends.items()}

    def work(name: str, reader: Reader) -> None:
        _deadline.at, _deadline.kept_s = ends[name], KEPT_SHARE * patient(reader.limit_s)
        try:
            results[name] = reader.read()
        except CouldNotTell as error:
            results[name] = Unknown(str(error), error.fix)
        except (Exception, SystemExit) as error:
            # A reader that meets what nobody thought of must not take the other readings with it.
            results[name] = Unknown(f"reading {name} failed: {type(error).__name__}: {str(error)[:300]}")

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
        thread.join(max(0.0, ends[name] - time.monotonic()))
    # A copy: a late thread may still write into `results`.
    done = dict(results)
    for name, reader in readers.items():
        late = f" ({reader.late})" if reader.late else ""
        given = ends[name] - started
        done.setdefault(name, Unknown(f"reading {name} took longer than its limit of {given:.3g} s{late}"))
    return {name: done[name] for name in readers}
