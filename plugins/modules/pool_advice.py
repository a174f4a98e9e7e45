#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Advise on the KV pool of a server from what was seen of it under load."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_advice
short_description: Advise on the KV pool of a server from what was seen of it under load
version_added: "0.1.0"
description:
  - Reads the log of a server, and pages of its metrics where they are given, and says whether its pool should be kept,
    shrunk, raised by a step of 0.02, or lowered, with the evidence.
  - A larger pool is not always better. When the card runs out of memory beside the pool, in the attention of a long
    prompt for instance, the fraction must go down although the pool had room.
  - A pool that never fills is memory that another program cannot use. The advice says what a smaller one gives back.
  - Nothing is advised from less than O(enough_requests) and O(enough_s), except after an error.
  - Nothing is changed.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  instance:
    description: The instance whose journal is read.
    type: str
  since:
    description: How far back the journal is read, as C(journalctl --since) takes it. It must reach back to the start.
    type: str
    default: -24h
  log:
    description: A file with the log, instead of the journal.
    type: path
  log_lines:
    description: The lines of the log themselves.
    type: list
    elements: str
  metrics:
    description:
      - Pages of C(/metrics) over time, each with C(at_s) (seconds) and C(text). On MLX the usage in the metrics always
        reads 0.0, and what the log says counts.
    type: list
    elements: dict
    default: []
  fraction:
    description: The fraction that the server runs with. Default is what its log says.
    type: float
  before_gib:
    description: Free memory before its weights were loaded. Default is what its log says.
    type: float
  pool_tokens:
    description: The size of its pool. Default is what its log says.
    type: int
  token_bytes:
    description: The bytes of a token, both pools together. Default follows from its log.
    type: float
  free_at_peak_gib:
    description:
      - The least free memory of the card under load. Default is what the log says at the end of the start, which is
        before any load.
    type: float
  stage:
    description: Where the server stands. The highest value that ran in V(staging) is remembered for production.
    type: str
    choices: [staging, production]
    default: production
  highest_in_staging:
    description: The highest fraction that ran in staging, as RV(highest_in_staging) returned it.
    type: float
  steps_below_staging:
    description: How many steps of 0.02 production stays below it, 1 or 2.
    type: int
    choices: [1, 2]
    default: 1
  enough_requests:
    description: Requests that must have been seen before anything is advised.
    type: int
    default: 1000
  enough_s:
    description: Seconds over which they must have been seen.
    type: float
    default: 3600
seealso:
  - module: serving.sglang.mem_fraction
"""

EXAMPLES = r"""
- name: Ask what to do about the pool
  serving.sglang.pool_advice:
    instance: main
    since: -7d
  register: advice

- name: Say it
  ansible.builtin.debug:
    msg: "{{ [advice.verdict] + advice.lines }}"

- name: Take the advice into the next choice
  serving.sglang.mem_fraction:
    model: /srv/models/Qwen3-8B
    version: 0.5.23
    proven: "{{ advice.fraction if advice.verdict == 'raise' else omit }}"
"""

RETURN = r"""
verdict:
  description:
    - V(keep), V(shrink), V(raise), V(lower), V(other_lever) (something else than the fraction is to be changed) or
      V(unclear) (not enough was seen).
  returned: success
  type: str
fraction:
  description: The fraction that the advice leads to.
  returned: success
  type: float
fraction_now:
  description: The fraction that the server runs with.
  returned: success
  type: float
tokens:
  description: The size of the pool with that fraction.
  returned: success
  type: int
gives_back_gib:
  description: What a smaller pool gives back.
  returned: success
  type: float
lines:
  description: The advice and its evidence for people.
  returned: success
  type: list
  elements: str
findings:
  description: The advice as findings, each with C(id), C(severity), C(summary), C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
highest_in_staging:
  description: The highest fraction that ran in staging, to be remembered.
  returned: success
  type: float
seen:
  description: What was seen, C(peak_usage), C(usual_usage), C(retractions), C(requests), C(duration_s) and more.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import pool_report


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str"},
            "since": {"type": "str", "default": "-24h"},
            "log": {"type": "path"},
            "log_lines": {"type": "list", "elements": "str"},
            "metrics": {"type": "list", "elements": "dict", "default": []},
            "fraction": {"type": "float"},
            "before_gib": {"type": "float"},
            "pool_tokens": {"type": "int", "no_log": False},
            "token_bytes": {"type": "float", "no_log": False},
            "free_at_peak_gib": {"type": "float"},
            "stage": {"type": "str", "choices": ["staging", "production"], "default": "production"},
            "highest_in_staging": {"type": "float"},
            "steps_below_staging": {"type": "int", "choices": [1, 2], "default": 1},
            "enough_requests": {"type": "int", "default": 1000},
            "enough_s": {"type": "float", "default": 3600},
        },
        mutually_exclusive=[("instance", "log", "log_lines")],
        required_one_of=[("instance", "log", "log_lines", "metrics")],
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **pool_report.report(module.params))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
