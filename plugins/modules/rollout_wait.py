#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait between two steps of a rollout. Runs on the controller: see plugins/action/rollout_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_wait
short_description: Wait between two steps of a rollout
version_added: "0.1.0"
description:
  - Waits after a replica left the gateway (settle) or rejoined it (soak), keeps the rollout's lock fresh meanwhile and
    writes the step to the ledger.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
attributes:
  check_mode:
    support: full
    details: Does not wait in check mode.
  diff_mode:
    support: none
    details: Waiting changes nothing.
  idempotent:
    support: full
options:
  seconds:
    description:
      - How long to wait.
    type: float
    required: true
  step:
    description:
      - What is waited for.
    type: str
    choices: [settle, soak]
    required: true
  touch:
    description:
      - Files on the host that are touched meanwhile; the rollout's lock.
    type: list
    elements: path
    default: []
  ledger:
    description:
      - Where the step is written, one entry for each replica with keys C(path), C(run), C(replica) and C(host).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Let requests on their way arrive
  serving.sglang.rollout_wait:
    seconds: 3
    step: settle
"""

RETURN = r"""
elapsed_s:
  description: Seconds waited.
  returned: always
  type: float
"""
