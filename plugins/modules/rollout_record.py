#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remember on a host how far a rollout came with an instance."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_record
short_description: Remember on a host how far a rollout came with an instance
version_added: "0.1.0"
description:
  - Written before an instance is taken out and when it is done or has failed, so that a rollout that was interrupted
    is continued from what the hosts remember, by whoever runs it next.
  - Refused when the rollout's lock is no longer on the host.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The record is no configuration.
  idempotent:
    support: full
options:
  instance:
    description:
      - The instance the record is about.
    type: str
    required: true
  run:
    description:
      - The run, as RV(serving.sglang.rollout_plan#module:run) returned it.
    type: str
    required: true
  token:
    description:
      - The token of the rollout's claim, which must hold the host's lock.
    type: str
    required: true
  step:
    description:
      - V(leaving) before the instance leaves the gateway, V(done) when its replica is back, V(failed) when the run
        stops at it, V(rolled_back) when it then serves its previous state again.
    type: str
    choices: [leaving, done, failed, rolled_back]
    required: true
  require_serving:
    description:
      - Fail, and remember V(failed), when the instance does not serve. For the end of the soak time.
    type: bool
    default: false
  ledger:
    description:
      - Where the controller writes the steps C(done) and C(failed), with keys C(path), C(run), C(replica), C(host) and,
        for V(failed) and V(rolled_back), C(reason). Handled on the controller, never sent to the host.
    type: dict
"""

EXAMPLES = r"""
- name: Write down that the instance leaves
  serving.sglang.rollout_record:
    instance: main
    run: "{{ rollout.run }}"
    token: "{{ rollout.claim.token }}"
    step: leaving
"""

RETURN = r"""
serving:
  description: Whether the instance serves now.
  returned: success
  type: bool
why:
  description: Why it does not serve; empty when it does.
  returned: success
  type: str
running:
  description: Requests that ran when the instance was about to leave; none when the server did not tell.
  returned: success
  type: int
waiting:
  description: Requests that waited then.
  returned: success
  type: int
worker_url:
  description: Where gateways reach what runs now; empty when it does not serve.
  returned: success
  type: str
failed_at:
  description: Where the rollout was when it failed, as C(replica), C(host) and C(step) of the ledger.
  returned: failure, with O(ledger)
  type: dict
  sample: {"replica": "gpu1-main", "host": "gpu1", "step": "done"}
overhead_s:
  description: Seconds the replica took beyond SGLang's own drain and start and the declared waits.
  returned: when O(ledger) is given and O(step) is not V(leaving)
  type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import rollout_state, serving


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "run": {"type": "str", "required": True},
            # The token names the claim of a rollout, it opens nothing.
            "token": {"type": "str", "required": True, "no_log": False},
            "step": {"type": "str", "choices": ["leaving", "done", "failed", "rolled_back"], "required": True},
            "require_serving": {"type": "bool", "default": False},
            "ledger": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    instance, run, step = (module.params[key] for key in ("instance", "run", "step"))
    try:
        if not module.check_mode:
            rollout_state.check_lock(module.params["token"])
        now = serving.check(instance, with_requests=step == "leaving")
        if module.params["require_serving"] and not now.serves:
            step = "failed"
        record = rollout_state.read_record(instance)
        changed = not record or record.get("run") != run or record.get("step") != step
        if not module.check_mode:
            changed = rollout_state.write_record(instance, run, step)
    except (rollout_state.LockLost, rollout_state.StateError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"the rollout record in {rollout_state.DIRECTORY} cannot be written: {error}. Make room or repair the "
            "directory, then run again"
        )
    if module.params["require_serving"] and not now.serves:
        module.fail_json(
            msg=f"instance {instance} stopped serving after it had been verified: {now.why}. "
            f"Look at its log: journalctl -u sglang-{instance}",
            serving=False,
            why=now.why,
            changed=changed,
        )
    module.exit_json(
        changed=changed,
        serving=now.serves,
        why=now.why,
        running=now.running,
        waiting=now.waiting,
        worker_url=now.worker_url,
    )


if __name__ == "__main__":
    main()
