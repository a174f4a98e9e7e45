# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory sizes and limits of a slice."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.limits import parse_size, read_limits


@pytest.mark.parametrize(
    ("size", "number"),
    [
        ("24G", 24 << 30),
        ("512M", 512 << 20),
        ("1.5T", 3 << 39),
        ("64k", 64 << 10),
        ("24GiB", 24 << 30),
        ("24 GB", 24 << 30),
        (1024, 1024),
        ("0", 0),
        (0, 0),
        (None, None),
        ("", None),
        ("infinity", None),
    ],
)
def test_sizes_are_as_systemd_writes_them(size: Any, number: int | None) -> None:
    assert parse_size(size) == number


@pytest.mark.parametrize("size", ["24X", "half", "-1", "50%", True, "G"])
def test_other_words_are_no_sizes(size: Any) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(size)


def test_limits() -> None:
    limits, problems, warnings = read_limits("24G", "16G", 0)
    assert (limits.memory_max_bytes, limits.memory_high_bytes, limits.memory_swap_max_bytes) == (24 << 30, 16 << 30, 0)
    assert (problems, warnings) == ([], [])


@pytest.mark.parametrize(
    ("given", "problem", "warning"),
    [
        (("24G", "25G", None), "memory_high (25G) is larger than memory_max (24G)", None),
        (("24G", "23G", None), None, "the server stalls there"),
        (("0", None, None), "nothing could start", None),
        (("x", None, "y"), "memory_max: 'x' is not a size", None),
    ],
)
def test_limits_that_cannot_be_meant(given: Any, problem: str | None, warning: str | None) -> None:
    _, problems, warnings = read_limits(*given)
    assert bool(problems) == bool(problem)
    assert bool(warnings) == bool(warning)
    assert problem is None or problem in problems[0]
    assert warning is None or warning in warnings[0]
