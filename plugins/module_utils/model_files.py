# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a model's config.json and what its safetensors say about their tensors. Nothing is downloaded or loaded."""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from .memory_releases import MemoryRelease
from .model import Model, describe
from .model_config import ModelError
from .model_weights import counted_weights, estimated_weights, scaled_weights

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
# The longest that are known have a tenth of this. What is longer is something else under this name.
LONGEST_CONFIG = 16 << 20
_LONGEST_INDEX = 64 << 20
# The library safetensors refuses longer ones.
_LONGEST_HEADER = 100_000_000
_BITS = {
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "BF16": 16,
    "F16": 16,
    "I16": 16,
    "U16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
}


def read_model(path: str, release: MemoryRelease) -> tuple[Model, Mapping[str, Any]]:
    """The model in this folder with its weights, and its configuration."""
    file = os.path.join(path, _CONFIG) if not path.endswith(".json") else path
    config = read_config(file)
    model = describe(config, release, file)
    folder = os.path.dirname(file)
    tensors, total, source = _tensors(folder)
    if tensors:
        return model.with_weights(counted_weights(tensors, model, source)), config
    if total is not None:
        return model.with_weights(scaled_weights(total, model, config, source)), config
    weights = estimated_weights(model, config)
    return (model.with_weights(weights) if weights is not None else model), config


def read_config(file: str, longest: int = LONGEST_CONFIG) -> dict[str, Any]:
    """A config.json, or an error that names the file."""
    again = f"copy {os.path.basename(file)} of the model again: see `ls -l {shlex.quote(file)}`"
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > longest:
                why = f"has {size} bytes, more than the {longest} that such a file may have"
                raise ModelError(file, "", None, why, again, broken=True)
            config = json.loads(stream.read(longest + 1).decode("utf-8"))
    except FileNotFoundError:
        why = "there is no such file; give the folder of a model that lies on this host"
        fix = "put the model on the host and name its folder, or compute it elsewhere with playbooks/size.yml"
        raise ModelError(file, "", None, why, fix) from None
    except OSError as error:
        why, fix = f"cannot be read: {error.strerror}", f"see why: `head -c 80 {shlex.quote(file)}`"
        raise ModelError(file, "", None, why, fix) from None
    except RecursionError:
        raise ModelError(file, "", None, "is nested too deeply to be read", again, broken=True) from None
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(file, "", None, f"is not JSON: {error}", again, broken=True) from None
    if not isinstance(config, dict):
        raise ModelError(file, "", None, f"holds a {type(config).__name__}, not an object", again, broken=True)
    return config


_KINDS_OF_FILE = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(file: str) -> BinaryIO:
    """A file to be read. Whatever else stands there under its name may answer never, and is refused."""
    # Not blocking: opening a FIFO would wait for who writes to it.
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _no_file(file, "a socket or a device") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _no_file(file, next((name for is_kind, name in _KINDS_OF_FILE if is_kind(mode)), "no regular file"))
    return open(descriptor, "rb")


def _no_file(file: str, what: str) -> ModelError:
    fix = f"put the file of the model in its place: see `ls -ld {shlex.quote(file)}`"
    return ModelError(file, "", None, f"is {what}, not a file", fix, broken=True)


def _tensors(folder: str) -> tuple[dict[str, int], int | None, str]:
    """The bytes of each tensor, or the total alone, and where they were read."""
    index = os.path.join(folder, _INDEX)
    if os.path.exists(index):
        return _indexed(folder, index)
    files = sorted(name for name in _listed(folder) if name.endswith(".safetensors"))
    # Mistral ships the whole model a second time under this name.
    own = [name for name in files if not name.startswith("consolidated")]
    tensors: dict[str, int] = {}
    for name in own or files:
        tensors.update(header_bytes(os.path.join(folder, name)))
    return tensors, None, "safetensors headers"


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _indexed(folder: str, index: str) -> tuple[dict[str, int], int | None, str]:
    listing = read_config(index, _LONGEST_INDEX)
    places = listing.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError(index, "weight_map", type(places).__name__, "an object of tensor names and files is needed")
    names = sorted(set(places.values()))
    here = [name for name in names if os.path.exists(os.path.join(folder, name))]
    if names and len(here) == len(names):
        tensors: dict[str, int] = {}
        for name in names:
            tensors.update(header_bytes(os.path.join(folder, name)))
        return {key: size for key, size in tensors.items() if key in places}, None, "safetensors headers"
    metadata = listing.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is None:
        if here:
            missing = next(name for name in names if name not in here)
            raise ModelError(
                index, "weight_map", missing, f"{len(names) - len(here)} of {len(names)} files are missing"
            )
        return {}, None, ""
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not total > 0 or total == float("inf"):
        raise ModelError(index, "metadata.total_size", total, "not a positive number")
    return {}, int(total), f"the index's total size ({len(here)} of {len(names)} files are here)"


def header_bytes(file: str) -> dict[str, int]:
    """The bytes of each tensor in a safetensors file, from its header alone."""
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(8)
            if len(start) < 8:
                raise ModelError(file, "header length", len(start), "the file ends before its header; it is truncated")
            (length,) = struct.unpack("<Q", start)
            if length > min(size - 8, _LONGEST_HEADER):
                raise ModelError(
                    file, "header length", length, f"the file has {size} bytes; it is truncated or no safetensors file"
                )
            header = json.loads(stream.read(length))
    except OSError as error:
        raise ModelError(file, "", None, f"cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ModelError(file, "header", "", "is nested too deeply to be read") from None
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(file, "header", "", f"is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ModelError(file, "header", type(header).__name__, "not an object")
    return {name: _tensor_bytes(file, name, entry) for name, entry in header.items() if name != "__metadata__"}


def _tensor_bytes(file: str, name: str, entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(isinstance(at, int) for at in offsets):
        raise ModelError(file, name, offsets, "two offsets are needed")
    size = int(offsets[1]) - int(offsets[0])
    shape, bits = entry.get("shape"), _BITS.get(str(entry.get("dtype")))
    if size < 0 or not isinstance(shape, list) or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ModelError(file, name, [offsets, shape], "a negative size or no shape")
    if bits is not None:
        elements = 1
        for side in shape:
            elements *= side
        if elements * bits != size * 8:
            raise ModelError(
                file, name, size, f"{entry.get('dtype')} of shape {shape} has {elements * bits // 8} bytes"
            )
    return size
