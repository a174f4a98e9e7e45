# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import spec, start_silence
from ansible_collections.serving.sglang.plugins.module_utils.releases import release_for
from ansible_collections.serving.sglang.plugins.module_utils.server_log import StartLog
from ansible_collections.serving.sglang.plugins.module_utils.start_silence import Silence, caches_are_cold

CAPTURE = "[2026-11-29 21:37:50] Capturing num tokens (num_tokens=8192 avail_mem=12.67 GB):   0%|          | 0/58"
WEIGHTS = "[2026-11-29 21:37:50] Load weight begin. avail mem=139.13 GB"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def silent_for(seconds: float, line: str, cold: bool) -> str:
    clock, log = Clock(), StartLog()
    silence = Silence(cold, clock)
    clock.now += 500
    log.feed([line], release_for("0.5.22"))
    silence.heard(log.lines, log.last)
    clock.now += seconds
    # Probes of the port are no word of the server's.
    log.feed(['INFO:     127.0.0.1:1 - "GET /ready HTTP/1.1" 503 Service Unavailable'], release_for("0.5.22"))
    silence.heard(log.lines, log.last)
    return silence.text()


def test_a_short_silence_is_ordinary() -> None:
    assert silent_for(10, CAPTURE, True) == ""


def test_a_silent_compile_is_said_to_be_one_with_how_long_it_takes() -> None:
    text = silent_for(72, CAPTURE, True)
    assert text.startswith("graphs are captured, and their kernels compiled: 72 s of at most ")
    assert text.endswith("with cold caches; it is not hanging")


def test_the_same_silence_with_warm_caches_is_overdue() -> None:
    assert "longer than the 120 s that warm caches explain" in silent_for(130, CAPTURE, False)


def test_a_silence_that_no_compile_explains() -> None:
    said = silent_for(60, WEIGHTS, True)
    assert said == "the log has been silent for 60 s, and the last line is none after which kernels are compiled"


@pytest.mark.parametrize("compiled", [False, True])
def test_caches_are_read_before_a_start(tmp_path: Path, compiled: bool) -> None:
    environment = {name: str(tmp_path / folder) for name, folder in spec.CACHES.items()}
    kernel = tmp_path / "triton" / "AB12" / ("kernel.cubin" if compiled else "kernel.json")
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"x")
    assert caches_are_cold(environment) is not compiled


def test_the_variables_of_caches_are_those_of_a_desired_state() -> None:
    assert set(start_silence._KERNELS) <= set(spec.CACHES)
