# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a release of SGLang requires of its Python environment, and whether a version fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .release_pins import PINS
from .release_rows import nearest

# The oldest driver that runs a major release of CUDA (CUDA Toolkit Release Notes, "CUDA Driver"; Linux).
MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

_PRE = {"a": -3, "b": -2, "rc": -1}
_VERSION = re.compile(
    r"v?(?:\d+!)?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|rc)[-_.]?(\d*))?(?:[-_.]?post[-_.]?(\d*))?(?:[-_.]?dev[-_.]?(\d*))?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(===|==|!=|~=|<=|>=|<|>)\s*([^\s,]+)")


@dataclass(frozen=True)
class ReleasePins:
    """`assumed` is set when we have no data of that release and took those of the nearest one, `taken_from`.

    `torch_cuda` is the release of CUDA ("13.0") of the torch that the release names, `glibc` the oldest C library and
    `pythons` the versions of CPython that it has a wheel for.
    """

    version: str
    taken_from: str
    requires_python: str
    pythons: tuple[str, ...]
    glibc: str
    torch_cuda: str
    requires: Mapping[str, str]

    @property
    def assumed(self) -> bool:
        return self.version != self.taken_from

    @property
    def cuda_major(self) -> int:
        return int(self.torch_cuda.partition(".")[0] or 0)

    @property
    def minimum_driver(self) -> str:
        """The oldest driver for its CUDA; empty when we do not know."""
        return MINIMUM_DRIVER.get(self.cuda_major, "")


def pins_for(version: str) -> ReleasePins:
    """The pins of this release, or of the nearest one: the newest that is not newer, else the oldest."""
    base = version.partition("+")[0]
    taken = nearest(base, PINS)
    data = PINS[taken]
    tags = [re.match(r"cp3(\d+)-.*?manylinux_(\d+)_(\d+)", wheel) for wheel in data["wheels"]]
    found = [tag for tag in tags if tag is not None]
    toolkit = re.search(r"(\d+)\.(\d+)", data["torch_requires"].get("cuda-toolkit", ""))
    return ReleasePins(
        version=base,
        taken_from=taken,
        requires_python=data["requires_python"],
        pythons=tuple(f"3.{tag.group(1)}" for tag in found),
        glibc=f"{found[0].group(2)}.{found[0].group(3)}" if found else "",
        torch_cuda=f"{toolkit.group(1)}.{toolkit.group(2)}" if toolkit else f"{data['cuda_major']}.0",
        # triton is named by torch and not by SGLang.
        requires={**{"triton": data["torch_requires"].get("triton", "")}, **data["requires"]},
    )


def normal_name(name: str) -> str:
    """The name of a distribution as it is compared: flashinfer-python for flashinfer_python."""
    return re.sub(r"[-_.]+", "-", name).lower()


def public_version(version: str) -> str:
    """Without the local part: 2.14.1 of 2.14.1+cu130."""
    return version.partition("+")[0]


def numbers(version: str) -> tuple[int, ...]:
    """Every number of a version in its order: of a driver, or of a release of CUDA, which have no pre-releases."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def version_key(version: str) -> tuple[tuple[int, ...], int, int, int, int]:
    """A key that sorts as the versions of Python packages do, as far as numbers, a, b, rc, post and dev go.

    What is no version at all sorts before every version.
    """
    match = _VERSION.match(public_version(version.strip()))
    if match is None:
        return (), 0, 0, 0, 0
    dotted, pre, pre_number, post, dev = match.groups()
    release = numbers(dotted)
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    # A development version comes before the first pre-release, unless it is one of a later stage.
    stage = _PRE[pre.lower()] if pre else (-4 if dev is not None and post is None else 0)
    return (
        release,
        stage,
        int(pre_number or 0) if pre else 0,
        -1 if post is None else int(post or 0),
        1 << 30 if dev is None else int(dev or 0),
    )


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version fits a specifier such as `<0.15,>=0.14.1`, `==2.14.1` or `~=3.8.0`."""
    return all(_fits(version, operator, wanted) for operator, wanted in _CLAUSE.findall(specifier))


def _fits(version: str, operator: str, wanted: str) -> bool:
    if operator in ("==", "!=") and wanted.endswith(".*"):
        return _starts_with(version, wanted[:-2]) == (operator == "==")
    have, want = version_key(version), version_key(wanted)
    if operator == "~=":
        return have >= want and _starts_with(version, public_version(wanted).rpartition(".")[0])
    return {
        "==": have == want,
        "===": version == wanted,
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
        "<": have < want,
        ">": have > want,
    }[operator]


def _starts_with(version: str, prefix: str) -> bool:
    wanted = list(numbers(prefix))
    have = list(version_key(version)[0])
    have += [0] * (len(wanted) - len(have))
    return have[: len(wanted)] == wanted
