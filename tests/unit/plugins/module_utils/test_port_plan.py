# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that instances of one host will take."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.port_plan import port_conflicts, ports_used


def ports(port: int, args: dict[str, Any]) -> set[int]:
    return {use.port for use in ports_used(port, args)}


def test_an_ordinary_server_takes_its_port() -> None:
    assert ports(30000, {"tp-size": 8, "dp-size": 2}) == {30000}


@pytest.mark.parametrize("args", [{"attn-dp-size": 4}, {"enable-dp-attention": True, "dp-size": 4}])
def test_attention_data_parallelism_takes_ports_derived_from_it(args: dict[str, Any]) -> None:
    assert ports(30000, args) == {30000, *range(30233, 30243)}


def test_derived_ports_lie_below_when_there_are_none_above() -> None:
    assert min(ports(65500, {"attn-dp-size": 2}) - {65500}) == 65500 - 233


def test_named_ports_count() -> None:
    args = {"grpc-port": 1, "nccl-port": 2, "disaggregation-mode": "prefill", "engine-info-bootstrap-port": 4}
    assert ports(30000, args) == {30000, 1, 2, 8998, 4}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((30000, {}), (30001, {}), None),
        ((30000, {}), (30000, {}), "both take port 30000"),
        ((30000, {"attn-dp-size": 2}), (30235, {}), "both take port 30235 (attention data parallelism"),
        ((30000, {"nccl-port": 30001}), (30001, {}), "both take port 30001 (nccl-port of 'one', port of 'other')"),
    ],
)
def test_two_instances_may_not_want_one_port(one: Any, other: Any, said: str | None) -> None:
    problems = port_conflicts({"one": ports_used(*one), "other": ports_used(*other)})
    assert (problems == []) if said is None else (len(problems) == 1 and said in problems[0])


def test_a_port_is_a_port() -> None:
    assert "65536 is not a port" in port_conflicts({"one": ports_used(65536, {})})[0]
    assert "is taken for port and for grpc-port" in port_conflicts({"one": ports_used(80, {"grpc-port": 80})})[0]
