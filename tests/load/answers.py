"""Judge one chat completion: was every token that was asked for delivered, and was the end of it seen?"""

from __future__ import annotations

import dataclasses
import http.client
import json
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ANSWERED, FAILED, CUT_SHORT = "answered", "failed", "cut_short"


@dataclasses.dataclass(frozen=True)
class Question:
    """Ask for exactly this many tokens: the server is told to ignore the model's own end."""

    tokens: int
    stream: bool
    model: str = "tiny"

    def body(self) -> bytes:
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": f"Count to {self.tokens}"}],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "temperature": 0.7,
            "stream": self.stream,
        }
        if self.stream:
            asked["stream_options"] = {"include_usage": True}
        return json.dumps(asked).encode()


@dataclasses.dataclass
class Answer:
    """What came back. `failed`: nothing usable began. `cut_short`: it began and is not whole."""

    outcome: str
    reason: str = ""
    status: int | None = None
    tokens: int | None = None
    first_byte_s: float | None = None
    elapsed_s: float = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        if self.outcome != ANSWERED or not self.tokens or self.elapsed_s <= 0:
            return None
        return self.tokens / self.elapsed_s


def ask(url: str, question: Question, timeout_s: float = 60.0) -> Answer:
    """Send the question and read the answer to its end. `timeout_s` is how long the line may be silent."""
    started = time.monotonic()
    target = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=timeout_s)
    answer = Answer(FAILED)
    try:
        connection.request(
            "POST",
            f"{target.path.rstrip('/')}/v1/chat/completions",
            question.body(),
            {"Content-Type": "application/json"},
        )
        response = connection.getresponse()
        answer = Answer(FAILED, status=response.status, first_byte_s=round(time.monotonic() - started, 3))
        if response.status != 200:
            answer.reason = f"HTTP {response.status}: {response.read(300).decode(errors='replace')}"
        elif question.stream:
            answer = _merged(answer, judge_stream(response, question.tokens))
        else:
            answer = _merged(answer, judge_plain(response.read(), question.tokens))
    except (OSError, http.client.HTTPException) as error:
        began = answer.status == 200
        answer.outcome = CUT_SHORT if began else FAILED
        answer.reason = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    answer.elapsed_s = round(time.monotonic() - started, 3)
    return answer


def _merged(answer: Answer, judged: Answer) -> Answer:
    return dataclasses.replace(judged, status=answer.status, first_byte_s=answer.first_byte_s)


def judge_plain(body: bytes, wanted: int) -> Answer:
    try:
        content = json.loads(body)
    except ValueError:
        return Answer(CUT_SHORT, f"not JSON: {body[-80:]!r}")
    return _judge_end(content, _finish_reason(content), wanted)


def judge_stream(lines: Iterable[bytes], wanted: int) -> Answer:
    """Read server-sent events. A stream is whole with its finish reason, its count and its `[DONE]`."""
    finish_reason, usage = None, {}
    for data in _events(lines):
        if data == b"[DONE]":
            return _judge_end(usage, finish_reason, wanted)
        try:
            content = json.loads(data)
        except ValueError:
            return Answer(CUT_SHORT, f"an event is not JSON: {data[-80:]!r}")
        if "error" in content:
            return Answer(CUT_SHORT, f"an error in the stream: {str(content['error'])[:200]}")
        finish_reason = _finish_reason(content) or finish_reason
        if content.get("usage"):
            usage = content
    return Answer(CUT_SHORT, "the stream ended without [DONE]", tokens=_tokens(usage))


def _events(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if line.startswith(b"data:"):
            yield line[len(b"data:") :].strip()


def _finish_reason(content: dict[str, Any]) -> str | None:
    choices = content.get("choices") or []
    return choices[0].get("finish_reason") if choices else None


def _tokens(content: dict[str, Any]) -> int | None:
    return (content.get("usage") or {}).get("completion_tokens")


def _judge_end(content: dict[str, Any], finish_reason: str | None, wanted: int) -> Answer:
    tokens = _tokens(content)
    if tokens != wanted:
        return Answer(CUT_SHORT, f"{tokens} of {wanted} tokens, finish reason {finish_reason}", tokens=tokens)
    if finish_reason != "length":
        return Answer(CUT_SHORT, f"finish reason {finish_reason}, not length", tokens=tokens)
    return Answer(ANSWERED, tokens=tokens)
