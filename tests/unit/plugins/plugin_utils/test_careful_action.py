# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions of a rollout write down, and what their failures say."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.module_utils import ledger
from ansible_collections.serving.sglang.plugins.plugin_utils.careful_action import CarefulAction


def target(tmp_path):
    return {"path": str(tmp_path / "R.jsonl"), "run": "R", "replica": "r1", "host": "h1"}


def test_a_failure_says_where_it_was(tmp_path):
    result = {"failed": True, "msg": "no"}
    CarefulAction.write_ledger(result, target(tmp_path), "leave", False, 1.0)
    assert result["failed_at"] == {"replica": "r1", "host": "h1", "step": "leave"}
    (line,) = ledger.read(target(tmp_path)["path"])
    assert (line.step, line.ok) == ("leave", False)


def test_what_went_well_has_no_place_of_failure(tmp_path):
    result = {"changed": True}
    CarefulAction.write_ledger(result, target(tmp_path), "leave", True, 1.0)
    assert result == {"changed": True}


def test_a_ledger_that_cannot_be_written_is_a_failure_with_a_place(tmp_path):
    result = {"changed": True}
    where = {**target(tmp_path), "path": str(tmp_path)}
    CarefulAction.write_ledger(result, where, "settle", True, 1.0)
    assert result["failed"] is True
    assert "Step 'settle' was taken, but" in result["msg"]
    assert result["failed_at"]["step"] == "settle"
