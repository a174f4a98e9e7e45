# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A parsed config.json whose values are checked when they are read: an error names the file, the key and the value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .model_defaults import DEFAULTS

_TEXT_PARTS = ("thinker_config", "llm_config", "language_config", "text_config")


class ModelError(ValueError):
    """A configuration or checkpoint that nothing can be computed from: the file, the key and the value.

    `fix` says what to do, where the file as a whole cannot be used. `broken`: as it is, nothing can ever load it.
    """

    def __init__(self, file: str, key: str, value: Any, why: str, fix: str = "", broken: bool = False) -> None:
        self.file, self.key, self.value = file, key, value
        self.fix, self.broken = fix, broken
        super().__init__(f"{file}: {key} is {value!r}: {why}" if key else f"{file}: {why}")


# A checkpoint without these is broken, whatever the classes would fill in.
_NEVER_DEFAULTED = ("hidden_size", "num_hidden_layers")
_HEADS_LEFT_OUT = ("gemma3", "gemma3_text")


class ConfigReader:
    """A mapping of a configuration whose values are checked when they are read.

    What it leaves out is what the class of the model fills in; `defaulted` collects the keys for which that happened.
    """

    def __init__(
        self, values: Mapping[str, Any], file: str, place: str = "", outer: ConfigReader | None = None
    ) -> None:
        self.values, self.file = values, file
        self.prefix: str = ""
        self.model_type = str(values.get("model_type", ""))
        self.defaulted: set[str] = set()
        self.defaults: Mapping[str, Any] = DEFAULTS.get(self.model_type, {}).get("", {})
        if outer is not None:
            self.prefix = f"{outer.prefix}{place}."
            self.model_type = outer.model_type
            self.defaulted = outer.defaulted
            self.defaults = DEFAULTS.get(outer.model_type, {}).get(place) or self.defaults

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        if value is not None or key in self.values:
            return value
        left_out = key == "num_attention_heads" and self.model_type not in _HEADS_LEFT_OUT
        if key in self.defaults and key not in _NEVER_DEFAULTED and not left_out:
            self.defaulted.add(self.prefix + key)
            return self.defaults[key]
        return default

    def fail(self, key: str, value: Any, why: str) -> ModelError:
        return ModelError(self.file, self.prefix + key, value, why)

    def architecture(self) -> str:
        names = self.values.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise self.fail("architectures", names, "a list with the name of the model's class is needed")
        return names[0]

    def part(self, key: str) -> ConfigReader | None:
        value = self.values.get(key)
        return ConfigReader(value, self.file, key, self) if isinstance(value, Mapping) else None

    def text(self) -> ConfigReader:
        """The part that describes the language model, in SGLang's order of preference."""
        for key in _TEXT_PARTS:
            part = self.part(key)
            if part is not None:
                return (part.part("text_config") or part) if key == "thinker_config" else part
        return self

    def count(self, key: str, required: bool = False, least: int = 1) -> int | None:
        value = self.get(key)
        if value is None:
            if required:
                raise self.fail(key, None, "it is missing, and the memory cannot be computed without it")
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.fail(key, value, "not a finite number")
        if value != int(value) or value < least:
            raise self.fail(key, value, f"not a whole number of at least {least}")
        return int(value)

    def need(self, key: str, least: int = 1) -> int:
        value = self.count(key, required=True, least=least)
        return value if value is not None else 0
