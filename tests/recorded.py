#!/usr/bin/env python3
"""Check recorded starts of SGLang against what this collection predicts for them.

    tests/recorded.py FILE.json [--models DIR]

Two predictions for each start: from the free memory that SGLang logged around the load, which must be within 0.1 % on
a discrete card and 1.5 % on integrated memory, and from the card and the model alone, before anything is loaded.
Ends with 1 when a start is outside of its limit, or when one that failed would be called feasible.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import references

LIMIT_PERCENT = {False: 0.1, True: 1.5}


@dataclass
class Result:
    """One start: what was logged, and what both predictions say."""

    name: str
    observed: int | None
    fraction: float
    predicted: int | None
    error_percent: float | None
    alone: int | None
    alone_percent: float | None
    integrated: bool
    problem: str
    difference: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


def check(record: dict[str, Any], models: Path) -> Result:
    from ansible_collections.serving.sglang.plugins.module_utils import (
        kv_pool,
        memory,
        memory_arguments,
        memory_estimate,
        memory_releases,
    )

    version, card = record["sglang"], record["card"]
    release = memory_releases.memory_release_for(version)
    model, _config = references.model_named(record["model"], version, models)
    arguments = memory_arguments.read_arguments(record["arguments"], record.get("environment"), version)
    integrated = bool(card.get("integrated"))
    total = card.get("total_mib")
    major = card.get("compute_major", _major(card.get("name", "")))
    capacity = memory.Capacity(total, platform=card.get("platform", "cuda"), compute_major=major)
    fraction = memory.automatic_fraction(capacity, arguments, model.traits, release)
    chunk = fraction.chunked_prefill_size
    before = memory_estimate.baseline_gib(
        record["load_weight_begin_gib"], integrated, arguments.tp_size * arguments.pp_size, release
    )
    measured = kv_pool.Memory(before, record["load_weight_end_gib"])
    pool = kv_pool.predict(measured, fraction.value, model, arguments, capacity, release, chunk)
    alone, difference = None, ""
    try:
        estimate = memory_estimate.expected_memory(model, arguments, capacity, release, integrated)
        found = kv_pool.predict(estimate.memory, fraction.value, model, arguments, capacity, release, chunk)
        alone = found.tokens if found.feasible else None
        difference = (
            f"free before {estimate.memory.before_gib - measured.before_gib:+.2f} GiB, "
            f"loaded {estimate.memory.loaded_gib - measured.loaded_gib:+.2f} GiB"
        )
    except kv_pool.PoolError as error:
        difference = str(error)
    observed = record["observed"]["max_total_num_tokens"]
    predicted = pool.tokens if pool.feasible else None
    error_percent = _percent(predicted, observed)
    problem = _problem(record, fraction.value, pool, error_percent, LIMIT_PERCENT[integrated])
    return Result(
        record["id"],
        observed,
        fraction.value,
        predicted,
        error_percent,
        alone,
        _percent(alone, observed),
        integrated,
        problem,
        difference,
    )


def _major(name: str) -> int | None:
    for pattern, major in (
        (r"GB10\b", 12),
        (r"H100|H200|H20\b|H800|GH200", 9),
        (r"B200|GB200|B300", 10),
        (r"L4|L40|4090", 8),
    ):
        if re.search(pattern, name):
            return major
    return None


def _percent(predicted: int | None, observed: int | None) -> float | None:
    return None if not predicted or not observed else 100 * (predicted - observed) / observed


def _problem(record: dict[str, Any], fraction: float, pool: Any, error: float | None, limit: float) -> str:
    logged = record["observed"].get("fraction")
    if logged is not None and logged != fraction:
        return f"the fraction is {fraction}, the server logged {logged}"
    if record["observed"]["max_total_num_tokens"] is None:
        if pool.feasible:
            return "it is called feasible, and the server did not start"
        said = [float(number) for number in re.findall(r"0\.\d+", record.get("error", ""))]
        if len(said) == 2 and (abs(said[0] - pool.minimum_fraction) > 0.0002 or said[1] != pool.asks_above):
            return f"minimum {pool.minimum_fraction:.4f}, above {pool.asks_above:.3f}; the server: {record['error']}"
        return ""
    if error is None:
        return f"it is called infeasible ({pool.problem}), and the server started"
    return "" if abs(error) <= limit else f"{error:+.3f} % is outside of {limit} %"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", type=Path, default=references.MODELS)
    given = parser.parse_args(words)
    references.find_collection()
    records = json.loads(given.file.read_text(encoding="utf-8"))["records"]
    wrong = 0
    print(f"{'start':24} {'logged':>9} {'predicted':>9} {'error':>9} {'card+model':>10} {'error':>9}")
    for record in records:
        try:
            result = check(record, given.models)
        except Exception as error:
            print(f"{record.get('id', '?'):24} {type(error).__name__}: {error}")
            wrong += 1
            continue
        wrong += not result.ok
        print(
            f"{result.name:24} {_text(result.observed):>9} {_text(result.predicted):>9} "
            f"{_signed(result.error_percent):>9} {_text(result.alone):>10} {_signed(result.alone_percent):>9}  "
            f"{result.problem or result.difference}"
        )
    print(f"{len(records)} starts, {wrong} outside of their limit")
    return 1 if wrong or not records else 0


def _text(value: int | None) -> str:
    return "none" if value is None else str(value)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f} %"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
