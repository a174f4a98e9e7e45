# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook preflight on two test hosts: what it says, what it ends with, and that it changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
FLEET = "preflight"
INVENTORY = Path(os.environ.get("SGLANG_TEST_STATE", "/run/serving-sglang-lab")) / FLEET / "inventory.yml"
KEY = "Zq-preflight-key-qZ"

INSTANCE = {
    "name": "main",
    "model": "/srv/models/tiny",
    "port": 30000,
    "api_key": KEY,
    "environment": {"PYTHONPATH": "/opt/sglang/0.5.22/stubs", "SGLANG_USE_CPU_ENGINE": "1"},
    "arguments": {"device": "cpu", "max-running-requests": 16, "max-queued-requests": 16, "max-total-tokens": 65536},
}
# What a test host has by the way it is made.
ACCEPTED = [
    {"id": "python.headers_missing", "reason": "the image has none, and nothing is compiled", "until": "2099-12-31"},
    {"id": "clock.unsynchronised", "reason": "the clock is that of the machine", "until": "2099-12-31"},
]
BROKEN = {**INSTANCE, "model": "/srv/models/none"}
VARIABLES = {
    "sglang_server_version": "0.5.22",
    "sglang_server_output_cap_tokens": 2500,
    "sglang_server_slowest_tokens_per_s": 50,
    "sglang_server_instances": [INSTANCE],
    "sglang_preflight_ignore": ACCEPTED,
    # A host that does not answer is told within seconds.
    "ansible_ssh_timeout": 4,
}


class Run:
    """One run of the playbook: what it ended with, printed and wrote."""

    def __init__(self, folder: Path, *words: str, **variables: Any) -> None:
        self.json, self.junit = folder / "preflight.json", folder / "preflight.xml"
        for path in (self.json, self.junit):
            path.unlink(missing_ok=True)
        files = {"sglang_preflight_json": str(self.json), "sglang_preflight_junit": str(self.junit)}
        given = json.dumps({**VARIABLES, **files, **variables})
        command = [HOSTS, "exec", "--fleet", FLEET, "--", CHECKOUT / "tests" / "dev" / "run", "ansible-playbook"]
        command += ["--inventory", INVENTORY, "-e", given, *words, "serving.sglang.preflight"]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
        self.status, self.printed = done.returncode, done.stdout + done.stderr

    @property
    def report(self) -> dict[str, Any]:
        assert self.json.exists(), self.printed
        return json.loads(self.json.read_text())

    def found(self, host: str, *severities: str) -> set[str]:
        """The ids of the findings of a host that count, of these severities."""
        findings = self.report["hosts"][host]["findings"]
        return {one["id"] for one in findings if one["severity"] in severities and not one["ignored"]}


def in_time(folder: Path, *words: str, **variables: Any) -> Run:
    """A run in which no reading is late. On a machine that is busy, one may be at the usual limits."""
    return Run(folder, *words, **{"sglang_preflight_patience": 10, **variables})


def hosts(verb: str, host: str) -> None:
    subprocess.run([HOSTS, verb, "--fleet", FLEET, host], check=True, capture_output=True, timeout=120)


def shell(host: str, script: str) -> str:
    command = [HOSTS, "ssh", "--fleet", FLEET, host, script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture(scope="module", autouse=True)
def fleet() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.fail("test hosts are containers with systemd: run these tests as root")
    subprocess.run([CHECKOUT / "tests" / "lab" / "setup.sh"], check=True, stdout=sys.stderr)
    subprocess.run([HOSTS, "up", "--fleet", FLEET, "--servers", "2"], check=True, stdout=sys.stderr)
    yield
    subprocess.run([HOSTS, "down", "--fleet", FLEET], check=True, stdout=sys.stderr)


@pytest.fixture(scope="module")
def differing(fleet: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return in_time(tmp_path_factory.mktemp("differing"), sglang_server_instances=[BROKEN])


@pytest.fixture(scope="module")
def clean(fleet: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return in_time(tmp_path_factory.mktemp("clean"))


def test_a_host_that_differs_ends_with_2_and_names_what_to_do(differing: Run) -> None:
    run = differing
    assert run.status == 2, run.printed
    assert run.report["outcome"] == "differs"
    for host in ("h1", "h2"):
        assert run.found(host, "error") == {"declaration.model_missing"}, run.printed
    # The one finding of both hosts is printed once, with what to do.
    assert run.printed.count("error  h1, h2 (main)  declaration.model_missing") == 1
    assert "  fix:  put the model there" in run.printed
    assert "changed=0" in run.printed


def test_what_machines_read(differing: Run) -> None:
    run = differing
    suites = ElementTree.parse(run.junit).getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["h1", "h2"]
    for suite in suites:
        assert suite.get("failures") == "1"
        assert int(suite.get("tests", 0)) == len(run.report["hosts"][suite.get("name", "")]["findings"]) > 50
    areas = {one["area"] for one in run.report["hosts"]["h1"]["findings"]}
    assert areas == {"declaration", "arguments", "memory", "toolchain", "caches", "host", "container"}


def test_a_host_that_is_clean_ends_with_0(clean: Run) -> None:
    run = clean
    assert run.status == 0, run.printed
    assert run.report["outcome"] == "clean"
    assert run.found("h1", "error", "unknown") == set()
    assert "until 2099-12-31: the clock is that of the machine" in run.printed


def test_an_ignored_finding_does_not_count_and_an_expired_one_does(tmp_path: Path) -> None:
    known = [
        {"id": name, "reason": "the disk comes on Monday", "until": "2099-12-31", "host": "h1"}
        for name in ("declaration.model_missing", "memory.not_predicted")
    ]
    run = in_time(tmp_path, sglang_server_instances=[BROKEN], sglang_preflight_ignore=[*ACCEPTED, *known])
    assert run.report["hosts"]["h1"]["outcome"] == "clean", run.printed
    assert run.report["hosts"]["h2"]["outcome"] == "differs", run.printed
    assert run.status == 2
    expired = [{**known[0], "until": "2020-01-01"}, known[1]]
    run = in_time(tmp_path, sglang_server_instances=[BROKEN], sglang_preflight_ignore=[*ACCEPTED, *expired])
    assert run.found("h1", "error") == {"declaration.model_missing"}
    assert "ended on 2020-01-01 (the disk comes on Monday): it counts again" in run.printed


def test_an_ignore_list_that_hides_what_nobody_accepted_is_refused_before_any_host(tmp_path: Path) -> None:
    run = Run(tmp_path, sglang_preflight_ignore=[{"id": "python.header_missing", "until": "2099-12-31"}])
    assert run.status == 2
    assert not run.json.exists()
    printed = " ".join(run.printed.split())
    assert "there is no finding 'python.header_missing'; is python.headers_missing meant?" in printed
    assert "reason is missing" in printed
    assert "Look at the host and what is declared for it" not in printed


def test_one_host_of_the_fleet_and_check_mode(tmp_path: Path) -> None:
    run = in_time(tmp_path, "--limit", "h2", "--check")
    assert run.status == 0, run.printed
    assert list(run.report["hosts"]) == ["h2"]
    run = in_time(tmp_path, "--limit", "h2", "--check", sglang_server_instances=[BROKEN])
    assert run.status == 2
    assert run.found("h2", "error") == {"declaration.model_missing"}


def test_a_second_run_says_the_same(clean: Run, tmp_path: Path) -> None:
    again = in_time(tmp_path, "--limit", "h1")
    first, second = (run.report["hosts"]["h1"]["findings"] for run in (clean, again))
    assert [(one["id"], one["severity"]) for one in first] == [(one["id"], one["severity"]) for one in second]


def test_an_ordinary_user_is_told_what_could_not_be_told(tmp_path: Path) -> None:
    hidden = [{**INSTANCE, "model": "/root/models/tiny"}]
    run = in_time(tmp_path, "--limit", "h1", ansible_user="ops", ansible_become=False, sglang_server_instances=hidden)
    assert run.status == 2, run.printed
    (model,) = (one for one in run.report["hosts"]["h1"]["findings"] if one["id"] == "declaration.model_missing")
    assert (model["severity"], model["evidence"]) == ("unknown", "/root/models/tiny: Permission denied")
    assert in_time(tmp_path, "--limit", "h1", sglang_server_instances=hidden).found("h1", "error") == {
        "declaration.model_missing"
    }


def test_a_wrong_declaration_is_a_finding_and_the_host_is_looked_at(tmp_path: Path) -> None:
    wrong = [{**INSTANCE, "prot": 1}, {"name": "b", "port": "many", "model": "/srv/models/none", "cards": [0]}, "c"]
    run = in_time(tmp_path, "--limit", "h1", sglang_server_instances=wrong)
    assert run.status == 2
    assert {"declaration.refused", "declaration.model_missing"} <= run.found("h1", "error"), run.printed
    assert "is port meant?" in run.printed
    assert any(one["area"] == "host" for one in run.report["hosts"]["h1"]["findings"])


def test_a_declaration_that_cannot_be_evaluated_is_a_finding(tmp_path: Path) -> None:
    wrong = [{**INSTANCE, "model": "/srv/models/{{ nobody_defined_this }}"}]
    run = Run(tmp_path, "--limit", "h1", sglang_server_instances=wrong)
    assert run.status == 2
    assert "declaration.refused" in run.found("h1", "error")
    assert "nobody_defined_this" in run.printed
    assert any(one["area"] == "host" for one in run.report["hosts"]["h1"]["findings"])


def test_no_secret_leaves_the_controller(tmp_path: Path) -> None:
    leaking = {**INSTANCE, "arguments": {**INSTANCE["arguments"], "api-key": KEY}}  # type: ignore[dict-item]
    run = Run(tmp_path, "--limit", "h1", "-vvv", sglang_server_instances=[leaking])
    assert "args.owned" in run.found("h1", "error"), run.printed[-3000:]
    assert "argument 'api-key': declare it as 'api_key' of the instance" in run.printed
    printed = run.printed.replace(json.dumps(leaking), "")
    assert KEY not in printed
    assert KEY not in run.json.read_text() + run.junit.read_text()
    assert KEY not in shell("h1", "journalctl --no-pager | grep -v sshd || true")


def test_what_an_upgrade_changes_is_printed(tmp_path: Path) -> None:
    run = Run(tmp_path, "--limit", "h1", sglang_upgrade_to="v0.5.23")
    assert "h1 (main): what changes from 0.5.22 to 0.5.23 for the arguments in use" in run.printed
    change = run.report["hosts"]["h1"]["upgrade"]["main"]
    assert (change["from"], change["to"]) == ("0.5.22", "0.5.23")
    assert run.report["upgrade_to"] == "0.5.23"


def test_a_hung_driver_costs_its_readings_and_not_the_run(tmp_path: Path) -> None:
    shell("h1", "printf '#!/bin/sh\\nsleep 600\\n' > /usr/local/bin/nvidia-smi; chmod 755 /usr/local/bin/nvidia-smi")
    on_card = {**INSTANCE, "cards": [0], "arguments": {"max-running-requests": 16, "max-queued-requests": 16}}
    try:
        run = Run(tmp_path, "--limit", "h1", sglang_server_instances=[on_card])
    finally:
        shell("h1", "rm /usr/local/bin/nvidia-smi")
    assert run.status == 2
    findings = run.report["hosts"]["h1"]["findings"]
    cards = {one["id"]: one["severity"] for one in findings if one["id"].startswith("cards.")}
    assert cards["cards.declared_missing"] == "unknown", cards
    assert "ok" not in {cards[name] for name in ("cards.lost", "cards.mig") if name in cards}
    assert any("did not end within" in one["evidence"] for one in findings if one["severity"] == "unknown")
    assert max(run.report["hosts"]["h1"]["elapsed_s"].values()) < 3.5
    # What hung is not left behind on the host.
    deadline = time.monotonic() + 10
    while shell("h1", "pgrep -x sleep || true"):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_an_unreachable_host_ends_with_4_and_the_others_are_reported(tmp_path: Path) -> None:
    hosts("cut", "h2")
    try:
        several = in_time(tmp_path, sglang_preflight_ignore=ACCEPTED)
        assert several.status == 4, several.printed
        assert several.report["hosts"]["h1"]["outcome"] == "clean", several.printed
        assert several.report["hosts"]["h2"]["state"] == "unreachable"
        assert several.found("h2", "unknown") == {"preflight.host_unreachable"}
        one = Run(tmp_path, "--limit", "h2")
        assert one.status == 4, one.printed
        assert one.report["outcome"] == "unknown"
    finally:
        hosts("join", "h2")


def test_a_fleet_without_a_host_that_answers_ends_with_4(tmp_path: Path) -> None:
    for host in ("h1", "h2"):
        hosts("kill", host)
    try:
        run = Run(tmp_path)
        assert run.status == 4, run.printed
        assert run.report["counts"]["unreachable"] == 2
        assert ElementTree.parse(run.junit).getroot().find("testsuite") is not None
    finally:
        for host in ("h1", "h2"):
            hosts("start", host)
