# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One short line for each key that is wrong, and no secret in it."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.module_utils.declared_types import problems

TYPES = {"int": int, "str": str, "list": list, "dict": dict}
OPTIONS = {
    "port": {"type": "int"},
    "key": {"type": "str", "no_log": True},
    "memory": {"type": "dict", "options": {"tokens": {"type": "int"}}},
    "paths": {"type": "list", "elements": "path"},
    "cards": {"type": "list", "elements": "raw"},
    "mounts": {"type": "list", "elements": "dict", "options": {"source": {"type": "str"}}},
}


def found(declared):
    return list(problems(declared, OPTIONS, lambda option, value: isinstance(value, TYPES[option["type"]])))


def test_what_fits():
    assert found({"port": 1, "key": "x", "memory": {"tokens": 1}, "paths": [], "cards": [0]}) == []
    assert found({"port": None}) == []


def test_what_does_not():
    assert found({"port": "x", "memory": {"tokens": "y", "tokns": 1}, "paths": "p", "cards": 0, "zzz": 1}) == [
        "port is 'x', expected a whole number",
        "memory.tokens is 'y', expected a whole number",
        "memory.tokns is unknown, perhaps memory.tokens is meant",
        "paths is 'p', expected a list, each a path",
        "cards is 0, expected a list",
        "zzz is unknown",
    ]
    assert found({"memory": 3}) == ["memory is 3, expected a mapping"]
    assert found(["port"]) == ["it is ['port'], expected a mapping of its keys"]


def test_what_does_not_fit_in_a_list_is_told_by_its_place():
    assert found({"mounts": [{"source": "/a"}, {"source": 1, "sorce": "/b"}, "/c"]}) == [
        "mounts[1].source is 1, expected text",
        "mounts[1].sorce is unknown, perhaps mounts[1].source is meant",
        "mounts[2] is '/c', expected a mapping of its keys",
    ]
    assert found({"mounts": "/c"}) == ["mounts is '/c', expected a list, each a mapping"]


def test_a_secret_is_not_shown_and_a_long_value_is_cut():
    assert found({"key": ["s3cret"]}) == ["key is of type list, expected text"]
    (line,) = found({"port": "x" * 500})
    assert len(line) < 110
