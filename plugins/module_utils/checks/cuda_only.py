# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that mean nothing for a server on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from ..finding import Finding
from .check import Check, Kind, check
from .toolchain_readings import Toolchain

ON_CPU = "not asked: the server runs on the CPU"
UNREADABLE = "not asked: the arguments of the server cannot be read, so nobody knows what it runs on"
Look = Callable[[Toolchain], Iterable[Finding]]


def cuda_check(*found: Kind) -> Callable[[Look], Check[Toolchain]]:
    """A check that means nothing for a server on the CPU, and says so there."""

    def made(look: Look) -> Check[Toolchain]:
        @functools.wraps(look)
        def looked(readings: Toolchain) -> Iterable[Finding]:
            if readings.uses_cuda:
                return look(readings)
            return [kind.fine(ON_CPU if readings.device == "cpu" else UNREADABLE) for kind in found]

        return check(*found)(looked)

    return made
