# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file is replaced whole or not at all, and reaches the disk where that is asked for."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import whole_file


@pytest.mark.parametrize("sync", [False, True])
def test_writes_and_replaces(tmp_path, sync):
    path = tmp_path / "made" / "x.json"
    whole_file.replace(str(path), "old\n", 0o644, sync=sync)
    first = path.stat().st_ino
    whole_file.replace(str(path), "new ü\n", 0o600, sync=sync)
    assert path.read_text(encoding="utf-8") == "new ü\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_ino != first
    assert os.listdir(path.parent) == ["x.json"], "nothing is left beside it"


def test_a_path_without_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole_file.replace("x", "text", 0o644, sync=True)
    assert (tmp_path / "x").read_text() == "text"


def test_the_mode_does_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        whole_file.replace(str(tmp_path / "x"), "text", 0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_the_owner_that_is_asked_for(tmp_path):
    path = tmp_path / "x"
    whole_file.replace(str(path), "text", 0o640, owner=(65534, 65533))
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)


def test_it_is_on_the_disk_before_it_has_its_name_and_so_is_the_name(tmp_path, monkeypatch):
    done = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append(os.path.basename(_name(handle))), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("named"), rename(old, new)))
    whole_file.replace(str(tmp_path / "x"), "text", 0o644, sync=True)
    assert done[0].startswith(".x.")
    assert done[1:] == ["named", tmp_path.name]
    done.clear()
    whole_file.replace(str(tmp_path / "x"), "text", 0o644)
    assert done == ["named"]


def _name(handle):
    return os.readlink(f"/proc/self/fd/{handle}")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "x"
    path.write_text("old")

    def fail(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        whole_file.replace(str(path), "new", 0o644, sync=True)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_reader_never_meets_half_a_file(tmp_path):
    path = str(tmp_path / "x")
    texts = ["a" * 10, "b" * 100000]
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for text in texts:
                whole_file.replace(path, text, 0o644)

    whole_file.replace(path, texts[0], 0o644)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            with open(path, encoding="utf-8") as handle:
                assert handle.read() in texts
    finally:
        stop.set()
        writer.join()
