#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what a rollout must know of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_info
short_description: Read what a rollout must know of a host
version_added: "0.1.0"
description:
  - Returns the live state of every instance on the host, how far earlier rollouts came with each, and who holds the
    host's rollout lock.
  - Changes nothing and takes no lock.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options: {}
seealso:
  - module: serving.sglang.server_info
  - module: serving.sglang.rollout_plan
"""

EXAMPLES = r"""
- name: Read the state of the host
  serving.sglang.rollout_info:
  register: sglang_reading
"""

RETURN = r"""
instances:
  description:
    - One entry for each instance, as M(serving.sglang.server_info) returns it, and what a restart and a rollback would
      change.
  returned: success
  type: list
  elements: dict
  contains:
    upgrade:
      description:
        - How what the next start brings differs from what serves, or from what served before a start that failed.
          C(from) and C(to) with C(version), C(image) and C(runtime); C(changes), each with C(part), C(name), C(before),
          C(after) and sometimes C(text); C(assumed), of which releases the data on releases is where there is none of
          theirs.
        - None when a restart changes nothing.
        - Of the other release only what meets the arguments in use is told. What could be a secret is masked.
      type: dict
    previous:
      description:
        - The state that a rollback would put back, by C(version), C(image), C(kept_at), C(by) (V(deployment),
          V(rollback) or V(undo) put it aside), C(same) (it is what is on disk), C(runs) (it is what runs, so that no
          restart is needed) and C(difference) to what runs, as RV(instances[].upgrade).
        - None when nothing is kept.
      type: dict
    previous_error:
      description: Why what is kept cannot be read.
      returned: when it is so
      type: str
records:
  description: How far a rollout came with each instance that one has touched, by instance.
  returned: success
  type: dict
  sample: {"main": {"run": "20261129T101500Z-1f3a", "step": "done", "at": 1795947000.2}}
jobs:
  description:
    - The id of the last job of each instance, by instance, for O(serving.sglang.rollout_lock#module:jobs_seen).
  returned: success
  type: dict
  sample: {"main": "4c0c5b1f3f5e4b0d9a1c6f0f3f1f2a7b"}
lock:
  description:
    - The claim of a rollout on this host with C(age_s), the seconds since its last sign of life; null when free.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import (
    host_job,
    live_state,
    rollout_state,
    upgrade_state,
)


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        # Before everything else, so that a job which begins while this reads is not taken for one that was seen.
        jobs = host_job.last_jobs()
        instances = live_state.of_host(None)
        records = {info["instance"]: rollout_state.read_record(info["instance"]) for info in instances}
        module.exit_json(
            changed=False,
            instances=[{**info, **upgrade_state.read(info["instance"], info)} for info in instances],
            records={instance: record for instance, record in records.items() if record},
            jobs=jobs,
            lock=rollout_state.read_lock(),
        )
    except rollout_state.StateError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
