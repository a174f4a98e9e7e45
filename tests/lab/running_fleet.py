"""A deployed fleet as tests and benchmarks use it: playbooks, hosts, load, and looks at the real thing."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
NAME = os.environ.get("SGLANG_TEST_FLEET", "rollout")
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
CLIENT = CHECKOUT / "tests" / "load" / "client.py"
OUT = CHECKOUT / ".build" / f"fleet-{NAME}"
VARIABLES = CHECKOUT / os.environ.get("SGLANG_TEST_VARIABLES", "tests/lab/demo_vars.yml")
GATEWAY = "http://10.77.0.9:30000"
SERVERS = {
    host: f"http://10.77.0.1{host[1:]}:30000" for host in os.environ.get("SGLANG_TEST_SERVERS", "h1,h2,h3").split(",")
}
LOCK = "/var/lib/sglang/rollout/lock.json"

# Molecule's verifier does not read tests/conftest.py, which knows the mark of the same name.
full = pytest.mark.skipif(os.environ.get("SGLANG_TEST_FULL") != "1", reason="takes long; `make test-full` runs it")


def wait_until(condition: Callable[[], Any], what: str, limit_s: float = 60.0, every_s: float = 0.3) -> Any:
    """The first true value of ``condition``; fails the test when none comes in time."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s in vain until {what}"
        time.sleep(every_s)


def in_fleet(*command: object) -> list[str]:
    return [str(HOSTS), "exec", "--fleet", NAME, "--", *map(str, command)]


def on(host: str, *command: str, check: bool = True, timeout: float = 120) -> str:
    """Standard output of a command on a host."""
    done = subprocess.run(
        [str(HOSTS), "ssh", "--fleet", NAME, host, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert not check or done.returncode == 0, f"{' '.join(command)} on {host}: {done.stdout}{done.stderr}"
    return done.stdout


def hosts(verb: str, host: str) -> None:
    subprocess.run([str(HOSTS), verb, "--fleet", NAME, host], check=True, timeout=120)


class Playbook:
    """A playbook of the collection, run as a user runs it; ``text`` is what it printed."""

    def __init__(self, name: str, *options: str, log: str) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = OUT / f"{log}.log"
        command = ["ansible-playbook", "-i", f"/run/serving-sglang-lab/{NAME}/inventory.yml", "-e", f"@{VARIABLES}"]
        command += ["-e", f"sglang_rollout_ledger_dir={OUT / 'ledger'}", *options, f"serving.sglang.{name}"]
        with self.log.open("w", encoding="utf-8") as written:
            self.process = subprocess.Popen(
                in_fleet(*command),
                cwd=CHECKOUT,
                env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, limit_s: float = 600) -> int:
        return self.process.wait(limit_s)

    def succeeds(self, limit_s: float = 600) -> Playbook:
        assert self.wait(limit_s) == 0, f"see {self.log}\n{self.text[-6000:]}"
        return self

    def fails(self, limit_s: float = 600) -> str:
        """What it printed, in one line, so that a sentence is found wherever it was wrapped."""
        assert self.wait(limit_s) == 2, f"see {self.log}\n{self.text[-6000:]}"
        return " ".join(self.text.split())

    def kill(self) -> None:
        """As a controller dies that loses its power: nothing of it gets a chance to tidy up."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def deploy(*options: str, log: str) -> Playbook:
    return Playbook("deploy", *options, log=log).succeeds()


def rollout(*options: str, log: str) -> Playbook:
    return Playbook("rollout", *options, log=log)


def only(*replicas: str) -> tuple[str, str]:
    """Options that restrict a rollout to some replicas."""
    return "-e", json.dumps({"sglang_rollout_replicas": list(replicas)})


def extra(**variables: Any) -> tuple[str, str]:
    return "-e", json.dumps(variables)


def ledger_of(playbook: Playbook) -> list[dict[str, Any]]:
    """The lines of the ledger that a rollout said it writes."""
    path = next(line.split("ledger:")[1].strip() for line in playbook.text.splitlines() if "  ledger: " in line)
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def workers() -> dict[str, bool]:
    """What the gateway routes to: URL -> healthy."""
    text = on("gw", "curl", "-sS", "--max-time", "10", "http://127.0.0.1:30000/workers", check=False)
    answer = json.loads(text or '{"workers": []}')
    return {worker["url"]: worker["is_healthy"] for worker in answer["workers"]}


def loads(host: str) -> int:
    """Requests that run or wait on a server, as it says itself."""
    text = on(host, "curl", "-sS", "--max-time", "5", "http://127.0.0.1:30000/v1/loads", check=False)
    try:
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in json.loads(text)["loads"])
    except (ValueError, KeyError):
        return 0


def job(host: str) -> dict[str, Any]:
    text = on(host, "cat", "/run/sglang/jobs/main.json", check=False)
    try:
        return json.loads(text)
    except ValueError:
        return {}


def main_pid(host: str) -> int:
    return int(on(host, "systemctl", "show", "-P", "MainPID", "sglang-main.service"))


def serves(host: str) -> bool:
    return (
        on(host, "curl -s -o /dev/null -w %{http_code} --max-time 5 http://127.0.0.1:30000/ready", check=False) == "200"
    )


def shown(host: str, *names: str) -> list[str]:
    """Properties of the server's unit."""
    lines = on(host, "systemctl", "show", "sglang-main.service", f"--property={','.join(names)}").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return [values[name] for name in names]


def assert_whole(when: str) -> None:
    """All servers serve, the gateway routes to each of them, and none is locked."""
    for host in SERVERS:
        assert serves(host), f"{host} does not serve {when} the test"
        assert on(host, f"test -e {LOCK}; echo $?") == "1\n", f"{host} is locked {when} the test"
    everyone = dict.fromkeys(SERVERS.values(), True)
    wait_until(lambda: workers() == everyone, f"the gateway routes to all of them {when} the test", 30)


def registry(*words: str) -> str:
    """What tests/lab/registry answers to a command and its further words."""
    command = [str(CHECKOUT / "tests" / "lab" / "registry"), words[0], "--fleet", NAME, *words[1:]]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


def record(host: str) -> dict[str, Any]:
    return json.loads(on(host, "cat", "/var/lib/sglang/rollout/instances/main.json"))


def slow_down(host: str, seconds: float) -> None:
    """Make a server slow on purpose until its next start: 0.05 is some 20 tokens/s a request."""
    body = json.dumps({"forward_sleep_time": seconds})
    on(host, f"curl -sS --max-time 10 -H 'Content-Type: application/json' -d '{body}' http://127.0.0.1:30000/slow_down")


class Stream:
    """One streamed request straight to a server."""

    def __init__(self, host: str, tokens: int) -> None:
        command = [sys.executable, CLIENT, "single", "--url", SERVERS[host], "--tokens", tokens]
        self.process = subprocess.Popen(in_fleet(*command), stdout=subprocess.PIPE, text=True, start_new_session=True)
        wait_until(lambda: loads(host) > 0, f"the request runs on {host}")

    def answer(self, limit_s: float = 240) -> dict[str, Any]:
        output, _ = self.process.communicate(timeout=limit_s)
        return json.loads(output.splitlines()[-1])


@contextlib.contextmanager
def load_through_gateway(
    name: str, clients: int = 4, sizes: str = "", pace_s: float = 0.007
) -> Iterator[dict[str, Any]]:
    """Clients that ask without a break while the block runs. The yielded dict holds the summary afterwards.

    At this pace a busy server makes some 90 tokens/s for a third of a processor, and another one starts beside it.
    """
    directory = OUT / name
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, CLIENT, "load", "--url", GATEWAY, "--out", directory, "--clients", clients]
    command += ["--max-seconds", 1500, "--forward-sleep-s", pace_s]
    command += ["--sizes", sizes] if sizes else []
    for server in SERVERS.values():
        command += ["--pace", server]
    with (directory / "client.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(in_fleet(*command), stdout=log, stderr=log, start_new_session=True)
        summary: dict[str, Any] = {}
        try:
            requests = directory / "requests.jsonl"
            wait_until(lambda: requests.exists() and requests.stat().st_size > 0, "the first answer came", 120)
            yield summary
        finally:
            process.terminate()
            process.wait(400)
    summary.update(json.loads((directory / "summary.json").read_text(encoding="utf-8")))
