# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment file from which a starting gateway takes its workers.

A gateway forgets its workers when it restarts. The file has them, so that it comes back with exactly those that are
in it: a worker that is leaving is taken out of the file first, then out of the gateway.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence

from . import whole_file
from .gateway import GatewayError, canonical_url, with_worker

VARIABLE = "SGLANG_GATEWAY_WORKERS"
FLAG = "--worker-urls"
_HEAD = "# The workers that a starting gateway takes. Kept by the module serving.sglang.gateway_worker.\n"


def render(urls: Sequence[str]) -> str:
    """The file's text. The flag stands in the variable, so that an empty list leaves no flag without a value."""
    words = [FLAG, *(canonical_url(url) for url in urls)] if urls else []
    return f"{_HEAD}{VARIABLE}={' '.join(words)}\n"


def parse(text: str, path: str = "workers.env") -> list[str]:
    """The URLs in the file, in their order. Refuses what it would lose when it writes the file again."""
    found: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        name, equals, value = stripped.partition("=")
        if name != VARIABLE or not equals:
            raise _unknown(path, number, f"only {VARIABLE}= belongs in it, not {name.split()[0]!r}")
        words = value.strip().strip("\"'").split()
        if words and words[0] != FLAG:
            raise _unknown(path, number, f"the value begins with {words[0]!r}, not with {FLAG}")
        try:
            found.append(list(dict.fromkeys(canonical_url(word) for word in words[1:])))
        except GatewayError as error:
            raise _unknown(path, number, error.msg) from error
    if len(found) > 1:
        raise _unknown(path, len(text.splitlines()), f"{VARIABLE} is set {len(found)} times")
    return found[0] if found else []


def _unknown(path: str, number: int, what: str) -> GatewayError:
    return GatewayError(
        "workers_file",
        f"{path}, line {number}: {what}. The file is written anew at each change, so what does not belong in it would "
        f"be lost. Put it right by hand, or remove the file: it is then made from what is added next.",
    )


def read(path: str) -> list[str]:
    """The URLs in the file at `path`; none when there is no file."""
    try:
        with open(path, encoding="utf-8") as handle:
            return parse(handle.read(), path)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise GatewayError("workers_file", f"{path} cannot be read: {error}. Run the task as root.") from error


def update(path: str, url: str, state: str, write: bool = True) -> tuple[list[str], list[str]]:
    """Add the worker to the file or take it out; the URLs before and after. Writes only what changes, whole or not
    at all, with the owner and the mode that the file has. Two writers at once lose nothing."""
    if not write:
        before = read(path)
        return before, with_worker(before, url, state)
    with locked(os.path.dirname(path)):
        before = read(path)
        after = with_worker(before, url, state)
        if after != before or not os.path.exists(path):
            _replace(path, render(after))
        return before, after


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """One task at a time. The directory is the lock: a lock file would stay behind, and the file itself is replaced."""
    try:
        handle = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise GatewayError(
            "workers_file",
            f"{directory} cannot be opened: {error.strerror}. Run the role sglang_gateway on this host: it makes it. "
            "Or set workers_file to an empty string for a gateway that the role did not install.",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: str, text: str) -> None:
    try:
        found = os.stat(path)
        mode, owner, group = found.st_mode & 0o7777, found.st_uid, found.st_gid
    except FileNotFoundError:
        mode, owner, group = 0o644, os.geteuid(), os.getegid()
    try:
        whole_file.replace(path, text, mode, (owner, group), sync=True)
    except OSError as error:
        raise GatewayError("workers_file", f"{path} cannot be written: {error}. Run the task as root.") from error
