# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talks HTTP to one gateway, with a total deadline on every request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .errors import EngineError
from .gateway import GatewayError, Worker, id_in, parse_worker, parse_workers
from .redaction import redact_text
from .server_client import Keys, ServerClient

TRANSIENT = ("refused", "timeout", "broken", "unavailable")
"""Kinds of errors that a gateway which is being restarted goes through."""

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


@dataclass(frozen=True)
class Added:
    """What became of asking for a worker: the id under which to look for it, and whether it was asked for before."""

    id: str | None
    accepted: bool


class GatewayClient(ServerClient):
    """One gateway. `smg` 1.13 and sglang-router 0.3.2 have the same worker API, but for the settle time."""

    def __init__(self, base_url: str, api_key: str | None = None, total_s: float = 5.0) -> None:
        super().__init__(base_url, Keys(api_key=api_key), total_s=total_s)

    def workers(self) -> list[Worker]:
        return parse_workers(self._json("GET", "/workers", expected=(200,)))

    def worker(self, worker_id: str) -> Worker | None:
        """A worker by its id, also one that is not in the list yet; None when the gateway does not know it."""
        code, text = self._answer("GET", f"/workers/{worker_id}")
        if code == 404:
            return None
        return parse_worker(self._parsed("GET", f"/workers/{worker_id}", code, text, (200,)))

    def add(self, url: str, worker_api_key: str | None = None) -> Added:
        """Ask for a worker. The gateway says yes to any address and tries in the background."""
        body = {"url": url, **({"api_key": worker_api_key} if worker_api_key else {})}
        code, text = self._answer("POST", "/workers", body)
        if code == 409:
            return Added(id_in(text), accepted=False)
        answer = self._parsed("POST", "/workers", code, text, (200, 201, 202))
        worker_id = answer.get("worker_id") if isinstance(answer, dict) else None
        return Added(worker_id if isinstance(worker_id, str) else None, accepted=True)

    def set_settle(self, worker_id: str, seconds: int) -> None:
        """How long the worker stays in the list, draining, after it was removed. Releases without it say 404 or 405."""
        code, text = self._answer("PATCH", f"/workers/{worker_id}", {"health": {"drain_settle_secs": seconds}})
        if code not in (404, 405):
            self._parsed("PATCH", f"/workers/{worker_id}", code, text, (200, 202))

    def remove(self, worker_id: str) -> None:
        """Ask for a worker's removal. One that is gone already is fine."""
        code, text = self._answer("DELETE", f"/workers/{worker_id}")
        if code != 404:
            self._parsed("DELETE", f"/workers/{worker_id}", code, text, (200, 202, 204))

    def ready(self) -> bool:
        """Whether the gateway has a healthy worker and is not shutting down."""
        code, _text = self._answer("GET", "/readiness")
        return code == 200

    def version(self, total_s: float = 3.0) -> str | None:
        """The gateway's release, where it tells it. `smg` does, in what it collects from its workers."""
        try:
            code, text = self._answer("GET", "/get_loads", total_s=total_s)
            found = json.loads(text).get("version") if code == 200 else None
        except (EngineError, ValueError, AttributeError):
            return None
        match = _VERSION.search(found) if isinstance(found, str) else None
        return match.group(0) if match else None

    def _json(self, method: str, path: str, expected: tuple[int, ...]) -> Any:
        code, text = self._answer(method, path)
        return self._parsed(method, path, code, text, expected)

    def _answer(self, method: str, path: str, body: Any = None, total_s: float | None = None) -> tuple[int, str]:
        try:
            code, content = self._exchange(method, path, body, False, total_s or self.total_s, False)
        except EngineError as error:
            if error.kind != "refused":
                raise
            raise GatewayError(
                "refused",
                f"Nothing listens at {self.base_url} (connection refused). Start the gateway (systemctl start "
                "sglang-gateway), or set url to where it is.",
            ) from error
        return code, content.decode("utf-8", "replace")

    def _parsed(self, method: str, path: str, code: int, text: str, expected: tuple[int, ...]) -> Any:
        where = f"{method} {self.base_url}{path}"
        shown = redact_text(text, self.keys.secrets)[:300]
        if code in (401, 403):
            raise GatewayError(
                "unauthorized",
                f"{where} answered {code}: {shown}. Set api_key to the gateway's --api-key, or, when it has "
                "--control-plane-api-keys, to one of those with the role admin.",
            )
        if code == 503:
            raise GatewayError("unavailable", f"{where} answered 503: {shown}")
        if code not in expected:
            raise GatewayError(
                "status",
                f"{where} answered {code} where {' or '.join(str(one) for one in expected)} is expected: {shown}. "
                "Does url name the gateway's own port? Its log says more: journalctl -u sglang-gateway.",
                status=code,
            )
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise GatewayError(
                "malformed",
                f"{where} answered {code} with something that is not JSON: {shown[:120]!r}. "
                "Does url name the gateway's own port, and not another program's?",
            ) from error


def worker_answers(url: str, total_s: float = 3.0) -> str | None:
    """Why a worker does not serve, as seen from this host; None when it does. `/ready` came after SGLang 0.5.17."""
    client = ServerClient(url, total_s=total_s)
    said = []
    for path in ("/ready", "/health"):
        probe = client.probe(path)
        if probe.ok:
            return None
        said.append(f"GET {path}: {probe.code if probe.code is not None else probe.problem}")
        if probe.code != 404:
            break
    return ", ".join(said)
