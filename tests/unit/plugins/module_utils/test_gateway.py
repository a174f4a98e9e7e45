# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What gateways answered, and what follows from it."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.gateway import (
    GatewayError,
    api_of,
    canonical_url,
    decide,
    id_in,
    matching,
    parse_worker,
    parse_workers,
    registered,
    with_worker,
)

A = "http://127.0.0.1:31001"
B = "http://127.0.0.1:31002"

# Recorded from smg 1.13.0, shortened.
SMG = {
    "workers": [
        {
            "id": "01a2296f-05b6-70ef-87c0-3dcc080a4da8",
            "model_id": "tiny",
            "url": B,
            "models": [{"id": "tiny", "context_length": 4096, "tokenizer_path": "/srv/models/tiny"}],
            "worker_type": "regular",
            "connection_mode": "http",
            "labels": {"model_path": "tiny", "version": "0.5.22"},
            "priority": 50,
            "cost": 1.0,
            "is_healthy": False,
            "status": "draining",
            "load": 3,
        },
        {
            "id": "01a2296e-8fef-75b2-9ed7-37a3bc1cbc28",
            "model_id": "tiny",
            "url": A,
            "worker_type": "regular",
            "is_healthy": True,
            "status": "ready",
            "load": 0,
            "engine_load": {"timestamp": "", "loads": [{"dp_rank": 0, "num_running_reqs": 0}]},
        },
    ],
    "total": 2,
    "stats": {"prefill_count": 0, "decode_count": 0, "regular_count": 2},
}
# Recorded from sglang-router 0.3.2.
ROUTER = {
    "workers": [
        {
            "id": "0f6049eb-5067-4502-98c5-d35cc2b36912",
            "url": A,
            "model_id": "tiny",
            "priority": 50,
            "cost": 1.0,
            "worker_type": "regular",
            "is_healthy": True,
            "load": 0,
            "connection_mode": "HTTP",
            "metadata": {"model_path": "tiny", "served_model_name": "tiny"},
            "disable_health_check": False,
        }
    ],
    "total": 1,
    "stats": {"prefill_count": 0, "decode_count": 0, "regular_count": 1},
}
# Recorded from smg 1.13.0: a worker that it is still trying to add, which is in no list.
PENDING = {
    "id": "01a2296f-575c-7045-8b5a-40abeb60043f",
    "url": "http://127.0.0.1:31009",
    "worker_type": "regular",
    "is_healthy": False,
    "status": "pending",
    "load": 0,
    "job_status": {
        "job_type": "RemoveWorker",
        "worker_url": "http://127.0.0.1:31009",
        "status": "failed",
        "message": "Workflow failed at step find_workers_to_remove: Worker http://127.0.0.1:31009 not found",
        "timestamp": 1795991496,
    },
}


def smg(**changes):
    """The smg answer with its first worker (B, draining) changed."""
    answer = copy.deepcopy(SMG)
    answer["workers"][0].update(changes)
    return answer


def test_the_answer_of_smg():
    ready, draining = parse_workers(SMG)
    assert (ready.url, ready.is_healthy, ready.status, ready.load, ready.model) == (A, True, "ready", 0, "tiny")
    assert ready.routed
    assert not ready.draining
    assert draining.draining
    assert not draining.routed
    assert draining.describe() == "not healthy, status draining, 3 requests"


def test_the_answer_of_sglang_router():
    (worker,) = parse_workers(ROUTER)
    assert worker.routed
    assert worker.status is None
    assert worker.describe() == "healthy, 0 requests"


def test_a_worker_that_is_still_being_added():
    worker = parse_worker(PENDING)
    assert not worker.routed
    assert worker.job is not None
    assert worker.job.failed
    assert "not found" in worker.describe()


def test_what_is_new_in_an_answer_is_passed_over():
    answer = smg(newly="invented", load=-1, model_id=None, job_status="busy")
    worker = matching(parse_workers(answer), B)[0]
    assert (worker.load, worker.model, worker.job) == (None, None, None)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"workers": {}},
        {"error": "no"},
        {"workers": ["x"]},
        smg(id=7),
        smg(url=None),
        smg(is_healthy="yes"),
    ],
)
def test_an_unknown_answer_is_refused_with_the_way_out(answer):
    with pytest.raises(GatewayError, match="gateway's own port") as caught:
        parse_workers(answer)
    assert caught.value.kind == "malformed"


def test_no_workers_are_no_workers():
    assert parse_workers({"workers": [], "total": 0}) == []


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("http://10.0.0.5:30000", "http://10.0.0.5:30000"),
        ("http://10.0.0.5:30000/", "http://10.0.0.5:30000"),
        ("HTTP://Node-1.Example.COM:30000", "http://node-1.example.com:30000"),
        ("http://node_1:80", "http://node_1"),
        ("https://node:443/", "https://node"),
        ("https://node:80", "https://node:80"),
        ("http://[2001:DB8:0:0::1]:30000", "http://[2001:db8::1]:30000"),
    ],
)
def test_one_spelling(text, canonical):
    assert canonical_url(text) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.5:30000",
        "ftp://node",
        "http://",
        "http://node:0",
        "http://node:70000",
        "http://node:port",
        "http://node:",
        "http://node/v1",
        "http://node?x=1",
        "http://node#",
        "http://user:secret@node",
        "http://node http://other",
        "http://node\nLD_PRELOAD=/tmp/x",
        "http://node\tx",
        "http://node%n",
        "http://$HOME",
        "http://node\\",
        'http://no"de',
        "http://[::1",
        "http://[not-six]:1",
        "http://nöde",
        " http://node",
        "http://-node",
        "http://a..b",
        None,
    ],
)
def test_what_is_no_url_of_a_worker(text):
    with pytest.raises(GatewayError, match="http://HOST:PORT") as caught:
        canonical_url(text)
    assert caught.value.kind == "worker_url"


@given(st.text())
def test_whatever_is_taken_for_a_url_has_nothing_but_a_url_in_it(text):
    try:
        found = canonical_url(text)
    except GatewayError:
        return
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789:/.-_[]")


def test_another_spelling_is_the_same_worker():
    workers = parse_workers(smg(url="HTTP://127.0.0.1:31001/", status="ready", is_healthy=True))
    assert len(matching(workers, A)) == 2
    assert registered(workers) == [A]


def test_ranks_listed_one_by_one_are_one_worker():
    workers = parse_workers(smg(url=f"{B}@1"))
    assert len(matching(workers, B)) == 1


def test_a_url_of_another_kind_stays_as_it_is():
    workers = parse_workers(smg(url="grpc://10.0.0.9:50051"))
    assert "grpc://10.0.0.9:50051" in [worker.url for worker in workers]


@pytest.mark.parametrize(
    ("answer", "url", "state", "action"),
    [
        (SMG, A, "present", "nothing"),
        (SMG, A, "absent", "remove"),
        (SMG, B, "absent", "wait"),  # already draining: never removed twice
        (SMG, B, "present", "wait"),  # cannot be added before it is gone
        (SMG, "http://other:1", "present", "add"),
        (SMG, "http://other:1", "absent", "nothing"),
        (smg(status="not_ready"), B, "present", "wait"),
        (smg(status="not_ready"), B, "absent", "remove"),
        (smg(status="ready", is_healthy=False), B, "present", "wait"),
        (ROUTER, A, "present", "nothing"),
        (ROUTER, A, "absent", "remove"),
        (ROUTER, B, "present", "add"),
        (ROUTER, B, "absent", "nothing"),
    ],
)
def test_what_is_done_next(answer, url, state, action):
    decision = decide(parse_workers(answer), url, state)
    assert decision.action == action
    assert decision.holds == (action == "nothing")
    assert bool(decision.ids) == (action == "remove")


def test_every_entry_of_a_worker_is_removed():
    workers = parse_workers(smg(url=f"{A}/", status="ready", is_healthy=True))
    assert len(decide(workers, A, "absent").ids) == 2


def test_a_second_entry_that_is_unhealthy_is_waited_for():
    workers = parse_workers(smg(url=f"{A}/", status="not_ready"))
    assert decide(workers, A, "present").action == "wait"


def test_a_draining_entry_beside_a_healthy_one_does_not_matter():
    assert decide(parse_workers(smg(url=f"{A}/")), A, "present").holds


def test_the_id_in_a_refusal():
    text = (
        '{"error":"Worker creation already in progress for URL \'http://127.0.0.1:31002\' with ID '
        '01a2296e-d1c1-72b1-8501-484e6e563115. Poll GET /workers/01a2296e-d1c1-72b1-8501-484e6e563115.",'
        '"code":"WORKER_CREATE_IN_PROGRESS"}'
    )
    assert id_in(text) == "01a2296e-d1c1-72b1-8501-484e6e563115"
    assert id_in("no id") is None


def test_the_list_keeps_its_order():
    assert with_worker([B, A], "http://c", "present") == [B, A, "http://c"]
    assert with_worker([B, A], B, "present") == [B, A]
    assert with_worker([B, A], B, "absent") == [A]
    assert with_worker([A], B, "absent") == [A]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"url": "http://127.0.0.1:30000"}),
        ({"sglang_gateway_port": 8080}, {"url": "http://127.0.0.1:8080"}),
        ({"sglang_gateway_port": 8080, "sglang_gateway_api_url": "https://gw:1"}, {"url": "https://gw:1"}),
        ({"sglang_gateway_api_key": None, "sglang_gateway_api_url": ""}, {"url": "http://127.0.0.1:30000"}),
        ({"sglang_gateway_api_key": "k"}, {"url": "http://127.0.0.1:30000", "api_key": "k"}),
        ({"sglang_gateway_workers_file": ""}, {"url": "http://127.0.0.1:30000", "workers_file": ""}),
    ],
)
def test_how_the_modules_reach_a_gateway(variables, expected):
    assert api_of(variables) == expected
