# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that does not fit a platform or a driver is refused with what is needed and what to take instead."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell
from ansible_collections.serving.sglang.plugins.module_utils.image_fit import misfit_of_driver, misfit_of_platform
from ansible_collections.serving.sglang.plugins.module_utils.image_manifest import Platform, read_platform
from ansible_collections.serving.sglang.plugins.module_utils.image_reference import parse_reference

AMD, ARM = Platform("linux", "amd64"), Platform("linux", "arm64")


@pytest.mark.parametrize(
    ("tag", "platforms", "wanted", "says"),
    [
        ("v0.5.22", [AMD], "arm64", "does not run on linux/arm64: it is made for linux/amd64"),
        ("v0.5.22", [AMD, ARM], "arm64", None),
        ("v0.5.22", [], "arm64", None),
        ("v0.5.22", [AMD], "", None),
        ("v0.5.9-cu129-amd64-runtime", [], "aarch64", "its tag says amd64. Next step: take the tag without an "),
        ("v0.5.9-cu129-amd64-runtime", [], "aarch64", "docker.io/lmsysorg/sglang:v0.5.9-cu129-runtime"),
        ("v0.5.9-amd64", [], "x86_64", None),
        ("v0.5.22", [Platform("linux", "arm", "v7")], "linux/arm/v6", "linux/arm/v7"),
        ("v0.5.22", [Platform("linux", "arm", "v7")], "linux/arm", None),
    ],
)
def test_platform(tag, platforms, wanted, says) -> None:
    reference = parse_reference(f"lmsysorg/sglang:{tag}")
    error = misfit_of_platform(reference, platforms, read_platform(wanted) if wanted else None)
    if says is None:
        assert error is None
    else:
        assert error is not None
        assert error.kind == "image.platform"
        assert says in error.msg


@pytest.mark.parametrize(
    ("tag", "cuda", "driver", "says"),
    [
        ("v0.5.22", "", "580.65.06", None),
        ("v0.5.22", "", "", None),
        ("v0.5.22", "", "570.172.08", "CUDA 13 needs 580.65.06 or newer (SGLang 0.5.22 requires CUDA 13)"),
        ("v0.5.22", "", "570.172.08", "docker.io/lmsysorg/sglang:v0.5.19-cu129, the last tag for CUDA 12"),
        ("v0.5.22", "12.9.1", "570.172.08", None),
        ("v0.5.19-cu129", "", "570.172.08", None),
        ("v0.5.19-cu129", "", "520.61.05", "CUDA 12 needs 525.60.13 or newer"),
        # What the image itself says counts before its tag.
        ("v0.5.19-cu129", "13.0.1", "570.172.08", "(the image says CUDA 13.0.1)"),
        ("v0.5.19-cu130", "", "570.172.08", "names CUDA 13.0"),
        ("v0.5.19-rocm700-mi35x", "", "580.65.06", "is made for AMD's ROCm 7.0.0"),
    ],
)
def test_driver(tag, cuda, driver, says) -> None:
    error = misfit_of_driver(parse_reference(f"lmsysorg/sglang:{tag}"), cuda, driver)
    if says is None:
        assert error is None
    else:
        assert error is not None
        assert error.kind == "image.driver"
        assert says in error.msg


@pytest.mark.parametrize(
    ("tag", "cuda", "driver", "says"),
    [
        ("v0.5.19", "", "570.0", "was made for CUDA 12 and for 13"),
        ("v0.5.22", "19.1", "570.0", "the oldest driver for CUDA 19 is not known here"),
        ("v0.5.22", "", "newest", "'newest' is no version of a driver, as 580.65.06"),
    ],
)
def test_what_cannot_be_told(tag, cuda, driver, says) -> None:
    with pytest.raises(CouldNotTell, match=says):
        misfit_of_driver(parse_reference(f"lmsysorg/sglang:{tag}"), cuda, driver)
