# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and variables of a server against the release that will run: every rule, in one order.

A deployment refuses what is an error here; the module args_check reports everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..finding import Finding
from ..redaction import redact_values
from . import args_combinations, args_config, args_flags, args_release, args_variables
from .args_declared import Declared, declared, is_secret_variable
from .check import Check, run_checks

CHECKS: tuple[Check[Declared], ...] = (
    *args_release.CHECKS,
    *args_flags.CHECKS,
    *args_combinations.CHECKS,
    *args_config.CHECKS,
    *args_variables.CHECKS,
)
KINDS = {kind.id: kind for each in CHECKS for kind in each.kinds}

# A shorter text is part of many words that have nothing to do with it.
_LEAST_SECRET = 6


def check_instance(instance: Mapping[str, Any], release: str) -> list[Finding]:
    """Every finding on what an instance declares, those that are fine too.

    Of the instance are read: arguments, environment, port, model, served_model_name, nnodes, api_key, admin_api_key
    (whether they are there, never their values), and of an existing server config and command_line.
    """
    what = declared(instance, release)
    secrets = tuple(secret for secret in secrets_of(what) if len(secret) >= _LEAST_SECRET)
    found = run_checks(CHECKS, what)
    return [_without(secrets, one) for one in found] if secrets else found


def secrets_of(what: Declared) -> set[str]:
    """The values of secret arguments and variables."""
    values = [value for one in what.given if one.secret for value in (one.value, one.meant)]
    values += [value for name, value in what.environment.items() if is_secret_variable(str(name))]
    items = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])]
    return {str(item) for item in items if item is not None and not isinstance(item, (bool, dict))} - {""}


def _without(secrets: tuple[str, ...], finding: Finding) -> Finding:
    texts = (finding.summary, finding.evidence, finding.fix)
    summary, evidence, fix = (redact_values(text, secrets) for text in texts)
    return replace(finding, summary=summary, evidence=evidence, fix=fix)
