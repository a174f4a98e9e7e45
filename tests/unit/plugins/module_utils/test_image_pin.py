# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of a pin, from recorded answers: kept, written, refused. A real registry is in the integration tests."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import image_pin, image_store
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import Output
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "images"
INDEX = "sha256:89e44b327d3d8ad438fb3bceef473530a3d549c6fd39e402da7d24db9ae0d8b5"
AMD64 = "sha256:baa5df9d8081abcc1e16b41914643538ae4690beff14da7fbe05c4cdd0ff4ae6"
OLD = "sha256:" + "0" * 64
PIN = f"docker.io/lmsysorg/sglang:v0.5.22@{INDEX}"


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., image_pin.Pin]:
    def answer(words: Sequence[str], limit_s: float) -> Output:
        name = "skopeo-config-arm64.json" if "--config" in words else "raw-index.json"
        return Output(0, (DATA / name).read_text(encoding="utf-8"), "")

    # The functions are fields' defaults, so they are replaced where the fields are filled.
    def asking(**given: Any) -> image_store.Asking:
        return image_store.Asking(**given, run=answer, which=lambda name: f"/usr/bin/{name}")

    monkeypatch.setattr(image_pin, "Asking", asking)
    defaults = {"engine": "skopeo", "source": "registry", "tls_verify": True, "timeout_s": 5.0, "refresh": False}
    return lambda check=False, **given: image_pin.pin({**defaults, "image": None, **given}, check)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "all.yml"
    path.write_text("a: 1\nimage: lmsysorg/sglang:v0.5.22\npassword: secret\n")
    return path


def test_a_short_name_is_written_in_full(pin, file) -> None:
    result = pin(path=str(file), variable="image")
    assert (result.changed, str(result.reference)) == (True, PIN)
    assert file.read_text() == f"a: 1\nimage: {PIN}\npassword: secret\n"
    assert "secret" not in str(result.as_dict()) + str(result.diff)
    assert not pin(path=str(file), variable="image").changed


def test_a_link_is_followed_and_the_mode_stays(pin, file, tmp_path) -> None:
    file.chmod(0o604)
    link = tmp_path / "link.yml"
    link.symlink_to(file)
    assert pin(path=str(link), variable="image").changed
    assert link.is_symlink()
    assert PIN in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o604


def test_line_ends_and_what_was_no_image_stay_or_go(pin, file) -> None:
    file.write_bytes(b"image: 'to-be-chosen'\r\nb: \xc3\xbc\r\n")
    result = pin(image="lmsysorg/sglang:v0.5.22", path=str(file), variable="image")
    assert (result.changed, result.replaced) == (True, "to-be-chosen")
    assert file.read_bytes() == f"image: '{PIN}'\r\nb: ü\r\n".encode()


@pytest.mark.parametrize(
    ("image", "before", "kind"),
    [
        (None, f"lmsysorg/sglang:v0.5.22@{OLD}", "moved"),
        ("lmsysorg/sglang:v0.5.22", f"docker.io/lmsysorg/sglang:v0.5.22@{OLD}", "moved"),
        (f"lmsysorg/sglang:v0.5.22@{OLD}", "lmsysorg/sglang:v0.5.22", "moved"),
        (None, f"lmsysorg/sglang:v0.5.22@{AMD64}", "platform_digest"),
        (None, "lmsysorg/sglang:latest", "refused"),
        (None, "", "not_a_reference"),
        ("lmsysorg/sglang:nightly", PIN, "refused"),
    ],
)
def test_what_does_not_hold_is_refused_and_the_file_stays(pin, file, image, before, kind) -> None:
    file.write_text(f"image: {before}\n")
    with pytest.raises(EngineError) as raised:
        pin(image=image, path=str(file), variable="image")
    assert raised.value.kind == f"image.{kind}"
    assert file.read_text() == f"image: {before}\n"


@pytest.mark.parametrize("digest", [OLD, AMD64])
def test_refresh_takes_what_the_tag_is_now(pin, file, digest) -> None:
    file.write_text(f"image: lmsysorg/sglang:v0.5.22@{digest}\n")
    assert pin(path=str(file), variable="image", refresh=True, check=True).changed
    assert digest in file.read_text()
    result = pin(path=str(file), variable="image", refresh=True)
    assert (result.changed, file.read_text()) == (True, f"image: {PIN}\n")
    assert not pin(path=str(file), variable="image", refresh=True).changed
    result = pin(image=f"lmsysorg/sglang:v0.5.22@{digest}", refresh=True)
    assert (result.changed, result.replaced, str(result.reference)) == (False, digest, PIN)


def test_a_pin_of_another_tag_is_an_upgrade(pin, file) -> None:
    file.write_text(f"image: lmsysorg/sglang:v0.5.21@{OLD}\n")
    assert pin(image="lmsysorg/sglang:v0.5.22", path=str(file), variable="image").changed
    assert file.read_text() == f"image: {PIN}\n"


def test_what_does_not_fit(pin) -> None:
    image = "lmsysorg/sglang:v0.5.22"
    assert pin(image=image, platform="aarch64", driver="570.172.08").reference.digest == INDEX
    for given, kind in (
        ({"platform": "linux/s390x"}, "platform"),
        ({"platform": "linux amd64"}, "platform"),
        ({"driver": "515.1"}, "driver"),
    ):
        with pytest.raises(EngineError) as raised:
            pin(image=image, **given)
        assert raised.value.kind == f"image.{kind}"
    assert "no version of a driver" in pin(image=image, driver="newest").notes[0]
    # The tag says it before anything is asked.
    with pytest.raises(EngineError, match="its tag says amd64"):
        pin(image=f"{image}-amd64", platform="arm64")


def test_files_that_cannot_be_edited(pin, tmp_path) -> None:
    given = {"image": "lmsysorg/sglang:v0.5.22", "variable": "image"}
    binary, directory = tmp_path / "binary", tmp_path / "directory"
    binary.write_bytes(b"\xff\xfe")
    directory.mkdir()
    for path, says in (
        (tmp_path / "none.yml", f"make it with the line image: {PIN}"),
        (binary, "it is no text in UTF-8"),
        (directory, "is no file"),
    ):
        with pytest.raises(EngineError, match=says) as raised:
            pin(path=str(path), **given)
        assert raised.value.kind == "image.vars_file"


def test_what_to_write_by_hand_is_the_pin_where_it_can_be_known(pin, file) -> None:
    with pytest.raises(EngineError, match=f"by hand: other: {PIN}$"):
        pin(image="lmsysorg/sglang:v0.5.22", path=str(file), variable="other")
    with pytest.raises(EngineError, match="by hand: other: docker.io/lmsysorg/sglang:v0.5.22@sha256:<64 digits>$"):
        pin(path=str(file), variable="other")


def test_a_directory_that_may_not_be_written(pin, file, monkeypatch) -> None:
    def replace(*_arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ansible_collections.serving.sglang.plugins.module_utils.whole_file.replace", replace)
    with pytest.raises(EngineError, match="cannot be written: Permission denied"):
        pin(path=str(file), variable="image")
