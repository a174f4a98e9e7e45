# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Environment variables that hold directories: which of them hold one, which a list, and what their entries are."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

LISTS = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "PYTHONPATH",
)
# Where a directory must be there already: nobody makes these.
GIVEN_DIRECTORIES = ("CUDA_HOME", "CUDA_PATH", "TMPDIR", "TRITON_LIBCUDA_PATH")
_DIRECTORIES = (
    *GIVEN_DIRECTORIES,
    "FLASHINFER_CUBIN_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HOME",
    "HUGGINGFACE_HUB_CACHE",
    "PROMETHEUS_MULTIPROC_DIR",
    "TRANSFORMERS_CACHE",
    "TRITON_HOME",
    "XDG_CACHE_HOME",
)
_DIRECTORY_ENDS = ("_CACHE_DIR", "_CACHE_PATH")
# No directories, but they choose what compiles.
_PROGRAMS = ("CC", "CXX")

DIRECTORY, FILE, MISSING, UNREADABLE = "directory", "file", "missing", "unreadable"


@dataclass(frozen=True)
class PathEntry:
    """One entry as it stands there, and what it is on this host."""

    text: str
    state: str


@dataclass(frozen=True)
class PathVariable:
    """A variable and its entries. For one that holds a single directory, `whole` is what its full text is."""

    name: str
    value: str
    is_list: bool
    whole: str
    entries: tuple[PathEntry, ...]


def holds_directory(name: str) -> bool:
    return name in _DIRECTORIES or name.endswith(_DIRECTORY_ENDS)


def watched(name: str) -> bool:
    """Whether a variable matters to what an instance compiles and loads. The others may be secrets."""
    return name in LISTS or name in _PROGRAMS or holds_directory(name)


def read_path_variables(environment: Mapping[str, str]) -> tuple[PathVariable, ...]:
    """The variables of the environment that hold directories, in the order of their names."""
    return tuple(
        PathVariable(
            name=name,
            value=environment[name],
            is_list=name in LISTS,
            whole=state_of(environment[name]),
            entries=tuple(PathEntry(text, state_of(text)) for text in environment[name].split(":")),
        )
        for name in sorted(environment)
        if name in LISTS or holds_directory(name)
    )


def state_of(path: str) -> str:
    """What is at a path. What is no absolute path is not looked for: a service has another directory than we have."""
    if not path.startswith("/"):
        return MISSING
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except (OSError, ValueError):
        return UNREADABLE
    return DIRECTORY if stat.S_ISDIR(mode) else FILE
