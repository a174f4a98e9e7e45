# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's command line: rendered once, read back by argparse as what was declared."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import server_args
from ansible_collections.serving.sglang.plugins.module_utils.server_flags import ALIASES, KINDS

VERSION = "0.5.22"


def parser_of(version: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """A parser with these flags of the release, of the kinds that SGLang's own parser has."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        kind = KINDS[version][name]
        if kind == "flag":
            parser.add_argument(f"--{name}", action="store_true", default=None)
        elif kind == "switch":
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None)
        elif kind == "values":
            parser.add_argument(f"--{name}", nargs="*")
        elif kind == "optional":
            parser.add_argument(f"--{name}", nargs="?", const=True)
        else:
            parser.add_argument(f"--{name}")
    return parser


def read_back(words: list[str], version: str, names: Iterable[str]) -> dict[str, Any]:
    parsed = vars(parser_of(version, names).parse_args(words))
    return {name.replace("_", "-"): value for name, value in parsed.items() if value is not None}


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)
scalars = st.integers() | st.floats(allow_nan=False) | texts
mappings = st.dictionaries(texts, scalars | st.booleans() | st.none(), min_size=1, max_size=3)
plain_words = st.integers() | texts.filter(lambda text: not text.startswith("-")) | mappings


@st.composite
def arguments(draw: st.DrawFn, version: str = VERSION) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(KINDS[version])), unique=True, max_size=8))
    by_kind = {
        "flag": st.booleans(),
        "switch": st.booleans(),
        "value": scalars | mappings,
        "optional": st.just(True) | texts,
        "values": st.lists(plain_words, max_size=4),
    }
    return {name: draw(by_kind[KINDS[version][name]] | st.none()) for name in names}


def expected(args: dict[str, Any], version: str) -> dict[str, Any]:
    """What a server that was given these arguments has, as words."""

    def word(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, dict) else str(value)

    result: dict[str, Any] = {}
    for name, value in args.items():
        kind = KINDS[version][name]
        if value is None or value == [] or (value is False and kind != "switch"):
            continue
        if isinstance(value, bool):
            result[name] = value
        elif isinstance(value, list):
            result[name] = [word(item) for item in value]
        else:
            result[name] = word(value)
    return result


@pytest.mark.parametrize("version", sorted(KINDS))
@given(data=st.data())
def test_what_is_rendered_reads_back_as_what_was_declared(version: str, data: st.DataObject) -> None:
    args = data.draw(arguments(version))
    assert read_back(server_args.render(args, version), version, args) == expected(args, version)


@given(arguments())
def test_what_is_rendered_does_not_depend_on_the_order(args: dict[str, Any]) -> None:
    backwards = dict(reversed(list(args.items())))
    assert server_args.render(args, VERSION) == server_args.render(backwards, VERSION)


def test_command_line() -> None:
    args = {
        "port": 30000,
        "model-path": "/srv/m",
        "enable-metrics": True,
        "disable-radix-cache": False,
        "lora-strict-loading": False,
        "cuda-graph-config": {"decode": {"backend": "full"}},
        "chunked-prefill-size": -1,
        "numa-node": [0, 1],
        "context-length": None,
        "chat-template": "-x",
    }
    assert server_args.command_line("/v/bin/python", args, VERSION, server_args.CREDENTIALS_CONFIG) == [
        "/v/bin/python",
        "-m",
        "sglang.launch_server",
        *("--model-path", "/srv/m"),
        *("--port", "30000"),
        "--chat-template=-x",
        *("--chunked-prefill-size", "-1"),
        *("--cuda-graph-config", '{"decode":{"backend":"full"}}'),
        "--enable-metrics",
        "--no-lora-strict-loading",
        *("--numa-node", "0", "1"),
        # Two words: as one, SGLang overlooks it.
        *("--config", "${CREDENTIALS_DIRECTORY}/config.yml"),
    ]
    assert "--config" not in server_args.command_line("/v/bin/python", args, VERSION)


def test_what_became_a_switch_is_rendered_by_release() -> None:
    args = {"enable-tf32-matmul": False}
    assert server_args.render(args, "0.5.22") == []
    assert server_args.render(args, "0.5.23") == ["--no-enable-tf32-matmul"]


@pytest.mark.parametrize("version", sorted(KINDS))
def test_aliases_stand_for_flags_that_exist(version: str) -> None:
    assert set(ALIASES[version].values()) <= set(KINDS[version])
    assert not set(ALIASES[version]) & set(KINDS[version])


def test_the_releases_differ_as_they_are_known_to() -> None:
    assert len(KINDS["0.5.22"]) == 521
    assert len(KINDS["0.5.23"]) == 531
    assert set(KINDS["0.5.22"]) - set(KINDS["0.5.23"]) == {"speculative-skip-dp-mlp-sync"}
