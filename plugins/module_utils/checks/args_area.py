# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The area arguments of a preflight: what each instance declares against the release that would run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..finding import Finding
from .args_checks import check_instance


def declared_by(instance: Mapping[str, Any]) -> dict[str, Any]:
    """What an instance, as the areas take it, declares itself: without what is added to it."""
    return {
        "arguments": {key: value for key, value in instance["declared_arguments"].items() if key != "nnodes"},
        "environment": instance["declared_environment"],
        "port": instance.get("port"),
        "model": instance.get("model"),
        "served_model_name": instance.get("served_model_name"),
        **dict.fromkeys(instance.get("secrets") or (), True),
    }


def findings_of(instance: Mapping[str, Any], release: str) -> list[Finding]:
    return check_instance(declared_by(instance), release)


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
