# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a model's config.json and what its safetensors say about their tensors. Nothing is downloaded or loaded."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from .memory_releases import MemoryRelease
from .model import Model, describe
from .model_config import ModelError
from .model_weights import counted_weights, estimated_weights, scaled_weights

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 512 * 1024 * 1024
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


def read_config(file: str) -> dict[str, Any]:
    """A config.json, or an error that names the file."""
    try:
        with open(file, encoding="utf-8") as stream:
            config = json.load(stream)
    except FileNotFoundError:
        raise ModelError(
            file, "", None, "there is no such file; give the folder of a model that lies on this host"
        ) from None
    except OSError as error:
        raise ModelError(file, "", None, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(file, "", None, f"is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(file, "", None, f"holds a {type(config).__name__}, not an object")
    return config


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
    listing = read_config(index)
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
    total = (listing.get("metadata") or {}).get("total_size")
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
        size = os.path.getsize(file)
        with open(file, "rb") as stream:
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
