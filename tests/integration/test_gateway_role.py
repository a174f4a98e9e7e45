# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role sglang_gateway on a test host with systemd, and its modules run there by Ansible, as root and with sudo.

The tests go on from each other, in their order: a host is installed once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = CHECKOUT / "tests" / "hosts" / "hosts"
FLEET = "gateway-role"
INVENTORY = Path(os.environ.get("SGLANG_TEST_STATE", "/run/serving-sglang-lab")) / FLEET / "inventory.yml"
KEY = "Zq-gateway-key-qZ"
RECAP = re.compile(r"^gw +: .*changed=(\d+) +unreachable=(\d+) +failed=(\d+).* rescued=(\d+)", re.M)

# What a gateway asks a worker for when it adds it.
WORKER = """
import http.server, json
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = {"/v1/models": {"object": "list", "data": [{"id": "tiny", "object": "model"}]},
                 "/server_info": {"served_model_name": "tiny"}, "/model_info": {"model_path": "tiny"}}
        text = json.dumps(known.get(self.path, {})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("127.0.0.1", 30100), Answers).serve_forever()
"""
WORKER_URL = "http://127.0.0.1:30100"


class Gateway:
    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def shell(self, script: str) -> str:
        command = [HOSTS, "ssh", "--fleet", FLEET, "gw", script]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def play(self, tasks: list[dict[str, Any]], *words: str, **variables: Any) -> tuple[str, dict[str, int]]:
        """What Ansible printed, and how many tasks of the host changed something, failed or were rescued."""
        book = self.scratch / "play.yml"
        play = {"hosts": "gw", "gather_facts": False, "become": True, "vars": variables, "tasks": tasks}
        book.write_text(json.dumps([play]))
        command = [HOSTS, "exec", "--fleet", FLEET, "--", CHECKOUT / "tests" / "dev" / "run", "ansible-playbook"]
        done = subprocess.run(
            [*command, "--inventory", INVENTORY, *words, book], check=False, capture_output=True, text=True, timeout=400
        )
        printed = done.stdout + done.stderr
        found = RECAP.search(printed)
        assert found, printed
        names = ("changed", "unreachable", "failed", "rescued")
        return printed, dict(zip(names, map(int, found.groups()), strict=True))

    def role(self, *words: str, **variables: Any) -> tuple[str, dict[str, int]]:
        role = {"ansible.builtin.include_role": {"name": "serving.sglang.sglang_gateway"}}
        return self.play([{"name": "Run the role", **role}], *words, **variables)

    def pid(self) -> str:
        return self.shell("systemctl show --property=MainPID --value sglang-gateway.service")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory):
    if os.geteuid() != 0:
        pytest.fail("test hosts are containers with systemd: run these tests as root")
    subprocess.run([CHECKOUT / "tests" / "lab" / "setup.sh"], check=True, stdout=sys.stderr)
    subprocess.run([HOSTS, "up", "--fleet", FLEET, "--servers", "1", "--gateway"], check=True, stdout=sys.stderr)
    yield Gateway(tmp_path_factory.mktemp("gateway"))
    subprocess.run([HOSTS, "down", "--fleet", FLEET], check=True, stdout=sys.stderr)


def test_check_mode_says_what_the_first_run_does(gateway):
    _printed, said = gateway.role("--check")
    printed, done = gateway.role(sglang_gateway_api_key=KEY)
    assert done["failed"] == said["failed"] == 0, printed
    assert said["changed"] == done["changed"] > 10


def test_a_second_run_changes_nothing(gateway):
    printed, done = gateway.role(sglang_gateway_api_key=KEY)
    assert (done["changed"], done["failed"]) == (0, 0), printed


def test_what_is_on_the_host(gateway):
    assert gateway.shell("systemctl is-active sglang-gateway; systemctl is-enabled sglang-gateway").split() == [
        "active",
        "enabled",
    ]
    assert gateway.shell("getent passwd sglang-gateway").endswith("/nologin")
    assert gateway.shell("stat -c '%a %U' /etc/sglang-gateway/credentials.json") == "600 root"
    assert gateway.shell("ps -o user:20= -p $(systemctl show -p MainPID --value sglang-gateway)") == "sglang-gateway"
    assert gateway.shell("cat /etc/sglang-gateway/workers.env") == "SGLANG_GATEWAY_WORKERS="
    everywhere = "cat /proc/[0-9]*/cmdline; systemctl show sglang-gateway; journalctl -u sglang-gateway -o cat"
    assert KEY not in gateway.shell(f"({everywhere}) | tr '\\0' ' '").replace(everywhere, "")


def test_a_worker_comes_and_goes_as_an_ordinary_user_with_sudo(gateway):
    gateway.shell(f"systemd-run --quiet --unit=worker python3 -c {json.dumps(WORKER)!s}".replace("\\n", "\n"))
    task = {"worker_url": WORKER_URL, "api_key": KEY, "timeout_s": 20}
    bring = [{"name": "Bring the worker", "serving.sglang.gateway_worker": task}]
    for words, changed in ((["--check"], 1), ([], 1), (["--check"], 0), ([], 0)):
        printed, done = gateway.play(bring, *words, ansible_user="ops")
        assert (done["changed"], done["failed"]) == (changed, 0), printed
    look = {
        "name": "Look",
        "serving.sglang.gateway_info": {"api_key": KEY},
        "register": "found",
        "failed_when": "found.workers | map(attribute='url') | list != ['" + WORKER_URL + "']",
    }
    printed, done = gateway.play([look], ansible_user="ops")
    assert done["failed"] == 0, printed


def test_a_killed_gateway_comes_back_with_its_worker(gateway):
    before = gateway.pid()
    gateway.shell("systemctl kill --signal=KILL sglang-gateway")
    ready = "until curl -sf 127.0.0.1:30000/readiness; do sleep 0.2; done"
    assert '"healthy_workers":1' in gateway.shell(f"timeout 20 sh -c '{ready}'")
    assert gateway.pid() != before


def test_a_changed_configuration_waits_for_a_restart_on_purpose(gateway):
    before = gateway.pid()
    changed = {"sglang_gateway_api_key": KEY, "sglang_gateway_policy": "round_robin"}
    for words in (["--check"], []):
        printed, done = gateway.role(*words, **changed)
        assert (done["changed"], done["failed"]) == (1, 0), printed
        assert "Changed since: /etc/sglang-gateway/gateway.json" in " ".join(printed.split())
    assert gateway.pid() == before
    printed, done = gateway.role(**changed, sglang_gateway_restart=True)
    assert done["changed"] == 1, printed
    assert gateway.pid() != before
    assert WORKER_URL in gateway.shell("cat /etc/sglang-gateway/workers.env"), "the role does not write over it"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"sglang_gateway_arguments": {"port": 1}}, "there is a variable of the role for each of them"),
        ({"sglang_gateway_arguments": {"redis-url": "x"}}, "Put it into sglang_gateway_secret_arguments"),
        ({"sglang_gateway_secret_arguments": {"api-kye": "x"}}, "does not know --api-kye"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_changes(gateway, variables, said):
    files = "sha256sum /etc/sglang-gateway/* /etc/systemd/system/sglang-gateway.service"
    before = gateway.shell(files)
    printed, done = gateway.role(**variables)
    assert done["failed"] == 1
    assert said in " ".join(printed.split())
    assert gateway.shell(files) == before


def test_a_gateway_that_cannot_start_tells_why(gateway):
    gateway.shell("systemctl stop sglang-gateway; systemd-run --quiet --unit=squat python3 -m http.server 30000")
    printed, done = gateway.role(sglang_gateway_api_key=KEY, sglang_gateway_start_timeout_s=3)
    assert done["failed"] == 1
    assert "Is the port taken? The end of the gateway's log" in " ".join(printed.split())
    assert "in use" in printed
    gateway.shell("systemctl stop squat; systemctl reset-failed sglang-gateway; systemctl start sglang-gateway")


def test_a_gateway_host_that_is_cut_off_is_a_failure_that_rescue_sees(gateway, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    target = {"path": str(ledger), "run": "r", "replica": "h1-main", "host": "gw"}
    take = {"worker_url": WORKER_URL, "api_key": KEY, "state": "absent", "ledger": target}
    block = {
        "name": "Take the worker out",
        "block": [{"name": "Take it out", "serving.sglang.gateway_worker": take}],
        "rescue": [
            {
                "name": "See what happened",
                "ansible.builtin.assert": {"that": "ansible_failed_result.lost_connection"},
            }
        ],
    }
    subprocess.run([HOSTS, "cut", "--fleet", FLEET, "gw"], check=True)
    printed, done = gateway.play([block])
    subprocess.run([HOSTS, "join", "--fleet", FLEET, "gw"], check=True)
    assert (done["rescued"], done["unreachable"]) == (1, 0), printed
    line = json.loads(ledger.read_text())
    assert (line["step"], line["ok"]) == ("leave", False)
    printed, done = gateway.play([{"name": "Take it out", "serving.sglang.gateway_worker": take}])
    assert (done["changed"], done["failed"]) == (1, 0), printed
    line = json.loads(ledger.read_text().splitlines()[-1])
    assert (line["step"], line["ok"]) == ("leave", True)
