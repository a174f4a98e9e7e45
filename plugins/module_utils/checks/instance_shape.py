# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declared instances in the shape that the areas rely on, whatever was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAPPINGS = ("arguments", "declared_arguments", "environment", "declared_environment", "memory", "desired")
LISTS = ("cards", "writable_paths", "mounts", "volumes", "secrets")
WORDS = ("entrypoint", "command")
# Where an instance notes which of its keys were left out, and why.
WRONG_KEYS = "wrong_keys"
# The `device` of an instance whose arguments cannot be read; nothing that only a server on cards needs is asked then.
DEVICE_UNKNOWN = "unknown"
NOT_CUDA = ("cpu", DEVICE_UNKNOWN)


def instances_of(given: Any) -> list[dict[str, Any]]:
    """The instances that are mappings, without the keys whose values have no shape that anything can be read from."""
    if not isinstance(given, (list, tuple)):
        return []
    return [_shaped(each) for each in given if isinstance(each, Mapping)]


def _shaped(given: Mapping[str, Any]) -> dict[str, Any]:
    shaped: dict[str, Any] = {}
    wrong: list[str] = []
    for key, value in ((str(key), value) for key, value in given.items() if key != WRONG_KEYS):
        wanted = _wanted(key, value)
        if wanted:
            wrong.append(f"{key} is {type(value).__name__}, expected {wanted}")
        elif key in MAPPINGS and isinstance(value, Mapping):
            shaped[key] = {str(name): each for name, each in value.items()}
        else:
            shaped[key] = value
    return {**shaped, WRONG_KEYS: wrong} if wrong else shaped


def _wanted(key: str, value: Any) -> str:
    """What a key takes, where the value is nothing of the kind; empty where it fits."""
    if value is None:
        return ""
    if key in MAPPINGS:
        return "" if isinstance(value, Mapping) else "a mapping"
    if key in LISTS:
        return "" if isinstance(value, (list, tuple)) else "a list"
    if key in WORDS:
        return "" if isinstance(value, (str, list, tuple)) else "text or a list"
    return "one value" if isinstance(value, (Mapping, list, tuple, set)) else ""
