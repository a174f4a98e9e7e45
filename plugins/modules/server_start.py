#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start an instance and wait until it serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_start
short_description: Start an instance and wait until it serves
version_added: "0.1.0"
description:
  - Starts the systemd unit of an instance and watches it until C(/ready) answers and a real request is answered with
    real tokens, or until it is clear that this will not happen.
  - A port that somebody else holds is met before the start. A server that dies is not waited for. The line of its log
    that explains it is returned, and its unit is stopped, so that systemd does not try again by halves.
  - After the start the main process must be in the instance's slice, the kernel must hold the memory limits that the
    desired state asks for, and the port must be the instance's own. Where that is not so the instance is stopped.
  - The work is done by a job on the host (unit C(sglang-job-INSTANCE.service), status file
    C(/run/sglang/jobs/INSTANCE.json)) which goes on when the connection or the controller is lost. A second start of
    the same instance joins it; a stop is refused meanwhile.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.action
  - serving.sglang.host_job
attributes:
  check_mode:
    support: full
    details:
      - In check mode everything that can be checked before the start is checked, and nothing is started.
  diff_mode:
    support: none
    details: A start changes no file.
  idempotent:
    support: full
requirements:
  - The Python library C(requests) on the host.
options:
  deadline_s:
    description:
      - Seconds until the instance must be ready. Default is what its desired state says.
      - When they have passed the task fails and the unit goes on starting. The next start goes on watching it.
    type: float
  verify:
    description:
      - Whether a real request must be answered before the start counts as done.
    type: bool
    default: true
  unless_claimed:
    description:
      - Whether to refuse, with RV(kind=claimed), while a rollout holds the host. A rollout itself does not say so.
      - No rollout can claim the host between this look and the start. One that was planned before notices the start
        when it claims the host, and does not begin.
    type: bool
    default: false
  stale_claims:
    description:
      - Tokens of claims that O(unless_claimed) does not mind, because their rollouts give no sign of life any more.
    type: list
    elements: str
    default: []
seealso:
  - module: serving.sglang.server_stop
  - module: serving.sglang.server_info
"""

EXAMPLES = r"""
- name: Start the instance and wait until it answers
  serving.sglang.server_start:
    instance: main

- name: Give the first start time to compile its kernels
  serving.sglang.server_start:
    instance: main
    deadline_s: 1800

- name: Start it, but not while a rollout moves the host
  serving.sglang.server_start:
    instance: main
    unless_claimed: true
"""

RETURN = r"""
already:
  description: Whether the instance was serving before.
  returned: success
  type: bool
ready_s:
  description: Seconds from the start of the unit until C(/ready) answered; none when it was serving before.
  returned: success
  type: float
phases:
  description: SGLang's own timings of its start, in seconds, by their names in its log.
  returned: success
  type: dict
  sample: {load_weight_s: 0.25, cuda_graph_prefill_s: 82.83, tokenizer_e2e_s: 110.43}
max_total_num_tokens:
  description: The size of the KV pool in tokens.
  returned: success
  type: int
version:
  description: The release that the server says it is.
  returned: success
  type: str
main_pid:
  description: The main process.
  returned: success
  type: int
memory:
  description: The memory limits that the kernel holds for the instance's slice, and what it uses.
  returned: when the instance was started
  type: dict
verify:
  description: The answer to the request in figures.
  returned: success
  type: dict
  sample: {ok: true, by: generate, completion_tokens: 8, answered_after_s: 0.4}
steps:
  description: The steps C(start) and C(verify), each with C(ok), C(elapsed_s), C(at) and C(detail).
  returned: always
  type: list
  elements: dict
kind:
  description:
    - What kind of failure it was, one of V(no_instance), V(desired_state), V(no_unit), V(port_taken), V(credentials),
      V(start_failed), V(start_deadline), V(limit_mismatch), V(wrong_version), V(verify_failed), V(draining), V(paused),
      V(unhealthy), V(claimed), V(busy), V(job_launch), V(job_lost), V(lost_connection) and others that the message
      explains.
  returned: failure
  type: str
explanation:
  description: The line of the server's log that explains why it did not start, and what to do about it.
  returned: when the server died
  type: str
log_tail:
  description: The last lines of the server's log, redacted.
  returned: when the server died or took too long
  type: list
  elements: str
failed_at:
  description: Where a rollout was when it failed, as C(replica), C(host) and C(step) of the ledger.
  returned: failure, with O(ledger)
  type: dict
  sample: {"replica": "gpu1-main", "host": "gpu1", "step": "start"}
lost_connection:
  description: Whether the host could not be reached any more. The job on the host goes on.
  returned: when it is so
  type: bool
job:
  description: The job on the host, by its C(id), C(request), C(unit) and times.
  returned: always but in check mode
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.host_job import OPTIONS
from ansible_collections.serving.sglang.plugins.module_utils.server_modules import run_start


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "deadline_s": {"type": "float"},
            "verify": {"type": "bool", "default": True},
            "unless_claimed": {"type": "bool", "default": False},
            "stale_claims": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    result = run_start(module.params, module.check_mode)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
