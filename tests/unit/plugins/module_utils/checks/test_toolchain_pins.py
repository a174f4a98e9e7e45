# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a release requires, how versions compare, and the tool that writes the data."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ansible_collections.serving.sglang.plugins.module_utils import release_pins
from ansible_collections.serving.sglang.plugins.module_utils.pinned_packages import (
    normal_name,
    pins_for,
    public_version,
    satisfies,
    version_key,
)

CHECKOUT = Path(__file__).resolve().parents[5]


def tool() -> Any:
    found = importlib.util.spec_from_file_location("release_pins_tool", CHECKOUT / "tools" / "release_pins.py")
    if found is None or found.loader is None:
        raise AssertionError("tools/release_pins.py is not there")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "flashinfer", "kernels"), [("0.5.22", "==0.7.1", "==0.4.9"), ("0.5.23", "==0.7.2", "==0.4.10")]
)
def test_what_the_releases_require(version: str, flashinfer: str, kernels: str) -> None:
    pins = pins_for(version)
    assert not pins.assumed
    assert pins.requires["flashinfer-python"] == flashinfer
    assert pins.requires["sglang-kernel"] == kernels
    assert pins.requires["torch"] == "==2.14.1"
    assert pins.requires["triton"] == "~=3.8.0"
    assert pins.pythons == ("3.11", "3.12", "3.13")
    assert pins.glibc == "2.34"
    assert pins.torch_cuda == "13.0"
    assert pins.cuda_major == 13
    assert pins.minimum_driver == "580.65.06"


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("0.5.24", "0.5.23"), ("0.5.21", "0.5.22"), ("0.5.22.post1", "0.5.22"), ("1.0", "0.5.23"), ("", "0.5.22")],
)
def test_a_release_that_is_not_known_is_assumed(asked: str, taken: str) -> None:
    pins = pins_for(asked)
    assert pins.assumed
    assert pins.taken_from == taken


def test_a_local_part_is_no_other_release() -> None:
    assert not pins_for("0.5.23+cpu").assumed
    assert public_version("2.14.1+cu130") == "2.14.1"
    assert normal_name("Flashinfer_Python") == "flashinfer-python"


versions = st.builds(
    lambda release, pre, post, dev: ".".join(map(str, release)) + pre + post + dev,
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.sampled_from(["", "", "a1", "b2", "rc1", "rc12"]),
    st.sampled_from(["", "", ".post1", ".post2"]),
    st.sampled_from(["", "", "", ".dev3"]),
)


@given(versions, versions)
def test_versions_sort_as_packaging_sorts_them(one: str, other: str) -> None:
    assert (version_key(one) < version_key(other)) == (Version(one) < Version(other))
    assert (version_key(one) == version_key(other)) == (Version(one) == Version(other))


@given(versions)
def test_every_pin_is_read_as_packaging_reads_it(version: str) -> None:
    for data in release_pins.PINS.values():
        for specifier in {*data["requires"].values(), *data["torch_requires"].values()}:
            # Packaging has rules of its own for these next to a bound: no pin turns on them.
            if Version(version).is_postrelease or Version(version).is_prerelease:
                continue
            assert satisfies(version, specifier) == SpecifierSet(specifier).contains(version), (version, specifier)


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("2.14.1+cu130", "==2.14.1", True),
        ("0.2.3.post2", "==0.2.3.post2", True),
        ("0.2.3", "==0.2.3.post2", False),
        ("3.8.1", "~=3.8.0", True),
        ("3.9.0", "~=3.8.0", False),
        ("0.14.9", "<0.15,>=0.14.1", True),
        ("0.15.0", "<0.15,>=0.14.1", False),
        ("4.0.0b19", ">=4.0.0b18", True),
        ("1.6.0rc5", "==1.6.0rc5", True),
        ("13.0.96", "==13.0.*", True),
        ("13.1.0", "!=13.0.*", True),
        ("garbage", "==1.0", False),
        ("1.0", "", True),
    ],
)
def test_specifiers(version: str, specifier: str, fits: bool) -> None:
    assert satisfies(version, specifier) == fits


def test_the_data_is_as_the_tool_writes_it() -> None:
    made = tool()
    assert made.TARGET.read_text(encoding="utf-8") == made.render(release_pins.PINS)


def test_the_tool_reads_metadata() -> None:
    made = tool()
    metadata = {
        "requires_dist": [
            "torch==2.14.1",
            "flashinfer_python[cu13]==0.7.1",
            "kernels (<0.15,>=0.14.1)",
            "aiohttp",
            'av==16.1.0; sys_platform == "linux" and platform_machine == "aarch64"',
            'torchcodec==0.17.0; sys_platform != "linux" or (sys_platform == "linux" and platform_machine != "arm64")',
            'mlx==1.0; sys_platform == "darwin"',
            'PyYAML==6.0.1; extra == "diffusion"',
            'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
        ]
    }
    assert made.pinned(metadata) == {
        "flashinfer-python": "==0.7.1",
        "kernels": "<0.15,>=0.14.1",
        "torch": "==2.14.1",
        "torchcodec": "==0.17.0",
        "triton": "~=3.8.0",
    }
    assert made.cuda_extra(metadata) == "13"
    with pytest.raises(SystemExit, match="cannot read"):
        made.pinned({"requires_dist": ["= nonsense"]})
