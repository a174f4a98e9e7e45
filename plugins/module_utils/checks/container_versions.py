# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which releases of docker, podman and NVIDIA's toolkit work together. Data with their sources; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Version = tuple[int, ...]

# The release from which on each can do it.
CDI_FROM: dict[str, Version] = {"podman": (4, 1), "docker": (25, 0)}
QUADLETS_FROM: Version = (4, 4)
SOURCE_CDI_FROM = "NVIDIA/nvidia-container-toolkit#63; NVIDIA's release notes of toolkit 1.15.0 for docker"


@dataclass(frozen=True)
class Understands:
    """From this release on, an engine reads CDI specifications up to `highest`. Not `sure`: nobody has shown it."""

    engine: str
    since: Version
    highest: Version
    source: str
    sure: bool = True


# In the order of releases. A loader of CDI refuses a specification that is newer, and one with fields it does not know.
UNDERSTANDS: tuple[Understands, ...] = (
    Understands("podman", (4, 1), (0, 5, 0), "CDI's library of its time", sure=False),
    Understands("podman", (4, 3), (0, 5, 0), "tried with 4.3.1: 0.5.0 is read, 0.6.0 refused"),
    Understands("podman", (4, 4), (0, 5, 0), "CDI's library of its time", sure=False),
    Understands("podman", (4, 9), (0, 6, 0), "NVIDIA/nvidia-container-toolkit#1860: 0.7.0 is refused by 4.9.3"),
    Understands("podman", (5, 1), (0, 7, 0), "NVIDIA's release notes of toolkit 1.19.1"),
    Understands("podman", (5, 3), (0, 8, 0), "its go.mod: container-device-interface v0.8.0", sure=False),
    Understands("docker", (25, 0), (0, 6, 0), "CDI's library of its time", sure=False),
    Understands("docker", (26, 1), (0, 7, 0), "NVIDIA's release notes of toolkit 1.19.1"),
)


@dataclass(frozen=True)
class Pair:
    """A toolkit that does not work with an engine: both from a first release to before another one."""

    toolkit_from: Version
    toolkit_before: Version | None
    engine: str
    engine_before: Version | None
    what: str
    fix: str
    source: str
    cdi_version: Version | None = None


WITHOUT_GIDS = "--feature-flag no-additional-gids-for-device-nodes"
PAIRS: tuple[Pair, ...] = (
    Pair(
        (1, 19, 1),
        None,
        "podman",
        (5, 1),
        "writes CDI specifications of version 0.7.0, which this podman does not know; it says that the device is "
        "unresolvable, although nvidia-ctk lists it",
        "install nvidia-container-toolkit 1.19.0 (`apt-get install --allow-downgrades "
        "nvidia-container-toolkit=1.19.0-1 nvidia-container-toolkit-base=1.19.0-1`) or podman 5.x; or write a "
        "specification that it knows: `nvidia-ctk cdi "
        f"generate {WITHOUT_GIDS} --output=/etc/cdi/nvidia.yaml`, with NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS="
        "no-additional-gids-for-device-nodes in /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
        "NVIDIA/nvidia-container-toolkit#1940, #1860",
        cdi_version=(0, 7, 0),
    ),
    Pair(
        (1, 19, 1),
        None,
        "docker",
        (26, 1),
        "writes CDI specifications of version 0.7.0, which this docker does not know",
        "install docker 26.1 or newer, or nvidia-container-toolkit 1.19.0",
        "NVIDIA's release notes of toolkit 1.19.1",
        cdi_version=(0, 7, 0),
    ),
    Pair(
        (1, 17, 0),
        (1, 17, 1),
        "podman",
        None,
        "fails in its create-symlinks hook where the image has a graphics library of its own",
        "install nvidia-container-toolkit 1.17.1 or newer",
        "containers/podman#24502",
    ),
)


def parse_version(text: str) -> Version | None:
    """The numbers at the start of a version, so that 4.9.3+ds1-1 is (4, 9, 3)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return None if match is None else tuple(int(part) for part in match[1].split("."))


def written(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)


def understands(engine: str, version: Version) -> Understands | None:
    """What this release of an engine reads; None when it has no CDI at all."""
    rows = [row for row in UNDERSTANDS if row.engine == engine and row.since <= version]
    return rows[-1] if rows else None


def is_newest(row: Understands) -> bool:
    """Whether the table ends with this row, so that a newer release may understand more."""
    return [each for each in UNDERSTANDS if each.engine == row.engine][-1] is row


def pairs(toolkit: Version, engine: str, version: Version) -> list[Pair]:
    """The known faults of a toolkit with an engine."""
    return [
        pair
        for pair in PAIRS
        if pair.engine == engine
        and pair.toolkit_from <= toolkit
        and (pair.toolkit_before is None or toolkit < pair.toolkit_before)
        and (pair.engine_before is None or version < pair.engine_before)
    ]
