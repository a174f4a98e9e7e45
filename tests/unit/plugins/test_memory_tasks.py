"""The memory modules and the playbook size as Ansible runs them, on this machine, with a pretended nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
# Nothing listens there.
CLOSED = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
MODEL = str(DATA / "models" / "qwen3-8b")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in\n"
        "*compute-apps*) ;;\n"
        "*gpu=memory.total) echo 143771 ;;\n"
        f"*) cat {DATA / 'nvidia_smi' / 'h200.csv'} ;;\nesac\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def run(command: list[str | Path], path: str, code: int = 0) -> str:
    environment = {**os.environ, "PATH": path, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_tasks(path: str, tmp_path: Path) -> None:
    first: dict[str, Any] = {"model": MODEL, "version": "0.5.22", "readings": "{{ cards }}", "cards": [0]}
    bad = {"model": str(tmp_path), "version": "0.5.22", "capacity_mib": 81559}
    log = {"log": str(DATA / "h200-full-pool.log"), "enough_requests": 10, "enough_s": 5}
    tasks: list[dict[str, Any]] = [
        {"serving.sglang.gpu_info": {"version": "0.5.22"}, "register": "cards"},
        {"serving.sglang.mem_fraction": first, "register": "real"},
        {"serving.sglang.mem_fraction": {**first, "kept": "{{ real }}"}, "register": "again", "check_mode": True},
        {"serving.sglang.mem_fraction": {**first, "mem_fraction": "0.5"}, "register": "given"},
        {"serving.sglang.mem_fraction": bad, "register": "bad", "ignore_errors": True},
        {"serving.sglang.pool_advice": log, "register": "advice"},
        {
            "ansible.builtin.copy": {
                "content": "{{ {'cards': cards, 'real': real, 'again': again, 'given': given, 'bad': bad, "
                "'advice': advice} | to_json }}",
                "dest": str(tmp_path / "out.json"),
                "mode": "0600",
            }
        },
    ]
    for number, task in enumerate(tasks):
        task["name"] = f"Task {number}"
    playbook = tmp_path / "tasks.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    run(["ansible-playbook", playbook], path)
    out = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert out["cards"]["source"] == "nvidia-smi"
    assert out["cards"]["kind"]["kind"] == "dedicated"
    assert out["cards"]["capacity"]["mib"] == 143771
    assert (out["real"]["fraction"], out["real"]["feasible"], out["real"]["changed"]) == (0.903, True, False)
    assert out["real"]["prediction"]["max_total_num_tokens"] == pytest.approx(803_500, rel=0.002)
    assert out["again"]["kept"]
    assert out["again"]["fraction"] == 0.903
    assert (out["given"]["fraction"], out["given"]["source"]) == (0.5, "given")
    assert f"{tmp_path}/config.json: there is no such file" in out["bad"]["msg"]
    assert out["advice"]["verdict"] == "other_lever"


def test_size_of_a_fleet(path: str, tmp_path: Path) -> None:
    inventory = {
        "sglang_servers": {
            "hosts": {
                "gpu1": {},
                "gpu2": {"sglang_server_mem_fraction": 0.7},
                "gone": CLOSED,
            },
            "vars": {
                "ansible_connection": "local",
                "ansible_become": False,
                "sglang_server_version": "0.5.23",
                "sglang_server_instances": [
                    {"name": "main", "model": MODEL, "cards": [0]},
                    {"name": "other", "model": "/nowhere", "cards": [0]},
                ],
            },
        }
    }
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(inventory), encoding="utf-8")
    target = tmp_path / "size.json"
    variables = json.dumps({"size_json": str(target), "ansible_become": False})
    text = run(["ansible-playbook", "-i", file, "serving.sglang.size", "-e", variables], path)
    entries = {(entry["host"], entry["instance"]): entry for entry in json.loads(target.read_text(encoding="utf-8"))}
    assert entries["gpu1", "main"]["fraction"] == 0.903
    assert entries["gpu2", "main"]["fraction"] == 0.7
    assert "there is no such file" in entries["gpu1", "other"]["problem"]
    assert entries["gone", "main"]["problem"] == "the host could not be read"
    assert "0.110-0.903" in text
    assert "not computed, see below" in text


def test_what_if(path: str) -> None:
    planned = {
        "size_model": str(DATA / "models" / "llama-3.1-8b"),
        "size_capacity_mib": 23034,
        "size_compute_major": 8,
        "size_version": "0.5.23",
    }
    text = run(["ansible-playbook", "serving.sglang.size", "-e", json.dumps(planned)], path)
    assert "no feasible fraction" in text
    assert "--tp-size 2" in text
    fits = {**planned, "size_arguments": {"tp-size": 2}}
    assert "0.678-" not in (text := run(["ansible-playbook", "serving.sglang.size", "-e", json.dumps(fits)], path))
    assert "0.678: SGLang's own value" in text
