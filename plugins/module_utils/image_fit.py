# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an image runs on a host: its platform, and its CUDA with the host's driver."""

from __future__ import annotations

from collections.abc import Sequence

from .checks.driver_checks import LAST_CUDA_12_TAG, cuda_of
from .checks.reading import CouldNotTell
from .checks.wanted import Wanted
from .errors import EngineError
from .image_manifest import Platform
from .image_reference import ImageReference, read_tag
from .pinned_packages import MINIMUM_DRIVER, numbers


def misfit_of_platform(
    reference: ImageReference, platforms: Sequence[Platform], wanted: Platform | None
) -> EngineError | None:
    """Why the image does not run on a platform. `platforms` may be empty where only the tag is known."""
    if wanted is None:
        return None
    tag = read_tag(reference.tag)
    has = ", ".join(str(each) for each in platforms)
    if platforms and not any(each.serves(wanted) for each in platforms):
        where = f"it is made for {has}"
    elif not platforms and tag.architecture and tag.architecture != wanted.architecture:
        where = f"its tag says {tag.architecture}"
    else:
        return None
    suffix = f"-{tag.architecture}"
    other = reference.tag.replace(suffix, "") if tag.architecture else ""
    way = (
        f"take the tag without an architecture, {reference.name}:{other}, which is made for several, or"
        if other
        else ""
    )
    return EngineError(
        "image.platform",
        f"{reference.tagged} does not run on {wanted}: {where}. Next step: {way or 'take'} an image for {wanted}, and "
        "declare it for those hosts alone",
        platforms=[str(each) for each in platforms],
    )


def misfit_of_driver(reference: ImageReference, cuda: str, driver: str) -> EngineError | None:
    """Why the image does not start with a driver. `cuda` is what the image itself says; else its tag does.

    Raises CouldNotTell where neither says it.
    """
    if not driver:
        return None
    if not numbers(driver):
        raise CouldNotTell(f"{driver!r} is no version of a driver, as 580.65.06")
    tag = read_tag(reference.tag)
    if tag.rocm:
        return EngineError(
            "image.driver",
            f"{reference.tagged} is made for AMD's ROCm {tag.rocm}, and the hosts have NVIDIA's driver {driver}. Next "
            "step: take the tag without rocm",
        )
    wanted = Wanted(str(reference.tagged), tag.release, runtime="docker", image=str(reference.tagged), cuda=cuda)
    major, why = cuda_of(wanted)
    if cuda:
        why = f"the image says CUDA {cuda}"
    oldest = MINIMUM_DRIVER.get(major)
    if oldest is None:
        raise CouldNotTell(f"the oldest driver for CUDA {major} is not known here ({why})")
    if numbers(driver) >= numbers(oldest):
        return None
    older = f", or take {reference.name}:{LAST_CUDA_12_TAG}, the last tag for CUDA 12" if major >= 13 else ""
    return EngineError(
        "image.driver",
        f"{reference.tagged} does not start with driver {driver}: CUDA {major} needs {oldest} or newer ({why}). Next "
        f"step: upgrade the driver{older}. An image with CUDA's compatibility library may start on data-centre cards: "
        "then declare cuda_compat: true, and give image_pin no driver",
        oldest_driver=oldest,
    )
