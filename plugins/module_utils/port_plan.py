# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The TCP ports that an instance will take, from its arguments, and whether two instances of a host want the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HIGHEST = 65535
# With attention data parallelism SGLang talks over TCP on ports derived from its own one.
DERIVED_OFFSET = 233
# Detokenizer, RPC, metrics and tokenizer channels, and then one for each data-parallel rank.
DERIVED_FIXED = 6
_NAMED = ("grpc-port", "nccl-port", "smg-http-sidecar-port", "engine-info-bootstrap-port")


@dataclass(frozen=True)
class PortUse:
    """A port and what it is for."""

    port: int
    purpose: str


def ports_used(port: int, args: Mapping[str, Any]) -> list[PortUse]:
    """Every port that is known before the start; SGLang picks the others at random."""
    used = [PortUse(port, "port")]
    ranks = _attention_ranks(args)
    if ranks > 1:
        used += _derived(port, ranks)
    used += [PortUse(int(args[name]), name) for name in _NAMED if args.get(name) is not None]
    if args.get("disaggregation-mode") == "prefill":
        used.append(PortUse(int(args.get("disaggregation-bootstrap-port") or 8998), "disaggregation-bootstrap-port"))
    return used


def _attention_ranks(args: Mapping[str, Any]) -> int:
    ranks = int(args.get("attn-dp-size") or 1)
    return max(ranks, int(args.get("dp-size") or 1)) if args.get("enable-dp-attention") else ranks


def _derived(port: int, ranks: int) -> list[PortUse]:
    count = DERIVED_FIXED + ranks
    first = port + DERIVED_OFFSET
    if first + count - 1 > HIGHEST:
        first = port - DERIVED_OFFSET
    purpose = f"attention data parallelism, {DERIVED_OFFSET} from port"
    return [PortUse(first + offset, purpose) for offset in range(count)]


def port_conflicts(uses: Mapping[str, list[PortUse]]) -> list[str]:
    """Ports that two instances of one host would take, and ports outside of the range."""
    problems: list[str] = []
    taken: dict[int, tuple[str, PortUse]] = {}
    for instance, ports in uses.items():
        for use in ports:
            if not 0 < use.port <= HIGHEST:
                problems.append(f"instance '{instance}': {use.purpose} {use.port} is not a port (1 to {HIGHEST})")
                continue
            holder = taken.setdefault(use.port, (instance, use))
            if holder[1] is not use:
                problems.append(_said(holder, (instance, use)))
    return problems


def _said(first: tuple[str, PortUse], second: tuple[str, PortUse]) -> str:
    (holder, held), (instance, wanted) = first, second
    if holder == instance:
        return f"instance '{instance}': port {wanted.port} is taken for {held.purpose} and for {wanted.purpose}"
    return (
        f"instances '{holder}' and '{instance}' both take port {wanted.port} ({held.purpose} of '{holder}', "
        f"{wanted.purpose} of '{instance}'). Give one another port"
    )
