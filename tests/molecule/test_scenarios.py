"""Each Molecule scenario is one test, so that one summary counts them with everything else.

What a scenario prints goes to .build/logs/molecule-<scenario>.log; its steps are shown as they come.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import deque
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
# Hosts with a kernel of their own are slow, and made ready for the full run only.
LONG = ("cgroup_v2",)
SCENARIOS = [
    pytest.param(name, marks=[pytest.mark.full] if name in LONG else [])
    for name in sorted(path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml"))
]

# Molecule announces a step in a line of its own; the rest is what Ansible prints.
STEP = re.compile(r"INFO\s+\[\S+ > (\w+)\] Executing$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LIMIT_S = 45 * 60


def molecule(command: str, scenario: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["molecule", command, "--scenario-name", scenario],
        cwd=CHECKOUT,
        env={**os.environ, "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], scenario: str) -> None:
    """Stop a scenario that was interrupted or took too long, and remove its hosts."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.communicate(timeout=30)
            break
        except subprocess.TimeoutExpired:
            continue
    molecule("destroy", scenario).communicate(timeout=300)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = CHECKOUT / ".build" / "logs" / f"molecule-{scenario}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    tail: deque[str] = deque(maxlen=80)
    started = time.monotonic()
    process = molecule("test", scenario)
    assert process.stdout is not None
    try:
        with log.open("w", encoding="utf-8") as written:
            for line in process.stdout:
                plain = COLOUR.sub("", line)
                written.write(plain)
                written.flush()
                tail.append(plain)
                if step := STEP.match(plain):
                    with capsys.disabled():
                        print(f"\n  {time.monotonic() - started:5.0f} s  {step[1]}", end="", flush=True)
        status = process.wait()
    except BaseException:
        end(process, scenario)
        raise
    with capsys.disabled():
        print(f"\n  {time.monotonic() - started:5.0f} s  end ", end="", flush=True)
    if status:
        pytest.fail(f"molecule test -s {scenario} ended with {status}; all of it is in {log}\n{''.join(tail)}", False)
