# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talks HTTP to one SGLang server, with a total deadline on every request."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .errors import EngineError
from .redaction import redact, redact_text

_LARGEST_ANSWER = 16 * 1024 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Keys:
    """The API keys of a server, from its credentials file."""

    api_key: str | None = None
    admin_api_key: str | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(key for key in (self.api_key, self.admin_api_key) if key)

    def header(self, admin: bool) -> dict[str, str]:
        """An ordinary route wants the API key, an admin route the admin key when there is one."""
        key = (self.admin_api_key or self.api_key) if admin else self.api_key
        return {"Authorization": f"Bearer {key}"} if key else {}


def parse_credentials(text: str) -> Keys:
    """The keys in a server's `--config` file: a flat YAML mapping, or JSON."""
    values: dict[str, Any] = {}
    try:
        loaded = json.loads(text)
        values = loaded if isinstance(loaded, dict) else {}
    except ValueError:
        for line in text.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line[:1].isspace() and not name.lstrip().startswith("#"):
                values[name.strip().strip("'\"")] = _scalar(value.strip())
    return Keys(
        api_key=_text(values.get("api-key")),
        admin_api_key=_text(values.get("admin-api-key")),
    )


def _scalar(text: str) -> str | None:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    plain = text.split(" #", 1)[0].rstrip()
    return None if plain in ("", "null", "~") else plain


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def read_keys(path: str | None) -> Keys:
    """The keys of an instance; none when it has no credentials file."""
    if not path:
        return Keys()
    try:
        with open(path, encoding="utf-8") as handle:
            return parse_credentials(handle.read())
    except OSError as error:
        raise EngineError(
            "credentials",
            f"The credentials file {path} cannot be read: {error.strerror}. Run as root, or run the role "
            "sglang_server again, which writes it.",
        ) from error


@dataclass(frozen=True)
class Probe:
    """The answer to a plain GET: a status code, or why there was none."""

    code: int | None = None
    problem: str | None = None  # refused | timeout | broken
    elapsed_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.code == 200


@dataclass(frozen=True)
class Loads:
    """What the schedulers last published, summed over all data-parallel ranks."""

    running: int
    waiting: int
    token_usage: float
    max_total_num_tokens: int
    published_at: float | None
    used_tokens: int = 0
    version: str | None = None
    ranks: int = 1

    @property
    def busy(self) -> int:
        return self.running + self.waiting


def parse_loads(data: Any) -> Loads:
    """The body of `/v1/loads`; refuses one whose shape it does not know instead of reading zeros from it."""
    loads = data.get("loads") if isinstance(data, dict) else None
    if not isinstance(loads, list) or not loads or not all(isinstance(load, dict) for load in loads):
        raise EngineError(
            "malformed",
            "/v1/loads answered without a list of loads. Is this SGLang? Releases with /v1/loads are supported.",
        )
    running = waiting = tokens = used = 0
    usage = 0.0
    stamps: list[float] = []
    for load in loads:
        for name in ("num_running_reqs", "num_waiting_reqs"):
            value = load.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise EngineError("malformed", f"/v1/loads: {name} is {value!r}, expected a number of requests.")
        running += load["num_running_reqs"]
        waiting += load["num_waiting_reqs"] + _count(load.get("disaggregation"), "prefill_inflight_queue_reqs")
        tokens += _count(load, "max_total_num_tokens")
        used += _count(load, "num_used_tokens")
        share = load.get("token_usage")
        usage = max(usage, float(share)) if isinstance(share, (int, float)) else usage
        stamp = load.get("timestamp")
        if isinstance(stamp, (int, float)) and stamp > 0:
            stamps.append(float(stamp))
    version = data.get("version")
    return Loads(
        running=running,
        waiting=waiting,
        token_usage=usage,
        max_total_num_tokens=tokens,
        published_at=min(stamps) if len(stamps) == len(loads) else None,
        version=version if isinstance(version, str) else None,
        ranks=len(loads),
        used_tokens=used,
    )


def _count(part: Any, name: str) -> int:
    """An optional figure; what is missing or not a number counts as none."""
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class ServerClient:
    """One server, reached at `base_url` with its keys.

    `total_s` bounds a whole request, however slowly its answer drips in.
    """

    def __init__(self, base_url: str, keys: Keys | None = None, connect_s: float = 2.0, total_s: float = 6.0) -> None:
        if importlib.util.find_spec("requests") is None:
            raise EngineError(
                "library_missing",
                f"The Python library requests is missing for {sys.executable} on this host. "
                "Install python3-requests; the role sglang_host does.",
            )
        self.base_url = base_url.rstrip("/")
        self.keys = keys or Keys()
        self.connect_s = connect_s
        self.total_s = total_s
        # The certificate of a server names the host, never the loopback address that it is probed on.
        self._verify = urlsplit(self.base_url).hostname not in _LOOPBACK

    # -- transport

    def _exchange(
        self, method: str, path: str, body: Any, admin: bool, total_s: float, anonymous: bool
    ) -> tuple[int, bytes]:
        """One request in a thread of its own, so that the deadline holds whatever the other side does."""
        # Imported at the first request: a job is launched, and its first status written, without this weight.
        import requests
        import urllib3

        if not self._verify:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        result: dict[str, Any] = {}
        done = threading.Event()

        def run() -> None:
            try:
                with requests.Session() as session:
                    session.trust_env = False
                    headers = {} if anonymous else self.keys.header(admin)
                    if body is not None:
                        headers = {**headers, "Content-Type": "application/json"}
                    response = session.request(
                        method,
                        self.base_url + path,
                        data=None if body is None else json.dumps(body),
                        headers=headers,
                        timeout=(min(self.connect_s, total_s), total_s),
                        verify=self._verify,
                        stream=True,
                        allow_redirects=False,
                    )
                    chunks: list[bytes] = []
                    size = 0
                    for chunk in response.iter_content(65536):
                        chunks.append(chunk)
                        size += len(chunk)
                        if size > _LARGEST_ANSWER or done.is_set():
                            break
                    result["answer"] = (response.status_code, b"".join(chunks))
            except Exception as error:  # handed over to the caller's thread, which sorts it
                result["error"] = error
            finally:
                done.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        finished = done.wait(total_s)
        done.set()
        what = f"{method} {self.base_url}{path}"
        if not finished:
            raise EngineError("timeout", f"{what} was not answered in full within {total_s:g} s.")
        error = result.get("error")
        if error is None:
            code, content = result["answer"]
            return int(code), bytes(content)
        message = redact_text(str(error), self.keys.secrets)
        if isinstance(error, requests.exceptions.Timeout):
            raise EngineError("timeout", f"{what} was not answered within {total_s:g} s.")
        if isinstance(error, requests.exceptions.SSLError):
            raise EngineError("broken", f"{what}: TLS failed: {message}")
        if isinstance(error, requests.exceptions.ConnectionError):
            refused = "refused" in message.lower() or "Errno 111" in message
            raise EngineError("refused" if refused else "broken", f"{what}: {message}")
        raise EngineError("broken", f"{what}: {message}")

    def probe(self, path: str, total_s: float | None = None, anonymous: bool = True) -> Probe:
        """A GET of which only the status code matters; never raises for what the server does."""
        begun = time.monotonic()
        try:
            code, _content = self._exchange("GET", path, None, False, total_s or self.total_s, anonymous)
        except EngineError as error:
            return Probe(problem=error.kind, elapsed_s=time.monotonic() - begun)
        return Probe(code=code, elapsed_s=time.monotonic() - begun)

    def call(self, method: str, path: str, body: Any = None, admin: bool = False, total_s: float | None = None) -> Any:
        """A request whose answer is JSON, or nothing. Everything else is an `EngineError`."""
        code, content = self._exchange(method, path, body, admin, total_s or self.total_s, False)
        where = f"{method} {self.base_url}{path}"
        text = redact_text(content.decode("utf-8", "replace"), self.keys.secrets)
        if code in (401, 403):
            which = "admin-api-key" if admin else "api-key"
            raise EngineError(
                "unauthorized",
                f"{where} answered {code}: the server runs with another key than the credentials file holds "
                f"({which}). Restart the instance after changing its keys.",
            )
        if code != 200:
            raise EngineError("status", f"{where} answered {code}: {text[:300]}", status=code)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise EngineError(
                "malformed",
                f"{where} answered 200 with something that is not JSON: {text[:120]!r}. "
                "Does another program answer on this port?",
            ) from error

    # -- what SGLang offers

    def loads(self) -> Loads:
        return parse_loads(self.call("GET", "/v1/loads?include=core,disagg"))

    def server_info(self) -> dict[str, Any]:
        """The resolved arguments and live state, redacted. Hangs with a hung scheduler: bounded like every call."""
        info = self.call("GET", "/server_info")
        if not isinstance(info, dict):
            raise EngineError("malformed", f"/server_info answered {type(info).__name__}, expected a mapping.")
        redacted: dict[str, Any] = redact(info, self.keys.secrets)
        return redacted

    def model_info(self) -> dict[str, Any]:
        info = self.call("GET", "/model_info")
        if not isinstance(info, dict):
            raise EngineError("malformed", f"/model_info answered {type(info).__name__}, expected a mapping.")
        return info

    def abort_all(self) -> None:
        self._plain("POST", "/abort_request", {"rid": "", "abort_all": True})

    def continue_generation(self) -> None:
        self._plain("POST", "/continue_generation", {})

    def _plain(self, method: str, path: str, body: Any) -> None:
        """An admin request whose answer's body does not matter."""
        try:
            self.call(method, path, body, admin=True)
        except EngineError as error:
            if error.kind != "malformed":
                raise

    def generate(self, text: str | None, tokens: int, total_s: float) -> dict[str, Any]:
        """A real generation of exactly `tokens` tokens; the answer's facts."""
        prompt: dict[str, Any] = {"input_ids": [10, 11, 12]} if text is None else {"text": text}
        answer = self.call(
            "POST",
            "/generate",
            {**prompt, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}},
            total_s=total_s,
        )
        return parse_generation(answer, tokens)

    def embed(self, model: str, text: str, total_s: float) -> dict[str, Any]:
        answer = self.call("POST", "/v1/embeddings", {"model": model, "input": text}, total_s=total_s)
        return parse_embedding(answer)


def parse_generation(answer: Any, tokens: int) -> dict[str, Any]:
    """Checks that a generation produced something; returns what it produced in numbers."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    meta = answer.get("meta_info") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(meta, dict):
        raise EngineError("verify_failed", "The generation answered 200 without the fields of an answer.")
    made = meta.get("completion_tokens")
    output_ids = answer.get("output_ids")
    produced = made if isinstance(made, int) else len(output_ids) if isinstance(output_ids, list) else 0
    if produced < 1 or not (answer.get("text") or output_ids):
        raise EngineError(
            "verify_failed",
            f"The generation answered 200 with {produced} of {tokens} tokens and no output: the server is up and "
            "generates nothing.",
        )
    return {"completion_tokens": produced, "prompt_tokens": meta.get("prompt_tokens")}


def parse_embedding(answer: Any) -> dict[str, Any]:
    data = answer.get("data") if isinstance(answer, dict) else None
    first = data[0] if isinstance(data, list) and data else None
    vector = first.get("embedding") if isinstance(first, dict) else None
    if not isinstance(vector, list) or not vector:
        raise EngineError("verify_failed", "The embedding answered 200 with no vector.")
    return {"dimensions": len(vector)}
