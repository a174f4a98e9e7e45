# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger: nothing is lost, a cut-off line is no line, and overhead is what is left."""

from __future__ import annotations

import json
import multiprocessing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import ledger


def add(path, step="leave", replica="r1", elapsed_s=1.0, **detail):
    return ledger.append(str(path), "run", replica, "h1", step, True, elapsed_s, detail)


def test_lines_follow_each_other(tmp_path):
    path = tmp_path / "deep" / "run.jsonl"
    assert [add(path), add(path, "settle"), add(path, "drain", running=3)] == [1, 2, 3]
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    assert rows[2]["detail"] == {"running": 3}
    assert {row["schema"] for row in rows} == {1}
    assert [line.step for line in ledger.read(str(path))] == ["leave", "settle", "drain"]


def test_an_absent_ledger_is_empty(tmp_path):
    assert ledger.read(str(tmp_path / "none.jsonl")) == []


def test_an_unknown_step_is_refused(tmp_path):
    with pytest.raises(ledger.LedgerError, match="known steps"):
        add(tmp_path / "l", "vanish")


@pytest.mark.parametrize("rest", ['{"schema": 1, "run": "x', '{"schema": 1}', "\x00\x00"])
def test_a_line_that_a_crash_cut_off_is_left_out_and_written_over(tmp_path, rest):
    path = tmp_path / "l"
    add(path)
    with open(path, "a", encoding="utf-8") as handle:
        handle.write(rest)
    assert len(ledger.read(str(path))) == 1
    assert add(path, "settle") == 2
    assert [line.seq for line in ledger.read(str(path))] == [1, 2]


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "l"
    path.write_text('{"schema": 1}\n')
    with pytest.raises(ledger.LedgerError, match="line 1"):
        ledger.read(str(path))
    with pytest.raises(ledger.LedgerError, match="move it away"):
        add(path)


def test_a_ledger_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ledger.LedgerError, match="sglang_rollout_ledger_dir"):
        add(tmp_path / "file" / "l")


def _write(path, count):
    for _ in range(count):
        add(path)


def test_several_writers_lose_nothing(tmp_path):
    path = tmp_path / "l"
    writers = [multiprocessing.get_context("fork").Process(target=_write, args=(path, 20)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [line.seq for line in ledger.read(str(path))] == list(range(1, 81))


LINES = st.builds(
    ledger.Line,
    run=st.text(min_size=1),
    seq=st.integers(1, 10**6),
    at=st.just("2026-11-29T10:00:00.000Z"),
    replica=st.text(),
    host=st.text(),
    step=st.sampled_from(ledger.STEPS),
    ok=st.booleans(),
    elapsed_s=st.floats(0, 1e6),
    detail=st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.integers())),
)


@given(lines=st.lists(LINES, max_size=5))
def test_round_trip(lines):
    assert ledger.parse("".join(line.as_json() + "\n" for line in lines)) == lines


def made(step, at_s, elapsed_s, replica="r1", **detail):
    return ledger.Line("run", 1, f"2026-11-29T10:00:{at_s:06.3f}Z", replica, "h1", step, True, elapsed_s, detail)


def test_overhead_is_what_sglang_and_the_declared_waits_do_not_explain():
    lines = [
        made("plan", 0, 0, replica="-"),
        made("leave", 2, 1.5),  # began at 0.5
        made("settle", 5.5, 3),
        made("drain", 10, 4),
        made("stop", 16, 6),
        made("start", 32, 15),
        made("verify", 33, 1),
        made("rejoin", 35, 1.5),
        made("soak", 40.5, 5),
    ]
    # 40.5 - 0.5 = 40 s, of which 34 s are settle, drain, stop, start, verify, soak
    assert ledger.overhead_s(lines, "r1") == 6.0
    assert ledger.overhead_s(lines, "r2") is None


def test_only_the_latest_attempt_counts():
    lines = [made("leave", 1, 1), made("drain", 9, 8), made("leave", 21, 1), made("drain", 24, 3)]
    assert [line.step for line in ledger.latest_attempt(lines, "r1")] == ["leave", "drain"]
    assert ledger.overhead_s(lines, "r1") == 1.0
