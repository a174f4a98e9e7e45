# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readings: a value or the reason why there is none, and no reader that holds up the others."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import reading
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import (
    CouldNotTell,
    Reader,
    Unknown,
    gather,
    known,
    patience,
    read_first,
    read_text,
    run_command,
)


def raises(error: BaseException):
    def read() -> None:
        raise error

    return read


def test_a_reading_is_its_value_or_raises_its_reason() -> None:
    assert known(0) == 0
    assert known(None) is None
    with pytest.raises(CouldNotTell, match="permission denied"):
        known(Unknown("permission denied"))


def test_readers_run_side_by_side_and_keep_their_order() -> None:
    def slow(value: int):
        def read() -> int:
            time.sleep(0.3)
            return value

        return read

    started = time.monotonic()
    found = gather({str(number): Reader(slow(number)) for number in range(8)})
    assert time.monotonic() - started < 1.2
    assert list(found.items()) == [(str(number), number) for number in range(8)]


def test_a_hung_reader_costs_its_own_limit_and_nothing_else() -> None:
    never = threading.Event()
    started = time.monotonic()
    found = gather({"hung": Reader(never.wait, 0.2), "quick": Reader(lambda: 7), "none": Reader(lambda: None)})
    assert time.monotonic() - started < 1.0
    assert found == {"hung": Unknown("reading hung took longer than its limit of 0.2 s"), "quick": 7, "none": None}
    never.set()


def test_the_longest_limit_is_what_is_waited_at_most() -> None:
    never = threading.Event()
    started = time.monotonic()
    found = gather({str(number): Reader(never.wait, 0.1 * (number + 1)) for number in range(4)})
    assert 0.4 <= time.monotonic() - started < 0.9
    assert all(isinstance(one, Unknown) for one in found.values())
    never.set()


def test_a_late_answer_does_not_change_what_was_returned() -> None:
    go = threading.Event()
    found = gather({"late": Reader(lambda: go.wait() and "too late", 0.1)})
    go.set()
    time.sleep(0.1)
    assert isinstance(found["late"], Unknown)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CouldNotTell("/etc/x: Permission denied"), "/etc/x: Permission denied"),
        (ValueError("garbled"), "reading it failed: ValueError: garbled"),
        (SystemExit(3), "reading it failed: SystemExit: 3"),
        (RecursionError(), "reading it failed: RecursionError: "),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_reader_that_raises_is_unknown_with_the_reason(error: BaseException, reason: str) -> None:
    assert gather({"it": Reader(raises(error)), "other": Reader(lambda: 1)}) == {"it": Unknown(reason), "other": 1}


def test_a_thread_that_cannot_be_begun_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start
    refused = []

    def start(thread: threading.Thread) -> None:
        if not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    found = gather({"first": Reader(lambda: 1), "second": Reader(lambda: 2)})
    assert found == {"first": Unknown("reading first could not be begun: can't start new thread"), "second": 2}


def test_gather_of_nothing() -> None:
    assert gather({}) == {}


def test_a_command_is_run_as_it_is() -> None:
    done = run_command([sys.executable, "-c", "import sys; print(sys.stdin.read()); sys.exit(3)"], 10, text_in="a b")
    assert (done.code, done.stdout, done.stderr) == (3, "a b\n", "")


def test_a_command_speaks_plain_english_and_has_the_given_variables() -> None:
    done = run_command(["sh", "-c", "echo $LC_ALL $MINE"], 10, {"MINE": "here"})
    assert done.stdout == "C.UTF-8 here\n"


def test_garbled_output_is_no_crash() -> None:
    assert run_command(["printf", "\\377\\376ok"], 10).stdout == "\ufffd\ufffdok"


def test_a_missing_command_says_so() -> None:
    with pytest.raises(CouldNotTell, match="^no-such-tool is not installed$"):
        run_command(["no-such-tool"], 1)


def test_a_command_that_may_not_be_run_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n")
    with pytest.raises(CouldNotTell, match=r"tool could not be run: Permission denied"):
        run_command([str(path)], 1)


def test_a_hung_command_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    # A wrapper script dies of the signal while what it started holds the pipe: neither may be left behind.
    note = tmp_path / "pid"
    started = time.monotonic()
    with pytest.raises(CouldNotTell, match=r"^`sh -c sleep 60 & echo .*` did not end within 0.3 s$"):
        run_command(["sh", "-c", f"sleep 60 & echo $! > {note}; wait"], 0.3)
    assert time.monotonic() - started < 2
    pid = int(note.read_text())
    deadline = time.monotonic() + 5
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", "", "nothing"),
        ("out\n", "", "out"),
        ("out", "warning\nerror: no\n\n", "error: no"),
        (" \n", " \n", "nothing"),
    ],
)
def test_what_a_command_complained_about(stdout: str, stderr: str, said: str) -> None:
    assert reading.Output(1, stdout, stderr).said == said


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff" + b"a" * 100)
    assert read_text(str(path), 5) == "\ufffdaaaa"


def test_a_missing_file_is_not_an_unreadable_one(tmp_path: Path) -> None:
    missing, folder = str(tmp_path / "no"), str(tmp_path)
    assert read_first(missing) is None
    with pytest.raises(CouldNotTell, match=f"^{missing}: No such file or directory$"):
        read_text(missing)
    with pytest.raises(CouldNotTell, match=f"^{folder}: Is a directory$"):
        read_first(folder)


def test_a_link_to_nothing_is_unreadable(tmp_path: Path) -> None:
    os.symlink("nowhere", tmp_path / "link")
    with pytest.raises(CouldNotTell):
        read_first(str(tmp_path / "link"))


def test_a_forbidden_file_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("x")

    def refuse(*_given: object, **_named: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CouldNotTell, match="Permission denied"):
        read_first(str(path))


def test_a_flood_is_ended_at_its_limit() -> None:
    started = time.monotonic()
    with pytest.raises(CouldNotTell, match="said more than 1000000 bytes, and was ended"):
        run_command(["sh", "-c", "cat /dev/zero"], 5, limit_bytes=1_000_000)
    assert time.monotonic() - started < 2


def test_what_a_command_leaves_behind_with_its_output_does_not_hold_up(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    started = time.monotonic()
    done = run_command(["sh", "-c", f"echo said; sleep 60 & echo $! > {note}"], 5)
    assert (done.code, done.stdout) == (0, "said\n")
    assert time.monotonic() - started < 2
    time.sleep(0.1)
    assert not os.path.exists(f"/proc/{int(note.read_text())}/fd/1")


def test_a_command_that_does_not_read_its_input_is_no_crash() -> None:
    assert run_command(["true"], 5, text_in="x" * 1_000_000).code == 0


def test_much_input_and_much_output_at_once() -> None:
    assert len(run_command(["cat"], 10, text_in="x" * 1_000_000).stdout) == 1_000_000


def test_a_reason_brings_what_to_do() -> None:
    with pytest.raises(CouldNotTell) as caught:
        run_command(["nvidia-smi-of-nobody"], 1)
    assert "install what brings nvidia-smi-of-nobody" in caught.value.fix
    (found,) = gather({"it": Reader(raises(CouldNotTell("no tool", "install it")))}).values()
    with pytest.raises(CouldNotTell) as again:
        known(found)
    assert (str(again.value), again.value.fix) == ("no tool", "install it")


def test_readings_inside_a_reading_end_before_it() -> None:
    never = threading.Event()

    def area() -> dict[str, object]:
        return gather({"hung": Reader(never.wait, 9.0), "quick": Reader(lambda: 7)})

    found = gather({"area": Reader(area, 1.0)})["area"]
    assert found["quick"] == 7
    assert "reading hung took longer" in found["hung"].reason
    never.set()


def test_a_command_inside_a_reading_ends_before_it() -> None:
    found = gather({"it": Reader(lambda: run_command(["sleep", "9"], 9.0), 0.6)})["it"]
    assert "`sleep 9` did not end within" in found.reason


def test_patience_gives_readings_and_commands_more_time_and_ends_with_its_block() -> None:
    def slow() -> str:
        return run_command(["sh", "-c", "sleep 0.3; echo done"], 0.1).stdout.strip()

    with patience(20):
        assert gather({"it": Reader(slow, 0.1)}) == {"it": "done"}
        with pytest.raises(CouldNotTell, match=r"did not end within 0.6 s$"):
            run_command(["sleep", "9"], 0.03)
    found = gather({"it": Reader(slow, 0.1)})["it"]
    assert "did not end within" in found.reason
    assert "sglang_preflight_patience=4" in found.fix


def test_what_to_run_by_hand_can_be_pasted() -> None:
    with pytest.raises(CouldNotTell) as raised:
        run_command(["sh", "-c", "sleep 9"], 0.05)
    assert "`time sh -c 'sleep 9'`" in raised.value.fix
