# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.environments import (
    ENVIRONMENT_NAME,
    environment_of,
    lock_problems,
    read_lock,
)

PLAIN = """\
# made by: uv pip compile requirements.in -o sglang.lock
--index-url https://pypi.example.com/simple
sglang==0.5.22
    # via -r requirements.in
torch==2.13.0 ; platform_machine == "x86_64"  # the CUDA build
Typing_Extensions==4.16.0
"""
HASHED = """\
sglang==0.5.22 \\
    --hash=sha256:1111 \\
    --hash=sha256:2222
    # via -r requirements.in
typing-extensions==4.16.0 \\
    --hash=sha256:3333
"""


def test_names() -> None:
    assert environment_of("0.5.22") == "/opt/sglang/0.5.22"
    assert environment_of("0.5.22", "1a2b3c4d5e6f") == "/opt/sglang/0.5.22-1a2b3c4d"
    for name in ("0.5.22", "0.5.22-1a2b3c4d", "0.5.22.post1", "0.5.22+cu129-0a0b0c0d", "0.6.0rc1"):
        assert ENVIRONMENT_NAME.fullmatch(name), name
    for name in ("venv", ".0.5.22.building", "0.5.22-old", "lost+found", "0.5.22-1a2b3c4"):
        assert not ENVIRONMENT_NAME.fullmatch(name), name


def test_a_lock_without_hashes() -> None:
    lock = read_lock(PLAIN)
    assert (lock.version, lock.hashed, lock.packages, lock.problems) == ("0.5.22", False, 3, ())


def test_a_lock_with_hashes() -> None:
    lock = read_lock(HASHED)
    assert (lock.version, lock.hashed, lock.packages, lock.problems) == ("0.5.22", True, 2, ())


def test_comments_and_spaces_make_no_other_lock() -> None:
    lines = [line for line in PLAIN.splitlines() if not line.lstrip().startswith("#")]
    assert read_lock("\r\n\r\n".join(lines)).sha256 == read_lock(PLAIN).sha256
    other = PLAIN.replace("torch==2.13.0", "torch==2.13.1")
    assert read_lock(other).sha256 != read_lock(PLAIN).sha256
    hashed = HASHED.replace("3333", "4444")
    assert read_lock(hashed).sha256 != read_lock(HASHED).sha256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sglang\n", "line 1: 'sglang' names no exact version, as sglang==1.2.3"),
        ("sglang==0.5.22\n\ntorch>=2\n", "line 3: 'torch>=2' names no exact version"),
        ("sglang==0.5.*\n", "names no exact version"),
        ("sglang==0.5.22,!=0.5.23\n", "names no exact version"),
        ("sglang==0.5.22\n-r more.txt\n", "line 2: -r is not read in a lock"),
        ("sglang==0.5.22\n--constraint=more.txt\n", "line 2: --constraint is not read in a lock"),
        ("sglang==0.5.22\n./torch.whl\n", "line 2: './torch.whl' is no requirement"),
        ("torch==2.13.0\n", "sglang itself is not in it"),
        ("", "sglang itself is not in it"),
        ("sglang==0.5.22\nsglang==0.5.23\n", "sglang is in it as 0.5.22 and 0.5.23"),
        ("sglang==0.5.22 --hash=sha256:11\ntorch==2\n", "torch: without a hash, and with one hash in a lock each"),
    ],
)
def test_what_is_no_lock(text: str, said: str) -> None:
    assert any(said in problem for problem in read_lock(text).problems), read_lock(text).problems


def test_only_some_problems_are_told() -> None:
    text = "sglang==0.5.22\n" + "".join(f"package{n}\n" for n in range(40))
    assert len(read_lock(text).problems) == 6
    assert read_lock(text).problems[-1] == "and 35 more"


def test_sglang_of_a_url_is_taken_as_it_is() -> None:
    lock = read_lock("sglang @ git+https://git.example.com/sglang@0123abcd\n")
    assert (lock.version, lock.problems) == ("", ())
    assert lock_problems("a.lock", "0.5.22", lock.as_dict()) == []


def test_what_is_said_of_a_declared_lock() -> None:
    assert lock_problems("a.lock", "0.5.22", None) == ["lock a.lock was not read"]
    assert lock_problems("a.lock", "0.5.22", read_lock(PLAIN).as_dict()) == []
    (other,) = lock_problems("a.lock", "0.5.23", read_lock(PLAIN).as_dict())
    assert other.startswith("lock a.lock has sglang 0.5.22 and version is 0.5.23. Declare")
