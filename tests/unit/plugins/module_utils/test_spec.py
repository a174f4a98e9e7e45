# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's instances declare, resolved into desired states, or refused with everything that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import spec
from ansible_collections.serving.sglang.plugins.module_utils.desired_state import parse

HOST = spec.Host(name="h1", address="10.77.0.11")
DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 100.0}
MAIN: dict[str, Any] = {
    "name": "main",
    "model": "/srv/models/tiny",
    "port": 30000,
    "cards": [0],
    "arguments": {"max-running-requests": 16, "max-queued-requests": 16},
}


def resolve(*instances: dict[str, Any], host: spec.Host = HOST, **defaults: Any) -> spec.Outcome:
    return spec.resolve(instances, {**DEFAULTS, **defaults}, host)


def one(**changes: Any) -> dict[str, Any]:
    outcome = resolve({**MAIN, **changes})
    assert outcome.problems == []
    return outcome.instances[0].desired


def problems(*instances: dict[str, Any], **defaults: Any) -> list[str]:
    return resolve(*instances, **defaults).problems


def only_problem(**changes: Any) -> str:
    found = problems({**MAIN, **changes})
    assert len(found) == 1, found
    return found[0]


def only_warning(**changes: Any) -> str:
    outcome = resolve({**MAIN, **changes})
    assert outcome.problems == []
    assert len(outcome.warnings) == 1, outcome.warnings
    return outcome.warnings[0]


# --- what is resolved -----------------------------------------------------------------------------------------------


def test_desired_state_has_what_start_drain_and_status_read() -> None:
    desired = one()
    assert {key: desired[key] for key in ("schema", "instance", "replica", "unit", "slice", "rank", "nnodes")} == {
        "schema": 1,
        "instance": "main",
        "replica": "h1-main",
        "unit": "sglang-main.service",
        "slice": "sglang-main.slice",
        "rank": 0,
        "nnodes": 1,
    }
    assert desired["argv"][:3] == ["/opt/sglang/0.5.22/bin/python", "-m", "sglang.launch_server"]
    assert desired["model"] == {
        "path": "/srv/models/tiny",
        "local": True,
        "revision": None,
        "served_name": "/srv/models/tiny",
    }
    assert (desired["runtime"], desired["container"]) == ("native", None)
    assert (desired["probe_url"], desired["worker_url"]) == ("http://127.0.0.1:30000", "http://10.77.0.11:30000")
    assert (desired["drain"]["timeout_s"], desired["grace"]["period_s"]) == (112, 192)
    assert desired["grace"]["arithmetic"].endswith("= 192 s")
    assert desired["start"] == {"deadline_s": 900, "limit_burst": 3, "limit_interval_s": 2730, "restart_s": 10}


def test_desired_state_is_read_by_the_engine() -> None:
    desired = one(memory_max="24G", drain_timeout_s=7, served_model_name="tiny")
    read = parse(json.dumps(desired), "test")
    assert (read.instance, read.port, read.served_name) == ("main", 30000, "tiny")
    assert read.limits.memory_max_bytes == 24 << 30
    assert (read.drain_timeout_s, read.grace_period_s, read.start_deadline_s) == (7, 192, 900)
    assert read.argument("max-running-requests") == 16


def test_start_limit_really_limits() -> None:
    start = one(start_deadline_s=1800)["start"]
    assert start["limit_interval_s"] >= start["limit_burst"] * (1800 + start["restart_s"])


def test_environment_of_a_local_model() -> None:
    environment = one()["environment"]
    assert environment["SGLANG_MAX_NEW_TOKENS_LIMIT"] == "4096"
    assert environment["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["HOME"] == "/var/lib/sglang/main"
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["CUDA_DEVICE_ORDER"]) == ("0", "PCI_BUS_ID")
    for name in ("SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "TVM_FFI_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME"):
        assert environment[name].startswith("/var/cache/sglang/")


def test_environment_of_a_release_with_a_toolkit_of_its_own() -> None:
    home = "/opt/sglang/0.5.22/cuda-home"
    host = spec.Host("h1", "10.77.0.11", cuda_homes={"0.5.22": home, "0.5.23": "/elsewhere"})
    two = {**MAIN, "name": "two", "port": 30001, "cards": [1]}
    on_cpu = {**two, "name": "cpu", "port": 30002, "cards": None, "arguments": {"device": "cpu"}}
    declared = {
        **two,
        "name": "three",
        "port": 30003,
        "cards": [2],
        "environment": {"CUDA_PATH": "/usr/local/cuda-13.1"},
    }
    resolved = resolve(MAIN, on_cpu, declared, host=host)
    assert resolved.problems == []
    main, cpu, three = (instance.desired["environment"] for instance in resolved.instances)
    assert main["CUDA_HOME"] == home
    assert main["PATH"].startswith(f"/opt/sglang/0.5.22/bin:{home}/bin:/usr/local/sbin:")
    assert "CUDA_HOME" not in cpu
    assert "CUDA_HOME" not in three
    assert three["PATH"].startswith("/opt/sglang/0.5.22/bin:/usr/local/cuda/bin:")
    assert "CUDA_HOME" not in one()["environment"]


def test_an_environment_from_a_lock_has_its_mark_in_its_name() -> None:
    locks = {
        "a.lock": {"sha256": "1a2b3c4d5e6f", "version": "0.5.22", "problems": []},
        "b.lock": {"sha256": "99999999aaaa", "version": "0.5.22", "problems": []},
    }
    host = spec.Host("h1", "10.77.0.11", cuda_homes={"0.5.22-1a2b3c4d": "/home-of-a"}, locks=locks)
    others = [
        {**MAIN, "name": name, "port": port, "cards": [card]} for name, port, card in (("b", 30001, 1), ("c", 30002, 2))
    ]
    resolved = resolve(MAIN, {**others[0], "lock": "b.lock"}, others[1], host=host, lock="a.lock")
    assert resolved.problems == []
    main, b, c = (instance.desired for instance in resolved.instances)
    assert main["native"] == {"environment": "/opt/sglang/0.5.22-1a2b3c4d", "lock_sha256": "1a2b3c4d5e6f"}
    assert main["argv"][0] == "/opt/sglang/0.5.22-1a2b3c4d/bin/python"
    assert main["environment"]["PATH"].startswith("/opt/sglang/0.5.22-1a2b3c4d/bin:/home-of-a/bin:")
    assert b["argv"][0] == "/opt/sglang/0.5.22-99999999/bin/python"
    assert b["environment"]["PATH"].startswith("/opt/sglang/0.5.22-99999999/bin:/usr/local/cuda/bin:")
    assert c["native"] == main["native"]
    # Another checkout of the inventory has the lock elsewhere: that is no other desired state.
    assert "a.lock" not in json.dumps(main)
    assert resolved.environments == [
        {
            "name": "0.5.22-1a2b3c4d",
            "path": "/opt/sglang/0.5.22-1a2b3c4d",
            "version": "0.5.22",
            "lock_sha256": "1a2b3c4d5e6f",
        },
        {
            "name": "0.5.22-99999999",
            "path": "/opt/sglang/0.5.22-99999999",
            "version": "0.5.22",
            "lock_sha256": "99999999aaaa",
        },
    ]
    assert one()["native"] == {"environment": "/opt/sglang/0.5.22", "lock_sha256": None}


def test_a_lock_that_is_none_is_refused() -> None:
    lock = {"sha256": "1a2b3c4d5e6f", "version": "0.5.23", "problems": ["line 3: 'torch' names no exact version"]}
    refused = resolve({**MAIN, "lock": "a.lock"}, host=spec.Host("h1", "10.77.0.11", locks={"a.lock": lock}))
    assert [text.partition(". ")[0] for text in refused.problems] == [
        "instance 'main': lock a.lock: line 3: 'torch' names no exact version",
        "instance 'main': lock a.lock has sglang 0.5.23 and version is 0.5.22",
    ]
    assert only_problem(lock="gone.lock") == "instance 'main': lock gone.lock was not read"


def test_environment_of_a_hub_model() -> None:
    desired = one(model="Qwen/Qwen3-8B", revision="abc")
    # The files of a revision are fetched before a start, so that none depends on the hub.
    assert desired["environment"]["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in one(model="Qwen/Qwen3-8B")["environment"]
    assert "HF_HUB_OFFLINE" not in one(model="Qwen/Qwen3-8B", revision="main")["environment"]
    adapters = {**MAIN["arguments"], "lora-paths": ["one=org/adapter"]}
    assert "HF_HUB_OFFLINE" not in one(arguments=adapters)["environment"]
    assert (desired["args"]["revision"], desired["model"]["revision"]) == ("abc", "abc")
    assert desired["model"]["local"] is False


def test_what_the_instance_says_wins_over_the_host() -> None:
    outcome = resolve(
        {**MAIN, "environment": {"OMP_NUM_THREADS": 1}, "arguments": {"tp-size": 1, "context-length": None}},
        arguments={"tp-size": 4, "enable-metrics": True, "context-length": 4096},
        environment={"OMP_NUM_THREADS": 8, "SGLANG_LOG_MS": True},
        margin_s=0,
    )
    desired = outcome.instances[0].desired
    assert desired["args"]["tp-size"] == 1
    assert desired["args"]["enable-metrics"] is True
    assert "context-length" not in desired["args"]
    assert (desired["environment"]["OMP_NUM_THREADS"], desired["environment"]["SGLANG_LOG_MS"]) == ("1", "1")
    assert desired["grace"]["margin_s"] == 0


def test_replica_and_worker_url_can_be_given() -> None:
    desired = one(replica="chat-3", worker_url="http://chat.example.net:8000")
    assert (desired["replica"], desired["worker_url"]) == ("chat-3", "http://chat.example.net:8000")


@pytest.mark.parametrize(
    ("host", "probe"),
    [
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://[::1]:30000"),
        ("10.0.0.5", "http://10.0.0.5:30000"),
        ("fd00::5", "http://[fd00::5]:30000"),
    ],
)
def test_probe_goes_where_the_server_listens(host: str, probe: str) -> None:
    assert one(host=host)["probe_url"] == probe


@pytest.mark.parametrize(
    "address", ["10.0.0.11", "fd00::5", "[fd00::5]", "gpu1", "gpu_1.example.net", "gpu1.example.net."]
)
def test_addresses_that_gateways_reach(address: str) -> None:
    assert resolve(MAIN, host=spec.Host("h1", address)).problems == []


@pytest.mark.parametrize("address", ["", "10.0.0.256", "http://10.0.0.11", "10.0.0.11:22", "a b", "fd00:::5"])
def test_an_address_that_is_none_matters_where_a_url_is_made_of_it(address: str) -> None:
    host = spec.Host("h1", address)
    (found,) = resolve(MAIN, host=host).problems
    assert found.startswith(f"the address of the host, '{address}', is neither")
    assert resolve({**MAIN, "worker_url": "http://chat.example.net:8000"}, host=host).problems == []


def test_tls_changes_both_urls() -> None:
    desired = one(arguments={**MAIN["arguments"], "ssl-certfile": "/etc/c.pem", "ssl-keyfile": "/etc/k.pem"})
    assert (desired["scheme"], desired["worker_url"]) == ("https", "https://10.77.0.11:30000")


def test_limits_stand_on_the_slice() -> None:
    resolved = resolve({**MAIN, "memory_max": "24G", "memory_high": "16G", "memory_swap_max": "0"}).instances[0]
    assert resolved.slice["lines"] == ["MemoryMax=25769803776", "MemoryHigh=17179869184", "MemorySwapMax=0"]
    assert resolve(MAIN).instances[0].slice["lines"] == []


def test_writable_paths_follow_what_is_declared() -> None:
    resolved = resolve(
        {
            **MAIN,
            "hf_home": "/data/hf",
            "writable_paths": ["/data/hf/deeper", "/var/log/requests"],
            "environment": {"TRITON_CACHE_DIR": "/scratch/triton"},
            "arguments": {**MAIN["arguments"], "crash-dump-folder": "/data/crash"},
        }
    ).instances[0]
    assert resolved.desired["writable_paths"] == [
        "/data/crash",
        "/data/hf",
        "/scratch/triton",
        "/var/cache/sglang",
        "/var/lib/sglang/main",
        "/var/log/requests",
    ]
    assert resolved.directories == ["/data/crash", "/data/hf", "/scratch/triton", "/var/log/requests"]


@pytest.mark.parametrize(
    ("changes", "protect"),
    [({}, "true"), ({"model": "/home/me/m"}, "read-only"), ({"hf_home": "/root/hf"}, "read-only")],
)
def test_home_directories_are_hidden_where_nothing_is_in_them(changes: dict[str, Any], protect: str) -> None:
    assert resolve({**MAIN, **changes}).instances[0].unit["protect_home"] == protect


# --- secrets --------------------------------------------------------------------------------------------------------


def test_secrets_reach_no_part_of_what_is_returned() -> None:
    secrets = {"api_key": "k-client-123", "admin_api_key": "k-admin-456", "hf_token": "hf_token_789"}
    resolved = resolve({**MAIN, **secrets}).instances[0]
    text = json.dumps(resolved.as_dict())
    assert not any(secret in text for secret in secrets.values())
    assert resolved.credentials == ["api_key", "admin_api_key", "hf_token"]
    assert resolved.desired["argv"][-2:] == ["--config", "${CREDENTIALS_DIRECTORY}/config.yml"]
    assert resolved.unit["exec_start"].endswith("--config ${CREDENTIALS_DIRECTORY}/config.yml")
    assert resolved.unit["load_credentials"] == [
        "config.yml:/etc/sglang/credentials/main.yml",
        "hf_token:/etc/sglang/credentials/main.hf_token",
    ]
    assert resolved.desired["environment"]["HF_TOKEN_PATH"] == "/run/credentials/sglang-main.service/hf_token"


def test_a_hub_token_alone_needs_no_configuration_file() -> None:
    desired = one(hf_token="hf_token_789")
    assert "--config" not in desired["argv"]
    assert desired["credentials"]["config"] is None


def test_a_changed_secret_is_a_changed_desired_state() -> None:
    first, second = one(api_key="k-client-123"), one(api_key="k-client-124")
    assert first["credentials"]["fingerprint"] != second["credentials"]["fingerprint"]
    assert len(first["credentials"]["fingerprint"]) == 8
    assert one()["credentials"] is None


def test_a_secret_that_stands_elsewhere_too_is_refused() -> None:
    text = only_problem(api_key="k-123456", arguments={**MAIN["arguments"], "chat-template": "/x/k-123456"})
    assert "the value of api_key also stands in what would be written" in text
    assert "k-123456" not in text


@pytest.mark.parametrize("secret", ['k-12"3456', "k-12\\3456"])
def test_a_secret_is_found_as_json_writes_it_too(secret: str) -> None:
    assert "the value of api_key also stands in" in only_problem(api_key=secret, environment={"WORDS": f"a {secret}"})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("drain_timeout_s", -1, "drain_timeout_s is -1, expected at least 0"),
        ("slowest_tokens_per_s", float("nan"), "slowest_tokens_per_s is nan, expected a finite number above 0"),
        ("slowest_tokens_per_s", float("inf"), "slowest_tokens_per_s is inf, expected a finite number above 0"),
    ],
)
def test_a_time_that_is_none_is_refused(option: str, value: float, said: str) -> None:
    assert said in only_problem(**{option: value})


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"])
def test_secrets_in_the_environment_are_refused(name: str) -> None:
    assert f"environment {name}" in only_problem(environment={name: "x"})


def test_what_only_sounds_like_a_secret_is_accepted() -> None:
    assert one(environment={"SGLANG_USE_AITER_FP8_PER_TOKEN": 1, "TOKENIZERS_PARALLELISM": "false"})


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": None}, "instance 'number 1': name is missing"),
        ({"name": "a-b"}, "A dash would nest the instance's slice"),
        ({"name": "Main"}, "does not match"),
        ({"name": "main\n"}, "does not match"),
        ({"name": "a" * 33}, "does not match"),
        ({"name": "gateway"}, "the name is reserved"),
        ({"model": None}, "model is missing"),
        ({"model": "models/tiny/x"}, "neither an absolute path nor a hub id"),
        ({"port": None}, "port is missing"),
        ({"port": True}, "port is True, expected a number, as 30000"),
        ({"port": 70000}, "70000 is not a port"),
        ({"runtime": "docker"}, "image is missing: runtime docker runs a pinned image"),
        ({"image": "r.example/sglang:v0.5.22"}, "image: of no effect with runtime native"),
        ({"runtime": "lxc"}, "runtime 'lxc' is unknown"),
        ({"version": "latest"}, "version 'latest' does not say which release"),
        ({"version": "0.5.22/../x"}, "does not say which release"),
        ({"version": "v0.5.22"}, "version 'v0.5.22': write 0.5.22 without the v"),
        ({"version": "nightly"}, "does not say which release"),
        ({"nnodes": 2}, "a replica over several hosts is not available yet"),
        ({"arguments": {"nnodes": 2}}, "a replica over several hosts is not available yet"),
        ({"arguments": {"dist-init-addr": "h1:1"}}, "belongs to a replica over several hosts"),
        ({"arguments": {"tp-size": "two"}}, "argument 'tp-size': 'two' is no whole number"),
        ({"arguments": {"tp-size": 2}}, "tp-size 2 x pp-size 1 x dp-size 1 needs 2 cards and 1 are declared"),
        ({"arguments": {"max-running-requests": 0}}, "max-running-requests is 0, expected at least 1"),
        ({"arguments": {"served-model-name": "a"}, "served_model_name": "b"}, "Keep one of them"),
        ({"served_model_name": "a:b"}, "contains a colon"),
        ({"arguments": {"ssl-certfile": "/c.pem"}}, "belong together"),
        ({"api_key": "k-1234567", "arguments": {"tokenizer-worker-num": 2}}, "SGLang refuses an API key there"),
        ({"admin_api_key": "k-1234567", "arguments": {"grpc-port": 4}}, "SGLang refuses the two together"),
        ({"environment": {"SGLANG_FORCE_SHUTDOWN": "1"}}, "SGLang reads SGL_FORCE_SHUTDOWN. Set both, or neither"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "declare cards"),
        ({"environment": {"SGLANG_MAX_NEW_TOKENS_LIMIT": 9}}, "declare output_cap_tokens"),
        ({"environment": {"A B": 1}}, "is not a name for a variable"),
        ({"environment": {"A": [1]}}, "expected one value"),
        ({"cards": ["gpu0"]}, "neither an index nor a UUID"),
        ({"memory_max": "lots"}, "memory_max: 'lots' is not a size"),
        ({"worker_url": "h1:30000"}, "worker_url 'h1:30000' is not a URL"),
        ({"writable_paths": ["data"]}, "'data' is not an absolute path"),
        ({"hf_home": "hf"}, "hf_home 'hf' is not an absolute path"),
        ({"start_deadline_s": 0}, "start_deadline_s is 0"),
        ({"drain_timeout_s": 86_401}, "drain_timeout_s is 86401, expected at most 86400 seconds"),
        ({"worker_url": "http://h1:99999"}, "worker_url 'http://h1:99999' is not a URL"),
        ({"worker_url": "http://h1:30000/v1"}, "is not a URL as http://10.0.0.11:30000 (no path)"),
        ({"worker_url": "http://u:p@ h1"}, "is not a URL"),
        ({"replica": "a\nb"}, "is no name: letters, digits"),
        ({"replica": "/a/../b"}, "is no name: letters, digits"),
        ({"replica": "r" * 129}, "is no name: letters, digits"),
        ({"nnodes": 0}, "nnodes is 0, expected at least 1"),
        ({"memory_max": "24"}, "memory_max is 24, nothing could start. Give a size of host memory, as 24G"),
        ({"host": "h" * 300}, "is no address to listen on"),
        ({"model": "/srv/../m"}, "model '/srv/../m' is not written plainly: /m"),
        ({"hf_home": "//data/hf"}, "hf_home '//data/hf' is not written plainly: /data/hf"),
        ({"start_deadline_s": 86_401}, "start_deadline_s is 86401, expected 1 to 86400 seconds"),
        ({"memory_max": "9000000000T"}, "memory_max: 9000000000T is more than systemd takes"),
        ({"host": "0.0.0"}, "host '0.0.0' is no address"),
        ({"host": "10.0.0.11:30000"}, "is no address to listen on"),
        ({"host": "-v"}, "is no address to listen on"),
        ({"api_key": "line\nbreak-1"}, "api_key has a blank at an end, a line break, or a letter outside of ASCII"),
        ({"admin_api_key": " starts-with-one"}, "admin_api_key has a blank at an end"),
        ({"hf_token": "hf_schlüssel"}, "hf_token has a blank at an end, a line break, or a letter outside"),
        ({"output_cap_tokens": 0}, "output_cap_tokens not set, so the grace period cannot be computed"),
        ({"output_cap_tokens": -5}, "output_cap_tokens is -5, expected at least 1"),
        ({"slowest_tokens_per_s": -1}, "slowest_tokens_per_s is -1, expected a finite number above 0"),
        ({"margin_s": -1}, "margin_s is -1, expected at least 0"),
    ],
)
def test_refused(changes: dict[str, Any], said: str) -> None:
    assert said in only_problem(**changes)


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "environment CUDA_VISIBLE_DEVICES: declare cards"),
        ({"arguments": {"host": "x"}}, "argument 'host': declare it as 'host' of the instance, not in arguments"),
        (
            {"arguments": {"tp_size": 1}},
            "argument 'tp_size': write it 'tp-size' (the flag's full name, hyphens, no dashes in front). "
            "Write tp-size: 1",
        ),
    ],
)
def test_a_refusal_says_once_what_to_do(changes: dict[str, Any], whole: str) -> None:
    assert only_problem(**changes) == f"instance 'main': {whole}"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems(
        {"name": "a-b", "version": "latest", "port": 30000, "arguments": {"tp_size": 2, "host": "x"}},
        {"name": "two", "model": "/m", "port": 30000, "runtime": "podman", "environment": {"HF_TOKEN": "x"}},
        output_cap_tokens=None,
    )
    for part in (
        "does not match",
        "version 'latest'",
        "model is missing",
        "write it 'tp-size'",
        "declare it as 'host'",
        "instance 'two': image is missing",
        "instance 'two': environment HF_TOKEN",
        "instance 'two': output_cap_tokens not set",
        "both take port 30000",
        "declares no cards",
    ):
        assert any(part in text for text in found), (part, found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "main", "port": 30001, "cards": [1]}, "the name 'main' is declared 2 times"),
        ({"name": "two", "port": 30000, "cards": [1]}, "both take port 30000"),
        ({"name": "two", "port": 30001, "cards": [0]}, "both have card 0"),
        ({"name": "two", "port": 30001, "cards": None}, "declares no cards"),
        (
            {"name": "two", "port": 30001, "cards": [1], "replica": "h1-main"},
            "the replica 'h1-main' is declared 2 times",
        ),
    ],
)
def test_two_instances_of_a_host_are_compared(changes: dict[str, Any], said: str) -> None:
    found = problems(MAIN, {**MAIN, **changes})
    assert any(said in text for text in found), found


def test_indices_and_uuids_are_compared_by_the_cards_of_the_host() -> None:
    second = {**MAIN, "name": "two", "port": 30001, "cards": ["GPU-aaaa"]}
    assert "in different ways" in problems(MAIN, second)[0]
    host = spec.Host("h1", "10.77.0.11", gpus=({"index": 0, "uuid": "GPU-bbbb"}, {"index": 1, "uuid": "GPU-aaaa"}))
    assert resolve(MAIN, second, host=host).problems == []


def test_servers_without_cards_stand_side_by_side() -> None:
    first = {**MAIN, "cards": None, "arguments": {**MAIN["arguments"], "device": "cpu"}}
    outcome = resolve(first, {**first, "name": "two", "port": 30001})
    assert outcome.problems == []
    assert "CUDA_VISIBLE_DEVICES" not in outcome.instances[0].desired["environment"]


# --- what is only said ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arguments": {"max-queued-requests": 4}}, "max-running-requests is not set"),
        ({"model": "Qwen/Qwen3-8B"}, "has no revision"),
        ({"model": "Qwen/Qwen3-8B", "revision": "main"}, "has revision main, a branch that moves"),
        ({"revision": "abc"}, "revision has no effect"),
        ({"cards": [0, 1]}, "2 cards are declared and tp-size 1 x pp-size 1 x dp-size 1 uses 1"),
        ({"host": "127.0.0.1"}, "only a gateway on this very host"),
        ({"arguments": {**MAIN["arguments"], "tokenizer-worker-num": 2}}, "the server may never exit"),
        ({"environment": {"SGL_FORCE_SHUTDOWN": "1"}}, "every stop loses the requests"),
        ({"version": "0.5.99"}, "is not one of the releases whose behaviour is known"),
        ({"memory_max": "24G", "memory_high": "23.9G"}, "the server stalls there"),
    ],
)
def test_doubtful(changes: dict[str, Any], said: str) -> None:
    assert said in only_warning(**changes)


def test_a_release_without_data_is_marked() -> None:
    assert one(version="0.5.99")["version_assumed"] is True
    assert one()["version_assumed"] is False
