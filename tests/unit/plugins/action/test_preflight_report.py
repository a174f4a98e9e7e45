# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the files of a report are written, and where they are refused."""

from __future__ import annotations

import os
import stat

import pytest
from ansible.errors import AnsibleError

from ansible_collections.serving.sglang.plugins.action import preflight_report


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    preflight_report.write(str(path), "new\n")
    assert path.read_text() == "new\n"
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path, there):
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.write_text("old")
    link.symlink_to(target)
    preflight_report.write(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_is_no_file_is_refused_and_stays(tmp_path):
    fifo, folder = tmp_path / "fifo", tmp_path / "folder"
    os.mkfifo(fifo)
    folder.mkdir()
    for path, said in ((fifo, "a pipe"), ("/dev/full", "a device"), ("/dev/null", "a device"), (folder, "a folder")):
        with pytest.raises(AnsibleError, match=said):
            preflight_report.write(str(path), "text")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_missing_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(AnsibleError, match=f"there is no folder {tmp_path}/reprots"):
        preflight_report.write(f"{tmp_path}/reprots/a.json", "text")
    assert os.listdir(tmp_path) == []


def test_nothing_stays_behind_when_the_file_cannot_be_put_in_place(tmp_path, monkeypatch):
    def refuse(*_names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(AnsibleError, match="No space left"):
        preflight_report.write(f"{tmp_path}/a.json", "text")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("path", "stderr"), [("/dev/stdout", False), ("/dev/stderr", True)])
def test_the_terminal_is_written_through_the_display(path, stderr, monkeypatch):
    shown = []
    monkeypatch.setattr(preflight_report.display, "display", lambda text, stderr=False: shown.append((text, stderr)))
    preflight_report.write(path, "text\n")
    assert shown == [("text", stderr)]
