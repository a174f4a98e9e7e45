# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the silence of a start means: whether kernels are compiled, and how long that takes where caches are as here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from . import compile_time

# Shorter ones are ordinary: torch is imported, weights are read.
WORTH_A_WORD_S = 60.0
# Where kernels are kept once they are compiled, and what their files are called. The program of a host job has none of
# the checks of a preflight, which know more of caches.
_KERNELS = (
    "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_DG_CACHE_DIR",
    "SGLANG_JIT_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
)
_COMPILED = (".so", ".cubin")
_FOLDERS = 2000


def caches_are_cold(environment: Mapping[str, str]) -> bool:
    """Whether no kernel is compiled yet. What cannot be read counts as cold, which gives a start more time."""
    for folder in sorted({environment[name] for name in _KERNELS if environment.get(name)}):
        for count, (_path, _folders, files) in enumerate(os.walk(folder)):
            if any(name.endswith(_COMPILED) for name in files):
                return False
            if count >= _FOLDERS:
                break
    return True


class Silence:
    """Since when the log of a start has said nothing, and after which line."""

    def __init__(self, cold: bool, now: Callable[[], float] = time.monotonic) -> None:
        self.cold = cold
        self._now = now
        self._since = now()
        self._lines = 0
        self._last = ""

    def heard(self, lines: int, last: str) -> None:
        """The log has so many lines now, and this is its last one."""
        if lines != self._lines:
            self._lines, self._last, self._since = lines, last, self._now()

    def text(self) -> str:
        """What is to be said of it; empty where there is nothing to say."""
        seconds = self._now() - self._since
        if seconds < WORTH_A_WORD_S:
            return ""
        judged = compile_time.judge_silence(self._last, seconds, self.cold, os.cpu_count() or 1)
        if judged.state == compile_time.NOT_COMPILING:
            return f"the log has been silent for {seconds:.0f} s, and {judged.text}"
        return judged.text
