# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules on the release itself: is it one, and is anything known of it."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import ERROR, UNKNOWN, Finding
from ..release_rows import is_release, release_key
from ..server_flags import FLAGS
from .args_declared import Declared, shown_name
from .check import Kind, check

NOT_A_RELEASE = Kind(
    "release.not_a_release",
    ERROR,
    "a version that is no release",
    "Nothing can be judged by it, and nothing can be installed from it.",
    "name a release, as 0.5.22",
)
ASSUMED = Kind(
    "release.assumed",
    UNKNOWN,
    "a release that nothing is known of",
    "Its arguments and variables are judged by those of the nearest release that there is data for. What it has added, "
    "removed or changed is not seen.",
    "use a release that there is data for, or a version of the collection that has the data of this one; to go on "
    "without, put the finding on the ignore list",
    "the data is made from the published wheels, by tools/release_data.py",
)


@check(NOT_A_RELEASE)
def a_release(declared: Declared) -> Iterator[Finding]:
    if not is_release(declared.release):
        said = (
            f"'{shown_name(declared.release)}' is no release of SGLang" if declared.release else "no release is given"
        )
        yield NOT_A_RELEASE.found(said, f"version: {shown_name(declared.release) or 'empty'}", NOT_A_RELEASE.fix)


@check(ASSUMED)
def known_release(declared: Declared) -> Iterator[Finding]:
    asked, used = declared.release, declared.table.version
    if not is_release(asked) or release_key(asked) == release_key(used):
        return
    known = ", ".join(sorted(FLAGS, key=release_key))
    yield ASSUMED.found(
        f"nothing is known of SGLang {asked}: its arguments and variables were judged by those of {used}",
        f"version: {asked}; there is data for {known}",
        "newer data comes with a newer version of the collection: "
        "`ansible-galaxy collection install --upgrade serving.sglang`",
    )


CHECKS = (a_release, known_release)
