# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lookup that reads locks, through ansible-core itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader

from ansible_collections.serving.sglang.plugins.lookup.lock import LookupModule


def read(*paths: str, basedir: str = "/") -> list[dict[str, Any]]:
    loader = DataLoader()
    loader.set_basedir(basedir)
    found: list[dict[str, Any]] = LookupModule(loader=loader).run(list(paths), {})
    return found


def test_locks_are_found_as_files_of_a_playbook(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.lock").write_text("sglang==0.5.22\n")
    (one,) = read("a.lock", basedir=str(tmp_path))
    assert (one["path"], one["source"]) == ("a.lock", str(tmp_path / "files" / "a.lock"))
    assert (one["version"], one["problems"], len(one["sha256"])) == ("0.5.22", [], 64)


def test_what_cannot_be_read_is_said_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "b.lock").write_bytes(b"\xff\xfe\x00s")
    (tmp_path / "folder.lock").mkdir()
    good = tmp_path / "c.lock"
    good.write_text("sglang==0.5.23\n")
    found = read(*(str(tmp_path / name) for name in ("none.lock", "b.lock", "folder.lock", "c.lock")))
    said = [" ".join(one["problems"]) for one in found]
    assert said[0] == "there is no such file on the controller"
    assert all(text.startswith("it cannot be read: ") for text in said[1:3]), said
    assert (said[3], found[3]["version"]) == ("", "0.5.23")
