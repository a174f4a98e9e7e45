# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module args_check returns: findings, and what another release changes. Pure: nothing is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .checks import args_release
from .checks.args_checks import check_instance, secrets_of
from .checks.args_declared import declared
from .checks.check import as_dicts, run_checks, worst
from .finding import OK, Finding
from .flag_table import flags_of
from .release_difference import counts, difference, for_arguments, lines, plain_release, table_rows


def report(params: Mapping[str, Any]) -> dict[str, Any]:
    """Findings for one declared server, and what an upgrade changes for it."""
    release = _release(params)
    instance = {**params, **dict.fromkeys(params.get("keys") or (), True)}
    found = check_instance(instance, release)
    table = flags_of(release)
    target = plain_release(str(params.get("upgrade_to") or ""))
    if target:
        found += [one for one in run_checks(args_release.CHECKS, declared(instance, target)) if one.severity != OK]
    return {
        "version": release,
        "data_of": table.version,
        "assumed": table.assumed,
        "findings": as_dicts(finding for finding in found if finding.severity != OK),
        "checked": sorted({finding.id for finding in found}),
        "outcome": worst(found),
        "difference": _whole_upgrade(instance, release, target) if target else None,
    }


def _whole_upgrade(instance: Mapping[str, Any], release: str, target: str) -> dict[str, Any]:
    changes = [change.as_dict() for change in difference(release, target).changes]
    return {**upgrade(instance, release, target), "all": changes}


def upgrade(instance: Mapping[str, Any], release: str, target: str) -> dict[str, Any]:
    """What another release changes for the arguments in use, and for the defaults that are in use because unset."""
    found = difference(release, target)
    effects = for_arguments(found, declared(instance, release).arguments, instance.get("environment") or {})
    return {
        "from": release,
        "to": target,
        "assumed": list(found.assumed),
        "changes": [effect.as_dict() for effect in effects],
        "lines": lines(found, effects),
        "table": table_rows(effects),
        "counts": counts(found),
        "new_findings": as_dicts(new_findings(instance, release, target)),
    }


def new_findings(instance: Mapping[str, Any], release: str, target: str) -> list[Finding]:
    """What is found with the other release and is not with this one."""
    before = {(finding.id, finding.severity) for finding in check_instance(instance, release)}
    after = (finding for finding in check_instance(instance, target) if finding.severity != OK)
    return [finding for finding in after if (finding.id, finding.severity) not in before]


def secrets_among(params: Mapping[str, Any]) -> set[str]:
    """The secrets among the options, which no result may show."""
    return secrets_of(declared(params, _release(params)))


def _release(params: Mapping[str, Any]) -> str:
    return plain_release(str(params.get("version") or ""))
