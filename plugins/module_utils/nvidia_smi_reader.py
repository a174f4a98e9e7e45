# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the cards through `nvidia-smi`: the second source, and the one that SGLang itself asks for the capacity."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from . import machine
from .checks.reading import CouldNotTell, run_command
from .machine import Card, Process
from .nvml_reader import describe_process

_FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "memory.free",
    "memory.used",
    "compute_cap",
    "clocks.gr",
    "clocks.max.gr",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "mig.mode.current",
    "driver_version",
)
# A driver that is loaded for this question alone, with persistence mode off, takes seconds for each card.
LIMIT_S = 30.0


class SmiError(Exception):
    """nvidia-smi is missing or failed; `status` says in which way."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def run(words: Sequence[str], limit_s: float = LIMIT_S) -> str:
    """What nvidia-smi prints."""
    if shutil.which("nvidia-smi") is None:
        raise SmiError(machine.NO_DRIVER, "nvidia-smi not found")
    try:
        done = run_command(["nvidia-smi", *words], limit_s)
    except CouldNotTell as error:
        raise SmiError(machine.ERROR, str(error)) from None
    if done.code != 0:
        said = (done.stdout + done.stderr).strip() or "no output"
        raise SmiError(failure(said), f"nvidia-smi failed with exit code {done.code}: {said}")
    return done.stdout


def failure(said: str) -> str:
    """What kind of failure nvidia-smi speaks of."""
    low = said.lower()
    for words, status in (
        ("version mismatch", machine.DRIVER_MISMATCH),
        ("gpu is lost", machine.LOST),
        ("unable to determine the device handle", machine.LOST),
        ("couldn't communicate with the nvidia driver", machine.NO_DRIVER),
        ("no devices were found", machine.NO_DRIVER),
        ("insufficient permissions", machine.NO_PERMISSION),
    ):
        if words in low:
            return status
    return machine.ERROR


def totals(limit_s: float = LIMIT_S) -> tuple[str, ...]:
    """The lines that SGLang reads the capacity from."""
    return tuple(run(["--query-gpu=memory.total", "--format=csv,noheader,nounits"], limit_s).strip().splitlines())


def read(limit_s: float = LIMIT_S) -> tuple[tuple[Card, ...], str]:
    """The cards and the driver's version."""
    text = run([f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"], limit_s)
    applications = run(
        ["--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory", "--format=csv,noheader,nounits"], limit_s
    )
    return parse(text, applications)


def parse(text: str, applications: str = "") -> tuple[tuple[Card, ...], str]:
    """The cards from what nvidia-smi printed for `_FIELDS`, with the processes of its other query."""
    cards: list[Card] = []
    driver = ""
    processes = _processes(applications)
    for line in text.strip().splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != len(_FIELDS):
            continue
        value = dict(zip(_FIELDS, words))
        driver = value["driver_version"]
        total = _number(value["memory.total"])
        mig = value["mig.mode.current"].lower() == "enabled"
        lost = "lost" in line.lower() or "requires reset" in line.lower()
        cards.append(
            Card(
                index=int(value["index"]) if value["index"].isdigit() else len(cards),
                uuid=value["uuid"],
                name=value["name"],
                bus=value["pci.bus_id"],
                total_mib=total,
                free_mib=_number(value["memory.free"]),
                used_mib=_number(value["memory.used"]),
                memory_status="ok" if total is not None else _absent(value["memory.total"]),
                compute_capability=value["compute_cap"] if _number(value["compute_cap"]) is not None else "",
                clocks_mhz=_clocks(value),
                temperature_c=_whole(value["temperature.gpu"]),
                mig=mig,
                processes=tuple(processes.get(value["uuid"], ())),
                problem=f"{machine.LOST}: nvidia-smi: {line}" if lost else "",
            )
        )
    return tuple(cards), driver


def _absent(text: str) -> str:
    low = text.lower()
    return machine.NOT_SUPPORTED if "n/a" in low or "not supported" in low else machine.ERROR


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _whole(text: str) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _clocks(value: dict[str, str]) -> dict[str, int]:
    names = {"clocks.gr": "graphics", "clocks.max.gr": "graphics_max", "clocks.sm": "sm", "clocks.mem": "memory"}
    found = {name: _whole(value[field]) for field, name in names.items()}
    return {name: clock for name, clock in found.items() if clock is not None}


def _processes(text: str) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for line in text.strip().splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) < 4 or not words[1].isdigit():
            continue
        name, owner = describe_process(int(words[1]))
        process = Process(int(words[1]), name or words[2], owner, _number(words[-1]))
        found.setdefault(words[0], []).append(process)
    return found
