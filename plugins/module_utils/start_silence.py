# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the silence of a start means: whether kernels are compiled, and how long that takes where caches are as here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .checks import cache_checks, cache_readings, compile_time
from .checks.reading import CouldNotTell
from .desired_state import Desired

# Shorter ones are ordinary: torch is imported, weights are read.
WORTH_A_WORD_S = 20.0


def caches_are_cold(desired: Desired) -> bool:
    """Whether no kernel is compiled yet. What cannot be told counts as cold, which gives a start more time."""
    instance = {
        "name": desired.instance,
        "runtime": desired.raw.get("runtime"),
        "version": desired.version,
        "environment": desired.environment,
        "arguments": desired.args,
        "user": desired.raw.get("user"),
        "mounts": (desired.container or {}).get("mounts"),
        "desired": desired.raw,
    }
    try:
        caches = cache_readings.read_caches([instance])
        return cache_checks.is_cold(caches, caches.servers[0])
    except (CouldNotTell, OSError):
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
