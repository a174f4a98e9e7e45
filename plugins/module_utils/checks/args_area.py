# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The area arguments of a preflight: what each instance declares against the release that would run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..finding import Finding
from ..release_difference import plain_release
from .args_checks import check_instance
from .args_release import NOT_A_RELEASE


def declared_by(instance: Mapping[str, Any]) -> dict[str, Any]:
    """What an instance, as the areas take it, declares itself: without what is added to it.

    A port that is none is said of the declaration.
    """
    port = instance.get("port")
    return {
        "arguments": {key: value for key, value in instance["declared_arguments"].items() if key != "nnodes"},
        "environment": instance["declared_environment"],
        "port": port if isinstance(port, int) and 1 <= port <= 65535 else None,
        "model": instance.get("model"),
        "served_model_name": instance.get("served_model_name"),
        **dict.fromkeys(instance.get("secrets") or (), True),
    }


def findings_of(instance: Mapping[str, Any], release: str) -> list[Finding]:
    """The findings on an instance. That its version is no release is said of the declaration, with the reason."""
    found = check_instance(declared_by(instance), plain_release(release))
    return [one for one in found if one.id != NOT_A_RELEASE.id]


def examine(params: Mapping[str, Any]) -> dict[str, Any]:
    """The findings on every instance; `readings` says by which release each was judged."""
    findings: list[dict[str, Any]] = []
    releases: dict[str, str] = {}
    for instance in params.get("instances") or ():
        release = str(instance.get("version") or params.get("newest") or "")
        releases[str(instance["name"])] = release
        found = findings_of(instance, release)
        findings += [{**one.as_dict(), "instance": str(instance["name"])} for one in found]
    return {"readings": {"releases": releases}, "findings": findings}
