# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever is declared under a known key, an area looks at the rest and never breaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    cache_readings,
    container_checks,
    container_readings,
    declaration,
    host_checks,
    host_readings,
    instance_shape,
    memory_area,
    wanted,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.machine import Host, Readings

KEYS = [
    *("name", "version", "runtime", "python", "user", "home", "environment", "arguments", "port", "cards", "model"),
    *("cards_shared", "image", "shm_size", "ipc", "tp", "entrypoint", "command", "init", "privileged", "userns"),
    *("container_user", "mounts", "volumes", "writable_paths", "desired", "memory", "nnodes", "mem_fraction", "host"),
    *("start_deadline_s", "deep_gemm", "declared_environment", "hf_home", "cuda", "cuda_compat", "device"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["docker", "native"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "model", "path", "device", "tp-size", "source"]), inner, max_size=3)
    ),
    max_leaves=8,
)
INSTANCE = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)
# None of them may reach the host: what a path in them is does not matter here.
LISTS = st.lists(INSTANCE | JSON, max_size=3) | JSON
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CARDLESS = Readings("none", (), Host(1 << 38, 1 << 37))


@MANY
@given(LISTS)
def test_the_rules_of_the_host_take_any_instance(instances: Any) -> None:
    read = wanted.read_wanted(instances)
    needs = wanted.disk_needs({"instances": instances}, read)
    host_readings.services_asked(read)
    run_checks(host_checks.CHECKS, host_readings.HostReadings(read, needs))


@MANY
@given(LISTS)
def test_the_rules_of_containers_take_any_instance(instances: Any) -> None:
    servers = container_readings.servers_of(instance_shape.instances_of(instances))
    containers = container_readings.Containers(servers)
    containers.as_dict()
    run_checks(container_checks.CHECKS, containers)


@MANY
@given(LISTS)
def test_caches_of_any_instance_are_resolved(instances: Any) -> None:
    cache_readings.resolve(instance_shape.instances_of(instances), 2)


@settings(MANY, max_examples=40)
@given(LISTS)
def test_memory_and_declaration_take_any_instance(instances: Any) -> None:
    memory_area.examine({"instances": instances}, lambda: CARDLESS)
    declaration.examine({"instances": instances})


def test_what_was_left_out_is_said() -> None:
    (one,) = wanted.read_wanted([{"name": "main", "arguments": [1], "port": 30000}])
    assert one.problem == "arguments is list, expected a mapping"
    assert [use.port for use in one.ports][:1] == [30000]


@pytest.mark.parametrize("key", ["arguments", "environment"])
def test_a_list_for_a_mapping_is_no_end_of_containers(key: str) -> None:
    (one,) = container_readings.servers_of(instance_shape.instances_of([{"runtime": "docker", "name": "x", key: [1]}]))
    assert one.name == "x"
