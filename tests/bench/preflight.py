#!/usr/bin/env python3
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a whole preflight of one host takes beyond connecting, in seconds and against `ansible.builtin.setup`.

    sudo tests/dev/run tests/bench/preflight.py [--times N]

Makes a test host, runs both as root there over SSH in turn, N times, and removes the host. A task's time is what more
of them take in a playbook beyond one, so neither the start of Ansible nor the first connection is in it. Ends with 1
when the median of a preflight is above 3 s, or above 4 times `setup` with gather_subset !all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
FLEET = "bench-preflight"
INVENTORY = Path("/run/serving-sglang-lab") / FLEET / "inventory.yml"
LIMIT_S = 3.0
RATIO = 4.0
MORE = 4
INSTANCE = {
    "model": "/srv/models/tiny",
    "version": "0.5.22",
    "output_cap_tokens": 2500,
    "slowest_tokens_per_s": 50,
    "environment": {"PYTHONPATH": "/opt/sglang/0.5.22/stubs", "SGLANG_USE_CPU_ENGINE": "1"},
    "arguments": {"device": "cpu", "max-running-requests": 16, "max-queued-requests": 16, "max-total-tokens": 65536},
}
TASKS = {
    "setup": {"ansible.builtin.setup": {"gather_subset": ["!all"]}},
    "preflight": {
        "serving.sglang.preflight_info": {
            "host_name": "h1",
            "instances": [{**INSTANCE, "name": f"i{number}", "port": 30000 + 100 * number} for number in range(2)],
        }
    },
}


def seconds(task: dict[str, object], count: int, folder: Path) -> float:
    """The time of a playbook with this task so many times."""
    playbook = folder / "playbook.yml"
    play = {"hosts": "h1", "gather_facts": False, "tasks": [{"name": "Run it", **task}] * count}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    command = [HOSTS, "exec", "--fleet", FLEET, "--", "ansible-playbook", "-i", INVENTORY, playbook]
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in TASKS}
    subprocess.run([HOSTS, "up", "--fleet", FLEET, "--servers", "1"], check=True, stdout=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _round in range(given.times):
                for name, task in TASKS.items():
                    one, many = seconds(task, 1, Path(folder)), seconds(task, 1 + MORE, Path(folder))
                    found[name].append((many - one) / MORE)
    finally:
        subprocess.run([HOSTS, "down", "--fleet", FLEET], check=True, stdout=sys.stderr)
    each = {name: statistics.median(values) for name, values in found.items()}
    ratio = each["preflight"] / each["setup"]
    for name, values in found.items():
        print(f"{name}: {each[name]:.2f} s (of {', '.join(f'{value:.2f}' for value in values)})")
    print(f"a preflight of one host with two instances: {each['preflight']:.2f} s (limit {LIMIT_S:g} s)")
    print(f"{ratio:.2f} times setup !all (limit {RATIO:g})")
    return int(each["preflight"] > LIMIT_S or ratio > RATIO)


if __name__ == "__main__":
    sys.exit(main())
