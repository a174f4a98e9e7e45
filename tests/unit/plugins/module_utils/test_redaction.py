# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Redaction: no secret leaves, and nothing else is lost."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.redaction import MASK, redact, redact_text, visible

# Long enough, and with a mark, so that it cannot be found by chance in what surrounds it.
SECRETS = st.text(min_size=1, max_size=40).map(lambda text: f"Zq{text}qZ")
WORDS = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABC0123456789_./+=-", min_size=4, max_size=40).map(
    lambda text: f"Zq{text}qZ"
)
NAMES = st.sampled_from(["api_key", "admin_api_key", "ssl_keyfile_password"])


@given(NAMES, SECRETS)
def test_the_start_up_line_keeps_no_key(name, secret):
    line = f"server_args=ServerArgs(model_path='/m', {name}={secret!r}, served_model_name='tiny', tp_size=1)"
    redacted = redact_text(line)
    assert secret not in redacted
    assert repr(secret) not in redacted
    assert "served_model_name='tiny', tp_size=1" in redacted


@given(NAMES, SECRETS)
def test_json_keeps_no_key(name, secret):
    text = json.dumps({name: secret, "port": 30000})
    redacted = redact_text(text)
    assert json.dumps(secret) not in redacted
    assert json.loads(redacted) == {name: MASK, "port": 30000}


@given(NAMES, WORDS)
def test_a_command_line_keeps_no_key(name, secret):
    flag = "--" + name.replace("_", "-")
    for text in (f"python {flag} {secret} --port 1", f"python {flag}={secret} --port 1"):
        redacted = redact_text(text)
        assert secret not in redacted
        assert "--port 1" in redacted
    assert redact(["python", flag, secret, "--port", "1"]) == ["python", flag, MASK, "--port", "1"]


@given(WORDS)
def test_a_header_keeps_no_key(secret):
    assert secret not in redact_text(f"Authorization: Bearer {secret}")
    assert secret not in redact_text(f"{{'Authorization': 'Bearer {secret}'}}")


@given(SECRETS, st.text(), st.text())
def test_a_known_secret_is_found_anywhere(secret, before, after):
    assert secret not in redact_text(f"{before}{secret}{after}", (secret,))
    assert secret not in str(redact({"a": [{"b": f"{before}{secret}"}]}, (secret,)))


@given(NAMES, SECRETS)
@example("api_key", "Zq,qZ")
def test_a_structure_keeps_no_key_and_is_not_changed(name, secret):
    data = {
        "server_args": {name: secret},
        "launch_command": f"x --{name.replace('_', '-')} {shlex.quote(secret)} --port 1",
        "n": [1, None],
    }
    before = json.dumps(data)
    redacted = redact(data)
    assert redacted["server_args"] == {name: MASK}
    assert shlex.split(redacted["launch_command"]) == ["x", "--" + name.replace("_", "-"), MASK, "--port", "1"]
    assert redacted["n"] == [1, None]
    assert json.dumps(data) == before


@pytest.mark.parametrize(
    "text",
    [
        "api_key=None, admin_api_key=None",
        "tokenizer_path='/m', max_total_tokens=65536, token_usage=0.5, skip_tokenizer_init=True",
        "stream_response_default_include_usage=False, weight_version='default'",
        '{"api_key": null, "token_usage": 0.25}',
        "Decode batch, #running-req: 2, #token: 4446, token usage: 0.07",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact_text(text) == text


def test_numbers_and_absent_keys_of_a_structure_stay():
    data = {"api_key": None, "admin_api_key": "", "max_total_num_tokens": 5, "token_usage": 0.1}
    assert redact(data) == data


@pytest.mark.parametrize(
    "text",
    [
        "prog --token Zq1 --port 1",
        "prog --token=Zq1 --port 1",
        "prog --dbpass Zq1 --port 1",
        "prog --passwd Zq1 --port 1",
        "prog --hub-token Zq1 --port 1",
        "redis://u:Zq1@host --port 1",
        "redis://:Zq1@host:6379/0 --port 1",
        "postgres://u:Zq@Zq1@host/db --port 1",
    ],
)
def test_options_and_addresses_of_other_programs_keep_no_secret(text):
    redacted = redact_text(text)
    assert "Zq" not in redacted
    assert "--port 1" in redacted


def test_counters_of_a_log_line_stay():
    line = "Prefill batch, #new-token: 64, #cached-token: 0, token usage: 0.00, see http://h:1/a@b"
    assert redact_text(line) == line
    words = "--bucket-time-to-first-token 1 --kt-max-deferred-experts-per-token 2"
    assert redact_text(words) == words


def test_control_characters_are_written_out():
    assert visible("a\x1b[2J\nb\x9b\u202e\udc80") == r"a\x1b[2J\nb\x9b\u202e\udc80"
    assert visible("Grüße, 模型") == "Grüße, 模型"
