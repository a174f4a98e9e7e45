# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdicts on arguments against what SGLang itself said of them, as tools/args_reference.py recorded it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks import args_combinations
from ansible_collections.serving.sglang.plugins.module_utils.checks.args_checks import check_instance
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import worst
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, UNKNOWN, Finding
from ansible_collections.serving.sglang.plugins.module_utils.flag_table import flags_of

DATA = Path(__file__).resolve().parents[4] / "data"
RELEASES = ["0.5.22", "0.5.23"]
TOGETHER = {kind.id for each in args_combinations.CHECKS for kind in each.kinds}
# What is no reason for SGLang to refuse anything.
HARMLESS = {"args.deprecated", "args.empty"}


def rows(release: str, *sorts: str) -> list[dict[str, Any]]:
    lines = (DATA / f"args_reference_{release}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if any(sort in row for sort in sorts)]


@cache
def judged(release: str) -> list[tuple[dict[str, Any], list[Finding]]]:
    """Every row on the command line or in a file, with what is found of its single arguments."""
    pairs = []
    for row in rows(release, "arguments", "config"):
        found = check_instance({sort: row[sort] for sort in ("arguments", "config") if sort in row}, release)
        pairs.append((row, [one for one in found if one.id not in TOGETHER and one.severity != OK]))
    return pairs


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_fine_that_the_parser_refuses(release: str) -> None:
    refused = [(row, found) for row, found in judged(release) if row["refused"]]
    assert [row for row, found in refused if not {one.id for one in found} - HARMLESS] == []
    assert len(refused) > 900


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_an_error_that_the_parser_takes_by_its_full_name(release: str) -> None:
    names = flags_of(release).rows
    taken = [(row, found) for row, found in judged(release) if not row["refused"]]
    full = [
        (row, found) for row, found in taken if all(name in names for name in row.get("arguments") or row["config"])
    ]
    assert [(row, found) for row, found in full if worst(found) == ERROR] == []
    assert len(full) > 1500


@pytest.mark.parametrize("release", RELEASES)
def test_a_refused_argument_is_only_doubtful_where_a_plugin_may_add_the_choice(release: str) -> None:
    for row, found in judged(release):
        if row["refused"] and worst(found) != ERROR:
            assert "a plugin can add it" in " ".join(one.summary for one in found if one.id == "args.choice"), row


@pytest.mark.parametrize("release", RELEASES)
def test_every_row_is_judged(release: str) -> None:
    assert [row for row, found in judged(release) if UNKNOWN in {one.severity for one in found}] == []


@pytest.mark.parametrize("release", RELEASES)
def test_arguments_together_fail_where_a_start_fails(release: str) -> None:
    counted: Counter[bool] = Counter()
    for row in rows(release, "together"):
        arguments = row["together"]
        keys = {name.replace("-", "_"): True for name in ("api-key", "admin-api-key") if name in arguments}
        found = check_instance({"arguments": arguments, "port": arguments.get("port", 30000), **keys}, release)
        # The workers that a key kills are started after the model is loaded: nothing of it is seen before.
        errors = [one for one in found if one.severity == ERROR and one.id in TOGETHER]
        errors = [one for one in errors if one.id != "args.keys_with_tokenizer_workers"]
        assert bool(errors) == bool(row["refused"]), (row, errors)
        counted[bool(errors)] += 1
    assert counted[True] > 50
    assert counted[False] > 50
