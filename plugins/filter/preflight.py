# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the playbook preflight: what it hands to the hosts."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.serving.sglang.plugins.module_utils.checks import ignore_list, role_variables, stand_ins
from ansible_collections.serving.sglang.plugins.module_utils.checks.table import KINDS

# What stands for an option that is left out until a task is run, before ansible-core 2.19.
OMITTED = "__omit_place_holder__"


def _without_omitted(value):
    if isinstance(value, Mapping):
        return {key: _without_omitted(item) for key, item in value.items() if not str(item).startswith(OMITTED)}
    return value


def without_secrets(declared):
    """The declarations with a stand-in for each secret."""
    return stand_ins.without_secrets(_without_omitted(declared))


def ignore_problems(lists):
    """What is wrong with the ignore lists of several hosts, each problem once."""
    problems = [problem for entries in lists for problem in ignore_list.read_ignores(entries or [], KINDS)[1]]
    return list(dict.fromkeys(problems))


def _fits(option, value):
    try:
        # A default that is null is none for the validator.
        known = {key: item for key, item in option.items() if key in ("type", "elements", "choices")}
        return not ArgumentSpecValidator({"value": known}).validate({"value": value}).error_messages
    except (AttributeError, TypeError, ValueError):
        return False


def variables_of_role(values, specs, names=()):
    """What is wrong with variables of a host, by the argument specification of the role."""
    return {
        "refused": role_variables.refused(_without_omitted(values), specs["main"]["options"], _fits),
        "unknown": role_variables.unknown(names, specs),
    }


class FilterModule:
    """What ansible-core asks for."""

    def filters(self):
        return {
            "without_secrets": without_secrets,
            "ignore_problems": ignore_problems,
            "role_variables": variables_of_role,
        }
