# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module pool_advice does, from its options to its result."""

# This is no module and has no AnsibleModule to run commands with.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from .kv_cell import PoolError
from .pool_advice import Asked, advise
from .pool_log import Observations, read_log, read_metrics, together


def report(params: Mapping[str, Any]) -> dict[str, Any]:
    """The advice with the observations it rests on."""
    seen = together(read_log(_lines(params)), read_metrics(params.get("metrics") or ()))
    asked = _asked(params, seen)
    advice = advise(seen, asked)
    return {
        "verdict": advice.verdict,
        "fraction": advice.fraction,
        "fraction_now": asked.fraction,
        "tokens": advice.tokens,
        "gives_back_gib": round(advice.gives_back_gib, 2),
        "lines": list(advice.lines),
        "findings": [finding.as_dict() for finding in advice.findings],
        "highest_in_staging": advice.highest_in_staging,
        "seen": {
            "peak_usage": round(seen.peak, 4),
            "usual_usage": round(seen.usual(), 4),
            "samples": len(seen.samples),
            "requests": seen.requests,
            "duration_s": round(seen.duration_s, 1),
            "retractions": seen.retractions,
            "queued_while_full": seen.queued_while_full,
            "card_failures": [asdict(failure) for failure in seen.card_failures],
            "slot_failures": seen.slot_failures,
            "pool_tokens": asked.pool_tokens,
            "mlx": seen.mlx,
        },
    }


def _lines(params: Mapping[str, Any]) -> Iterable[str]:
    if params.get("log_lines"):
        return [str(line) for line in params["log_lines"]]
    if params.get("log"):
        return _file(str(params["log"]))
    if params.get("instance"):
        return _journal(f"sglang-{params['instance']}.service", str(params.get("since") or "-24h"))
    return []


def _file(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            yield from stream
    except OSError as error:
        raise PoolError(f"log {path}: {error.strerror}") from None


def _journal(unit: str, since: str) -> Iterator[str]:
    command = ["journalctl", "--unit", unit, "--since", since, "--output", "cat", "--no-pager"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            yield from process.stdout or ()
    except OSError as error:
        raise PoolError(f"journalctl: {error.strerror}") from None


def _asked(params: Mapping[str, Any], seen: Observations) -> Asked:
    values = {
        "fraction": params.get("fraction") or seen.fraction,
        "before_gib": params.get("before_gib") or seen.before_gib,
        "pool_tokens": params.get("pool_tokens") or seen.pool_tokens,
        "token_bytes": params.get("token_bytes") or seen.token_bytes,
    }
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise PoolError(
            f"{', '.join(missing)}: neither given nor in the log. The log must reach back to the start of the server"
        )
    for name, value in values.items():
        if not math.isfinite(float(value or 0)) or float(value or 0) <= 0:
            raise PoolError(f"{name}: {value} is not a positive number")
    if not 0 < float(values["fraction"] or 0) < 1:
        raise PoolError(f"fraction: {values['fraction']} is not between 0 and 1")
    return Asked(
        fraction=float(values["fraction"] or 0),
        before_gib=float(values["before_gib"] or 0),
        pool_tokens=int(values["pool_tokens"] or 0),
        token_bytes=float(values["token_bytes"] or 0),
        free_at_peak_gib=params.get("free_at_peak_gib"),
        stage=str(params.get("stage") or "production"),
        highest_in_staging=params.get("highest_in_staging"),
        steps_below_staging=int(params.get("steps_below_staging") or 1),
        enough_requests=int(params.get("enough_requests") or 0),
        enough_s=float(params.get("enough_s") or 0),
    )
