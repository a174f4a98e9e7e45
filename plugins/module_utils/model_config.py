# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A parsed config.json whose values are checked when they are read: an error names the file, the key and the value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_TEXT_PARTS = ("thinker_config", "llm_config", "language_config", "text_config")


class ModelError(ValueError):
    """A configuration or checkpoint that nothing can be computed from: the file, the key and the value."""

    def __init__(self, file: str, key: str, value: Any, why: str) -> None:
        self.file, self.key, self.value = file, key, value
        super().__init__(f"{file}: {key} is {value!r}: {why}" if key else f"{file}: {why}")


class ConfigReader:
    """A mapping of a configuration whose values are checked when they are read."""

    def __init__(self, values: Mapping[str, Any], file: str, prefix: str = "") -> None:
        self.values, self.file, self.prefix = values, file, prefix

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def fail(self, key: str, value: Any, why: str) -> ModelError:
        return ModelError(self.file, self.prefix + key, value, why)

    def architecture(self) -> str:
        names = self.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise self.fail("architectures", names, "a list with the name of the model's class is needed")
        return names[0]

    def part(self, key: str) -> ConfigReader | None:
        value = self.get(key)
        return ConfigReader(value, self.file, f"{self.prefix}{key}.") if isinstance(value, Mapping) else None

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
