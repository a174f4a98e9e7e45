"""The judge of the load: it must see every way of losing a request. The server here loses them on purpose."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import answers  # noqa: E402


def event(**content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def piece(finish_reason: str | None = None) -> bytes:
    return event(choices=[{"delta": {"content": "x"}, "finish_reason": finish_reason}])


def usage(tokens: int) -> bytes:
    return event(choices=[], usage={"completion_tokens": tokens})


DONE = b"data: [DONE]\n\n"


def plain(tokens: int, finish_reason: str = "length") -> bytes:
    return json.dumps({"choices": [{"finish_reason": finish_reason}], "usage": {"completion_tokens": tokens}}).encode()


@pytest.mark.parametrize(
    ("stream", "outcome", "reason"),
    [
        ([piece(), piece("length"), usage(3), DONE], "answered", ""),
        ([b": ping\n", b"\n", piece("length"), usage(3), DONE], "answered", ""),
        ([piece(), piece("length"), usage(3)], "cut_short", "without [DONE]"),
        ([piece(), piece()], "cut_short", "without [DONE]"),
        ([], "cut_short", "without [DONE]"),
        ([piece("length"), usage(2), DONE], "cut_short", "2 of 3 tokens"),
        ([piece("length"), DONE], "cut_short", "None of 3 tokens"),
        ([piece("abort"), usage(3), DONE], "cut_short", "finish reason abort"),
        ([piece(), event(error={"message": "worker gone"}), DONE], "cut_short", "worker gone"),
        ([piece(), b'data: {"choi\n'], "cut_short", "not JSON"),
    ],
)
def test_a_stream_is_whole_or_the_reason_is_said(stream: list[bytes], outcome: str, reason: str) -> None:
    judged = answers.judge_stream([line + b"\n" for chunk in stream for line in chunk.split(b"\n")], 3)
    assert judged.outcome == outcome
    assert reason in judged.reason


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        (plain(3), "answered", ""),
        (plain(2), "cut_short", "2 of 3 tokens"),
        (plain(3, "abort"), "cut_short", "finish reason abort"),
        (plain(3)[:-9], "cut_short", "not JSON"),
        (b"", "cut_short", "not JSON"),
        (b"{}", "cut_short", "None of 3 tokens"),
    ],
)
def test_an_answer_in_one_piece_is_whole_or_the_reason_is_said(body: bytes, outcome: str, reason: str) -> None:
    judged = answers.judge_plain(body, 3)
    assert judged.outcome == outcome
    assert reason in judged.reason


class Broken(http.server.BaseHTTPRequestHandler):
    """Answers as the server's `how` says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        how, wanted = self.server.how, asked["max_tokens"]
        if how == "500":
            self.send_error(500)
        elif how == "hang up":
            self.close_connection = True
        elif asked["stream"]:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.chunks([piece()] if how == "cut" else [piece(), piece("length"), usage(wanted), DONE])
            if how == "cut":
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")
        else:
            body = plain(wanted)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:-20] if how == "cut" else body)
            self.close_connection = how == "cut"

    def chunks(self, parts: list[bytes]) -> None:
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    made.how = "well"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def url(server: http.server.ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("how", "outcome"), [("well", "answered"), ("500", "failed"), ("hang up", "failed"), ("cut", "cut_short")]
)
def test_over_http(server: http.server.ThreadingHTTPServer, how: str, outcome: str, stream: bool) -> None:
    server.how = how
    answer = answers.ask(url(server), answers.Question(7, stream), timeout_s=5)
    assert (answer.outcome, bool(answer.reason)) == (outcome, outcome != "answered")
    assert answer.status == {"500": 500, "hang up": None}.get(how, 200)


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = answers.ask(f"http://127.0.0.1:{port}", answers.Question(7, stream=True), timeout_s=5)
    assert answer.outcome == "failed"
    assert "refused" in answer.reason


def run_load(server: http.server.ThreadingHTTPServer, out: pathlib.Path, *options: str) -> tuple[int, dict]:
    command = [sys.executable, str(HERE / "client.py"), "load", "--url", url(server), "--out", str(out), *options]
    ended = subprocess.run(command, timeout=60, stdout=subprocess.DEVNULL, check=False)
    return ended.returncode, json.loads((out / "summary.json").read_text())


def test_a_whole_load_is_counted(server: http.server.ThreadingHTTPServer, tmp_path: pathlib.Path) -> None:
    code, summary = run_load(server, tmp_path, "--max-requests", "24", "--clients", "2")
    assert code == 0
    counted = {name: summary[name] for name in ("sent", "answered", "failed", "cut_short", "in_flight")}
    assert counted == {"sent": 24, "answered": 24, "failed": 0, "cut_short": 0, "in_flight": 0}
    records = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    asked = {(record["wanted_tokens"], record["stream"]) for record in records}
    assert asked == {(size, stream) for size in (50, 300, 800, 1500, 2000, 2500) for stream in (False, True)}


def test_one_lost_request_is_an_exit_code(server: http.server.ThreadingHTTPServer, tmp_path: pathlib.Path) -> None:
    server.how = "cut"
    code, summary = run_load(server, tmp_path, "--max-requests", "2", "--clients", "1")
    assert code == 1
    assert (summary["answered"], summary["cut_short"]) == (0, 2)


def test_it_ends_by_a_file_and_at_its_time(server: http.server.ThreadingHTTPServer, tmp_path: pathlib.Path) -> None:
    stop = tmp_path / "stop"
    stop.touch()
    code, summary = run_load(server, tmp_path / "a", "--stop-file", os.fspath(stop), "--pause-s", "0.1")
    assert code == 0
    assert summary["sent"] < 50
    code, summary = run_load(server, tmp_path / "b", "--max-seconds", "0.5", "--pause-s", "0.1", "--clients", "1")
    assert code == 0
    assert 0 < summary["sent"] < 10
