# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a gateway says about its workers, and what is to be done about one of them.

Pure: it decides on answers that were read already. Known answers are those of `smg` 1.13 and `sglang-router` 0.3.2.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .errors import EngineError
from .redaction import redact_text

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*\.?")
_RANK = re.compile(r"@\d+\Z")
_ID_IN_TEXT = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_FORM = "Write it as http://HOST:PORT or https://HOST:PORT, for instance http://10.0.0.5:30000"


API_VARIABLES = (
    "sglang_gateway_api_url",
    "sglang_gateway_port",
    "sglang_gateway_api_key",
    "sglang_gateway_workers_file",
)
"""What an inventory says about how the modules reach a gateway from its own host."""

_PORT = 30000


class GatewayError(EngineError):
    """What a gateway did that was not expected, or cannot be asked of it."""


@dataclass(frozen=True)
class Job:
    """Work that the gateway does in the background: it answers 202 first and tries afterwards."""

    kind: str
    status: str
    message: str | None = None

    @property
    def failed(self) -> bool:
        return self.status == "failed"


@dataclass(frozen=True)
class Worker:
    """One entry of `GET /workers`. `status` is None for sglang-router 0.3.2, which has none."""

    id: str
    url: str
    is_healthy: bool
    status: str | None = None
    load: int | None = None
    model: str | None = None
    job: Job | None = None

    @property
    def draining(self) -> bool:
        return self.status == "draining"

    @property
    def routed(self) -> bool:
        """Whether the gateway sends it requests. (An open circuit breaker, which no answer shows, keeps them away.)"""
        return self.is_healthy and self.status in (None, "ready")

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "url": self.url,
            "is_healthy": self.is_healthy,
            "status": self.status,
            "load": self.load,
            "model": self.model,
            "routed": self.routed,
        }

    def describe(self) -> str:
        words = ["healthy" if self.is_healthy else "not healthy"]
        if self.status:
            words.append(f"status {self.status}")
        if self.load is not None:
            words.append(f"{self.load} requests")
        if self.job and self.job.status != "completed":
            words.append(
                f"job {self.job.kind} {self.job.status}" + (f": {self.job.message}" if self.job.message else "")
            )
        return ", ".join(words)


def canonical_url(text: str) -> str:
    """The one spelling of a worker's URL.

    A gateway compares URLs letter by letter: the same server with another spelling (a trailing slash, a capital
    letter) would become a second worker. Raises GatewayError for what is no plain URL of a server, so that nothing
    else can get into the gateway's environment file.
    """
    refused = GatewayError("worker_url", f"{text!r} is not the URL of a worker. {_FORM}.")
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text:
        raise refused
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise GatewayError("worker_url", f"{text!r} is not the URL of a worker ({error}). {_FORM}.") from error
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower()
    if scheme not in _DEFAULT_PORTS or not host or parts.path not in ("", "/") or "@" in parts.netloc:
        raise refused
    if parts.query or parts.fragment or text.endswith(("?", "#")) or port == 0 or parts.netloc.endswith(":"):
        raise refused
    if parts.netloc.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host).compressed}]"
        except ValueError as error:
            raise refused from error
    elif not _HOST.fullmatch(host):
        raise refused
    suffix = "" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{host}{suffix}"


def _listed_url(text: str) -> str:
    """The URL of a listed worker in its one spelling; what is no such URL stays as the gateway wrote it.

    With data parallel ranks listed one by one the gateway writes `URL@RANK`.
    """
    try:
        return canonical_url(_RANK.sub("", text))
    except GatewayError:
        return text


def _job(data: Any) -> Job | None:
    if not isinstance(data, dict):
        return None
    message = data.get("message")
    return Job(
        kind=str(data.get("job_type") or "job"),
        status=str(data.get("status") or "unknown").lower(),
        message=redact_text(str(message)) if message else None,
    )


def parse_worker(data: Any) -> Worker:
    """One worker, from `GET /workers/ID` or an element of the list."""
    if not isinstance(data, dict):
        raise _malformed(f"a worker is {type(data).__name__}, expected a mapping")
    for name, kinds in (("id", str), ("url", str), ("is_healthy", bool)):
        if not isinstance(data.get(name), kinds):
            raise _malformed(f"{name} of a worker is {data.get(name)!r}")
    status, load, model = data.get("status"), data.get("load"), data.get("model_id")
    return Worker(
        id=data["id"],
        url=_listed_url(data["url"]),
        is_healthy=data["is_healthy"],
        status=status.lower() if isinstance(status, str) else None,
        load=load if isinstance(load, int) and not isinstance(load, bool) and load >= 0 else None,
        model=model if isinstance(model, str) and model != "unknown" else None,
        job=_job(data.get("job_status")),
    )


def parse_workers(data: Any) -> list[Worker]:
    """The body of `GET /workers`, ordered by URL. Refuses a shape it does not know instead of reading no workers."""
    workers = data.get("workers") if isinstance(data, dict) else None
    if not isinstance(workers, list):
        raise _malformed("there is no list of workers in it")
    return sorted((parse_worker(worker) for worker in workers), key=lambda worker: (worker.url, worker.id))


def _malformed(what: str) -> GatewayError:
    return GatewayError(
        "malformed",
        f"GET /workers did not answer as smg 1.13 or sglang-router 0.3.2 do: {what}. "
        "Does url name the gateway's own port, and not a server or another program?",
    )


def id_in(text: str) -> str | None:
    """The worker's id in a refusal: `... already in progress for URL ... with ID ...`."""
    found = _ID_IN_TEXT.findall(text.lower())
    return found[-1] if found else None


def matching(workers: Iterable[Worker], url: str) -> list[Worker]:
    """Every entry of a worker: another tool may have added a second spelling of its URL."""
    wanted = canonical_url(url)
    return [worker for worker in workers if worker.url == wanted]


@dataclass(frozen=True)
class Decision:
    """What is to be done next for one worker: `add`, `remove` (these ids), `wait`, or nothing because it holds."""

    action: str
    reason: str
    ids: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return self.action == "nothing"


def decide(workers: Sequence[Worker], url: str, state: str) -> Decision:
    """What brings the worker at `url` to `state` (present or absent), from what the gateway lists now.

    An entry that drains is never removed a second time: `smg` 1.13 then drops it at once, and the first removal,
    which goes by URL, takes away whatever was added meanwhile. Nor can it be added before it is gone.
    """
    entries = matching(workers, url)
    staying = [worker for worker in entries if not worker.draining]
    if state == "absent":
        if staying:
            return Decision("remove", staying[0].describe(), tuple(worker.id for worker in staying))
        if entries:
            return Decision("wait", entries[0].describe())
        return Decision("nothing", "not in the list")
    if staying:
        unhealthy = [worker for worker in staying if not worker.routed]
        return Decision("wait", unhealthy[0].describe()) if unhealthy else Decision("nothing", staying[0].describe())
    if entries:
        return Decision("wait", entries[0].describe())
    return Decision("add", "not in the list")


def registered(workers: Iterable[Worker]) -> list[str]:
    """The URLs of the workers that the gateway has and means to keep."""
    return sorted({worker.url for worker in workers if not worker.draining})


def with_worker(urls: Sequence[str], url: str, state: str) -> list[str]:
    """The list with the worker added at its end, or taken out; other workers keep their places."""
    if state == "absent":
        return [other for other in urls if other != url]
    return list(urls) if url in urls else [*urls, url]


def api_of(variables: Mapping[str, Any]) -> dict[str, str]:
    """How the modules reach the gateway of a host with these variables: `url`, and `api_key` and `workers_file` where
    they are set. An empty workers file says that there is none, so it is kept."""
    url, port, key, workers = (variables.get(name) for name in API_VARIABLES)
    reached = {"url": str(url or f"http://127.0.0.1:{port or _PORT}")}
    if key:
        reached["api_key"] = str(key)
    if workers is not None:
        reached["workers_file"] = str(workers)
    return reached
