# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a start may take when its kernels must be compiled first, and whether a silent one still compiles. Pure.

The figures were recorded on an H200 with 16 cores and an 8B model without real weights. They are what compiling costs;
reading the weights comes on top.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

WARM_S = 58  # the slowest of 14 warm starts
IMPORTS_S = 62  # what a cold start takes besides compiling
COMPILE_S = 207  # FlashInfer's attention kernels, by 45 to 55 compilers at once
COMPILE_CORES = 16
DEEP_GEMM_S = 1200  # "typically 10-20 mins", says SGLang's own line
MARGIN = 2.0
# Slow disks read this much of the weights in a second.
WEIGHTS_BYTES_PER_S = 200_000_000

WARMING = "warming"
OVERDUE = "overdue"
NOT_COMPILING = "not compiling"


@dataclass(frozen=True)
class Deadline:
    """Seconds that a start should be given, with the sum that they come from."""

    seconds: int
    reason: str


def start_deadline_s(
    cold: bool, cores: int = COMPILE_CORES, deep_gemm: bool = False, weights_bytes: int = 0
) -> Deadline:
    """How long to wait for a start before it counts as failed."""
    weights_s = math.ceil(weights_bytes / WEIGHTS_BYTES_PER_S)
    added = f" + {weights_s} s for {weights_bytes / 1e9:.0f} GB of weights" if weights_s else ""
    if not cold:
        return Deadline(math.ceil(WARM_S * MARGIN) + weights_s, f"{WARM_S} s for a warm start x {MARGIN:g}{added}")
    compile_s = math.ceil(COMPILE_S * max(1.0, COMPILE_CORES / max(1, cores)))
    compiled = IMPORTS_S + compile_s
    reason = f"({IMPORTS_S} s + {compile_s} s of compiling on {cores} cores) x {MARGIN:g}"
    seconds = math.ceil(compiled * MARGIN) + weights_s
    if deep_gemm:
        seconds += DEEP_GEMM_S
        reason += f" + {DEEP_GEMM_S} s of DeepGEMM"
    return Deadline(seconds, reason + added)


@dataclass(frozen=True)
class _Step:
    """A line after which the log is silent while kernels are compiled, and how long that may last, cold and warm."""

    pattern: re.Pattern[str]
    what: str
    cold_s: float
    warm_s: float


_STEPS = (
    _Step(
        re.compile(r"Entering DeepGEMM JIT Pre-Compile session|DeepGEMM JIT Compiling for"),
        "DeepGEMM compiles its kernels",
        DEEP_GEMM_S * 1.5,
        120,
    ),
    _Step(re.compile(r"Loading JIT ops"), "FlashInfer compiles a kernel", COMPILE_S * MARGIN, 120),
    _Step(
        re.compile(r"Capture .* begin\.|Capturing (?:num tokens|batches)"),
        "graphs are captured, and their kernels compiled",
        COMPILE_S * MARGIN,
        120,
    ),
)


@dataclass(frozen=True)
class Silence:
    """What a log that says nothing more means."""

    state: str
    text: str


def judge_silence(last_line: str, seconds: float, cold: bool, cores: int = COMPILE_CORES) -> Silence:
    """Whether a start whose log stopped at this line so long ago still compiles. Silence alone is not a hang."""
    for step in _STEPS:
        if not step.pattern.search(last_line):
            continue
        limit = step.cold_s * max(1.0, COMPILE_CORES / max(1, cores)) if cold else step.warm_s
        state = "cold" if cold else "warm"
        if seconds <= limit:
            return Silence(
                WARMING, f"{step.what}: {seconds:.0f} s of at most {limit:.0f} s with {state} caches; it is not hanging"
            )
        return Silence(
            OVERDUE,
            f"{step.what} for {seconds:.0f} s, longer than the {limit:.0f} s that {state} caches explain: look for a "
            "lock file without a holder, and whether compilers (nvcc, cicc, ptxas) run",
        )
    return Silence(NOT_COMPILING, "the last line is none after which kernels are compiled")
