# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module against a real registry: images are pinned, moved under their pins, refused, and the registry goes away.

The registry is Debian's docker-registry on loopback. Its images are two layers of some bytes, made here.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.serving.sglang.plugins.modules import image_pin

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests"))
from registries import Layout, running_registry  # noqa: E402

VARIABLES = """\
---
# The fleet.
sglang_server_version: 0.5.22
sglang_server_image: "{image}"   # pinned by image_pin
sglang_server_instances:
  - {{name: main, port: 30000}}
"""


# --- registries -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """skopeo and the registry; where they are missing, the machine is set up, as for test hosts."""
    if not (shutil.which("skopeo") and shutil.which("docker-registry")):
        subprocess.run([str(CHECKOUT / "tests" / "lab" / "setup.sh"), "packages"], check=True, stdout=sys.stderr)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registries") / "open") as address:
        yield address


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "images")


# --- the module -----------------------------------------------------------------------------------------------------


def module(**arguments: Any) -> dict[str, Any]:
    """Run the module in this process, which takes a tenth of the time that one of its own takes to begin."""
    output = io.StringIO()
    given = {"tls_verify": False, "timeout_s": 20, **arguments}
    with patch_module_args(given), contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
        image_pin.main()
    result: dict[str, Any] = json.loads(output.getvalue())
    result.pop("invocation", None)
    assert bool(ended.value.code) == result.get("failed", False)
    return result


class Vars:
    """A file of variables with the image, and the module that keeps it."""

    def __init__(self, path: Path, image: str) -> None:
        self.path = path
        path.write_text(VARIABLES.format(image=image))
        path.chmod(0o640)

    def pin(self, **arguments: Any) -> dict[str, Any]:
        """First only said, then done: both must be the same, and saying must change nothing."""
        before = self.path.read_bytes()
        given = {"path": str(self.path), "variable": "sglang_server_image", "_ansible_diff": True, **arguments}
        said = module(**given, _ansible_check_mode=True)
        assert self.path.read_bytes() == before
        done = module(**given)
        assert said == done
        changed = done.get("changed", False)
        assert (self.path.read_bytes() != before) == changed
        return done


def refused(result: Mapping[str, Any], kind: str) -> str:
    assert (result.get("failed"), result.get("kind")) == (True, f"image.{kind}"), result
    message: str = result["msg"]
    assert "Next step: " in message
    return message


# --- what it does ---------------------------------------------------------------------------------------------------


def test_a_tag_is_pinned_checked_moved_and_refreshed(registry: str, layout: Layout, tmp_path: Path) -> None:
    name = f"{registry}/lmsysorg/sglang"
    first = layout.push(layout.image("amd64", "first", "12.9.1"), f"{name}:v0.5.22")
    file = Vars(tmp_path / "all.yml", f"{name}:v0.5.22")
    pin = f"{name}:v0.5.22@{first}"

    done = file.pin()
    assert (done["changed"], done["pin"], done["replaced"]) == (True, pin, f"{name}:v0.5.22")
    assert file.path.read_text() == VARIABLES.format(image=pin)
    assert file.path.stat().st_mode & 0o777 == 0o640
    assert done["diff"]["before"] == f'sglang_server_image: "{name}:v0.5.22"   # pinned by image_pin\n'
    assert done["diff"]["after"] == f'sglang_server_image: "{pin}"   # pinned by image_pin\n'
    assert (done["labels"], done["cuda"], done["created"]) == ({"build": "first"}, "12.9.1", "2026-11-01T10:00:00Z")
    assert (done["index"], done["platforms"]) == (False, ["linux/amd64"])
    assert done["entrypoint"] == ["/opt/nvidia/nvidia_entrypoint.sh"]

    assert not file.pin()["changed"]
    assert not file.pin(image=f"{name}:v0.5.22")["changed"]
    assert not file.pin(image=pin)["changed"]

    second = layout.push(layout.image("amd64", "second", "12.9.1"), f"{name}:v0.5.22")
    assert second != first
    for arguments in ({}, {"image": f"{name}:v0.5.22"}, {"image": pin}):
        done = file.pin(**arguments)
        message = refused(done, "moved")
        assert first in message
        assert second in message
        assert (done["pinned"], done["present"]) == (first, second)
    refused(module(image=pin), "moved")

    done = file.pin(refresh=True)
    assert (done["changed"], done["pin"], done["replaced"]) == (True, f"{name}:v0.5.22@{second}", pin)
    assert not file.pin(refresh=True)["changed"]
    assert not file.pin()["changed"]

    # Another tag is no moved one: that is an upgrade.
    third = layout.push(layout.image("amd64", "third", "13.0.1"), f"{name}:v0.5.23")
    done = file.pin(image=f"{name}:v0.5.23")
    assert (done["changed"], done["pin"]) == (True, f"{name}:v0.5.23@{third}")
    assert not file.pin()["changed"]


def test_the_pin_of_several_platforms_is_the_index(registry: str, layout: Layout, tmp_path: Path) -> None:
    name = f"{registry}/ml/sglang"
    amd, arm = (layout.image(each, f"build for {each}", "13.0.1") for each in ("amd64", "arm64"))
    index = layout.push(layout.index(amd, arm), f"{name}:v0.5.22")
    done = module(image=f"{name}:v0.5.22", platform="aarch64", driver="580.65.06")
    assert (done["changed"], done["digest"], done["index"]) == (False, index, True)
    assert done["platform_digests"] == {"linux/amd64": amd["digest"], "linux/arm64": arm["digest"]}
    assert (done["facts_of"], done["labels"]) == ("linux/arm64", {"build": "build for arm64"})
    assert module(image=f"{name}:v0.5.22")["facts_of"] == "linux/amd64"

    file = Vars(tmp_path / "all.yml", f"{name}:v0.5.22@{amd['digest']}")
    assert "its part for linux/amd64 and not of the tag" in refused(file.pin(), "platform_digest")
    assert file.pin(refresh=True)["digest"] == index
    assert not file.pin()["changed"]

    message = refused(module(image=f"{name}:v0.5.22", platform="linux/s390x"), "platform")
    assert "is made for linux/amd64, linux/arm64" in message
    message = refused(module(image=f"{name}:v0.5.22", driver="570.172.08"), "driver")
    assert "CUDA 13 needs 580.65.06 or newer (the image says CUDA 13.0.1)" in message


def test_what_is_not_there_or_not_deployed(registry: str, layout: Layout, tmp_path: Path) -> None:
    name = f"{registry}/some/sglang"
    layout.push(layout.image("amd64", "any", "12.9.1"), f"{name}:latest")
    assert f"there is no {name}:v9.9.9 in the registry" in refused(module(image=f"{name}:v9.9.9"), "no_such_tag")
    refused(module(image=f"{registry}/nothing/here:v0.5.22"), "no_such_tag")
    for tag in (":latest", ":dev", ":nightly-20261101", ""):
        refused(module(image=name + tag), "refused")
    assert "malformed digest" in module(image=f"{name}:v0.5.22@sha256:12")["msg"]
    file = Vars(tmp_path / "all.yml", f"{name}:latest")
    assert "the tag latest is not deployed" in refused(file.pin(), "refused")
    digest = layout.push(layout.image("amd64", "good", "12.9.1"), f"{name}:v0.5.22")
    done = module(image=f"{name}:v0.5.22", path=str(file.path), variable="sglang_image")
    assert f"by hand: sglang_image: {name}:v0.5.22@{digest}" in refused(done, "vars_file")


def test_a_registry_that_wants_a_login(layout: Layout, tmp_path: Path) -> None:
    # The password is "secret"; htpasswd of the registry knows bcrypt alone.
    known = "ops:$2y$05$tXdVja0tx1uy.sjiO4ClVuPSy.5KdGqAFL4tqzY6xyo9czEBlesmO\n"
    authfile, wrong = tmp_path / "auth.json", tmp_path / "wrong.json"
    with running_registry(tmp_path / "closed", known) as address:
        for file, words in ((authfile, b"ops:secret"), (wrong, b"ops:wrong")):
            file.write_text(json.dumps({"auths": {address: {"auth": base64.b64encode(words).decode()}}}))
        image = f"{address}/ml/sglang:v0.5.22"
        digest = layout.push(layout.image("amd64", "closed", "12.9.1"), image, f"--dest-authfile={authfile}")
        assert module(image=image, authfile=str(authfile))["pin"] == f"{image}@{digest}"
        for arguments in ({}, {"authfile": str(wrong)}):
            message = refused(module(image=image, **arguments), "unauthorized")
            assert f"the registry {address} does not let these credentials read {address}/ml/sglang" in message
            assert "skopeo login" in message
            assert "secret" not in message
        assert "is not there" in refused(module(image=image, authfile=str(tmp_path / "none.json")), "unauthorized")
        assert "speaks HTTP without TLS" in refused(module(image=image, tls_verify=True), "unreachable")
    # It is gone now, and the pin in the file stays.
    vars_file = Vars(tmp_path / "all.yml", f"{image}@{digest}")
    message = refused(vars_file.pin(authfile=str(authfile)), "unreachable")
    assert f"the registry {address} does not answer" in message
    assert "connection refused" in message


class Page(http.server.BaseHTTPRequestHandler):
    """What answers where a registry was thought to be, as the page of a proxy does."""

    def do_GET(self) -> None:
        body = b"<html>Welcome to the network</html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_page_in_the_place_of_a_registry() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        message = refused(module(image=f"127.0.0.1:{server.server_port}/ml/sglang:v0.5.22"), "garbled")
        assert "a manifest was expected and came: '<html>Welcome to the network</html>'" in message
    finally:
        server.shutdown()
        server.server_close()


def test_a_registry_that_hangs() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        image = f"127.0.0.1:{silent.getsockname()[1]}/ml/sglang:v0.5.22"
        started = time.monotonic()
        assert "did not end within 1 s" in refused(module(image=image, timeout_s=1), "unreachable")
        assert time.monotonic() - started < 10


def test_a_playbook_pins_on_the_controller(registry: str, layout: Layout, tmp_path: Path) -> None:
    image = f"{registry}/team/sglang:v0.5.22-cu130"
    digest = layout.push(layout.image("amd64", "play", "13.0.1"), image)
    file = tmp_path / "all.yml"
    file.write_text(VARIABLES.format(image=image))
    task = {
        "name": "Pin the image",
        "serving.sglang.image_pin": {"path": str(file), "variable": "sglang_server_image", "tls_verify": False},
    }
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task, task]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    words = ["ansible-playbook", "-i", "localhost,", "--diff", "-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run([*words, tmp_path / "play.yml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"ok=2 +changed=1 ", done.stdout)
    assert f'+sglang_server_image: "{image}@{digest}"' in done.stdout
    assert "The fleet" not in done.stdout
    assert file.read_text() == VARIABLES.format(image=f"{image}@{digest}")
