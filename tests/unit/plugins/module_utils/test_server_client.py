# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTTP client against servers that behave badly, and the shapes of SGLang's answers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.server_client import (
    Keys,
    ServerClient,
    parse_credentials,
    parse_embedding,
    parse_generation,
    parse_loads,
)

LOAD = {
    "timestamp": 1764456000.0,
    "dp_rank": 0,
    "num_running_reqs": 2,
    "num_waiting_reqs": 1,
    "max_total_num_tokens": 65536,
    "token_usage": 0.25,
}


@contextlib.contextmanager
def serving(handle):
    """A server whose handler is one function over the request."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self):
            with contextlib.suppress(OSError):
                handle(self)

        do_GET = do_POST = _any

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def answer(request, code, body, content_type="application/json"):
    request.send_response(code)
    request.send_header("Content-Type", content_type)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@pytest.mark.parametrize("part", ["body", "headers"])
def test_an_answer_that_drips_in_is_given_up_at_the_deadline(part):
    def drip(request):
        if part == "body":
            request.send_response(200)
            request.send_header("Content-Length", "1000")
            request.end_headers()
        for _ in range(100):
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.1)

    with serving(drip) as url:
        begun = time.monotonic()
        with pytest.raises(EngineError, match="not answered") as caught:
            ServerClient(url, total_s=0.5).loads()
        assert time.monotonic() - begun < 2
    assert caught.value.kind == "timeout"


def test_a_port_that_accepts_and_never_answers():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = ServerClient(f"http://127.0.0.1:{server.getsockname()[1]}", total_s=0.4)
        begun = time.monotonic()
        assert client.probe("/ready").problem == "timeout"
        assert time.monotonic() - begun < 2


def test_nobody_listens():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    probe = ServerClient(f"http://127.0.0.1:{port}").probe("/ready")
    assert probe.problem == "refused"
    assert not probe.ok


def test_a_connection_that_is_closed_without_an_answer():
    with serving(lambda request: request.connection.close()) as url:
        assert ServerClient(url).probe("/ready").problem == "broken"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>hello</html>", "malformed"),
        (b"{", "malformed"),
        (b'{"loads": []}', "malformed"),
        (b'{"loads": [{"num_running_reqs": "2", "num_waiting_reqs": 0}]}', "malformed"),
        (b'{"loads": [{"num_running_reqs": 2}]}', "malformed"),
        (b"[]", "malformed"),
        (b"", "malformed"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_no_zero(body, kind):
    with serving(lambda request: answer(request, 200, body)) as url, pytest.raises(EngineError) as caught:
        ServerClient(url).loads()
    assert caught.value.kind == kind


def test_a_status_that_is_no_success():
    with (
        serving(lambda request: answer(request, 500, b"boom api_key=Zsecret")) as url,
        pytest.raises(EngineError, match="answered 500") as caught,
    ):
        ServerClient(url).loads()
    assert caught.value.kind == "status"
    assert "Zsecret" not in caught.value.msg


def test_a_wrong_key_says_which():
    with (
        serving(lambda request: answer(request, 401, b'{"error":"Unauthorized"}')) as url,
        pytest.raises(EngineError, match="admin-api-key") as caught,
    ):
        ServerClient(url, Keys("a", "b")).abort_all()
    assert caught.value.kind == "unauthorized"


@pytest.mark.parametrize(
    ("keys", "ordinary", "admin"),
    [
        (Keys(), None, None),
        (Keys("K"), "Bearer K", "Bearer K"),
        (Keys(None, "A"), None, "Bearer A"),
        (Keys("K", "A"), "Bearer K", "Bearer A"),
    ],
)
def test_each_route_gets_the_key_it_wants(keys, ordinary, admin):
    seen = {}

    def note(request):
        seen[request.path.split("?")[0]] = request.headers.get("Authorization")
        answer(request, 200, json.dumps({"loads": [LOAD]}).encode())

    with serving(note) as url:
        client = ServerClient(url, keys)
        client.loads()
        client.abort_all()
        client.continue_generation()
        client.probe("/ready")
    assert seen == {
        "/v1/loads": ordinary,
        "/abort_request": admin,
        "/continue_generation": admin,
        "/ready": None,
    }


def test_an_abort_names_every_request():
    bodies = []

    def note(request):
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        answer(request, 200, b"")

    with serving(note) as url:
        ServerClient(url).abort_all()
    assert bodies == [{"rid": "", "abort_all": True}]


def test_server_info_comes_redacted():
    body = {"api_key": "Zsecret", "launch_command": "x --admin-api-key Zadmin", "tp_size": 1}
    with serving(lambda request: answer(request, 200, json.dumps(body).encode())) as url:
        info = ServerClient(url, Keys("Zsecret", "Zadmin")).server_info()
    assert info["tp_size"] == 1
    assert "Zsecret" not in str(info)
    assert "Zadmin" not in str(info)


def test_a_redirect_is_not_followed():
    def away(request):
        request.send_response(302)
        request.send_header("Location", "http://127.0.0.1:9/")
        request.send_header("Content-Length", "0")
        request.end_headers()

    with serving(away) as url:
        assert ServerClient(url).probe("/ready").code == 302


def test_a_prompt_on_its_way_to_another_server_waits():
    load = {**LOAD, "disaggregation": {"mode": "prefill", "prefill_inflight_queue_reqs": 3}}
    assert parse_loads({"loads": [load]}).waiting == 4


def test_loads_of_several_ranks_add_up():
    second = {**LOAD, "dp_rank": 1, "num_running_reqs": 5, "token_usage": 0.5, "timestamp": 1764455990.0}
    loads = parse_loads({"version": "0.5.22", "loads": [LOAD, second]})
    assert (loads.running, loads.waiting, loads.busy) == (7, 2, 9)
    assert loads.max_total_num_tokens == 131072
    assert loads.token_usage == 0.5
    assert loads.published_at == 1764455990.0
    assert loads.ranks == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_no_shape_of_loads_breaks_the_reader(data):
    with contextlib.suppress(EngineError):
        parse_loads(data)
    with contextlib.suppress(EngineError):
        parse_loads({"loads": [data]})


@given(JSON)
def test_no_shape_of_an_answer_breaks_the_reader(data):
    for parse in (lambda value: parse_generation(value, 8), parse_embedding):
        with contextlib.suppress(EngineError):
            parse(data)


def test_a_generation():
    whole = {"text": "Paris", "output_ids": [1, 2], "meta_info": {"completion_tokens": 2, "prompt_tokens": 5}}
    assert parse_generation(whole, 2) == {"completion_tokens": 2, "prompt_tokens": 5}
    assert parse_generation({"output_ids": [1], "meta_info": {}}, 1)["completion_tokens"] == 1


@pytest.mark.parametrize(
    "data",
    [
        {"text": "", "output_ids": [], "meta_info": {"completion_tokens": 0}},
        {"text": "", "meta_info": {"completion_tokens": 3}},
        {"text": "x"},
        {},
        None,
    ],
)
def test_an_empty_generation_is_refused(data):
    with pytest.raises(EngineError) as caught:
        parse_generation(data, 8)
    assert caught.value.kind == "verify_failed"


def test_embeddings():
    assert parse_embedding({"data": [{"embedding": [0.1, 0.2]}]}) == {"dimensions": 2}
    with pytest.raises(EngineError):
        parse_embedding({"data": []})


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("api-key: abc\nadmin-api-key: def\n", Keys("abc", "def")),
        ("# keys\napi-key: 'it''s'\n", Keys("it's", None)),
        ('api-key: "a\\"b"\n', Keys('a"b', None)),
        ('{"api-key": "abc"}', Keys("abc", None)),
        ("api-key: abc # the key\n", Keys("abc", None)),
        ("api-key: a#b:c\n", Keys("a#b:c", None)),
        ("api-key: null\nother: 1\n", Keys(None, None)),
        ("api_key: wrong spelling\n", Keys(None, None)),
        ("", Keys(None, None)),
    ],
)
def test_credentials_files(text, keys):
    assert parse_credentials(text) == keys


@given(st.text(min_size=1))
def test_a_key_survives_the_file_that_the_role_writes(key):
    assert parse_credentials(f"api-key: {json.dumps(key)}\n").api_key == key
