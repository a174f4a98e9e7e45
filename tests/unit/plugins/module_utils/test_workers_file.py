# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workers file: what is written is what is read, nothing is lost, and nothing else gets in."""

from __future__ import annotations

import multiprocessing
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import workers_file
from ansible_collections.serving.sglang.plugins.module_utils.gateway import GatewayError

A = "http://10.0.0.1:30000"
B = "http://10.0.0.2:30000"

HOSTS = st.from_regex(r"[a-z][a-z0-9]{0,20}(\.[a-z0-9]{1,10}){0,3}", fullmatch=True) | st.ip_addresses(v=4).map(str)
URLS = st.builds("{}://{}:{}".format, st.sampled_from(["http", "https"]), HOSTS, st.integers(1024, 65535))


@given(st.lists(URLS, unique=True))
def test_what_is_written_is_what_is_read(urls):
    assert workers_file.parse(workers_file.render(urls)) == urls


def test_the_form_that_systemd_splits():
    assert workers_file.render([A, B]).splitlines()[-1] == f"SGLANG_GATEWAY_WORKERS=--worker-urls {A} {B}"
    assert workers_file.render([]).splitlines()[-1] == "SGLANG_GATEWAY_WORKERS="


@pytest.mark.parametrize(
    "text",
    ["", "\n", "SGLANG_GATEWAY_WORKERS=\n", "# none\n", "; none\n", 'SGLANG_GATEWAY_WORKERS=""\n'],
)
def test_no_workers(text):
    assert workers_file.parse(text) == []


def test_what_a_person_may_have_written():
    text = f'# ours\n\n  SGLANG_GATEWAY_WORKERS="--worker-urls  {A}/ {A}   HTTP://10.0.0.2:30000"\n'
    assert workers_file.parse(text) == [A, B]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"SGLANG_GATEWAY_WORKERS=--worker-urls {A}\nHTTP_PROXY=http://proxy:1\n", "line 2.*HTTP_PROXY"),
        ("SGLANG_GATEWAY_WORKERS=--port 1\n", "begins with '--port'"),
        ("SGLANG_GATEWAY_WORKERS=--worker-urls http://a --api-key x\n", "is not the URL"),
        ("SGLANG_GATEWAY_WORKERS=\nSGLANG_GATEWAY_WORKERS=\n", "set 2 times"),
        ("SGLANG_GATEWAY_WORKERS\n", "only SGLANG_GATEWAY_WORKERS="),
    ],
)
def test_what_would_be_lost_is_refused(text, why):
    with pytest.raises(GatewayError, match=why):
        workers_file.parse(text)


@given(st.text(max_size=40))
def test_nothing_but_a_url_gets_in(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "injected.env"
    path.unlink(missing_ok=True)
    try:
        workers_file.update(str(path), text, "present")
    except GatewayError:
        assert not path.exists()
    else:
        assert len(path.read_text().splitlines()) == 2


def test_a_worker_comes_and_goes(tmp_path):
    path = str(tmp_path / "workers.env")
    assert workers_file.update(path, A, "present") == ([], [A])
    assert workers_file.update(path, B, "present") == ([A], [A, B])
    assert workers_file.update(path, B, "present") == ([A, B], [A, B])
    assert workers_file.update(path, A, "absent") == ([A, B], [B])
    assert workers_file.read(path) == [B]
    assert os.listdir(tmp_path) == ["workers.env"]


def test_looking_ahead_writes_nothing(tmp_path):
    path = str(tmp_path / "there" / "workers.env")
    assert workers_file.update(path, A, "present", write=False) == ([], [A])
    assert os.listdir(tmp_path) == []


def test_owner_and_mode_stay(tmp_path):
    path = tmp_path / "workers.env"
    path.write_text("SGLANG_GATEWAY_WORKERS=\n")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    workers_file.update(str(path), A, "present")
    after = path.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)
    assert after.st_ino != before.st_ino, "the file is replaced whole"


def test_what_does_not_change_is_not_written(tmp_path):
    path = tmp_path / "workers.env"
    workers_file.update(str(path), A, "present")
    before = path.stat()
    workers_file.update(str(path), A, "present")
    assert path.stat().st_ino == before.st_ino


def test_a_host_without_the_role_is_told_so(tmp_path):
    with pytest.raises(GatewayError, match="role sglang_gateway"):
        workers_file.update(str(tmp_path / "none" / "workers.env"), A, "present")


def _add(path, first):
    for number in range(first, first + 20):
        workers_file.update(path, f"http://h{number}:1", "present")


def test_two_writers_at_once_lose_nothing(tmp_path):
    path = str(tmp_path / "workers.env")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_add, args=(path, first)) for first in (0, 100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = {f"http://h{first + number}:1" for first in (0, 100, 200) for number in range(20)}
    assert set(workers_file.read(path)) == expected
