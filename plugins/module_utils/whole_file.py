# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are replaced whole, so that a reader never meets half of one and a crash leaves the old or the new."""

from __future__ import annotations

import contextlib
import os
import tempfile


def replace(path: str, text: str, mode: int, owner: tuple[int, int] | None = None, sync: bool = False) -> None:
    """Replace the file at `path`, and make its directory where that is missing.

    `owner` is a user's and a group's number; without it the file belongs to who writes. `sync`: it is on the disk
    when this returns, for what must outlast a power cut.
    """
    directory = os.path.dirname(path) or "."
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            os.fchmod(handle.fileno(), mode)
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(handle.fileno(), *owner)
            handle.write(text)
            if sync:
                handle.flush()
                os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if sync:
        _sync_directory(directory)


def _sync_directory(directory: str) -> None:
    """The new name is an entry of the directory, which reaches the disk on its own."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
