"""Commands that last: their end, also when it has to be brought about, and signs of life meanwhile."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.long_command import (
    KEPT_BYTES,
    TookTooLong,
    Who,
    run_long,
    signs_of_life,
    time_limit,
)


def test_what_a_command_says_last_is_kept() -> None:
    flood = f"import sys; print('x' * {3 * KEPT_BYTES}); print('end'); print('wrong', file=sys.stderr); sys.exit(3)"
    output = run_long([sys.executable, "-c", flood], 30)
    assert (output.code, output.said) == (3, "wrong")
    assert output.stdout.endswith("end\n")
    assert len(output.stdout) <= KEPT_BYTES


def test_a_late_command_is_asked_before_it_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    polite = f"trap 'echo bye >&2; touch {mark}; exit 0' TERM; echo working >&2; while :; do sleep 0.05; done"
    begin = time.monotonic()
    with pytest.raises(TookTooLong, match="bye"):
        run_long(["sh", "-c", polite], 0.5)
    assert mark.exists()
    assert time.monotonic() - begin < 10


def test_one_that_does_not_listen_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    deaf = f"trap '' TERM; sleep 60 & echo $! > {pid}; wait; wait; sleep 60"
    with pytest.raises(TookTooLong):
        run_long(["sh", "-c", deaf], 0.5, end_s=0.3)
    child = Path(f"/proc/{pid.read_text().strip()}/stat")
    for _ in range(40):
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("what it had started lives on")


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(CouldNotTell, match="is not installed"):
        run_long(["/no/such/command"], 5)


def test_its_environment_is_what_is_given() -> None:
    given = Who(environment={"ONE": "1"})
    output = run_long(["/usr/bin/env"], 10, given)
    assert sorted(output.stdout.split()) == ["LC_ALL=C.UTF-8", "ONE=1"]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_no_time(value: float) -> None:
    with pytest.raises(EngineError, match=r"timeout_s is .*Give seconds"):
        time_limit(value)
    assert time_limit("0.5") == 0.5


def test_signs_of_life_renew_what_is_there_and_make_nothing(tmp_path: Path) -> None:
    lock, gone = tmp_path / "lock", tmp_path / "gone"
    lock.write_text("")
    with signs_of_life([str(gone), str(lock)], 0.05):
        for _ in range(2):
            os.utime(lock, (0, 0))
            until = time.monotonic() + 5
            while lock.stat().st_mtime == 0:
                assert time.monotonic() < until
                time.sleep(0.01)
    assert not gone.exists()
