# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations without their secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks.stand_ins import without_secrets


def test_each_secret_has_one_stand_in_wherever_it_stands() -> None:
    declared = {
        "instances": [
            {"name": "main", "api_key": "Zq-key-one", "environment": {"X": "header Zq-key-one!"}},
            {"name": "b", "api_key": "Zq-key-two", "arguments": {"api-key": "Zq-key-one", "port": 3}},
        ],
        "defaults": {"hf_token": "hf_abcdef", "admin_api_key": None},
    }
    kept = json.dumps(declared)
    assert without_secrets(declared) == {
        "instances": [
            {"name": "main", "api_key": "stand-in-1", "environment": {"X": "header stand-in-1!"}},
            {"name": "b", "api_key": "stand-in-2", "arguments": {"api-key": "stand-in-1", "port": 3}},
        ],
        "defaults": {"hf_token": "stand-in-3", "admin_api_key": None},
    }
    assert json.dumps(declared) == kept


@pytest.mark.parametrize(
    "name",
    ["api_key", "admin-api-key", "hf_token", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "ssl-keyfile-password", "PASSWD"],
)
@pytest.mark.parametrize("value", ["x", "Zq-long-secret", 12345, 1.5])
def test_what_is_named_like_a_secret_is_replaced(name: str, value: Any) -> None:
    assert without_secrets({name: value}) == {name: "stand-in-1"}


@pytest.mark.parametrize(
    "declared",
    [
        {"kt-max-deferred-experts-per-token": 2, "bucket-time-to-first-token": [0.1, 0.2]},
        {"output_cap_tokens": 4096, "slowest_tokens_per_s": 30, "max-total-tokens": 5},
        {"api_key": None, "hf_token": ""},
        {"tokenizer-path": "/x", "keyfile": "/k"},
        "text",
        7,
        [],
    ],
    ids=str,
)
def test_what_is_no_secret_stays(declared: Any) -> None:
    assert without_secrets(declared) == declared


def test_a_short_secret_changes_no_other_word() -> None:
    cleaned = {"api_key": "stand-in-1", "x": ["stand-in-1", "cards"]}
    assert without_secrets({"api_key": "a", "x": ["a", "cards"]}) == cleaned


@given(st.text(min_size=6), st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_secret_is_left(secret: str, other: Any) -> None:
    given_ = {"api_key": secret, "other": other, "in": f"--api-key {secret}"}
    cleaned = without_secrets(given_)
    assert cleaned["api_key"] == "stand-in-1" or secret in "stand-in-1"
    assert secret not in cleaned["in"].replace("stand-in-1", "").replace("--api-key ", "") or secret in "--api-key "
