# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Brings a worker into a gateway or out of it, and waits until that holds.

A gateway says 202 to any address and then tries for half an hour; nothing calls such a try off. So a worker is only
added once it answers: an addition that times out would otherwise come true later, behind everybody's back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass
from typing import Any, Callable

from . import workers_file
from .errors import EngineError
from .gateway import Decision, GatewayError, Worker, decide, matching, registered, with_worker
from .gateway_client import TRANSIENT, GatewayClient, worker_answers

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 1.0
REQUEST_S = 5.0
MINIMUM_REQUEST_S = 0.5


@dataclass(frozen=True)
class Wanted:
    """What is to hold, and how to get there. `url` is the worker's, in its one spelling."""

    url: str
    state: str
    timeout_s: float = 60.0
    settle_s: int = 1
    worker_api_key: str | None = None
    wait: bool = True


class Change:
    """One worker on its way. `run` returns when it holds, or raises GatewayError with what was seen last."""

    def __init__(
        self,
        client: GatewayClient,
        wanted: Wanted,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        answers: Callable[[str], str | None] = worker_answers,
        locked: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._clock = clock
        self._sleep = sleep
        self._answers = answers
        self._locked = locked
        self._begun = clock()
        self._pending: str | None = None
        self._asked = False
        self._removed: set[str] = set()
        self.before: list[Worker] | None = None
        self.workers: list[Worker] = []
        self.last_seen = "the gateway has not answered yet"

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begun

    @property
    def _left_s(self) -> float:
        return self._wanted.timeout_s - self.elapsed_s

    def run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            self._client.total_s = min(REQUEST_S, max(MINIMUM_REQUEST_S, self._left_s))
            decision = self._step()
            if decision and (decision.holds or self._need_not_wait()):
                return
            if self._left_s <= 0:
                raise self._timed_out()
            self._sleep(min(pause, self._left_s))
            pause = min(pause * 1.2, LAST_PAUSE_S)

    def _need_not_wait(self) -> bool:
        """Without waiting it is enough to have asked, or that nothing can be asked for."""
        if self._wanted.wait:
            return False
        staying = [worker for worker in matching(self.workers, self._wanted.url) if not worker.draining]
        return self._asked or self._wanted.state == "absent" or bool(staying)

    def _step(self) -> Decision | None:
        """Read, decide, do. None when the gateway could not be asked; it may be restarting."""
        try:
            self.workers = self._client.workers()
            if self.before is None:
                self.before = self.workers
            decision = decide(self.workers, self._wanted.url, self._wanted.state)
            self.last_seen = decision.reason
            if decision.action == "remove":
                self._remove()
            elif decision.action == "add":
                self._add()
            return decision
        except EngineError as error:
            if error.kind not in TRANSIENT:
                raise
            self.last_seen = error.msg
            return None

    def _remove(self) -> None:
        """Ask for the removal of what does not drain yet, one task at a time on this host: see `decide`."""
        with self._locked():
            self.workers = self._client.workers()
            decision = decide(self.workers, self._wanted.url, self._wanted.state)
            by_id = {worker.id: worker for worker in self.workers}
            asked = [worker_id for worker_id in decision.ids if worker_id not in self._removed]
            for worker_id in asked:
                if by_id[worker_id].status is not None:
                    self._client.set_settle(worker_id, self._wanted.settle_s)
                self._client.remove(worker_id)
                self._removed.add(worker_id)
            seen_by_all = self._clock() + REQUEST_S
            while asked and self._clock() < seen_by_all:
                self.workers = self._client.workers()
                if not {worker.id for worker in self.workers if not worker.draining} & set(asked):
                    break
                self._sleep(FIRST_PAUSE_S)

    def _add(self) -> None:
        """Ask for the worker once, then look for the try that it became, which is not in the list yet."""
        if self._pending:
            trying = self._client.worker(self._pending)
            if trying is not None:
                self.last_seen = f"the gateway tries to add it ({trying.describe()})"
                if trying.job and trying.job.failed:
                    raise GatewayError(
                        "not_added",
                        f"The gateway could not add {self._wanted.url}: {trying.job.message or 'it gives no reason'}. "
                        "Its log says more: journalctl -u sglang-gateway.",
                    )
                return
            self._pending = None  # the gateway was restarted meanwhile and knows nothing of it
        problem = self._answers(self._wanted.url) if self._wanted.wait else None
        if problem:
            self.last_seen = f"the worker does not serve, seen from the gateway's host ({problem})"
            return
        added = self._client.add(self._wanted.url, self._wanted.worker_api_key)
        self._pending = added.id
        self._asked = True
        self.last_seen = "the gateway accepted it" if added.accepted else "the gateway was asked for it before"

    def _timed_out(self) -> GatewayError:
        wanted = self._wanted
        if wanted.state == "absent":
            what = f"It is not sure that {wanted.url} left the gateway"
            advice = (
                "Requests that run there go on. Look at the gateway's log (journalctl -u sglang-gateway), then run the "
                "task again: it goes on with what is left."
            )
        elif self._asked:
            what = f"The gateway was asked for {wanted.url} and does not call it healthy"
            advice = (
                "It goes on trying by itself (for its --worker-startup-timeout-secs), and nothing calls that off: the "
                "worker may still appear. Does it need a key (worker_api_key)? Does the gateway reach that address? "
                "The gateway's log says more: journalctl -u sglang-gateway."
            )
        elif matching(self.workers, wanted.url):
            what = f"The gateway has {wanted.url} and does not call it healthy"
            advice = (
                "Look at the worker's /ready, and at how often the gateway checks it (--health-check-interval-secs)."
            )
        else:
            what = f"{wanted.url} was not added"
            advice = "Nothing was asked of the gateway. Start the gateway or the server, or open their ports."
        spent = f"after {self.elapsed_s:.1f} s of at most {wanted.timeout_s:g} s"
        return GatewayError("timeout", f"{what} {spent}. Last seen: {self.last_seen.rstrip('.')}. {advice}")


def bring_about(client: GatewayClient, wanted: Wanted, path: str | None, check: bool) -> dict[str, Any]:
    """Bring the worker to its state and return what a module returns. `path` is the workers file, or None.

    The file goes first: a gateway that is restarted between the two does not take a leaving worker back. When it
    fails, the error's facts say what had changed by then.
    """
    in_file = workers_file.update(path, wanted.url, wanted.state, write=not check) if path else ([], [])
    result: dict[str, Any] = {"worker_url": wanted.url, "workers_file_changed": in_file[0] != in_file[1]}
    lock = functools.partial(workers_file.locked, os.path.dirname(path)) if path else contextlib.nullcontext
    made = Change(client, wanted, locked=lock)
    try:
        if check:
            made.before = made.workers = _workers_or_none(client, result)
        else:
            made.run()
    except EngineError as error:
        error.facts.update(
            result, changed=not check and result["workers_file_changed"], elapsed_s=round(made.elapsed_s, 3)
        )
        error.facts["last_seen"] = made.last_seen
        raise
    before = registered(made.before or [])
    after = sorted(with_worker(before, wanted.url, wanted.state))
    entries = matching(made.workers, wanted.url)
    differences = [
        {
            "before_header": header,
            "after_header": header,
            "before": "".join(f"{url}\n" for url in old),
            "after": "".join(f"{url}\n" for url in new),
        }
        for header, old, new in ((f"workers of {client.base_url}", before, after), (path or "", *in_file))
        if old != new
    ]
    result.update(
        changed=bool(differences),
        diff=differences,
        workers=after,
        worker=entries[0].as_dict() if entries else None,
        elapsed_s=round(made.elapsed_s, 3),
        last_seen=entries[0].describe() if entries else "not in the list",
    )
    return result


def _workers_or_none(client: GatewayClient, result: dict[str, Any]) -> list[Worker]:
    """The workers, to predict from. A gateway that is not installed yet has none; a run would have started it."""
    try:
        return client.workers()
    except EngineError as error:
        if error.kind not in ("refused", "library_missing"):
            raise
        result["warnings"] = [f"The gateway cannot be asked, so it is taken to have no workers: {error.msg}"]
        return []
