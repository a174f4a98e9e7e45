# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and variables of a server against the release that will run: every rule, in one order.

A deployment refuses what is an error here; the module args_check reports everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..finding import Finding
from . import args_combinations, args_config, args_flags, args_variables
from .args_declared import Declared, declared
from .check import Check, run_checks

CHECKS: tuple[Check[Declared], ...] = (
    *args_flags.CHECKS,
    *args_combinations.CHECKS,
    *args_config.CHECKS,
    *args_variables.CHECKS,
)
KINDS = {kind.id: kind for each in CHECKS for kind in each.kinds}


def check_instance(instance: Mapping[str, Any], release: str) -> list[Finding]:
    """Every finding on what an instance declares, those that are fine too.

    Of the instance are read: arguments, environment, port, model, served_model_name, nnodes, api_key, admin_api_key
    (whether they are there, never their values), and of an existing server config and command_line.
    """
    return run_checks(CHECKS, declared(instance, release))
