# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which models an instance loads, and whether their files are on the host: a folder, or a revision in the hub's cache.

The cache is laid out as huggingface_hub does it. Nothing is downloaded here, and nothing is asked of the hub.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import hub_download
from .model_config import ModelError
from .model_files import read_config

COMMIT = re.compile(r"[0-9a-f]{40}")
# Other forms of the weights, which SGLang does not load.
IGNORED = ("*.pth", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite", "*.gguf")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_READ = (*_WEIGHTS, ".json", ".model", ".jinja", ".py", ".tiktoken")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
# What a server may load besides its model, with the argument that has its revision.
_OTHERS = (
    ("speculative-draft-model-path", "speculative-draft-model-revision", "draft model"),
    ("tokenizer-path", "revision", "tokenizer"),
)


@dataclass(frozen=True)
class Wanted:
    """Something that a server loads when it starts. `what` it is, for people."""

    what: str
    path: str
    revision: str = ""
    ignored: tuple[str, ...] = IGNORED

    @property
    def local(self) -> bool:
        return self.path.startswith("/")

    @property
    def moving(self) -> bool:
        """Whether a later start may load something else under the same name."""
        return not self.local and self.revision in ("", "main")

    def __str__(self) -> str:
        return f"{self.path}@{self.revision}" if self.revision and not self.local else self.path


def wanted_by(desired: Mapping[str, Any]) -> list[Wanted]:
    """What an instance loads, from its desired state."""
    model = desired.get("model") or {}
    args = {str(name).replace("_", "-"): value for name, value in (desired.get("args") or {}).items()}
    gguf = str(args.get("load-format") or args.get("quantization") or "") == "gguf"
    ignored = tuple(pattern for pattern in IGNORED if not (gguf and pattern == "*.gguf"))
    revision = str(model.get("revision") or args.get("revision") or "")
    found = [Wanted("model", str(model.get("path") or args.get("model-path") or ""), revision, ignored)]
    for path, its_revision, what in _OTHERS:
        if args.get(path) and args[path] != found[0].path:
            found.append(Wanted(what, str(args[path]), str(args.get(its_revision) or ""), ignored))
    return found


def depends_on_hub(desired: Mapping[str, Any]) -> list[str]:
    """Why a start asks the hub although the files of every named revision are there; empty where it does not."""
    reasons = [f"{each.what} {each.path} has no revision" for each in wanted_by(desired) if each.moving]
    args = {str(name).replace("_", "-"): value for name, value in (desired.get("args") or {}).items()}
    if args.get("download-dir") and any(not each.local for each in wanted_by(desired)):
        reasons.append(f"argument 'download-dir' ({args['download-dir']}) puts weights beside the cache")
    adapters = args.get("lora-paths")
    for adapter in adapters if isinstance(adapters, (list, tuple)) else [adapters] if adapters else []:
        text = str(adapter.get("lora_path") if isinstance(adapter, Mapping) else adapter).partition("=")
        path = text[2] or text[0]
        if not path.startswith("/"):
            reasons.append(f"adapter {path} is taken from the hub")
    return reasons


def cache_of(environment: Mapping[str, str]) -> str:
    """Where huggingface_hub of a server with this environment keeps models."""
    home = environment.get("HF_HOME") or os.path.join(environment.get("HOME") or "/", ".cache/huggingface")
    return environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")


def folder_of(cache: str, repository: str) -> str:
    return os.path.join(cache, "models--" + repository.replace("/", "--"))


@dataclass(frozen=True)
class Found:
    """What of a revision is there. `why`: it is not whole, and in which way. `sure`: by a list of its files."""

    commit: str = ""
    why: str = ""
    bytes: int = 0
    sure: bool = False

    @property
    def whole(self) -> bool:
        return not self.why


def look_in_cache(cache: str, wanted: Wanted) -> Found:
    """Whether the files of exactly this revision are there."""
    folder = folder_of(cache, wanted.path)
    commit = _commit(folder, wanted.revision)
    if not commit:
        return Found(why=f"{folder} does not know the revision {wanted.revision}")
    snapshot = os.path.join(folder, "snapshots", commit)
    if not os.path.isdir(snapshot):
        return Found(commit, f"{snapshot} is not there")
    files = _listed(folder, commit, wanted.ignored)
    if files is not None:
        return _by_list(snapshot, commit, files)
    why = _why_not_whole(folder, snapshot)
    return Found(commit, why, 0 if why else _size(snapshot))


def _commit(folder: str, revision: str) -> str:
    if COMMIT.fullmatch(revision):
        return revision
    try:
        with open(os.path.join(folder, "refs", revision), encoding="ascii") as handle:
            text = handle.read(100).strip()
    except (OSError, ValueError):
        return ""
    return text if COMMIT.fullmatch(text) else ""


def _listed(folder: str, commit: str, ignored: tuple[str, ...]) -> dict[str, int | None] | None:
    """The files of the revision and their sizes: as noted when they were fetched, or as huggingface_hub wrote down."""
    noted = _json(os.path.join(folder, hub_download.NOTES, f"{commit}.json")).get("files")
    if isinstance(noted, dict):
        return {str(name): size if isinstance(size, int) else None for name, size in noted.items()}
    tree = _json(os.path.join(folder, "trees", f"{commit}.json")).get("files")
    if not isinstance(tree, dict) or not all(isinstance(each, dict) for each in tree.values()):
        return None
    # A server that fetched the revision itself took what it reads, and nothing else.
    names = [name for name in hub_download.kept(list(tree), ignored) if name.endswith(_READ)]
    sizes = {name: tree[name].get("size") for name in names}
    return {name: size if isinstance(size, int) else None for name, size in sizes.items()} or None


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _by_list(snapshot: str, commit: str, files: Mapping[str, int | None]) -> Found:
    total, missing = 0, []
    for name, size in files.items():
        try:
            there = os.stat(os.path.join(snapshot, name)).st_size
        except OSError:
            missing.append(name)
            continue
        total += there
        if size is not None and there != size:
            missing.append(f"{name} ({there} of {size} bytes)")
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        return Found(commit, f"{len(missing)} of {len(files)} files are missing or not whole ({shown})", sure=True)
    return Found(commit, "", total, sure=True)


def _why_not_whole(folder: str, snapshot: str) -> str:
    """For files that were put there by hand or by an older huggingface_hub: what a server could not start with."""
    names = sorted(_names(snapshot))
    lost = [name for name in names if not os.path.exists(os.path.join(snapshot, name))]
    if lost:
        return f"{lost[0]} is a link to a file that is not there"
    cut = [name for name in _names(os.path.join(folder, "blobs")) if name.endswith(".incomplete")]
    if cut:
        return f"a download was cut off ({len(cut)} files .incomplete in {folder}/blobs)"
    for index in _INDEXES:
        if index in names:
            try:
                places = read_config(os.path.join(snapshot, index), 64 << 20).get("weight_map")
            except ModelError as error:
                return str(error)
            files = set(places.values()) if isinstance(places, dict) else set()
            absent = sorted(str(name) for name in files if name not in names)
            if absent:
                return f"{len(absent)} of {len(files)} files of weights are missing ({absent[0]})"
            return ""
    if not any(name.endswith((*_WEIGHTS, ".json", ".model")) for name in names):
        return f"{snapshot} has neither weights nor a configuration"
    return ""


def _names(folder: str) -> list[str]:
    """The files below a folder, by their path in it."""
    return [
        os.path.relpath(os.path.join(where, name), folder)
        for where, _folders, files in os.walk(folder)
        for name in files
    ]


def _size(snapshot: str) -> int:
    total = 0
    for name in _names(snapshot):
        try:
            total += os.stat(os.path.join(snapshot, name)).st_size
        except OSError:
            continue
    return total
