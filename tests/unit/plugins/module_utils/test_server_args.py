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
    assert server_args.command_line("/v/bin/python", args, VERSION, credentials=True) == [
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
    assert "--config" not in server_args.command_line("/v/bin/python", args, VERSION, credentials=False)


def test_what_became_a_switch_is_rendered_by_release() -> None:
    args = {"enable-tf32-matmul": False}
    assert server_args.render(args, "0.5.22") == []
    assert server_args.render(args, "0.5.23") == ["--no-enable-tf32-matmul"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_running_requests", 4, "write it 'max-running-requests'"),
        ("--enable-metrics", True, "write it 'enable-metrics'"),
        ("tensor-parallel-size", 2, "write it 'tp-size'"),
        ("tp", 2, "did you mean 'tp-size'?"),
        ("cuda-graph-max-bs", 8, "did you mean 'cuda-graph-max-bs-decode', 'cuda-graph-max-bs-prefill'?"),
        ("max-runing-requests", 4, "did you mean 'max-running-requests'"),
        ("no-lora-strict-loading", True, "write 'lora-strict-loading: false'"),
        ("host", "0.0.0.0", "declare it as 'host' of the instance"),
        ("model", "/srv/m", "declare it as 'model' of the instance"),
        ("model_path", "/srv/m", "declare it as 'model' of the instance"),
        ("api-key", "x", "declare it as 'api_key' of the instance"),
        ("admin-api-key", "x", "declare it as 'admin_api_key' of the instance"),
        ("config", "/x.yml", "the configuration file is made from api_key"),
        ("ssl-keyfile-password", "x", "is a secret"),
        ("enable-metrics", "yes", "takes no value"),
        ("tp-size", True, "takes a value, not true"),
        ("tp-size", [1, 2], "takes one value, not a list"),
        ("tp-size", "", "is empty"),
        ("numa-node", [0, None], "is not a value"),
        ("lora-paths", ["--x"], "would be taken for a flag"),
    ],
)
def test_wrong_arguments_are_refused_with_the_right_spelling(key: str, value: Any, said: str) -> None:
    problems, warnings = server_args.check_arguments({key: value}, VERSION)
    assert len(problems) == 1
    assert said in problems[0]
    assert warnings == []


@given(arguments())
def test_right_arguments_are_accepted(args: dict[str, Any]) -> None:
    elsewhere = {*server_args.OWNED, *server_args.SECRET_ARGUMENTS, "config"}
    args = {name: value for name, value in args.items() if name not in elsewhere}
    assert server_args.check_arguments(args, VERSION) == ([], [])


def test_a_release_without_data_is_read_with_the_nearest_ones_flags() -> None:
    table = server_args.flags_of("0.5.24")
    assert (table.version, table.assumed) == ("0.5.23", True)
    assert server_args.flags_of("0.5.17").version == "0.5.22"
    problems, warnings = server_args.check_arguments({"some-new-flag": 1}, "0.5.24")
    assert problems == []
    assert "nearest release" in warnings[0]


@pytest.mark.parametrize("version", sorted(KINDS))
def test_aliases_stand_for_flags_that_exist(version: str) -> None:
    assert set(ALIASES[version].values()) <= set(KINDS[version])
    assert not set(ALIASES[version]) & set(KINDS[version])


def test_the_releases_differ_as_they_are_known_to() -> None:
    assert len(KINDS["0.5.22"]) == 521
    assert len(KINDS["0.5.23"]) == 531
    assert set(KINDS["0.5.22"]) - set(KINDS["0.5.23"]) == {"speculative-skip-dp-mlp-sync"}
