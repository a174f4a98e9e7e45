# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the wheels that a CUDA_HOME is made of are whole: their files against the RECORD that pip wrote.

Presence and size are compared for each file, which takes milliseconds. The content is compared for the few files that
every compilation needs, and for what was written after the installation ended: RECORD itself is written last.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .checks.cuda_wheels import DISTRIBUTIONS, NVRTC, CudaPart, header_release
from .checks.reading import CouldNotTell, read_text
from .cuda_home import FILE, Tree

# Below the root of a wheel, by the part that brings them.
KEY_FILES: Mapping[str, tuple[str, ...]] = {
    "nvcc": ("bin/nvcc",),
    "nvvm": ("nvvm/bin/cicc",),
    "crt": ("include/crt/host_config.h",),
    "runtime": ("include/cuda_runtime.h", "include/cuda_runtime_api.h"),
}
_ALL_KEY_FILES = frozenset(name for names in KEY_FILES.values() for name in names)
_CUDART = re.compile(r"lib(64)?/libcudart\.so")
# What a tree has of a wheel: neither the files of CMake in lib nor what Python compiles.
_USED = re.compile(r"(?:(?:bin|include|nvvm)/.*|lib(?:64)?/(?:stubs/)?lib[^/]*\.(?:a|so[0-9.]*))(?<!\.pyc)$")
# The one of CCCL has some thousand lines.
_RECORD_LIMIT_BYTES = 1 << 25
_COMPILER = frozenset(distribution for name, distribution in DISTRIBUTIONS.items() if name != NVRTC)


@dataclass(frozen=True)
class Recorded:
    """What one distribution says of a file. `size` is None and `digest` empty where it does not say."""

    distribution: str
    version: str
    size: int | None
    digest: str
    # When the installation of the distribution ended.
    written_ns: int


@dataclass(frozen=True)
class Damage:
    """A file of a wheel that is not as it was installed."""

    path: str
    relative: str
    problem: str
    recorded: tuple[Recorded, ...]

    @property
    def site(self) -> str:
        """The directory that the wheel was installed into."""
        return _site(self.path[: -len(self.relative) - 1])

    @property
    def requirement(self) -> str:
        last = self.recorded[-1]
        return f"{last.distribution}=={last.version}" if last.version else last.distribution

    def is_in(self, path: str) -> bool:
        """Whether another file, the one in a tree, is damaged too."""
        return not any(not _problem(path, each, thorough=True) for each in self.recorded)


def damages(tree: Tree, roots: Sequence[str]) -> list[Damage]:
    """The damaged files among those that the tree is made of, or would be if they were there.

    `roots` are those that the tree was planned from. Raises CouldNotTell when a file cannot be read.
    """
    own = {(_site(part.root), part.distribution, part.version) for part in tree.parts}
    taken = {entry.source for entry in tree.entries.values() if entry.kind == FILE}
    recorded: dict[str, list[Recorded]] = {}
    needed: dict[str, str] = {}
    for root in roots:
        for relative, each in _recorded(root):
            path = os.path.join(root, relative)
            recorded.setdefault(path, []).append(each)
            header = relative.startswith("include/") and not _is_of_the_compiler(each.distribution)
            if path in taken or header or (_site(root), each.distribution, each.version) in own:
                needed[path] = relative
    found = [_damage(path, relative, recorded[path]) for path, relative in sorted(needed.items())]
    for part, name in _key_files(tree.parts):
        said = recorded.get(os.path.join(part.root, name), ())
        if not any(each.digest or each.size is not None for each in said):
            found.append(_unrecorded(part, name))
    return [each for each in found if each is not None]


def _damage(path: str, relative: str, recorded: Sequence[Recorded]) -> Damage | None:
    """None when it is as one of them says: two wheels may bring the same file, and the later one has won."""
    thorough = relative in _ALL_KEY_FILES or _CUDART.match(relative) is not None
    problems = [_problem(path, each, thorough) for each in recorded]
    return Damage(path, relative, problems[-1], tuple(recorded)) if all(problems) else None


def _is_of_the_compiler(distribution: str) -> bool:
    """NVRTC stands for itself: it may be the one of torch."""
    return re.sub(r"-cu\d+$", "", distribution) in _COMPILER


def _unrecorded(part: CudaPart, name: str) -> Damage | None:
    """A file that every wheel of this part has, where nothing says how large it is."""
    path = os.path.join(part.root, name)
    recorded = Recorded(part.distribution, part.version, None, "", 0)
    problem = _problem(path, recorded, thorough=False)
    if not problem and not os.path.getsize(path):
        problem = "is empty"
    if not problem and name == "include/cuda_runtime_api.h":
        try:
            header_release(os.path.dirname(path))
        except CouldNotTell:
            problem = "names no version of CUDA"
    return Damage(path, name, problem, (recorded,)) if problem else None


def _key_files(parts: Iterable[CudaPart]) -> Iterable[tuple[CudaPart, str]]:
    for part in parts:
        names = KEY_FILES.get(part.name, ()) or (os.path.relpath(part.path, part.root),)
        yield from ((part, name) for name in names)


def _problem(path: str, recorded: Recorded, thorough: bool) -> str:
    """How a file differs from what was recorded; empty when it does not."""
    try:
        status = os.stat(path)
        if recorded.size is not None and status.st_size != recorded.size:
            return f"has {status.st_size} bytes instead of {recorded.size}"
        if recorded.digest and (thorough or status.st_mtime_ns > recorded.written_ns):
            return "" if _digest(path) == recorded.digest else "has another content than was installed"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        raise CouldNotTell(f"{path}: {error.strerror or error}") from None
    return ""


def _digest(path: str) -> str:
    """As RECORD has it: base64 without padding."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _recorded(root: str) -> Iterable[tuple[str, Recorded]]:
    """Every file below this root that a distribution has recorded and that a tree would have."""
    site = _site(root)
    prefix = f"{os.path.relpath(root, site)}/"
    for entry in sorted(os.listdir(site)):
        if not entry.startswith("nvidia") or not entry.endswith(".dist-info"):
            continue
        record = os.path.join(site, entry, "RECORD")
        if not os.path.exists(record):
            continue
        text = read_text(record, _RECORD_LIMIT_BYTES)
        name, _dash, version = entry[: -len(".dist-info")].partition("-")
        written = os.stat(record).st_mtime_ns
        for row in csv.reader(text.splitlines()):
            if len(row) == 3 and row[0].startswith(prefix) and _USED.match(row[0][len(prefix) :]):
                kind, _equals, digest = row[1].partition("=")
                size = int(row[2]) if row[2].isdigit() else None
                digest = digest if kind == "sha256" else ""
                yield row[0][len(prefix) :], Recorded(name.replace("_", "-"), version, size, digest, written)


def _site(root: str) -> str:
    return os.path.dirname(os.path.dirname(root))
