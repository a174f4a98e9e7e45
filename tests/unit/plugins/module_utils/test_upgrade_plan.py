# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How two desired states differ, and how that is said of many replicas."""

from __future__ import annotations

import json

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import upgrade_plan as upgrade
from ansible_collections.serving.sglang.plugins.module_utils.redaction import MASK


def state(**changes):
    return {
        "schema": 1,
        "unit_revision": 1,
        "version": "0.5.22",
        "runtime": "native",
        "container": None,
        "model": {"path": "/m", "local": True, "served_name": "m"},
        "args": {"port": 30000},
        "argv": ["python"],
        "environment": {"PATH": "/opt/sglang/0.5.22/bin:/usr/bin"},
        "limits": {"memory_max_bytes": 1},
        "grace": {"period_s": 150, "arithmetic": "..."},
        "drain": {"timeout_s": 60, "on_timeout": "fail"},
        "start": {"deadline_s": 900},
        "credentials": None,
        "worker_url": "http://a:1",
        **changes,
    }


def rows(before, after):
    return [(row.part, row.name, row.before, row.after) for row in upgrade.changes(before, after)]


CASES = {
    "the same": ({}, []),
    "the command line alone follows from the rest": ({"argv": ["python", "other"]}, []),
    "another environment of the same release": (
        {
            "argv": ["/opt/sglang/0.5.22-aa/bin/python"],
            "environment": {"PATH": "/opt/sglang/0.5.22-aa/bin:/usr/bin"},
        },
        [("other", "interpreter", "python", "/opt/sglang/0.5.22-aa/bin/python")],
    ),
    "version": (
        {"version": "0.5.23", "environment": {"PATH": "/opt/sglang/0.5.23/bin:/usr/bin"}},
        [("version", "version", "0.5.22", "0.5.23")],
    ),
    "a path of another release that is no mere switch": (
        {"environment": {"PATH": "/opt/sglang/0.5.21/bin:/usr/bin"}},
        [("environment", "PATH", "/opt/sglang/0.5.22/bin:/usr/bin", "/opt/sglang/0.5.21/bin:/usr/bin")],
    ),
    "image and runtime": (
        {"runtime": "podman", "container": {"image": "r/s:v1@sha256:1", "run_image": "r/s@sha256:1", "ipc": "host"}},
        [
            ("runtime", "runtime", "native", "podman"),
            ("image", "image", None, "r/s:v1@sha256:1"),
            ("container", "ipc", None, "host"),
        ],
    ),
    "arguments": (
        {"args": {"port": 30001, "tp-size": 2}},
        [("argument", "port", 30000, 30001), ("argument", "tp-size", None, 2)],
    ),
    "limits and times": (
        {
            "limits": {"memory_max_bytes": 2},
            "grace": {"period_s": 200},
            "drain": {"timeout_s": 60, "on_timeout": "abort"},
        },
        [
            ("limit", "memory_max_bytes", 1, 2),
            ("time", "grace.period_s", 150, 200),
            ("time", "drain.on_timeout", "fail", "abort"),
        ],
    ),
    "model": (
        {"model": {"path": "/n", "local": True, "served_name": "m"}},
        [("model", "path", "/m", "/n")],
    ),
    "a key was added": (
        {"credentials": {"config": "/c", "hf_token": None, "fingerprint": "1"}},
        [("credentials", "credentials", None, "config")],
    ),
    "whatever else": ({"worker_url": "http://b:1"}, [("other", "worker_url", "http://a:1", "http://b:1")]),
}


@pytest.mark.parametrize("case", CASES)
def test_changes(case):
    changes, expected = CASES[case]
    assert rows(state(), state(**changes)) == expected


def test_nothing_to_compare():
    assert upgrade.difference(None, state()) is None
    assert upgrade.difference(state(), None) is None
    assert upgrade.difference(state(), state()) is None


def test_a_changed_key_is_told_without_what_tells_it():
    def keys(mark):
        return state(credentials={"config": "/c", "hf_token": None, "fingerprint": mark})

    found = upgrade.difference(keys("aaaa1111"), keys("bbbb2222"))
    assert [row["text"] for row in found["changes"]] == ["other values"]
    assert "1111" not in json.dumps(found)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("environment", "HF_TOKEN"),
        ("environment", "OPENAI_APIKEY"),
        ("environment", "AWS_SECRET_ACCESS_KEY"),
        ("environment", "DB_PASSWORD"),
        ("args", "ssl-keyfile-password"),
        ("args", "api-key"),
    ],
)
def test_what_could_be_a_secret_is_masked(part, name):
    found = upgrade.difference(state(**{part: {name: "Zq-old"}}), state(**{part: {name: "Zq-new"}}))
    told = json.dumps(found) + "\n".join(upgrade.render(upgrade.grouped([("r", found)])))
    assert "Zq" not in told
    assert MASK in told


def test_a_secret_inside_of_a_value_is_masked():
    found = upgrade.difference(state(), state(args={"port": 30000, "note": "http://me:Zq-pass@h/"}))
    assert "Zq" not in json.dumps(found)


def test_another_release_is_told_by_what_meets_the_arguments():
    found = upgrade.difference(state(), state(version="0.5.23"))
    texts = [row["text"] for row in found["changes"] if row["part"] == "release"]
    assert "default of --enable-tf32-matmul changes from false to unset" in texts
    assert found["assumed"] == []
    set_already = state(version="0.5.23", args={"enable-tf32-matmul": False})
    texts = [row.get("text") for row in upgrade.difference(state(), set_already)["changes"]]
    assert "default of --enable-tf32-matmul changes from false to unset" not in texts
    assert upgrade.difference(state(), state(version="0.5.99"))["assumed"] != []


def test_a_large_fleet_is_told_once():
    found = upgrade.difference(state(), state(version="0.5.23"))
    groups = upgrade.grouped([(f"gpu{number}", found) for number in range(1000)])
    assert len(groups) == 1
    assert len(groups[0]["replicas"]) == 1000
    lines = upgrade.render(groups)
    assert lines[0] == ("  changes: gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7 and 992 more: 0.5.22 -> 0.5.23")
    assert len(lines) < 20


def test_a_value_that_each_host_computed_makes_no_group_of_each():
    found = [
        (f"gpu{n}", upgrade.difference(state(), state(args={"port": 30000, "mem-fraction-static": 0.8 + n / 1000})))
        for n in range(5)
    ]
    groups = upgrade.grouped(found)
    assert len(groups) == 1
    assert groups[0]["lines"] == ["argument mem-fraction-static: another value on each"]


def test_what_differs_is_two_groups():
    one = upgrade.difference(state(), state(args={"port": 30001}))
    two = upgrade.difference(state(), state(args={}))
    lines = upgrade.render(upgrade.grouped([("a", one), ("b", two), ("c", one)]), "back")
    assert lines == [
        "  back: a, c: 0.5.22, changed",
        "    argument port: 30000 -> 30001",
        "  back: b: 0.5.22, changed",
        "    argument port: left out, was 30000",
    ]


def test_a_long_value_is_cut():
    found = upgrade.difference(state(), state(args={"port": 30000, "json": "x" * 500}))
    (line,) = upgrade.grouped([("a", found)])[0]["lines"]
    assert len(line) < 160
