# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations without their secrets: a stand-in is in the place of each, so that a preflight never needs to know one.

The same secret has the same stand-in wherever it stands: what a check says of a key that also stands on the command
line stays true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET_NAME = re.compile(
    # bucket-time-to-first-token and kt-max-deferred-experts-per-token are none.
    r"(?:^|[_-])(?<!per[_-])(?<!first[_-])"
    r"(?:token|api[_-]key|secret|secret[_-](?:access[_-])?key|passw(?:or)?d|authorization)$",
    re.IGNORECASE,
)
# A shorter secret is part of many words that have nothing to do with it.
_LEAST_PART = 6


def without_secrets(declared: Any) -> Any:
    """The same structure with a stand-in for each secret; what it was given stays as it is."""
    secrets: list[str] = []
    _collect(declared, secrets)
    stand_ins = {secret: f"stand-in-{number + 1}" for number, secret in enumerate(dict.fromkeys(secrets))}
    return _replaced(declared, stand_ins)


def _collect(value: Any, secrets: list[str]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _is_secret(str(key), item):
                secrets.append(str(item))
            else:
                _collect(item, secrets)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, secrets)


def _replaced(value: Any, stand_ins: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _of_key(str(key), item, stand_ins) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(item, stand_ins) for item in value]
    if isinstance(value, str):
        if value in stand_ins:
            return stand_ins[value]
        for secret in sorted(stand_ins, key=len, reverse=True):
            if len(secret) >= _LEAST_PART:
                value = value.replace(secret, stand_ins[secret])
    return value


def _of_key(key: str, item: Any, stand_ins: Mapping[str, str]) -> Any:
    return stand_ins[str(item)] if _is_secret(key, item) else _replaced(item, stand_ins)


def _is_secret(key: str, item: Any) -> bool:
    is_scalar = isinstance(item, (str, int, float)) and not isinstance(item, bool)
    return is_scalar and item != "" and _SECRET_NAME.search(key) is not None
