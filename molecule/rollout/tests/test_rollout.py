"""Real SGLang, a real gateway, real clients: what a rollout promises, and what happens when something goes wrong.

The tests build on each other's fleet, not on each other's results: each one leaves three servers that serve.
"""

from __future__ import annotations

import os
import re

import pytest
import running_fleet as fleet
from running_fleet import deploy, extra, ledger_of, on, only, rollout, wait_until

# A retry by the gateway would hide a lost request: demo_vars.yml switches retries off, and this makes sure of it.
STEPS = ["prefetch", "leave", "settle", "drain", "stop", "start", "verify", "rejoin", "soak", "done"]
# What a busy machine may take for what takes a tenth of it on a quiet one.
START_S = 300
TIMES = 3 if os.environ.get("SGLANG_TEST_FULL") == "1" else 1


@pytest.fixture(autouse=True)
def _three_serve():
    """Every test begins and ends with three servers that serve, all of them in the gateway, and no lock."""
    fleet.assert_whole("before")
    yield
    fleet.assert_whole("after")


def test_the_gateway_does_not_retry():
    arguments = on(
        "gw", "tr '\\0' ' ' < /proc/$(systemctl show -P MainPID sglang-gateway)/cmdline; cat /etc/sglang-gateway/*.json"
    )
    assert "disable-retries" in arguments


@pytest.mark.parametrize("time", range(1, TIMES + 1))
def test_a_rollout_under_load_loses_nothing(time):
    before = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    with fleet.load_through_gateway(f"load-{time}") as summary:
        first = rollout(log=f"under-load-{time}")
        wait_until(lambda: fleet.job("h1").get("job") == "stop", "the first replica is being drained", START_S)
        second = rollout(log=f"second-{time}")
        refused = second.fails()
        assert "another rollout holds the lock" in refused, "a second rollout is refused"
        assert "continuing run" not in refused, "it says nothing that is not so"
        first.succeeds()
    lost = {key: summary[key] for key in ("failed", "cut_short", "in_flight", "reasons")}
    assert summary["sent"] == summary["answered"] > 20, lost
    assert (summary["failed"], summary["cut_short"]) == (0, 0), lost
    assert summary["streamed"] > 0
    assert summary["long"] > 0, "some answers had 2,000 tokens or more"
    after = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    assert all(after[host] != before[host] for host in after), "every server was restarted"

    lines = ledger_of(first)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["host"] for line in lines if line["step"] == "lock"} == set(fleet.SERVERS)
    busy = 0
    for host in fleet.SERVERS:
        own = [line for line in lines if line["replica"] == f"{host}-main"]
        assert [line["step"] for line in own] == STEPS
        assert all(line["ok"] for line in own)
        facts = {key: value for line in own for key, value in line["detail"].items()}
        assert facts["exit_code"] == 0
        assert any("SIGTERM received" in line for line in facts["drain_lines"])
        assert facts["overhead_s"] > 0
        busy += facts["running"] + facts["waiting"]
    assert busy > 0, "no replica was running anything when it left: this proves nothing"


# The scenarios docker and podman and tests/integration/test_server_lifecycle.py stop a server under a stream too.
@fleet.full
def test_a_stream_survives_a_stop_that_nobody_drained_first():
    """A rollout reaches zero before SIGTERM and never exercises SGLang's own drain; this does."""
    fleet.slow_down("h1", 0.004)
    stream = fleet.Stream("h1", 2000)
    begun = on("h1", "date +%s").strip()
    on("h1", "systemctl", "stop", "sglang-main", timeout=240)
    answer = stream.answer()
    assert answer["outcome"] == "answered", answer
    assert answer["tokens"] == 2000
    log = on("h1", "journalctl", "-u", "sglang-main", "--since", f"@{begun}", "-o", "cat", "--no-pager")
    assert re.search(r"Remaining number of requests [1-9]", log), "the server was stopped with a request running"
    shown = on("h1", "systemctl show -P Result -P ExecMainStatus sglang-main").split()
    assert shown == ["success", "0"]
    on("h1", "systemctl", "start", "--no-block", "sglang-main")
    wait_until(lambda: fleet.serves("h1"), "h1 serves again", START_S)


def test_plain_restarts_with_group_signals_lose_requests():
    """The counter-proof: the same load without leaving the gateway, and with signals for the whole group."""
    drop_in = "/run/systemd/system/sglang-main.service.d/counterproof.conf"
    content = "[Service]\\nKillMode=control-group\\n"
    on("h1", f"mkdir -p $(dirname {drop_in}) && printf '{content}' > {drop_in} && systemctl daemon-reload")
    try:
        with fleet.load_through_gateway("counterproof") as summary:
            # Nothing is lost where nothing runs: the signal goes where requests are running.
            wait_until(lambda: fleet.loads("h1") > 0, "requests run on h1", 60)
            on("h1", "systemctl", "restart", "sglang-main", timeout=240)
    finally:
        on("h1", f"rm -f {drop_in} && systemctl daemon-reload")
    assert summary["failed"] + summary["cut_short"] > 0, f"this load does not notice lost requests: {summary}"
    wait_until(lambda: fleet.serves("h1"), "h1 serves again", START_S)


def test_a_replica_that_never_gets_ready_stops_the_rollout():
    # A folder that is there and has no model in it: one that is not there is met before a replica leaves.
    bad = [{"name": "main", "model": "/srv/wheels", "served_model_name": "tiny", "port": 30000}]
    before = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    deploy(*extra(sglang_server_instances=bad), log="bad-model")
    assert {host: fleet.main_pid(host) for host in fleet.SERVERS} == before, "deploying restarts nothing"

    text = rollout(log="never-ready").fails()
    assert "/srv/wheels" in text, "the line of the log that explains it is in the message"
    assert "stopped at h1-main on h1, at the step start" in text
    assert not fleet.serves("h1")
    assert fleet.workers() == {fleet.SERVERS["h2"]: True, fleet.SERVERS["h3"]: True}
    assert [fleet.main_pid(host) for host in ("h2", "h3")] == [before["h2"], before["h3"]], "the others were left alone"
    assert on("h1", "systemctl is-active sglang-main", check=False).strip() != "activating", (
        "it does not start in a loop"
    )
    refused = rollout(*only("h2-main"), *extra(sglang_rollout_min_serving=2), log="too-few").fails()
    assert "sglang_rollout_min_serving" in refused

    deploy(log="good-model-again")
    again = rollout(*only("h1-main", "h2-main"), log="continued").succeeds()
    assert "continuing run" in again.text
    assert fleet.main_pid("h2") != before["h2"], "a replica that had not had its turn had it now"


def test_what_cannot_be_brought_to_a_host_is_met_before_a_replica_leaves():
    before = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    on("h2", "mount -t tmpfs tmpfs /srv/models")
    try:
        failed = rollout(log="prefetch")
        text = failed.fails()
    finally:
        on("h2", "umount /srv/models")
    assert "The rollout does not begin; no replica was touched. h2-main on h2, at the step prefetch: " in text
    assert "/srv/models/tiny cannot be read" in text
    steps = {(line["replica"], line["ok"]) for line in ledger_of(failed) if line["step"] == "prefetch"}
    assert steps == {("h1-main", True), ("h2-main", False), ("h3-main", True)}
    assert {host: fleet.main_pid(host) for host in fleet.SERVERS} == before


def _draining(host: str, tokens: int = 1000) -> fleet.Stream:
    """A request that keeps a server busy for half a minute or more: until a rollout drains it, and then for a while."""
    fleet.slow_down(host, 0.03)
    return fleet.Stream(host, tokens)


def _in_drain(host: str):
    wait_until(
        lambda: fleet.job(host).get("job") == "stop" and fleet.job(host).get("state") == "running",
        f"{host} is being drained",
        START_S,
    )


def test_a_killed_controller_is_continued_by_the_next_run():
    before = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    stream = _draining("h1")
    killed = rollout(*only("h1-main"), log="killed")
    _in_drain("h1")
    killed.kill()
    lines = ledger_of(killed)
    steps = [line["step"] for line in lines if line["replica"] == "h1-main"]
    assert steps[:3] == ["prefetch", "leave", "settle"], "it is readable"
    assert fleet.SERVERS["h1"] not in fleet.workers()

    again = rollout(*only("h1-main"), log="after-kill").succeeds()
    assert "taking over the lock" in again.text
    assert f"continuing run {lines[0]['run']}" in again.text
    assert stream.answer()["outcome"] == "answered", "the drain went on without its controller"
    assert fleet.main_pid("h1") != before["h1"]
    assert fleet.main_pid("h2") == before["h2"]
    assert fleet.record("h1")["step"] == "done"


def test_a_host_cut_off_while_it_drains():
    stream = _draining("h2")
    running = rollout(*only("h2-main"), *extra(sglang_rollout_lock_stale_s=30), log="cut-off")
    _in_drain("h2")
    fleet.hosts("cut", "h2")
    try:
        text = running.fails()
    finally:
        fleet.hosts("join", "h2")
    stream.process.kill()
    assert "h2" in text
    assert "could not be reached" in text or "cannot be reached" in text
    assert {url for url, healthy in fleet.workers().items() if healthy} == {fleet.SERVERS["h1"], fleet.SERVERS["h3"]}
    wait_until(lambda: fleet.job("h2").get("state") != "running", "the job on h2 went on to its end", START_S)
    rollout(*only("h2-main"), log="after-cut").succeeds()


def _hooks() -> dict[str, str]:
    """Task files that note when they ran, as the variables that a rollout takes."""
    noted = fleet.OUT / "hooks"
    noted.unlink(missing_ok=True)
    variables = {}
    for word in ("before", "after"):
        path = fleet.OUT / f"{word}.yml"
        task = (
            f"- name: Note\n  ansible.builtin.shell: echo {word} {{{{ sglang_rollout_member.replica }}}} >> {noted}\n"
        )
        path.write_text(f"---\n{task}", encoding="utf-8")
        variables[f"sglang_rollout_{word}_tasks"] = str(path)
    return variables


def test_a_gateway_restarted_while_a_replica_leaves_does_not_take_it_back():
    stream = _draining("h3")
    running = rollout(*only("h3-main"), *extra(**_hooks()), log="gateway-restarted")
    _in_drain("h3")
    on("gw", "systemctl", "kill", "--signal=SIGKILL", "sglang-gateway")
    others = {fleet.SERVERS["h1"]: True, fleet.SERVERS["h2"]: True}
    wait_until(lambda: fleet.workers() == others, "the gateway routes to the other two again", 30)
    assert fleet.job("h3").get("job") == "stop", "h3 was still leaving when the gateway was back"
    running.succeeds()
    assert stream.answer()["outcome"] == "answered"
    noted = (fleet.OUT / "hooks").read_text(encoding="utf-8").splitlines()
    assert noted == ["before h3-main", "after h3-main"], "the operator's tasks ran around the replica"


def test_an_unreachable_host_is_refused_before_anything_is_touched():
    before = {host: fleet.main_pid(host) for host in ("h1", "h2")}
    fleet.hosts("cut", "h3")
    try:
        text = rollout(log="unreachable").fails()
        assert "unreachable: h3" in text
        assert "nothing was touched" in text
        assert {host: fleet.main_pid(host) for host in before} == before
        assert fleet.SERVERS["h1"] in fleet.workers()
    finally:
        fleet.hosts("join", "h3")


def test_a_drain_that_takes_too_long_leaves_the_server_serving():
    before = fleet.main_pid("h1")
    stream = _draining("h1")
    text = rollout(*only("h1-main"), *extra(sglang_rollout_drain_timeout_s=5), log="drain-timeout").fails()
    assert "drain" in text
    assert fleet.main_pid("h1") == before, "no signal was sent"
    assert fleet.SERVERS["h1"] in fleet.workers(), "it is back in the gateway"
    assert fleet.record("h1")["step"] == "failed"
    assert stream.answer()["outcome"] == "answered"


def test_only_the_plan_is_shown():
    before = {host: fleet.main_pid(host) for host in fleet.SERVERS}
    text = rollout(*extra(sglang_rollout_plan_only=True), log="plan-only").succeeds().text
    assert "wave" in text
    assert "h3-main" in text
    assert rollout("--check", log="check").succeeds()
    assert {host: fleet.main_pid(host) for host in fleet.SERVERS} == before


def test_a_limit_is_refused():
    assert "--limit hides a part of the fleet" in rollout("--limit", "h1", log="limit").fails()


def test_maintenance_reboots_a_host_without_losing_a_request():
    tasks = fleet.OUT / "reboot.yml"
    tasks.write_text("---\n- name: Reboot\n  ansible.builtin.reboot:\n    reboot_timeout: 120\n", encoding="utf-8")
    boot = on("h1", "cat", "/proc/sys/kernel/random/boot_id"), on("h1", "systemctl show -P UserspaceTimestamp")
    with fleet.load_through_gateway("maintain", clients=2, sizes="50,300,800") as summary:
        fleet.Playbook(
            "maintain", *extra(sglang_maintain_hosts=["h1"], sglang_maintain_tasks=str(tasks)), log="maintain"
        ).succeeds()
    assert on("h1", "systemctl show -P UserspaceTimestamp") != boot[1], "the host was booted anew"
    assert summary["sent"] == summary["answered"] > 0, summary


def test_status_shows_the_fleet_and_changes_nothing():
    text = fleet.Playbook("status", log="status").succeeds().text
    for words in ("h1-main", "h2-main", "h3-main", "65536", "healthy"):
        assert words in text
    assert "changed=1" not in text
    assert "eeds attention" in text, "one line says whether something does"
