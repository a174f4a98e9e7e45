#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a rollout. Runs on the controller: see plugins/action/rollout_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_plan
short_description: Plan a rollout from what hosts and gateways said
version_added: "0.1.0"
description:
  - Decides which replicas are restarted and in which waves, continues a run that was not finished, and refuses what
    must not begin, with every reason at once. Shows the plan.
  - Runs on the controller and reads nothing but its options; begins the ledger of the run.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.rollout_fleet
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: A plan changes nothing.
  idempotent:
    support: none
    details: A new run gets a new name each time.
options:
  replicas:
    description:
      - Only these replicas are restarted. Empty means all.
    type: list
    elements: str
    default: []
  only_hosts:
    description:
      - Only replicas on these hosts are restarted. Empty means all.
    type: list
    elements: str
    default: []
  only_pending:
    description:
      - Only replicas whose restart is pending are restarted.
    type: bool
    default: false
  by_host:
    description:
      - Keep all replicas of a host in one wave, as maintenance of the host needs it.
    type: bool
    default: false
  on_failure:
    description:
      - What becomes of a replica whose new state fails. V(stop) leaves it, V(rollback) returns it to its previous
        state. Either way the rollout stops. Here it is only checked and shown.
    type: str
    choices: [stop, rollback]
    default: stop
  ledger_dir:
    description:
      - Directory on the controller for the ledgers.
    type: path
    required: true
seealso:
  - module: serving.sglang.rollout_info
"""

EXAMPLES = r"""
- name: Plan the rollout
  serving.sglang.rollout_plan:
    hosts: "{{ groups['sglang_servers'] }}"
    readings: "{{ groups['sglang_servers'] | map('extract', hostvars, 'sglang_reading') | list }}"
    ledger_dir: ./sglang-ledger
  register: rollout
"""

RETURN = r"""
run:
  description: Name of the run; the name of the unfinished one when it is continued.
  returned: always
  type: str
begins:
  description:
    - Whether the rollout goes on after the plan.
    - False when nothing is to do, when only the plan was asked for, and in check mode.
  returned: always
  type: bool
plan:
  description: The plan, with C(waves) (lists of replicas with their members), C(skipped), C(refusals) and C(notes).
  returned: always
  type: dict
upgrades:
  description:
    - What the restarts change, once for all replicas that it is the same for, by C(replicas), C(from), C(to) and
      C(lines). Empty when they change nothing.
  returned: always
  type: list
  elements: dict
lines:
  description: The plan as it was shown.
  returned: always
  type: list
  elements: str
ledger:
  description: The ledger's file on the controller.
  returned: always
  type: str
claim:
  description: What M(serving.sglang.rollout_lock) takes to claim a host for this run.
  returned: always
  type: dict
"""
