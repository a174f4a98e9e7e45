#!/usr/bin/env python3
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the memory rules cost: `mem_fraction` as a task, and a thousand hosts in one process.

    tests/dev/run tests/bench/memory.py [--times N]

The task is compared with `ansible.builtin.setup` with gather_subset !all by its processor time, both run N times in
turn on this machine over the local connection. Ends with 1 when the task takes more than 1.3 times as much, or the
thousand hosts more than a second of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import references

RATIO = 1.3
HOSTS = 1000
HOSTS_S = 1.0
TASKS = {
    "setup": {"ansible.builtin.setup": {"gather_subset": ["!all"]}},
    "mem_fraction": {
        "serving.sglang.mem_fraction": {
            "model": str(references.MODELS / "qwen3-8b"),
            "version": "0.5.23",
            "capacity_mib": 143771,
            "compute_major": 9,
        }
    },
}


def cost(task: dict[str, object], count: int, folder: Path) -> tuple[float, float]:
    """The processor time and the time of a playbook with this task so many times."""
    playbook = folder / "playbook.yml"
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"name": "Run it", **task}] * count}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["ansible-playbook", "-i", "localhost,", "-c", "local", playbook], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.monotonic() - begun


def per_task(times: int) -> dict[str, tuple[float, float]]:
    """Seconds of one task of each kind, processor and clock: the median of what more tasks take beyond one."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in TASKS}
    with tempfile.TemporaryDirectory() as folder:
        for _round in range(times):
            for name, task in TASKS.items():
                few, many = cost(task, 1, Path(folder)), cost(task, 6, Path(folder))
                found[name].append(((many[0] - few[0]) / 5, (many[1] - few[1]) / 5))
    return {
        name: (statistics.median(one[0] for one in values), statistics.median(one[1] for one in values))
        for name, values in found.items()
    }


def thousand_hosts() -> float:
    """Processor seconds for the choice, the window and the pool of a thousand hosts of every kind."""
    references.find_collection()
    from ansible_collections.serving.sglang.plugins.module_utils import (
        fraction_choice,
        kv_pool,
        memory,
        memory_arguments,
        memory_releases,
    )

    models = [references.model_named(path.name, "0.5.23")[0] for path in sorted(references.MODELS.iterdir())]
    release = memory_releases.memory_release_for("0.5.23")
    begun = time.process_time()
    for number in range(HOSTS):
        model = models[number % len(models)]
        capacity = memory.Capacity(143771 - number, compute_major=9)
        arguments = memory_arguments.read_arguments({"tp-size": 1, "max-running-requests": 64 + number})
        automatic = memory.automatic_fraction(capacity, arguments, model.traits, release)
        kind = fraction_choice.KINDS[number % 3]
        machine = fraction_choice.Machine(kind, kv_pool.Memory(139.0, 60.0))
        fraction_choice.choose(fraction_choice.Case(automatic, model, arguments, capacity, release, machine))
    return time.process_time() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    hosts_s = min(thousand_hosts() for _round in range(3))
    print(f"{HOSTS} hosts: {hosts_s:.2f} s of processor time (limit {HOSTS_S} s)")
    each = per_task(given.times)
    ratio = each["mem_fraction"][0] / each["setup"][0]
    for number, kind in enumerate(("processor", "clock")):
        ours, theirs = each["mem_fraction"][number], each["setup"][number]
        print(
            f"{kind}: mem_fraction {ours * 1000:.0f} ms, setup !all {theirs * 1000:.0f} ms: {ours / theirs:.2f} times"
        )
    print(f"limit {RATIO} times the processor time, which other load on the machine moves less than the clock")
    return int(ratio > RATIO or hosts_s > HOSTS_S)


if __name__ == "__main__":
    sys.exit(main())
