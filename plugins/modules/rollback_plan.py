#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a rollback. Runs on the controller: see plugins/action/rollback_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollback_plan
short_description: Plan which replicas return to their previous state
version_added: "0.1.0"
description:
  - Decides which instances get the files of their previous state back and which replicas have to be restarted for it,
    shows what that changes, and refuses what the rollout would refuse afterwards, with every reason at once.
  - A replica that was brought back before is left alone, or only restarted where an earlier call was cut off. Calling
    it again never swaps back.
  - Runs on the controller and reads nothing but its options.
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
    details: A plan changes nothing; M(serving.sglang.server_previous) shows the files.
  idempotent:
    support: full
options:
  replicas:
    description:
      - Only these replicas are brought back. One that has no previous state is refused then.
      - Empty means every replica that has one.
    type: list
    elements: str
    default: []
  only_hosts:
    description:
      - Only replicas on these hosts are brought back. Empty means all.
    type: list
    elements: str
    default: []
  undo:
    description:
      - Take a rollback back. Only replicas that one has brought back return to what it has put aside.
    type: bool
    default: false
seealso:
  - module: serving.sglang.rollout_info
  - module: serving.sglang.server_previous
"""

EXAMPLES = r"""
- name: Plan the way back
  serving.sglang.rollback_plan:
    hosts: "{{ groups['sglang_servers'] }}"
    readings: "{{ groups['sglang_servers'] | map('extract', hostvars, 'sglang_reading') | list }}"
  register: sglang_rollback
"""

RETURN = r"""
begins:
  description: Whether there is something to bring back, and not only the plan was asked for.
  returned: success
  type: bool
restore:
  description: The instances whose files are put back, by host.
  returned: success
  type: dict
  sample: {"gpu1": ["main"]}
restart:
  description: The replicas that have to be restarted for it.
  returned: success
  type: list
  elements: str
replicas:
  description: The replicas that are brought back, restarted or not.
  returned: success
  type: list
  elements: str
changes:
  description: What they are changed back to, as RV(serving.sglang.rollout_plan#module:upgrades).
  returned: success
  type: list
  elements: dict
accept_claims:
  description: Tokens of stale claims, for O(serving.sglang.server_previous#module:accept_claims).
  returned: success
  type: list
  elements: str
lines:
  description: The plan as it was shown.
  returned: success
  type: list
  elements: str
"""
