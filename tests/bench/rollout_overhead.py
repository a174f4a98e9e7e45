"""What a rollout costs beyond SGLang's own drain and start and the declared waits, against doing it by hand.

    make demo KEEP=1
    SGLANG_TEST_FLEET=demo tests/dev/run python tests/bench/rollout_overhead.py [ROUNDS]

Each round restarts the replica on h1 twice: with the rollout playbook, and with the shell loop that an engineer would
write for it, over the same connection, with the same waits. Overhead is the time from leaving the gateway to the end
of the soak, less settle, drain, stop, start, verification and soak. Nothing else runs meanwhile.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lab"))

import running_fleet as fleet

SETTLE_S, SOAK_S = 3, 5

# Prints the seconds of each step. It does what a careful engineer does, and notices what this one would notice.
BY_HAND = r"""
set -euo pipefail
on() { ssh -F "$SSH_CONFIG" "$@"; }
mark() { echo "$1 $(date +%s.%N)"; }
workers() { on gw curl -sS http://127.0.0.1:30000/workers; }
mark begin
id=$(workers | python3 -c '
import json, sys
print(next(w["id"] for w in json.load(sys.stdin)["workers"] if w["url"] == sys.argv[1]))' "$URL")
on gw curl -sS -X DELETE "http://127.0.0.1:30000/workers/$id" > /dev/null
while workers | grep -qF "$URL"; do sleep 0.5; done
mark leave
sleep "$SETTLE_S"
mark settle
n=0
while [ "$n" -lt 3 ]; do
  if on h1 curl -sS http://127.0.0.1:30000/v1/loads | python3 -c '
import json, sys
sys.exit(any(load["num_running_reqs"] + load["num_waiting_reqs"] for load in json.load(sys.stdin)["loads"]))'
  then n=$((n + 1)); else n=0; fi
  sleep 0.5
done
mark drain
on h1 systemctl stop sglang-main
mark stop
on h1 systemctl start sglang-main
until on h1 curl -sfS http://127.0.0.1:30000/ready > /dev/null 2>&1; do sleep 0.5; done
mark start
generate='{\"text\": \"Hello\", \"sampling_params\": {\"max_new_tokens\": 8}}'
on h1 "curl -sfS -H 'Content-Type: application/json' -d \"$generate\" http://127.0.0.1:30000/generate" > /dev/null
mark verify
add="{\\\"url\\\": \\\"$URL\\\"}"
on gw "curl -sfS -H 'Content-Type: application/json' -d \"$add\" http://127.0.0.1:30000/workers" > /dev/null
until workers | python3 -c '
import json, sys
found = json.load(sys.stdin)["workers"]
sys.exit(not any(w["url"] == sys.argv[1] and w["is_healthy"] for w in found))' "$URL"; do sleep 0.5; done
mark rejoin
sleep "$SOAK_S"
mark soak
"""
STEPS = ("leave", "settle", "drain", "stop", "start", "verify", "rejoin", "soak")
NOT_OVERHEAD = ("settle", "drain", "stop", "start", "verify", "soak")


def by_hand() -> dict[str, float]:
    given = {"SETTLE_S": str(SETTLE_S), "SOAK_S": str(SOAK_S), "URL": fleet.SERVERS["h1"]}
    given["SSH_CONFIG"] = f"/run/serving-sglang-lab/{fleet.NAME}/ssh_config"
    command = fleet.in_fleet("bash", "-c", BY_HAND)
    done = subprocess.run(command, env={**os.environ, **given}, stdout=subprocess.PIPE, text=True, check=True)
    marks = dict(line.split() for line in done.stdout.splitlines())
    times = [float(marks[name]) for name in ("begin", *STEPS)]
    seconds = {step: end - begin for step, begin, end in zip(STEPS, times, times[1:], strict=False)}
    seconds["overhead"] = sum(seconds[step] for step in STEPS if step not in NOT_OVERHEAD)
    return seconds


def by_playbook(number: int) -> dict[str, float]:
    options = fleet.extra(sglang_rollout_settle_s=SETTLE_S, sglang_rollout_soak_s=SOAK_S)
    begun = time.monotonic()
    done = fleet.rollout(*fleet.only("h1-main"), *options, log=f"bench-{number}").succeeds()
    elapsed = time.monotonic() - begun
    lines = [line for line in fleet.ledger_of(done) if line["replica"] == "h1-main"]
    seconds = {line["step"]: line["elapsed_s"] for line in lines}
    seconds["overhead"] = lines[-1]["detail"]["overhead_s"]
    seconds["between"] = seconds["overhead"] - seconds["leave"] - seconds["rejoin"]
    seconds["playbook"] = elapsed
    return seconds


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows: dict[str, list[dict[str, float]]] = {"playbook": [], "by hand": []}
    for number in range(1, rounds + 1):
        rows["playbook"].append(by_playbook(number))
        rows["by hand"].append(by_hand())
        print(f"round {number} of {rounds} done", flush=True)
    shown = ("leave", "rejoin", "between", "overhead", "stop", "start", "playbook")
    print("seconds, median (lowest to highest)\n" + " ".join(f"{word:>20}" for word in ("", *shown)))
    for name, found in rows.items():
        cells = []
        for step in shown:
            values = [row[step] for row in found if step in row]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else "-")
        print(" ".join(f"{cell:>20}" for cell in (name, *cells)))
    pairs = zip(rows["playbook"], rows["by hand"], strict=True)
    ratios = [ours["overhead"] / theirs["overhead"] for ours, theirs in pairs]
    print(f"overhead, playbook : by hand = {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
