# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs what lasts (the pull of an image, the download of a model), and gives signs of life meanwhile.

A command that takes too long is asked to end before it is ended, so that it can put its storage in order.
"""

# This is no module and has no AnsibleModule to run commands with.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from .checks.reading import CouldNotTell, Output
from .errors import EngineError

SIGN_OF_LIFE_S = 20.0
# What is kept of what a command says: the end of it explains how it ended.
KEPT_BYTES = 1 << 20
# How long a command that is asked to end may take for it.
END_S = 15.0


class TookTooLong(Exception):
    """The command was ended because its time was up. The text is what it had said last."""


def time_limit(value: Any) -> float:
    """The option `timeout_s` of a module, in seconds. Raises EngineError for what is no time."""
    seconds = float(value)
    if not 0 < seconds < math.inf:
        raise EngineError("bad_timeout", f"timeout_s is {seconds:g}, and nothing was done. Give seconds, as 60")
    return seconds


@dataclass(frozen=True)
class Who:
    """The user that a command runs as, and what else it needs of the host. Without a uid: as whoever runs this."""

    uid: int | None = None
    gid: int | None = None
    groups: Sequence[int] = field(default=())
    # In full, where it is not that of this process.
    environment: Mapping[str, str] | None = None
    # Descriptors that it inherits. With a lock among them, the lock is held for as long as the command lives.
    keeps: Sequence[int] = field(default=())


def run_long(argv: Sequence[str], limit_s: float, who: Who | None = None, end_s: float = END_S) -> Output:
    """Run a command that may last. Raises TookTooLong, and CouldNotTell when it cannot be run.

    Its session gets SIGTERM when `limit_s` have passed, and SIGKILL when it has not ended `end_s` after that. The same
    happens when whoever waits is interrupted.
    """
    who = who or Who()
    environment = {**(os.environ if who.environment is None else who.environment), "LC_ALL": "C.UTF-8"}
    as_user: dict[str, Any] = (
        {} if who.uid is None else {"user": who.uid, "group": who.gid, "extra_groups": list(who.groups)}
    )
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(who.keeps),
            **as_user,
        )
    except FileNotFoundError:
        raise CouldNotTell(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise CouldNotTell(f"{argv[0]} could not be run: {error.strerror or error}") from None
    said = {name: bytearray() for name in ("stdout", "stderr")}
    readers = [
        threading.Thread(target=_keep_the_end, args=(getattr(process, name), kept), daemon=True)
        for name, kept in said.items()
    ]
    for reader in readers:
        reader.start()
    late = False
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        if process.poll() is None:
            _end(process, end_s)
        # What the command left behind may hold its streams; nothing more is waited for.
        for reader in readers:
            reader.join(1.0)
    output = Output(process.returncode, *(bytes(kept).decode("utf-8", "replace") for kept in said.values()))
    if late:
        raise TookTooLong(output.said)
    return output


def _keep_the_end(stream: IO[bytes], kept: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while True:
            read = os.read(stream.fileno(), 1 << 16)
            if not read:
                return
            kept += read
            del kept[:-KEPT_BYTES]


def _end(process: subprocess.Popen[bytes], end_s: float) -> None:
    for number, wait_s in ((signal.SIGTERM, end_s), (signal.SIGKILL, 2.0)):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        # What hangs inside the kernel does not die of a signal: it is not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return


@contextlib.contextmanager
def signs_of_life(files: Sequence[str], every_s: float = SIGN_OF_LIFE_S) -> Iterator[None]:
    """Renew the time of these files at once and every few seconds for as long as the block lasts.

    A file that is not there is not made: somebody took it away on purpose.
    """
    ended = threading.Event()

    def work() -> None:
        while True:
            for file in files:
                with contextlib.suppress(OSError):
                    os.utime(file)
            if ended.wait(every_s):
                return

    thread = threading.Thread(target=work, daemon=True)
    if files:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if files:
            thread.join(1.0)
