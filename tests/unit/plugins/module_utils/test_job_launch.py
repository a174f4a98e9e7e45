# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The code of a host job: a copy of our own modules that runs by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.serving.sglang.plugins.module_utils import host_job, job_launch


def test_the_copy_holds_everything_that_the_program_imports():
    found = job_launch.sources()
    assert {"job_main", "start_job", "stop_job", "host_job", "releases", "redaction"} <= set(found)
    assert "job_launch" not in found
    for text in found.values():
        assert "from ansible" not in text
        assert "import ansible" not in text


def test_the_copy_runs_by_itself_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(host_job, "JOBS_DIR", str(tmp_path))
    code = job_launch._install_code("main")
    # The program of the copy, with its directories where this test may write.
    program = (
        "import sys\n"
        f"from {job_launch._PACKAGE} import host_job, desired_state, job_main\n"
        f"host_job.JOBS_DIR = {str(tmp_path)!r}\n"
        f"desired_state.DESIRED_DIR = {str(tmp_path / 'etc')!r}\n"
        "sys.exit(job_main.main())\n"
    )
    request = tmp_path / "main.request.json"
    request.write_text(json.dumps({"id": "j1", "job": "stop", "instance": "main", "options": {}}))
    done = subprocess.run(
        [sys.executable, "-c", program, str(request)],
        env={**os.environ, "PYTHONPATH": code, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    status = host_job.parse_status((tmp_path / "main.json").read_text())
    assert status.state == "failed"
    assert status.error is not None
    assert status.error["kind"] == "no_instance"
    assert status.steps[0]["ok"] is False


def test_the_sources_are_found_in_an_archive_too(tmp_path):
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as handle:
        handle.writestr("payload/__init__.py", "")
        for name, text in {**job_launch.sources(), "job_launch": _own_source()}.items():
            handle.writestr(f"payload/{name}.py", text)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(archive)!r})\n"
            "from payload import job_launch\nprint(*sorted(job_launch.sources()))",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == sorted(job_launch.sources()), done.stderr


def _own_source():
    with open(job_launch.__file__, encoding="utf-8") as handle:
        return handle.read()


def test_the_copy_of_the_program_is_whole(tmp_path: Path) -> None:
    package = tmp_path / "program"
    package.mkdir()
    for name, text in {"__init__": "", **job_launch.sources()}.items():
        (package / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "import program.job_main"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
