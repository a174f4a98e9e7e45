#!/usr/bin/env python3
"""Check golden values of the automatic memory fraction against the rule of this collection.

    tests/golden.py FILE.csv

Prints how many rows there are and every difference; ends with 1 when there is one.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import references

# The configuration that stands for a class of models in the golden files.
CLASSES = {
    "dense_gqa": "qwen3-8b",
    "moe_gqa": "qwen3-30b-a3b",
    "mla": "deepseek-v3",
    "hybrid_swa": "gpt-oss-20b",
    "hybrid_mamba": "qwen3-next-80b-a3b",
    "vlm_siglip": "gemma3-12b",
    "vlm_qwen25vl": "qwen2.5-vl-7b",
    "vlm_bigvit": "qwen2-vl-bigvit",
}
GRAPHS: dict[str, dict[str, Any]] = {
    "default": {},
    "all_disabled": {"disable-cuda-graph": True},
    "decode_disabled": {"cuda-graph-backend-decode": "disabled"},
    "prefill_disabled": {"cuda-graph-backend-prefill": "disabled"},
}


def arguments_of(row: dict[str, str]) -> dict[str, Any]:
    """The flags that a row stands for."""
    given: dict[str, Any] = {
        "model-path": f"/models/{row['model_class']}",
        "tp-size": row["tp"],
        "pp-size": row["pp"],
        "dp-size": row["dp"],
        "attn-dp-size": row["attn_dp"],
        "chunked-prefill-size": row["chunked_prefill_size_arg"],
        "max-running-requests": row["max_running_requests_arg"],
        "disaggregation-mode": row["disaggregation_mode"],
        "speculative-num-draft-tokens": row["spec_draft_tokens"],
        "moe-a2a-backend": row["moe_a2a"],
    }
    if row["speculative"] not in ("", "none"):
        given["speculative-algorithm"] = row["speculative"]
    if row["enable_multimodal_arg"]:
        given["enable-multimodal"] = row["enable_multimodal_arg"]
    given.update(graph_arguments(row["graph_args"]))
    return {name: value for name, value in given.items() if value != ""}


def graph_arguments(text: str) -> dict[str, Any]:
    """`default`, `decode_disabled`, … or `max_bs_decode=8`, several of them divided by a semicolon."""
    given: dict[str, Any] = {}
    for word in text.split(";"):
        name, equals, value = word.strip().partition("=")
        if not equals:
            given.update(GRAPHS[name])
        else:
            values = value.split()
            given["cuda-graph-" + name.replace("_", "-")] = values if len(values) > 1 else value
    return given


def computed(row: dict[str, str]) -> dict[str, str]:
    """The columns of a row that the rule answers, as text."""
    from ansible_collections.serving.sglang.plugins.module_utils import memory, memory_arguments, memory_releases

    release = memory_releases.memory_release_for(row["version"])
    model, _config = references.model_named(CLASSES[row["model_class"]], row["version"])
    environment = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"} if row["post_capture_env"] == "1" else {}
    arguments = memory_arguments.read_arguments(arguments_of(row), environment, row["version"])
    mib = float(row["gpu_mem_mib"]) if row["gpu_mem_mib"] else None
    fraction = memory.automatic_fraction(memory.Capacity(mib), arguments, model.traits, release)
    return {
        "chunked_prefill_size": str(fraction.chunked_prefill_size),
        "cuda_graph_max_bs": str(fraction.decode.max_bs),
        "decode_backend": fraction.decode.backend,
        "prefill_backend": fraction.prefill.backend,
        "prefill_graph_max_bs": str(fraction.prefill.max_bs),
        "prefill_graph_shapes": str(len(fraction.prefill.shapes)),
        "post_capture_sizing": str(int(fraction.post_capture)),
        "reserve_mib": "" if fraction.outside_mib is None else repr(round(fraction.outside_mib, 1)),
        "fraction": repr(fraction.value),
    }


def differences(row: dict[str, str]) -> list[str]:
    """What the rule says otherwise than the row. Columns that the file lacks are not compared."""
    try:
        answer = computed(row)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return [
        f"{column}: golden {row[column]}, rule {value}"
        for column, value in answer.items()
        if row.get(column) is not None and not _same(row[column], value)
    ]


def _same(golden: str, value: str) -> bool:
    if golden == value:
        return True
    try:
        return float(golden) == float(value)
    except ValueError:
        return False


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    references.find_collection()
    with Path(arguments[0]).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    wrong = 0
    for number, row in enumerate(rows, start=2):
        found = differences(row)
        wrong += bool(found)
        if found:
            given = " ".join(f"{name}={value}" for name, value in row.items() if value)
            print(f"line {number}: {'; '.join(found)}\n    {given}")
    print(f"{len(rows)} rows, {len(rows) - wrong} equal, {wrong} different")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
