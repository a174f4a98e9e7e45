"""Each Molecule scenario is one test, so that one summary counts them with everything else.

What a scenario prints goes to .build/logs/molecule-<scenario>.log; its steps are shown as they come.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import deque
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml"))

# Molecule announces a step in a line of its own; the rest is what Ansible prints.
STEP = re.compile(r"(?:INFO|ERROR|CRITICAL)\s+(.*(?:➜|>).*)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = CHECKOUT / ".build" / "logs" / f"molecule-{scenario}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    tail: deque[str] = deque(maxlen=80)
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as written:
        process = subprocess.Popen(
            ["molecule", "test", "--scenario-name", scenario],
            cwd=CHECKOUT,
            env={**os.environ, "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                plain = COLOUR.sub("", line)
                written.write(plain)
                written.flush()
                tail.append(plain)
                if step := STEP.match(plain):
                    with capsys.disabled():
                        print(f"\n  {time.monotonic() - started:5.0f} s  {step[1].strip()}", end="", flush=True)
            status = process.wait()
        except BaseException:
            # Interrupted: Molecule gets the chance to destroy its hosts.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=120)
            raise
    if status:
        pytest.fail(f"molecule test -s {scenario} ended with {status}; all of it is in {log}\n{''.join(tail)}", False)
