#!/usr/bin/env python3
"""Say what a rollout did to its replicas and to the clients: report.py LEDGER SUMMARY

Ends with 1 when a request was lost, or when no request was sent.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

for _folder in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(":"):
    sys.path.insert(0, _folder)

from ansible_collections.serving.sglang.plugins.module_utils import ledger, report  # noqa: E402


def clients(summary: dict[str, Any]) -> list[str]:
    rates = summary["tokens_per_s"]
    headings = (
        "requests sent",
        "answered",
        "failed",
        "cut short",
        "streamed",
        "2000 tokens and more",
        "tokens/s median",
        "slowest",
    )
    row = [summary[name] for name in ("sent", "answered", "failed", "cut_short", "streamed", "long")]
    lines = report.table(headings, [[*row, rates["median"], rates["slowest"]]])
    return lines + [f"  {times} times: {reason}" for reason, times in summary["reasons"].items()]


def lost(summary: dict[str, Any]) -> bool:
    return summary["sent"] == 0 or summary["answered"] != summary["sent"]


def main() -> int:
    moves = report.rollout(ledger.read(sys.argv[1]))
    summary = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    print("\nEach replica: seconds of each step, requests that ran when it left the gateway, exit code of the server")
    print("\n".join(moves))
    print("\nThe clients, over the whole time")
    print("\n".join(clients(summary)))
    return 1 if lost(summary) else 0


if __name__ == "__main__":
    sys.exit(main())
