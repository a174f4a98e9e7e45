# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as Ansible runs it: how it refuses, and that it does nothing where nothing is needed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from ansible_collections.serving.sglang.plugins.modules import cuda_home


def run(tmp_path: pathlib.Path, **arguments: Any) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {"environment": str(tmp_path / "env"), **arguments}}))
    done = subprocess.run(
        [sys.executable, cuda_home.__file__, file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout)


def interpreter(tmp_path: pathlib.Path) -> pathlib.Path:
    """An environment whose interpreter knows one directory of packages."""
    python, site = tmp_path / "env" / "bin" / "python", tmp_path / "env" / "site-packages"
    python.parent.mkdir(parents=True)
    site.mkdir()
    python.write_text(f"#!/bin/sh\necho '[\"{site}\"]'\n")
    python.chmod(0o755)
    return site


def test_an_environment_that_is_not_there(tmp_path: pathlib.Path) -> None:
    status, result = run(tmp_path)
    assert (status, result["failed"]) == (1, True)
    assert result["msg"].startswith("cannot tell what CUDA_HOME needs: ")
    assert f"{tmp_path}/env/bin/python" in result["msg"]
    # There is nothing to remove either.
    status, result = run(tmp_path, state="absent")
    assert (status, result["changed"], result["home"]) == (0, False, None)


def test_an_environment_without_torch(tmp_path: pathlib.Path) -> None:
    interpreter(tmp_path)
    status, result = run(tmp_path)
    assert (status, result["changed"], result["home"]) == (0, False, None)
    assert result["reason"] == "there is no torch in the environment"


def test_wheels_that_are_missing_are_a_warning_or_a_failure(tmp_path: pathlib.Path) -> None:
    torch = interpreter(tmp_path) / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("__version__ = '2.14.1+cu130'\ncuda: str = '13.0'\n")
    status, result = run(tmp_path, toolkit="/nowhere")
    assert (status, result["changed"], result["home"]) == (0, False, None)
    (finding,) = result["findings"]
    assert (finding["id"], finding["severity"]) == ("cuda.wheels_incomplete", "error")
    assert finding["summary"] in str(result["warnings"])
    status, result = run(tmp_path, toolkit="/nowhere", state="present")
    assert (status, result["kind"]) == (1, "cuda.wheels_incomplete")
    assert result["finding"] == finding


def test_a_directory_of_somebody_else(tmp_path: pathlib.Path) -> None:
    (tmp_path / "env" / "cuda-home").mkdir(parents=True)
    status, result = run(tmp_path, state="absent")
    assert (status, result["kind"]) == (1, "cuda_home.foreign")
    assert "left alone" in result["msg"]
