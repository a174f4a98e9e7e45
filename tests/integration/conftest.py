# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One test host with real SGLang, set up by the roles, and the modules run on it by Ansible itself."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
FLEET = os.environ.get("SGLANG_TEST_FLEET", "integration")
STATE = Path(os.environ.get("SGLANG_TEST_STATE", "/run/serving-sglang-lab")) / FLEET

ARGUMENTS = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "enable-metrics": True,
    "max-total-tokens": 65536,
    "max-running-requests": 16,
    "max-queued-requests": 16,
    "sleep-on-idle": True,
}
VARIABLES = {
    "sglang_server_version": "0.5.22",
    "sglang_server_output_cap_tokens": 4096,
    "sglang_server_slowest_tokens_per_s": 100,
    "sglang_server_build_packages": [],
    "sglang_server_start": False,
    # Some tests declare a model that is not there.
    "sglang_server_prefetch": False,
    "sglang_server_start_deadline_s": 300,
    "sglang_server_environment": {
        "PYTHONPATH": "/opt/sglang/0.5.22/stubs",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "LAB_START_METHOD": os.environ.get("LAB_START_METHOD", "fork"),
    },
    "sglang_server_arguments": ARGUMENTS,
    "sglang_server_instances": [
        {
            "name": "main",
            "model": "/srv/models/tiny",
            "served_model_name": "tiny",
            "port": 30000,
            "cards_shared": True,
            "cards": [0],
            "api_key": "Zq-client-key-qZ",
            "admin_api_key": "Zq-admin-key-qZ",
            "memory_max": "8G",
        },
        {
            "name": "broken",
            "model": "/srv/models/none",
            "served_model_name": "none",
            "port": 30001,
            "cards_shared": True,
            "cards": [0],
        },
    ],
}

# A client that sends streaming requests and says for each what it got, as JSON.
CLIENT = """
import json, sys, threading, urllib.request
count, tokens, key = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
answers = [None] * count
def one(index):
    got, whole, error = 0, False, None
    body = {"text": "Once", "stream": True,
            "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    request = urllib.request.Request("http://127.0.0.1:30000/generate", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json", "Authorization": "Bearer " + key})
    try:
        for line in urllib.request.urlopen(request):
            line = line.strip()
            if line == b"data: [DONE]":
                whole = True
            elif line.startswith(b"data:"):
                answer = json.loads(line[5:])
                got = answer["meta_info"]["completion_tokens"]
                if (answer["meta_info"].get("finish_reason") or {}).get("type") == "abort":
                    error = "aborted"
    except Exception as problem:
        error = repr(problem)
    answers[index] = {"tokens": got, "whole": whole, "error": error}
threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers))
"""


class Load:
    """Requests that run on the host, whatever becomes of the connection to it."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name

    def answers(self) -> list[dict[str, Any]]:
        script = f"while systemctl is-active -q {self.name}; do sleep 0.2; done; cat /run/{self.name}.json"
        answers: list[dict[str, Any]] = json.loads(self.host.shell(script))
        return answers


class Host:
    """The test host h1 and what can be done there."""

    fleet = FLEET
    checkout = CHECKOUT
    inventory = STATE / "inventory.yml"
    variables = VARIABLES
    key = "Zq-client-key-qZ"
    admin_key = "Zq-admin-key-qZ"

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def command(self, *words: str) -> list[str]:
        return [str(HOSTS), *words]

    def hosts(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shell(self, script: str, check: bool = True) -> str:
        done = subprocess.run(
            self.command("ssh", "--fleet", FLEET, "h1", script),
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0 or not check, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def playbook(self, plays: list[dict[str, Any]], check: bool = False) -> subprocess.Popen[str]:
        path = self.scratch / f"play-{time.monotonic_ns()}.yml"
        path.write_text(json.dumps(plays))
        return subprocess.Popen(
            self.command(
                "exec",
                "--fleet",
                FLEET,
                "--",
                str(CHECKOUT / "tests" / "dev" / "run"),
                "ansible-playbook",
                "-i",
                str(STATE / "inventory.yml"),
                *(["--check"] if check else []),
                str(path),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play(self, plays: list[dict[str, Any]]) -> str:
        process = self.playbook(plays)
        output, _nothing = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    def begin(self, module: str, check: bool = False, **options: Any) -> tuple[subprocess.Popen[str], Path]:
        result = self.scratch / f"result-{time.monotonic_ns()}.json"
        tasks = [
            {
                "name": "Run the module",
                f"serving.sglang.{module}": options,
                "register": "result",
                "ignore_errors": True,
            },
            {
                "name": "Keep its result",
                "ansible.builtin.copy": {"content": "{{ result | to_json }}", "dest": str(result), "mode": "0600"},
                "delegate_to": "localhost",
                "check_mode": False,
            },
        ]
        return self.playbook([{"hosts": "h1", "gather_facts": False, "tasks": tasks}], check), result

    def module(self, module: str, check: bool = False, **options: Any) -> dict[str, Any]:
        """Runs a module and returns its result; `_output` is what was shown meanwhile."""
        process, path = self.begin(module, check, **options)
        output, _nothing = process.communicate(timeout=900)
        assert path.exists(), output
        result: dict[str, Any] = json.loads(path.read_text())
        assert self.key not in output + path.read_text()
        assert self.admin_key not in output + path.read_text()
        return {**result, "_output": output}

    def info(self, instance: str = "main") -> dict[str, Any]:
        (entry,) = self.module("server_info", instance=instance)["instances"]
        found: dict[str, Any] = entry
        return found

    def load(self, count: int, tokens: int, until_running: bool = True) -> Load:
        """Sends requests and returns when all of them run, or at once."""
        name = f"load-{time.monotonic_ns()}"
        words = ["systemd-run", "--quiet", "--collect", f"--unit={name}"]
        words += [f"--property=StandardOutput=truncate:/run/{name}.json"]
        words += ["python3", "-c", CLIENT, str(count), str(tokens), self.key]
        self.shell(" ".join(shlex.quote(word) for word in words))
        load = Load(self, name)
        for _ in range(100 if until_running else 0):
            if self.running() >= count:
                return load
            time.sleep(0.1)
        assert not until_running, "the requests did not begin to run"
        return load

    def http(self, method: str, path: str, body: dict[str, Any] | None = None, limit: int = 30) -> tuple[int, str]:
        """The status code and body of a request to the server, sent with its admin key where that is wanted."""
        key = self.admin_key if method == "POST" and path != "/generate" else self.key
        data = f"-d {shlex.quote(json.dumps(body))} -H 'Content-Type: application/json'" if body is not None else ""
        output = self.shell(
            f"curl -s -m {limit} -X {method} -H 'Authorization: Bearer {key}' {data} -w '\\n%{{http_code}}' "
            f"http://127.0.0.1:30000{path}",
            check=False,
        )
        text, _newline, code = output.rpartition("\n")
        return int(code or 0), text

    def running(self) -> int:
        code, text = self.http("GET", "/v1/loads?include=core")
        return sum(load["num_running_reqs"] for load in json.loads(text)["loads"]) if code == 200 else -1

    def slow_down(self, seconds: float) -> None:
        assert self.http("POST", "/slow_down", {"forward_sleep_time": seconds})[0] == 200

    @contextlib.contextmanager
    def frozen_scheduler(self) -> Iterator[None]:
        """Stops the scheduler's process in its tracks."""
        self.shell("pkill -STOP -f '^sglang::scheduler'")
        try:
            yield
        finally:
            self.shell("pkill -CONT -f '^sglang::scheduler'", check=False)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if os.geteuid() != 0:
        pytest.fail("test hosts are containers with systemd: run these tests as root")
    subprocess.run([str(CHECKOUT / "tests" / "lab" / "setup.sh")], check=True, stdout=sys.stderr)
    machine = Host(tmp_path_factory.mktemp("integration"))
    machine.hosts("up", "--fleet", FLEET, "--servers", "1")
    try:
        machine.play(
            [
                {
                    "hosts": "h1",
                    "vars": VARIABLES,
                    "roles": ["serving.sglang.sglang_host", "serving.sglang.sglang_server"],
                }
            ]
        )
        yield machine
    finally:
        machine.hosts("down", "--fleet", FLEET)


@pytest.fixture
def serving(host: Host) -> Host:
    """The host with its instance serving, started if it is not."""
    result = host.module("server_start", instance="main")
    assert not result.get("failed"), result["msg"]
    host.slow_down(0)
    return host
