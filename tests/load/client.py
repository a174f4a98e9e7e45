#!/usr/bin/env python3
"""Load for a gateway or a server whose every answer is counted to the last token.

    client.py load --url http://10.77.0.9:30000 --out DIRECTORY [--clients 3] [--stop-file FILE] ...
    client.py single --url http://10.77.0.11:30000 --tokens 2000

`load` runs clients that ask for 50 to 2,500 tokens, by turns as a stream and in one piece. It ends at its limits, on
SIGTERM or SIGINT, or when the stop file appears, and always lets what is in flight finish. It writes requests.jsonl
(a line per request) and summary.json. Both end with 0 when every answer was whole, with 1 when one was not.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import threading
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import answers
import pace

SIZES = (50, 300, 800, 1500, 2000, 2500)


@dataclasses.dataclass(frozen=True)
class Limits:
    requests: int
    seconds: float


class Load:
    def __init__(
        self, url: str, model: str, out: pathlib.Path, sizes: tuple[int, ...], limits: Limits, seed: int
    ) -> None:
        self.url, self.model, self.sizes, self.limits, self.seed = url, model, sizes, limits, seed
        self.out = out
        self.started_at = _now()
        self.started = time.monotonic()
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._sent = 0
        self._records: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)
        self._file = (out / "requests.jsonl").open("w", encoding="utf-8")

    def question(self, number: int) -> answers.Question:
        """The sizes in a new order each time round; within one round half of them as a stream, then the other half."""
        turn, place = divmod(number, len(self.sizes))
        order = list(range(len(self.sizes)))
        random.Random(self.seed + turn).shuffle(order)
        size = order[place]
        return answers.Question(self.sizes[size], stream=(size + turn) % 2 == 0, model=self.model)

    def _next(self) -> int | None:
        with self._lock:
            over = self._sent >= self.limits.requests or time.monotonic() - self.started >= self.limits.seconds
            if over or self.stopping.is_set():
                return None
            self._sent += 1
            return self._sent - 1

    def client(self, name: int, pause_s: float, timeout_s: float) -> None:
        while (number := self._next()) is not None:
            question = self.question(number)
            sent_at = _now()
            answer = answers.ask(self.url, question, timeout_s)
            record = {
                "n": number,
                "client": name,
                "sent_at": sent_at,
                "stream": question.stream,
                "wanted_tokens": question.tokens,
                **dataclasses.asdict(answer),
            }
            with self._lock:
                self._records.append(record)
                self._file.write(json.dumps(record) + "\n")
                self._file.flush()
            # A failure answers at once: without a pause a dead gateway would be asked thousands of times a second.
            self.stopping.wait(pause_s if answer.outcome == answers.ANSWERED else max(pause_s, 0.5))

    def summary(self) -> dict[str, Any]:
        with self._lock:
            return summarize(self._records, self._sent, self.started_at, time.monotonic() - self.started)


def summarize(records: list[dict[str, Any]], sent: int, started_at: str, elapsed_s: float) -> dict[str, Any]:
    outcomes = collections.Counter(record["outcome"] for record in records)
    whole = [record for record in records if record["outcome"] == answers.ANSWERED]
    rates = [record["tokens"] / record["elapsed_s"] for record in whole if record["elapsed_s"]]
    lost = [record for record in records if record["outcome"] != answers.ANSWERED]
    return {
        "schema": 1,
        "started_at": started_at,
        "ended_at": _now(),
        "elapsed_s": round(elapsed_s, 1),
        "sent": sent,
        "in_flight": sent - len(records),
        "answered": outcomes[answers.ANSWERED],
        "failed": outcomes[answers.FAILED],
        "cut_short": outcomes[answers.CUT_SHORT],
        "streamed": sum(record["stream"] for record in whole),
        "long": sum(record["wanted_tokens"] >= 2000 for record in whole),
        "tokens": sum(record["tokens"] for record in whole),
        "tokens_per_s": {
            "slowest": round(min(rates), 1) if rates else None,
            "median": round(statistics.median(rates), 1) if rates else None,
        },
        "reasons": dict(collections.Counter(record["reason"] for record in lost).most_common(10)),
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_load(arguments: argparse.Namespace) -> int:
    out = pathlib.Path(arguments.out)
    sizes = tuple(int(size) for size in arguments.sizes.split(","))
    load = Load(
        arguments.url,
        arguments.model,
        out,
        sizes,
        Limits(arguments.max_requests, arguments.max_seconds),
        arguments.seed,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: load.stopping.set())
    pacing = pace.Pace(arguments.pace, arguments.forward_sleep_s)
    if arguments.pace:
        pacing.start()
    clients = [
        threading.Thread(target=load.client, args=(name, arguments.pause_s, arguments.timeout_s))
        for name in range(arguments.clients)
    ]
    for client in clients:
        client.start()
        # Clients that begin together would stay in step.
        load.stopping.wait(0.3)
    reported = time.monotonic()
    while any(client.is_alive() for client in clients):
        clients[0].join(0.3)
        time.sleep(0.2)
        if arguments.stop_file and os.path.exists(arguments.stop_file):
            load.stopping.set()
        if arguments.report_s and time.monotonic() - reported >= arguments.report_s:
            reported = time.monotonic()
            print(_line(load.summary()), flush=True)
    pacing.end()
    summary = load.summary()
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(_line(summary), flush=True)
    for reason, times in summary["reasons"].items():
        print(f"load: {times} times: {reason}", flush=True)
    return 0 if summary["sent"] == summary["answered"] > 0 else 1


def _line(summary: dict[str, Any]) -> str:
    return "load: {sent} sent, {answered} answered, {failed} failed, {cut_short} cut short, {in_flight} running".format(
        **summary
    )


def run_single(arguments: argparse.Namespace) -> int:
    question = answers.Question(arguments.tokens, stream=not arguments.plain, model=arguments.model)
    answer = answers.ask(arguments.url, question, arguments.timeout_s)
    print(json.dumps(dataclasses.asdict(answer)), flush=True)
    return 0 if answer.outcome == answers.ANSWERED else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="client.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="load|single")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--url", required=True, help="where the API is, without /v1")
    common.add_argument("--model", default="tiny")
    common.add_argument("--timeout-s", type=float, default=300.0, help="how long the line may be silent (300)")
    load = commands.add_parser("load", parents=[common], help="many requests from several clients")
    load.set_defaults(function=run_load)
    load.add_argument("--out", required=True, help="directory for requests.jsonl and summary.json")
    load.add_argument("--clients", type=int, default=3)
    load.add_argument("--sizes", default=",".join(map(str, SIZES)), help="tokens, by turns (%(default)s)")
    load.add_argument("--pause-s", type=float, default=0.0, help="each client's pause between two requests (0)")
    load.add_argument("--max-requests", type=int, default=5000)
    load.add_argument("--max-seconds", type=float, default=1800.0)
    load.add_argument("--stop-file", help="end when this file appears")
    load.add_argument("--report-s", type=float, default=0.0, help="print the counts this often (never)")
    load.add_argument("--seed", type=int, default=1)
    load.add_argument("--pace", action="append", default=[], metavar="URL", help="a server to keep slow, see pace.py")
    load.add_argument("--forward-sleep-s", type=float, default=0.0025, help="how slow: 0.0025 is 115 to 145 tokens/s")
    single = commands.add_parser("single", parents=[common], help="one request, a stream unless --plain")
    single.set_defaults(function=run_single)
    single.add_argument("--tokens", type=int, default=2000)
    single.add_argument("--plain", action="store_true")
    return top


def main() -> int:
    arguments = parser().parse_args()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
