# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask SGLang's own parser what it takes and what it refuses.

    ENVIRONMENT/bin/python tools/args_reference.py COUNT SEED MODEL > tests/data/args_reference_0.5.22.jsonl

Every flag of the installed release is asked about with right and wrong values, in other spellings, and in COUNT random
sets, on the command line and in a configuration file. The command line is rendered as a deployment renders it. A line
holds the arguments or the file's content, and what the parser said when it refused them.

Arguments that exclude or need each other are refused after the parser, with the configuration of a model in hand: MODEL
is a folder with config.json, and such sets are resolved as a start on a CPU resolves them. No GPU is needed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import pathlib
import random
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "plugins"))

from module_utils import flag_table, server_args
from module_utils.checks import args_flags

NUMBERS = [
    "5",
    "-1",
    " 7 ",
    "1_000",
    "+3",
    "1e3",
    "0x10",
    "2.0",
    "0.5",
    "",
    "two",
    "32k",
    "32K",
    "32Ki",
    "1.5k",
    "1.5Ki",
]
NUMBERS += ["nan", "inf", "-0.5", "-.5", "٣", "1,000", "- 1", "--5"]
TEXTS = ["a", "", "x y", "-x", "--x", "-", "a=b", "/srv/m", "None", "{}", "ä", "-x y", "true"]
JSONS = ['{"a": 1}', "{'a': 1}", "[1, 2]", "[", '"text"', "null", "", "NaN", "1"]
GRAPHS = ['{"decode": {"max_bs": 8}}', '{"decode": {"backend": "tc_piecewise"}}', '{"decode": 1}', '{"verify": {}}']
GRAPHS += ['{"prefill": {"max_bs": 1, "bss": 2}}', "[]", "{}", "x", '{"prefill": {"backend": "full"}}']
ADAPTERS = ["a=/srv/a", "/srv/a", '{"lora_name": "a", "lora_path": "/a"}', '{"lora_name": "a"}', "{x}", "-x"]
TRUTHS = [True, False, "yes", 1, "true"]

# So much of what the parser says is kept.
LIMIT = 80


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Refused(message)


def build() -> Parser:
    from sglang.srt.server_args import ServerArgs

    parser = Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def asked(parser: Parser, words: list[str]) -> str | None:
    """What the parser says against the words."""
    try:
        # The parser insists on a model.
        parser.parse_args(["--model-path", "m", *words])
    except Refused as error:
        return str(error)[:LIMIT]
    except SystemExit as error:
        return f"exit {error.code}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:LIMIT]
    return None


def on_command_line(parser: Parser, arguments: dict[str, Any], release: str) -> str | None:
    return asked(parser, server_args.render(server_args.canonical(arguments), release))


def in_file(parser: Parser, content: dict[str, Any]) -> str | None:
    import yaml
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        yaml.safe_dump(content, file)
        file.flush()
        try:
            words = ConfigArgumentMerger(parser).merge_config_with_args(["--config", file.name])
        except ValueError as error:
            return f"{type(error).__name__}: {error}"[:LIMIT]
    return asked(parser, words)


def right_values(flag: flag_table.Flag) -> list[Any]:
    by_type: dict[str, list[Any]] = {
        "int": [4],
        "float": [0.5],
        "human_readable_int": ["32k"],
        "graph_config": [GRAPHS[0]],
    }
    if flag.kind in ("flag", "switch"):
        return [True, False]
    if flag.choices is not None:
        values = list(flag.choices[:2])
    else:
        values = by_type.get(flag.type, ['{"a": 1}'] if "json" in flag.type else ["a"])
    return [values] if flag.kind == "values" else values


def wrong_values(flag: flag_table.Flag) -> list[Any]:
    """Values of every kind. Which of them are wrong is for the parser to say."""
    if flag.kind in ("flag", "switch"):
        return TRUTHS
    pool: list[Any] = {"int": NUMBERS, "float": NUMBERS, "human_readable_int": NUMBERS, "graph_config": GRAPHS}.get(
        flag.type, JSONS if "json" in flag.type else TEXTS
    )
    if flag.name == "lora-paths":
        pool = ADAPTERS
    if flag.choices is not None:
        pool = [*pool, *flag.choices[-2:], "no-such-choice"]
    if flag.kind == "values":
        return [[item] for item in pool] + [pool[:2], True, [], "a"]
    return [*pool, True, [1, 2]]


def other_spellings(table: flag_table.FlagTable, name: str, pick: random.Random) -> Iterator[str]:
    yield name.replace("-", "_")
    yield name[: pick.randint(2, max(2, len(name) - 1))]
    yield name[:-1]
    yield name + "x"
    yield "no-" + name
    yield from table.rows[name].get("aliases", ())


def sets(table: flag_table.FlagTable, count: int, pick: random.Random) -> Iterator[dict[str, Any]]:
    left_out = (*args_flags.OWNED, *args_flags.SECRET_ARGUMENTS, "config")
    flags = [flag for name in table.rows if name not in left_out and (flag := table.flag(name)) is not None]
    for flag in flags:
        for value in right_values(flag):
            yield {flag.name: value}
        for value in pick.sample(wrong_values(flag), 2):
            yield {flag.name: value}
        if pick.random() < 0.25:
            spelling = pick.choice(list(other_spellings(table, flag.name, pick)))
            if table.canonical(spelling.replace("_", "-")) not in left_out:
                yield {spelling: pick.choice(right_values(flag))}
    for _round in range(count):
        some = pick.sample(flags, pick.randint(2, 6))
        chosen = {flag.name: pick.choice(right_values(flag)) for flag in some}
        if pick.random() < 0.4:
            flag = pick.choice(some)
            chosen[flag.name] = pick.choice(wrong_values(flag))
        yield chosen


# Arguments of which some exclude or need others, with the values that they are tried with. None leaves one out.
TOGETHER: dict[str, list[Any]] = {
    "tp-size": [None, 2, 3, 4, 6],
    "pp-size": [None, None, None, None, 2],
    "dp-size": [None, None, None, 2],
    "attn-dp-size": [None, None, 2, 3],
    "moe-dp-size": [None, None, None, None, 5],
    "enable-dp-attention": [None, None, None, True],
    "nnodes": [None, None, 2, 3],
    "dist-init-addr": ["10.0.0.1:5000"],
    "tokenizer-worker-num": [None, None, None, 0, 1, 2],
    "detokenizer-worker-num": [None, None, None, None, 0, 2],
    "base-gpu-id": [None, None, None, 0, -1],
    "gpu-id-step": [None, None, None, 1, 0],
    "grpc-port": [None, None, None, None, 0, 5000, 30000, 70000],
    "port": [None, 30000],
    "api-key": [None, None, "k"],
    "admin-api-key": [None, None, None, "a"],
    "served-model-name": [None, None, None, "a", "a:b", "s3://a:b"],
    "ssl-certfile": [None, None, None, None, __file__],
    "ssl-keyfile": [None, None, None, None, __file__],
    "enable-ssl-refresh": [None, None, None, None, True],
    "export-metrics-to-file": [None, None, None, True],
    "export-metrics-to-file-dir": [None, "/tmp"],
    "disable-cuda-graph-padding": [None, None, True],
    "enable-torch-compile": [None, None, None, True],
    "retraction-policy": [None, None, None, "priority"],
    "enable-priority-scheduling": [None, None, True],
    "schedule-policy": [None, None, "lof", "lpm"],
    "sidecar-args": [None, None, None, None, None, '["a"]'],
    "gc-threshold": [None, None, None, [1, 2], [1, 2, 3, 4]],
    "schedule-conservativeness": [None, None, None, 0.5, -1],
    "enable-http-worker-reuseport": [None, None, None, True],
}


def combinations(table: flag_table.FlagTable, count: int, pick: random.Random) -> Iterator[dict[str, Any]]:
    for _round in range(count):
        names = [name for name in pick.sample(sorted(TOGETHER), pick.randint(2, 9)) if name in table.rows]
        chosen = {name: pick.choice(TOGETHER[name]) for name in names}
        if chosen.get("nnodes"):
            chosen["dist-init-addr"] = TOGETHER["dist-init-addr"][0]
        yield {name: value for name, value in chosen.items() if value is not None}


def resolved(arguments: dict[str, Any], model: str, release: str) -> str | None:
    """What a start says against the arguments together, before it loads anything."""
    from sglang.srt.server_args import prepare_server_args

    fixed = ["--model-path", model, "--load-format", "dummy", "--device", "cpu"]
    try:
        made = prepare_server_args([*fixed, *server_args.render(arguments, release)])
        logging.disable(logging.CRITICAL)
        made.resolve_once()
        made.check_server_args()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:LIMIT]
    return None


def known_cases(table: flag_table.FlagTable) -> Iterator[dict[str, Any]]:
    for name in (
        "cuda-graph-max-bs",
        "cuda-graph-bs",
        "tp",
        "dp",
        "ep",
        "pp",
        "mem-fraction",
        "speculative-skip-dp-mlp-sync",
    ):
        yield {name: 2}
    for name in table.rows:
        flag = table.flag(name)
        if flag is not None and flag.type == "human_readable_int":
            for number in NUMBERS:
                yield {name: number}
        if flag is not None and flag.type == "graph_config":
            for text in GRAPHS:
                yield {name: text}
    for adapter in ADAPTERS:
        yield {"lora-paths": [adapter]}


def main(words: list[str]) -> int:
    if len(words) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)
    import sglang

    release = getattr(sglang, "__version__", "") or importlib.metadata.version("sglang")
    table = flag_table.flags_of(release)
    if table.assumed:
        print(f"there is no data for SGLang {release}: make it with tools/release_data.py", file=sys.stderr)
        return 1
    pick = random.Random(int(words[1]))
    parser = build()
    for arguments in [*known_cases(table), *sets(table, int(words[0]), pick)]:
        said = on_command_line(parser, arguments, release)
        print(json.dumps({"arguments": arguments, "refused": said}, ensure_ascii=False))
    for content in [*known_cases(table), *sets(table, int(words[0]), pick)]:
        if pick.random() < 0.35:
            content = {key: None if pick.random() < 0.02 else value for key, value in content.items()}
            print(json.dumps({"config": content, "refused": in_file(parser, content)}, ensure_ascii=False))
    for arguments in combinations(table, int(words[0]) // 2, pick):
        said = resolved(arguments, words[2], release)
        # The path of a certificate is one of this machine.
        arguments = {name: "/x.pem" if value == __file__ else value for name, value in arguments.items()}
        print(json.dumps({"together": arguments, "refused": said}, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
