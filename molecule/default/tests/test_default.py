"""What the roles leave on a host: h1 serves, on h2 the role made the virtual environment."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

UNIT = "sglang-main.service"


@pytest.fixture
def root(host):
    with host.sudo():
        yield host


@pytest.fixture
def served(root):
    if root.check_output("hostname") != "h1":
        pytest.skip("only h1 serves")
    return root


@pytest.fixture
def made(root):
    if root.check_output("hostname") != "h2":
        pytest.skip("only on h2 the role made the environment")
    return root


def shown(host, unit: str, *names: str) -> list[str]:
    lines = host.check_output(f"systemctl show {unit} --property {','.join(names)}").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return [values[name] for name in names]


def desired(host) -> dict:
    return json.loads(host.file("/etc/sglang/main.json").content_string)


def changes(name: str) -> set[tuple[str, ...]]:
    path = pathlib.Path(os.environ["SGLANG_CHANGES"]) / f"{name}.json"
    return {tuple(change) for change in json.loads(path.read_text())}


def test_check_mode_says_what_the_run_does():
    said, done = changes("converge-check-1"), changes("converge-run-1")
    # A start needs the files that check mode does not write, so there it is said in a task of its own.
    role = "serving.sglang.sglang_server : "
    said.remove(("h1", role + "Say in check mode that new instances would be started", "main"))
    done.remove(("h1", role + "Start each instance that is stopped and wait until it serves", "main"))
    assert said == done
    assert len(done) > 20


def test_second_run_changes_nothing():
    assert changes("converge-run-2") == set()
    assert changes("converge-check-2") == set()


def test_user_cannot_log_in(root):
    user = root.user("sglang")
    assert user.shell == "/usr/sbin/nologin"
    assert user.group == "sglang"
    assert root.check_output("passwd --status sglang").split()[1] == "L"


@pytest.mark.parametrize(
    ("path", "owner", "mode"),
    [
        ("/etc/sglang", "root", 0o755),
        ("/etc/sglang/main.json", "root", 0o644),
        ("/etc/sglang/credentials", "root", 0o700),
        ("/etc/sglang/credentials/main.yml", "root", 0o600),
        ("/etc/systemd/system/sglang-main.service", "root", 0o644),
        ("/etc/systemd/system/sglang-main.slice", "root", 0o644),
        ("/etc/systemd/system/sglang.slice", "root", 0o644),
        ("/etc/tmpfiles.d/sglang.conf", "root", 0o644),
        ("/etc/needrestart/conf.d/50-sglang.conf", "root", 0o644),
        ("/var/lib/sglang", "root", 0o755),
        ("/var/lib/sglang/main", "sglang", 0o750),
        ("/var/cache/sglang", "sglang", 0o755),
        ("/run/sglang/running", "root", 0o755),
        ("/run/sglang/jobs", "root", 0o755),
    ],
)
def test_file_modes(root, path, owner, mode):
    file = root.file(path)
    assert (file.user, file.mode) == (owner, mode)


def test_key_stands_where_only_root_reads_it(served):
    key = "only-for-the-tests"
    assert served.file("/etc/sglang/credentials/main.yml").contains(f'api-key: "{key}"')
    assert served.run(f"grep -rl {key} /etc/sglang/main.json /etc/systemd /run/sglang /var/lib/sglang").stdout == ""
    pid = served.check_output(f"systemctl show --value --property MainPID {UNIT}")
    assert key not in served.check_output(f"tr '\\0' ' ' < /proc/{pid}/cmdline")


def test_unit_is_enabled_and_valid(root):
    assert root.service(UNIT).is_enabled
    verified = root.run(f"systemd-analyze verify /etc/systemd/system/{UNIT}")
    assert (verified.rc, verified.stderr.strip()) == (0, "")


def test_unit_ends_the_server_without_losing_a_request(root):
    mode, signal, timeout = shown(root, UNIT, "KillMode", "KillSignal", "TimeoutStopUSec")
    assert (mode, signal) == ("mixed", "15")
    # 2 rounds x 40.96 s + 80 s tail + 30 s margin
    assert desired(root)["grace"]["period_s"] == 192
    assert timeout == "3min 12s"


def test_start_limit_really_limits(root):
    interval, burst = shown(root, UNIT, "StartLimitIntervalUSec", "StartLimitBurst")
    assert (interval, burst) == ("45min 30s", "3")
    assert 3 * (900 + 10) == 45 * 60 + 30


def test_unit_is_hardened_as_far_as_a_gpu_allows(root):
    values = shown(root, UNIT, "NoNewPrivileges", "ProtectSystem", "PrivateTmp", "PrivateDevices", "PrivateIPC")
    assert values == ["yes", "strict", "yes", "no", "no"]
    assert shown(root, UNIT, "MemoryDenyWriteExecute", "ProcSubset", "DevicePolicy") == ["no", "all", "auto"]


def test_unit_passes_systemds_own_rate_limit(root):
    assert shown(root, UNIT, "LogRateLimitIntervalUSec") == ["0"]


def test_server_is_the_main_process_in_its_slice(served):
    assert served.service(UNIT).is_running
    pid, slice_name = shown(served, UNIT, "MainPID", "Slice")
    assert slice_name == "sglang-main.slice"
    process = served.process.get(pid=int(pid))
    assert process.user == "sglang"
    assert "sglang.launch_server" in process.args
    assert f"/sglang.slice/sglang-main.slice/{UNIT}" in served.file(f"/proc/{pid}/cgroup").content_string


def test_limit_holds_on_the_slice(served):
    found = served.check_output(
        "cat /sys/fs/cgroup/memory/sglang.slice/sglang-main.slice/memory.limit_in_bytes"
        " /sys/fs/cgroup/sglang.slice/sglang-main.slice/memory.max 2>/dev/null || true"
    )
    assert found == str(6 << 30)


def test_server_listens_and_is_ready(served):
    assert served.socket("tcp://0.0.0.0:30000").is_listening
    ask = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:30000"
    assert served.check_output(f"{ask}/ready") == "200"
    assert served.check_output(f"{ask}/v1/models") == "401"
    assert served.check_output(f"{ask}/v1/models -H 'Authorization: Bearer only-for-the-tests'") == "200"


def test_server_writes_where_it_may(served):
    pid = served.check_output(f"systemctl show --value --property MainPID {UNIT}")
    environment = served.check_output(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    for name in ("SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "HF_HOME"):
        assert any(line.startswith(f"{name}=/var/cache/sglang/") for line in environment)
    assert "SGLANG_MAX_NEW_TOKENS_LIMIT=4096" in environment
    assert served.run(f"nsenter --mount=/proc/{pid}/ns/mnt touch /etc/sglang/x").rc != 0
    assert served.run(f"nsenter --mount=/proc/{pid}/ns/mnt touch /var/cache/sglang/x").rc == 0


def test_what_it_was_started_from_is_what_is_desired(served):
    assert served.file("/run/sglang/running/main.json").content == served.file("/etc/sglang/main.json").content


def test_environment_that_is_there_is_left_alone(served):
    assert not served.file("/opt/sglang/0.5.22/.serving-sglang").exists


def test_environment_that_was_made_is_whole(made):
    assert made.file("/opt/sglang/0.5.22/.serving-sglang").content_string == "sglang==0.5.22\n"
    assert not made.file("/opt/sglang/.0.5.22.building").exists
    ask = "import importlib.metadata as m; print(m.version('sglang'))"
    assert made.check_output(f'/opt/sglang/0.5.22/bin/python -Ic "{ask}"') == "0.5.22"


def test_instance_that_shall_not_start_is_not_started(made):
    assert not made.service(UNIT).is_running
