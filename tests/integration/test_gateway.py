# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The published gateway with small workers: what comes and goes, how soon, and that no request is lost by it.

The workers answer what a gateway asks an SGLang server for, and nothing else. Real servers behind the gateway are the
matter of the rollout's tests.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from ansible_collections.serving.sglang.plugins.module_utils import workers_file
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.gateway_change import Wanted, bring_about
from ansible_collections.serving.sglang.plugins.module_utils.gateway_client import GatewayClient

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("SGLANG_TEST_CACHE", "/var/cache/serving-sglang"))
LAUNCHER = CHECKOUT / "roles" / "sglang_gateway" / "files" / "launch.py"
SMG = "1.13.0"
ROUTER = "0.3.2"
KEY = "the-key-of-this-test"
TOKEN_S = 0.02


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Answers(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path not in ("/health", "/ready") and not self.allowed():
            return
        known = {
            "/health": {},
            "/ready": {},
            "/model_info": {"model_path": "tiny", "is_generation": True},
            "/server_info": {"model_path": "tiny", "served_model_name": "tiny", "version": "0.5.22"},
            "/v1/models": {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 4096}]},
            "/v1/loads": {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]},
        }
        self.reply(200 if path in known else 404, known.get(path, {}))

    def do_POST(self) -> None:
        asked = json.loads(self.body())
        if not self.allowed():
            return
        self.server.served += 1
        tokens = int(asked.get("max_tokens", 1))
        if not asked.get("stream"):
            time.sleep(tokens * TOKEN_S)
            choice = {"index": 0, "message": {"role": "assistant", "content": "x" * tokens}, "finish_reason": "length"}
            self.reply(200, {"id": "1", "object": "chat.completion", "model": "tiny", "choices": [choice]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = {"index": 0, "delta": {"content": "x"}}
        delta = {"id": "1", "object": "chat.completion.chunk", "model": "tiny", "choices": [part]}
        for _token in range(tokens):
            self.chunk(f"data: {json.dumps(delta)}\n\n")
            time.sleep(TOKEN_S)
        self.chunk("data: [DONE]\n\n")
        self.chunk("")

    def allowed(self) -> bool:
        key = self.server.key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.reply(401, {"error": "Unauthorized"})
            return False
        return True

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def reply(self, code: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Server(http.server.ThreadingHTTPServer):
    """Counts what it served. A gateway that was killed leaves broken connections, which are no news."""

    daemon_threads = True
    served = 0
    key: str | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Worker:
    """A small worker on a port of its own; stopped and started again it keeps the port."""

    def __init__(self, port: int = 0, key: str | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = key
        self.server: Server | None = None

    def start(self) -> Worker:
        server = Server(("127.0.0.1", self.port), Answers)
        server.key = self.key
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.server = server
        return self

    @property
    def served(self) -> int:
        return self.server.served if self.server else 0

    def stop(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class Gateway:
    """smg as the role's unit starts it: by the launcher, its workers split from the workers file."""

    def __init__(self, python: Path, folder: Path, **arguments: Any) -> None:
        self.python = python
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.workers_file = str(folder / "workers.env")
        self.key: str | None = arguments.pop("api_key", None)
        self.arguments = {
            "host": "127.0.0.1",
            "port": self.port,
            "prometheus-host": "127.0.0.1",
            "prometheus-port": free_port(),
            "policy": "round_robin",
            "disable-retries": True,
            "disable-tokenizer-autoload": True,
            "health-check-endpoint": "/ready",
            "health-check-interval-secs": 2,
            "worker-startup-check-interval": 1,
            "log-level": "warn",
            **{name.replace("_", "-"): value for name, value in arguments.items()},
        }
        (folder / "gateway.json").write_text(json.dumps({"arguments": self.arguments}))
        (folder / "credentials.json").write_text(json.dumps({"api-key": self.key} if self.key else {}))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Gateway:
        variable = Path(self.workers_file).read_text().splitlines()[-1] if Path(self.workers_file).exists() else "="
        words = variable.partition("=")[2].split()
        with (self.folder / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, LAUNCHER, self.folder / "gateway.json", self.folder / "credentials.json", *words],
                stdout=log,
                stderr=log,
            )
        until(lambda: requests.get(f"{self.url}/liveness", timeout=1).ok, "the gateway answers", 30)
        return self

    def stop(self, kill: bool = False) -> None:
        if self.process:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(60)
            self.process = None

    @property
    def client(self) -> GatewayClient:
        return GatewayClient(self.url, self.key)

    def bring(self, worker: Worker, state: str = "present", check: bool = False, **options: Any) -> dict[str, Any]:
        options.setdefault("timeout_s", 15)
        wanted = Wanted(url=worker.url, state=state, worker_api_key=self.key, **options)
        return bring_about(self.client, wanted, self.workers_file, check)

    def urls(self) -> list[str]:
        return [worker.url for worker in self.client.workers()]

    def ask(self, tokens: int = 1, stream: bool = False) -> requests.Response:
        message = {"role": "user", "content": "hi"}
        body = {"model": "tiny", "messages": [message], "max_tokens": tokens, "stream": stream}
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return requests.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def until(holds: Any, what: str, limit_s: float = 15.0) -> float:
    begin = time.monotonic()
    while time.monotonic() - begin < limit_s:
        try:
            if holds():
                return time.monotonic() - begin
        except (requests.RequestException, EngineError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


def environment_with(package: str, version: str, module: str) -> Path:
    """The interpreter of an environment with a published gateway, made once below the cache."""
    environment = CACHE / f"{package}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = environment / "bin" / "python"
    check = [python, "-c", f"import {module}, importlib.metadata as m; assert m.version('{package}') == '{version}'"]
    if not python.exists() or subprocess.run(check, check=False, capture_output=True).returncode != 0:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{package}=={version}"], check=True)
    return python


@pytest.fixture(scope="session")
def smg_python() -> Path:
    return environment_with("smg", SMG, "smg.cli")


@pytest.fixture
def make_gateway(smg_python, tmp_path):
    made: list[Gateway] = []

    def make(**arguments: Any) -> Gateway:
        made.append(Gateway(smg_python, tmp_path, **arguments).start())
        return made[-1]

    yield make
    for gateway in made:
        gateway.stop(kill=True)


@pytest.fixture
def gateway(make_gateway):
    return make_gateway()


@pytest.fixture
def make_worker():
    made: list[Worker] = []

    def make(**options: Any) -> Worker:
        made.append(Worker(**options))
        return made[-1]

    yield make
    for worker in made:
        worker.stop()


@pytest.fixture
def worker(make_worker):
    return make_worker().start()


def test_it_comes_and_goes_as_check_mode_said(gateway, worker):
    """Check, run, check again, run again, in both directions: what was said is what happened, once."""
    for state in ("present", "absent"):
        said = gateway.bring(worker, state, check=True)
        done = gateway.bring(worker, state)
        assert said["changed"]
        assert done["changed"]
        assert (said["diff"], said["workers"], said["workers_file_changed"]) == (
            done["diff"],
            done["workers"],
            done["workers_file_changed"],
        )
        assert len(done["diff"]) == 2
        assert not gateway.bring(worker, state, check=True)["changed"]
        assert not gateway.bring(worker, state)["changed"]
        assert gateway.urls() == workers_file.read(gateway.workers_file) == ([worker.url] if state == "present" else [])


def test_it_is_quick(gateway, worker):
    joined = gateway.bring(worker)
    assert joined["worker"]["routed"]
    assert joined["elapsed_s"] < 2
    assert gateway.ask().status_code == 200
    left = gateway.bring(worker, "absent", settle_s=1)
    assert 0.9 < left["elapsed_s"] < 2.5, "the settle time is ours and not the gateway's 5 s"
    assert left["worker"] is None


def test_what_runs_on_a_leaving_worker_is_answered_in_full(gateway, make_worker):
    leaving, staying = make_worker().start(), make_worker().start()
    gateway.bring(leaving)
    gateway.bring(staying)
    answers: list[str] = []
    clients = [threading.Thread(target=lambda: answers.append(gateway.ask(150, stream=True).text)) for _ in range(6)]
    for client in clients:
        client.start()
    until(lambda: leaving.served and leaving.served + staying.served == 6, "six streams run")
    running_there = leaving.served
    gateway.bring(leaving, "absent", settle_s=0)
    assert any(client.is_alive() for client in clients), "the streams outlast the leave"
    assert [gateway.ask().status_code for _ in range(4)] == [200] * 4
    for client in clients:
        client.join()
    assert leaving.served == running_there > 0, "nothing new went to the worker that left"
    assert [(text.count('"content": "x"'), text.count("[DONE]")) for text in answers] == [(150, 1)] * 6


def test_short_requests_while_it_comes_and_goes(gateway, make_worker):
    """Retries are off: each request that meets a worker at the wrong moment would fail."""
    moving, staying = make_worker().start(), make_worker().start()
    gateway.bring(staying)
    codes: list[int] = []
    going_on = True

    def load() -> None:
        while going_on:
            codes.append(gateway.ask().status_code)

    clients = [threading.Thread(target=load) for _ in range(4)]
    for client in clients:
        client.start()
    for _round in range(3):
        gateway.bring(moving)
        until(lambda: moving.served > 3, "requests go to it")
        gateway.bring(moving, "absent", settle_s=1)
        moving.stop()
        moving.start()
    going_on = False
    for client in clients:
        client.join()
    assert set(codes) == {200}
    assert len(codes) > 50


def test_a_killed_gateway_comes_back_without_the_worker_that_left(gateway, make_worker):
    leaving, staying = make_worker().start(), make_worker().start()
    gateway.bring(leaving)
    gateway.bring(staying)
    gateway.bring(leaving, "absent", wait=False)
    gateway.stop(kill=True)
    gateway.start()
    until(lambda: gateway.urls() == [staying.url], "it has the other worker")
    time.sleep(2.5)
    assert gateway.urls() == [staying.url]
    assert not gateway.bring(leaving, "absent")["changed"]
    assert gateway.bring(leaving)["changed"]
    gateway.stop(kill=True)
    gateway.start()
    until(lambda: gateway.urls() == sorted([leaving.url, staying.url]), "it has both")


def test_a_gateway_that_is_restarting_is_waited_for(gateway, worker):
    gateway.stop(kill=True)
    restart = threading.Timer(1.5, gateway.start)
    restart.start()
    assert gateway.bring(worker)["worker"]["routed"]
    restart.join()


def test_a_worker_that_does_not_answer_is_not_asked_for(gateway, make_worker):
    """The gateway would say yes and go on trying for half an hour, and nothing would call that off."""
    late = make_worker()
    with pytest.raises(EngineError, match=r"was not added after .*GET /ready: refused.*Nothing was asked") as caught:
        gateway.bring(late, timeout_s=1.5)
    assert caught.value.kind == "timeout"
    assert caught.value.facts["workers_file_changed"]
    late.start()
    time.sleep(2.5)
    assert gateway.urls() == []
    assert gateway.bring(late)["worker"]["routed"]


def test_a_worker_that_comes_up_meanwhile_is_added_at_once(gateway, make_worker):
    late = make_worker()
    threading.Timer(1.5, late.start).start()
    assert gateway.bring(late)["elapsed_s"] < 4


def test_without_waiting_the_gateway_tries_by_itself(gateway, make_worker):
    late = make_worker()
    assert gateway.bring(late, wait=False)["changed"]
    with pytest.raises(EngineError, match=r"does not serve|asked for it before"):
        gateway.bring(late, timeout_s=1)
    late.start()
    until(lambda: gateway.urls() == [late.url], "the gateway's own try succeeds")


def test_two_take_it_out_at_once(gateway, worker):
    gateway.bring(worker)
    left: list[dict[str, Any]] = []
    both = [threading.Thread(target=lambda: left.append(gateway.bring(worker, "absent"))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(left) == 2
    assert gateway.bring(worker)["changed"]
    time.sleep(5.5)
    assert gateway.urls() == [worker.url], "no removal of before takes the new entry away"


def test_it_comes_back_while_the_old_entry_drains(gateway, worker):
    gateway.bring(worker)
    gateway.bring(worker, "absent", settle_s=2, wait=False)
    back = gateway.bring(worker)
    assert back["changed"]
    assert back["worker"]["routed"]


def test_another_spelling_is_taken_out_too(gateway, worker):
    gateway.bring(worker)
    requests.post(f"{gateway.url}/workers", json={"url": f"{worker.url}/"}, timeout=5)
    until(lambda: len(gateway.urls()) == 2, "the gateway has the server twice")
    assert not gateway.bring(worker)["changed"]
    gateway.bring(worker, "absent")
    assert gateway.urls() == []


def test_a_worker_that_died_is_waited_for(make_gateway, worker):
    gateway = make_gateway(health_check_interval_secs=1)
    gateway.bring(worker)
    worker.stop()
    until(lambda: not gateway.client.workers()[0].routed, "the gateway's health check finds it dead", 20)
    with pytest.raises(EngineError, match=r"does not call it healthy after .*status not_ready"):
        gateway.bring(worker, timeout_s=1)
    worker.start()
    back = gateway.bring(worker)
    assert back["worker"]["routed"]
    assert not back["changed"]


def test_leaving_closes_the_circuit_breaker(make_gateway, make_worker):
    """An open breaker keeps a worker out for a minute although it is called healthy; a new entry has a closed one."""
    gateway = make_gateway(health_check_interval_secs=60)
    failing, staying = make_worker().start(), make_worker().start()
    gateway.bring(failing)
    gateway.bring(staying)
    failing.stop()
    until(lambda: [gateway.ask().status_code for _ in range(6)] == [200] * 6, "the breaker opens", 30)
    failing.start()
    [gateway.ask() for _ in range(6)]
    assert failing.served == 0
    gateway.bring(failing, "absent")
    gateway.bring(failing)
    until(lambda: gateway.ask() and failing.served > 0, "it is asked again, long before a minute has passed", 10)


def test_the_key_opens_gateway_and_workers_and_is_not_shown(make_gateway, make_worker):
    gateway = make_gateway(api_key=KEY)
    worker = make_worker(key=KEY).start()
    assert gateway.bring(worker)["worker"]["routed"]
    assert gateway.ask().status_code == 200
    stranger = GatewayClient(gateway.url, "wrong")
    with pytest.raises(EngineError, match="Set api_key") as caught:
        stranger.workers()
    assert caught.value.kind == "unauthorized"
    assert "wrong" not in caught.value.msg
    command = Path(f"/proc/{gateway.process.pid}/cmdline").read_bytes()
    assert KEY.encode() not in command
    assert KEY not in (gateway.folder / "gateway.log").read_text()
    gateway.stop(kill=True)
    gateway.start()
    until(
        lambda: [one.routed for one in gateway.client.workers()] == [True],
        "a restarted gateway shows its key to its workers",
    )


def test_what_the_gateway_says_of_itself(gateway, worker):
    assert not gateway.client.ready()
    gateway.bring(worker)
    assert gateway.client.ready()
    assert gateway.client.version() == SMG


def test_something_else_on_the_port(worker):
    with pytest.raises(EngineError, match="gateway's own port"):
        bring_about(GatewayClient(worker.url), Wanted(url=worker.url, state="present"), None, False)


@pytest.mark.full
def test_the_older_gateway(make_worker, tmp_path):
    """sglang-router has no settle time: a worker that left is gone at once, and what runs there is answered."""
    python = environment_with("sglang-router", ROUTER, "sglang_router")
    worker, port = make_worker().start(), free_port()
    words = ["--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port(), "--disable-retries"]
    with (tmp_path / "router.log").open("wb") as log:
        command = [python, "-m", "sglang_router.launch_router", *map(str, words)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        client = GatewayClient(f"http://127.0.0.1:{port}")
        until(lambda: client.workers() == [], "it answers", 60)
        file = str(tmp_path / "workers.env")
        for state, changed in (("present", True), ("present", False), ("absent", True), ("absent", False)):
            done = bring_about(client, Wanted(url=worker.url, state=state, timeout_s=20), file, False)
            assert done["changed"] is changed
            assert client.ready() is (state == "present")
        assert client.version() is None
    finally:
        process.kill()
        process.wait()


def test_no_gateway_on_the_port(tmp_path):
    nobody = GatewayClient(f"http://127.0.0.1:{free_port()}")
    wanted = Wanted(url="http://127.0.0.1:1", state="absent", timeout_s=1)
    with pytest.raises(EngineError, match=r"not sure that .* left the gateway after 1"):
        bring_about(nobody, wanted, None, False)
    foreseen = bring_about(nobody, Wanted(url="http://127.0.0.1:1", state="present"), str(tmp_path / "w.env"), True)
    assert foreseen["changed"]
    assert "cannot be asked" in foreseen["warnings"][0]


@pytest.mark.parametrize(
    ("arguments", "secrets", "said"),
    [
        ({"port": 30000, "policy": "cache_aware", "disable-retries": False}, {"api-key": "-x"}, ""),
        ({"cors-allowed-origins": ["http://a", "http://b"], "log-dir": None}, {}, ""),
        ({"no-such": 1}, {"api-kye": KEY}, "this release of smg does not know --api-kye, --no-such"),
        ({"policy": "best"}, {}, "argument --policy: invalid choice: 'best'"),
        ({"port": "x"}, {"api-key": "x"}, "argument --port: invalid int value"),
    ],
)
def test_the_launcher_knows_what_the_release_takes(smg_python, arguments, secrets, said):
    declared = json.dumps({"arguments": arguments, "secret_arguments": secrets})
    run = subprocess.run([smg_python, LAUNCHER, "--check"], input=declared, capture_output=True, text=True, check=False)
    assert (run.stdout.strip() == "") == (said == "")
    assert run.stdout.startswith(said)
    assert KEY not in run.stdout + run.stderr
    assert run.returncode == (1 if said else 0)
