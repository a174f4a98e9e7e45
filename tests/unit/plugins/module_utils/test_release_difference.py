# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an upgrade changes: all of it, and what of it meets the arguments in use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import args_report
from ansible_collections.serving.sglang.plugins.module_utils import release_difference as rd
from ansible_collections.serving.sglang.plugins.module_utils.server_flags import KINDS

OLD, NEW = "0.5.22", "0.5.23"
releases = st.sampled_from([*KINDS, "0.5.17", "0.5.24", "1.0"])


def changes(change: str, what: str = rd.FLAG) -> set[str]:
    return {one.name for one in rd.difference(OLD, NEW).changes if (one.change, one.what) == (change, what)}


def effects(arguments: dict[str, Any], environment: dict[str, Any] | None = None) -> dict[tuple[str, str], rd.Effect]:
    found = rd.for_arguments(rd.difference(OLD, NEW), arguments, environment or {})
    return {(effect.change.name, effect.change.change): effect for effect in found}


@given(releases)
def test_a_release_does_not_differ_from_itself(release: str) -> None:
    found = rd.difference(release, release)
    assert found.changes == ()
    assert rd.for_arguments(found, {"tp-size": 2}, {"SGLANG_LOG_MS": "1"}) == ()


@given(releases, releases)
def test_the_way_back_mirrors_the_way_there(before: str, after: str) -> None:
    there, back = rd.difference(before, after), rd.difference(after, before)
    assert there.reversed() == back
    assert there.reversed().reversed() == there


def test_the_flags_differ_as_they_are_known_to() -> None:
    became_switches = {
        "enable-decoder-swa-bounded-replay",
        "enable-fused-qk-norm-rope",
        "enable-tf32-matmul",
        "mm-enable-dp-encoder",
    }
    assert changes(rd.REMOVED) == {"speculative-skip-dp-mlp-sync"}
    assert changes(rd.ADDED) == {
        "enable-amd-monokernel",
        "enable-http-worker-reuseport",
        "enable-megamoe-for-layernorm-sp",
        "enable-nvidia-megakernel",
        "enable-paged-experts",
        "enable-return-aux-hidden-states",
        "monokernel-backend",
        "paged-experts-num-resident",
        "prefill-decode-interval-min-bs",
        "return-aux-hidden-state-layer-ids",
        "unified-cache-external-linker-config",
    }
    assert changes(rd.KIND) == changes(rd.DEFAULT) == became_switches
    assert changes(rd.ALIASES) == {"enable-hierarchical-cache"}
    assert changes(rd.DEPRECATED) == changes(rd.TYPE) == set()
    assert {"dsv4-attn-backend", "lora-backend", "moe-runner-backend", "tool-call-parser"} <= changes(rd.CHOICES)


def test_the_variables_differ_as_they_are_known_to() -> None:
    assert changes(rd.DEFAULT, rd.VARIABLE) == {
        "SGLANG_ENABLE_FAILED_SESSION_PROBE",
        "SGLANG_ENABLE_PREFILL_WAR_READ_DONE",
        "SGLANG_MINIMAX_M3_INDEX_TOPK_FREQ",
        "SGLANG_SIMULATE_ACC_GREEDY",
    }
    assert {
        "SGLANG_DSV41_TORCH_PREFILL_INDEXER",
        "SGLANG_JIT_DEEPGEMM_COMPILE_WORKERS",
        "SGLANG_NPU_DSV4_DEEPEP_LL_DISPATCH_QUANT_MODE",
        "SGLANG_USE_DYNAMIC_MXFP4_LINEAR",
    } <= changes(rd.REMOVED, rd.VARIABLE)
    assert changes(rd.NO_LONGER_RETIRED, rd.VARIABLE) == {"SGLANG_ENABLE_UNIFIED_RADIX_TREE"}


@pytest.mark.parametrize(
    ("arguments", "key", "severity", "said"),
    [
        ({"speculative-skip-dp-mlp-sync": True}, ("speculative-skip-dp-mlp-sync", "removed"), "error", "exit code 2"),
        ({}, ("enable-tf32-matmul", "default"), "warning", "it is not set: false becomes unset"),
        ({"enable-tf32-matmul": True}, ("enable-tf32-matmul", "kind"), "info", "still fits"),
        ({"enable-tf32-matmul": False}, ("enable-tf32-matmul", "kind"), "warning", "--no-enable-tf32-matmul"),
        ({"enable-tf32-matmul": True}, ("enable-tf32-matmul", "default"), "info", "does not matter"),
        ({"lora-backend": "triton"}, ("lora-backend", "choices"), "info", "still fits"),
        ({"enable-hierarchical-cache": True}, ("enable-hierarchical-cache", "aliases"), "info", "nothing to do"),
    ],
)
def test_what_meets_the_arguments_in_use(
    arguments: dict[str, Any], key: tuple[str, str], severity: str, said: str
) -> None:
    effect = effects(arguments)[key]
    assert (effect.severity, effect.in_use) == (severity, "set" if key[0] in arguments else "default")
    assert said in effect.text


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("SGLANG_USE_DYNAMIC_MXFP4_LINEAR", "removed", "does nothing any more"),
        ("SGLANG_ENABLE_UNIFIED_RADIX_TREE", "no longer retired", "remove it"),
        ("SGLANG_SIMULATE_ACC_GREEDY", "default", "default"),
    ],
)
def test_what_meets_the_variables_in_use(name: str, change: str, said: str) -> None:
    effect = effects({}, {name: "1"})[name, change]
    assert effect.in_use == "set"
    assert said in effect.text


def test_a_default_of_a_variable_that_is_not_set_is_in_use() -> None:
    effect = effects({})["SGLANG_ENABLE_PREFILL_WAR_READ_DONE", "default"]
    assert (effect.in_use, effect.text) == ("default", "it is not set: false becomes true")


def test_what_is_not_set_and_keeps_its_default_is_left_out() -> None:
    assert {effect.change.change for effect in effects({}).values()} == {"default"}


def test_downgrade() -> None:
    found = rd.difference(NEW, OLD)
    used = {"enable-paged-experts": True, "lora-backend": "triton_v2", "tool-call-parser": "beam"}
    by_name = {effect.change.name: effect for effect in rd.for_arguments(found, used, {})}
    assert by_name["enable-paged-experts"].severity == "error"
    assert by_name["lora-backend"].severity == "error"
    assert "triton_v2 is no choice any more" in by_name["lora-backend"].text
    # A plugin may have brought it.
    assert by_name["tool-call-parser"].severity == "warning"


def test_the_worst_comes_first_and_everything_is_text() -> None:
    found = rd.difference(OLD, NEW)
    used = {"speculative-skip-dp-mlp-sync": True, "lora-backend": "triton"}
    effects_found = rd.for_arguments(found, used, {})
    rows = rd.table_rows(effects_found)
    order = [row["severity"] for row in rows]
    assert order == sorted(order, key=["error", "warning", "info"].index)
    assert all(isinstance(cell, str) for row in rows for cell in row.values())
    assert set(rows[0]) == set(rd.COLUMNS)
    lines = rd.lines(found, effects_found)
    assert lines[0].startswith("error   --speculative-skip-dp-mlp-sync: removed")
    assert any("--lora-backend: choices (nothing -> +triton_v2)" in line for line in lines)
    assert lines[-1] == f"{len(found.changes) - len(effects_found)} other changes do not meet what is declared"


def test_without_data_it_is_said_whose_was_taken() -> None:
    found = rd.difference(OLD, "0.5.30")
    assert found.assumed == ("0.5.30: data of 0.5.23",)
    assert found.changes == rd.difference(OLD, NEW).changes
    assert rd.lines(found, ())[-1] == "assumed, for want of data: 0.5.30: data of 0.5.23"


@pytest.mark.parametrize("text", ["v0.5.23", "0.5.23", " V0.5.23 "])
def test_a_leading_v_is_overlooked(text: str) -> None:
    assert rd.plain_release(text) == "0.5.23"
    assert args_report.report({"version": "v0.5.22", "upgrade_to": text})["difference"]["to"] == "0.5.23"


def test_report() -> None:
    params = {
        "version": OLD,
        "upgrade_to": NEW,
        "arguments": {"speculative-skip-dp-mlp-sync": True, "disable-cuda-graph": True},
        "config": {"enable-tf32-matmul": True},
        "keys": ["api_key"],
    }
    report = args_report.report(params)
    assert (report["outcome"], report["assumed"], report["data_of"]) == ("warning", False, OLD)
    assert [one["id"] for one in report["findings"]] == ["args.deprecated"]
    new = {one["id"] for one in report["difference"]["new_findings"]}
    assert new == {"args.removed", "args.config_refused"}
    assert report["difference"]["counts"]["flags added"] == 11
    assert len(report["difference"]["all"]) == len(rd.difference(OLD, NEW).changes)
    assert args_report.report({"version": "0.5.30"})["assumed"] is True


def test_secrets_among_the_options_are_known() -> None:
    params = {"version": OLD, "command_line": ["--api-key", "k-123"], "environment": {"MY_TOKEN": "t-123"}}
    assert args_report.secrets_among(params) == {"k-123", "t-123"}
