# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listening sockets as /proc/net/tcp shows them, and real ones of this process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.ports import (
    Listener,
    conflicts,
    listeners,
    parse_proc_net,
)

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 4242 1 0000 100 0 0 10 0
   1: 0100007F:7530 0100007F:9C40 01 00000000:00000000 00:00000000 00000000   999        0 4243 1 0000 100 0 0 10 0
   2: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1 0000 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 51 1
   1: 00000000000000000000000001000000:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 52 1
   2: 0000000000000000FFFF00000100007F:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 53 1
"""


def test_only_listeners_of_the_port():
    found = parse_proc_net(TCP, 30000)
    assert [(listener.address, listener.inode) for listener in found] == [("0.0.0.0", 4242)]
    assert parse_proc_net(TCP, 30001) == []


def test_addresses_of_version_6():
    assert [listener.address for listener in parse_proc_net(TCP6, 30000)] == ["::", "::1", "127.0.0.1"]


@pytest.mark.parametrize(
    ("address", "host", "meets"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("::", "10.0.0.1", True),
    ],
)
def test_which_listeners_are_in_the_way(address, host, meets):
    assert bool(conflicts([Listener(address, 30000, 1)], host)) is meets


def test_a_real_listener_is_found_with_its_process():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        (found,) = listeners(port)
    assert found.pid == os.getpid()
    assert found.address == "127.0.0.1"
    assert str(os.getpid()) in found.text()
    assert listeners(port) == []


def test_of_a_foreign_process_only_its_program_is_shown():
    program = "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    program += "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    words = ["-c", program, "--token", "Zq-secret", "redis://u:Zq-secret@h", "-pZq-secret", "\x1b[2J\nerror  h1"]
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline())
        (found,) = listeners(port)
        process.communicate()
    assert found.command.startswith("python")
    assert found.owner
    assert "Zq-secret" not in str(found.as_dict())
    assert "\x1b" not in found.text()
    assert "\n" not in found.text()
    assert f"({found.command}, of {found.owner})" in found.text()
