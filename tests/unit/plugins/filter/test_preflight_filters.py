# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the playbook preflight."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.filter.preflight import FilterModule

FILTERS = FilterModule().filters()


def test_what_is_omitted_is_neither_a_secret_nor_a_value() -> None:
    omitted = "__omit_place_holder__0123456789abcdef"
    declared = {"instances": [{"name": "main", "api_key": "Zq-key"}], "defaults": {"hf_token": omitted, "x": omitted}}
    assert FILTERS["without_secrets"](declared) == {
        "instances": [{"name": "main", "api_key": "stand-in-1"}],
        "defaults": {},
    }


def test_each_problem_of_several_lists_is_said_once() -> None:
    wrong = [{"id": "python.header_missing", "reason": "x", "until": "2099-01-01"}]
    (problem,) = FILTERS["ignore_problems"]([wrong, wrong, {}, []])
    assert "is python.headers_missing meant?" in problem


def test_lists_without_a_problem() -> None:
    right = [{"id": "python.headers_missing", "reason": "x", "until": "2099-01-01"}]
    assert FILTERS["ignore_problems"]([right, {}]) == []
