# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # What a plan is made from. The options themselves are in plugin_utils/rollout_fleet.py.
    DOCUMENTATION = r"""
options:
  hosts:
    description:
      - The hosts of the fleet, by inventory name.
    type: list
    elements: str
    required: true
  readings:
    description:
      - The result of M(serving.sglang.rollout_info) for each of O(hosts), in that order.
      - An unreachable host is refused.
    type: list
    elements: dict
    required: true
  gateways:
    description:
      - The gateways in front of the fleet, by inventory name.
    type: list
    elements: str
    default: []
  gateway_readings:
    description:
      - The result of M(serving.sglang.gateway_info) for each of O(gateways), in that order.
    type: list
    elements: dict
    default: []
  max_unavailable:
    description:
      - Replicas that may be away at once, a count or a percentage of the fleet (rounded down, at least one).
    type: str
    default: "1"
  min_serving:
    description:
      - Replicas that must be left serving while a wave is away.
    type: int
    default: 1
  accept_not_serving:
    description:
      - Replicas that may be out of service when it begins. Those that a rollback brings back always may.
    type: list
    elements: str
    default: []
  continue_unfinished:
    description:
      - Continue a run that was not finished, and leave alone what it had done already.
    type: bool
    default: true
  lock_stale_s:
    description:
      - Seconds without a sign of life after which the lock of another rollout is stale.
    type: float
    default: 120.0
  plan_only:
    description:
      - Show the plan and go no further.
    type: bool
    default: false
"""
