"""What the kernel holds instances in containers of each engine to, with control groups of version 2.

The instances `podman` and `docker` are process.py, `server_podman` and `server_docker` are SGLang.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import running_fleet as fleet

PORTS = {"podman": 30000, "docker": 30001, "server_podman": 30002, "server_docker": 30003}
MIB = 1 << 20
LIMITS = {"memory.max": 384 * MIB, "memory.high": 192 * MIB, "memory.swap.max": 64 * MIB}

engines = pytest.mark.parametrize("engine", ["podman", "docker"])


def group(engine: str) -> str:
    return f"/sys/fs/cgroup/sglang.slice/sglang-{engine}.slice"


def unit(engine: str) -> str:
    return f"sglang-{engine}.service"


def shown(host, engine: str, *names: str) -> list[str]:
    lines = host.check_output(f"systemctl show {unit(engine)} --property {','.join(names)}").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return [values[name] for name in names]


def events(host, engine: str) -> dict[str, int]:
    """What has happened at the slice's limits since it was made."""
    lines = host.check_output(f"cat {group(engine)}/memory.events").splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines)}


def journal(host, engine: str, since: str = "") -> str:
    """The unit's journal from a cursor on, or what else was said of it."""
    after = f"--after-cursor='{since}'" if since else ""
    return host.check_output(f"journalctl -q --no-pager -o cat -u {unit(engine)} {after}")


def cursor(host) -> str:
    return host.check_output("journalctl -q -n 0 --show-cursor").removeprefix("-- cursor: ").strip()


def wait_until_it_answers(host, engine: str) -> None:
    ask = f"curl -s --max-time 20 http://127.0.0.1:{PORTS[engine]}/ready"
    deadline = time.monotonic() + 300
    while host.run(ask).stdout.strip() != "/ready 0":
        assert time.monotonic() < deadline, journal(host, engine)[-2000:]
        time.sleep(1)


@pytest.fixture
def running(host, engine):
    """The host with the engine's instance running."""
    host.run_test(f"systemctl start {unit(engine)}")
    assert shown(host, engine, "ActiveState") == ["active"], journal(host, engine)[-2000:]
    wait_until_it_answers(host, engine)
    return host


def test_control_groups_are_of_version_2(host):
    assert host.check_output("stat --file-system --format %T /sys/fs/cgroup") == "cgroup2fs"


@engines
def test_limits_are_the_kernels(running, engine):
    found = running.check_output(f"cd {group(engine)} && cat {' '.join(LIMITS)}").split()
    assert found == [str(limit) for limit in LIMITS.values()]


@engines
def test_container_is_in_the_slice(running, engine):
    pid = running.check_output(f"{engine} inspect --format '{{{{.State.Pid}}}}' sglang-{engine}")
    assert running.check_output(f"cat /proc/{pid}/cgroup").startswith(
        f"0::{group(engine).removeprefix('/sys/fs/cgroup')}/"
    )
    assert "sglang.launch_server" in running.check_output(f"tr '\\0' ' ' < /proc/{pid}/cmdline")


@engines
def test_memory_high_slows_down_and_kills_nothing(running, engine):
    before = events(running, engine)
    assert running.check_output(f"curl -s --max-time 300 'http://127.0.0.1:{PORTS[engine]}/take?n=190'") == "/take 190"
    after = events(running, engine)
    assert after["high"] > before["high"]
    assert (after["max"], after["oom_kill"]) == (before["max"], 0)


@engines
def test_stop_reaches_the_first_process_alone_and_waits_for_its_requests(running, engine):
    start = cursor(running)
    done = running.check_output(
        f"curl -s --max-time 120 'http://127.0.0.1:{PORTS[engine]}/wait?n=15' > /tmp/answer & sleep 3;"
        f" systemctl stop {unit(engine)}; wait; cat /tmp/answer"
    )
    assert done == "/wait 15"
    said = journal(running, engine, start)
    assert "the first process got SIGTERM" in said
    assert "the child got SIGTERM" not in said
    assert "every request is answered" in said
    assert shown(running, engine, "Result", "ExecMainStatus", "ActiveState") == ["success", "0", "inactive"]
    assert running.run(f"{engine} inspect sglang-{engine}").rc != 0


@engines
def test_at_the_limit_the_kernel_kills_and_the_unit_comes_back(running, engine):
    start, killed = cursor(running), events(running, engine)["oom_kill"]
    # Between the two limits a process without swap would stand still for minutes before it is killed.
    running.check_output(f"echo max > {group(engine)}/memory.high")
    assert running.run(f"curl -s --max-time 300 'http://127.0.0.1:{PORTS[engine]}/take?n=900'").rc != 0
    deadline = time.monotonic() + 120
    while "Failed with result" not in journal(running, engine, start):
        assert time.monotonic() < deadline
        time.sleep(2)
    said = journal(running, engine, start)
    # docker's unit holds the client alone, which ends with the container's status.
    assert f"Failed with result '{'oom-kill' if engine == 'podman' else 'exit-code'}'" in said
    assert engine == "podman" or "status=137" in said
    assert ("has been killed by the OOM killer" in said) == (engine == "podman")
    assert events(running, engine)["oom_kill"] > killed
    wait_until_it_answers(running, engine)
    assert shown(running, engine, "NRestarts") == ["1"]


@pytest.fixture
def served(host, engine):
    """The name of the instance with SGLang in it, which runs, alone on its host."""
    name = f"server_{engine}"
    host.check_output(f"systemctl stop {unit('podman')} {unit('docker')}")
    host.check_output(f"systemctl start --no-block {unit(name)}")
    ask = f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 http://10.77.0.11:{PORTS[name]}/ready"
    deadline = time.monotonic() + 1800
    while host.run(ask).stdout.strip() != "200":
        assert time.monotonic() < deadline, journal(host, name)[-3000:]
        assert shown(host, name, "ActiveState") != ["failed"], journal(host, name)[-3000:]
        time.sleep(5)
    yield name
    host.check_output(f"systemctl stop {unit(name)}")


@engines
def test_sglang_is_held_to_its_limits_and_outlives_its_stop_until_it_has_answered(host, engine, served):
    assert host.check_output(f"cd {group(served)} && cat memory.max memory.high").split() == [
        str(4096 * MIB),
        str(3072 * MIB),
    ]
    pids = host.check_output(f"find {group(served)} -name cgroup.procs -exec cat {{}} +").split()
    names = [host.run(f"tr '\\0' ' ' < /proc/{pid}/cmdline").stdout for pid in pids]
    assert sum("sglang" in name for name in names) >= 3, f"server, scheduler and detokenizer are in the slice: {names}"
    held = int(host.check_output(f"cat {group(served)}/memory.current"))
    assert 500 * MIB < held < 3072 * MIB

    start = cursor(host)
    asked = [sys.executable, fleet.CLIENT, "single", "--url", f"http://10.77.0.11:{PORTS[served]}", "--tokens", 2000]
    stream = subprocess.Popen(
        fleet.in_fleet(*asked, "--timeout-s", 600), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(10)
    assert stream.poll() is None, "the stop comes while the answer is being made"
    host.check_output(f"systemctl stop {unit(served)}")
    answer = json.loads(stream.communicate(timeout=60)[0].splitlines()[-1])
    assert (answer["outcome"], answer["tokens"]) == ("answered", 2000)
    assert shown(host, served, "Result", "ExecMainStatus", "ActiveState") == ["success", "0", "inactive"]
    assert "Remaining number of requests 1" in journal(host, served, start)
    assert host.run(f"{engine} inspect sglang-{served}").rc != 0
