#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claim a host for one rollout, or give it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_lock
short_description: Claim a host for one rollout, or give it back
version_added: "0.1.0"
description:
  - A rollout claims every host it may touch before it touches one. A second rollout, from wherever, finds the claim
    and is refused.
  - The claim is a file on the host whose age says when its holder last gave a sign of life. Only a claim that
    M(serving.sglang.rollout_plan) found stale may be replaced, by naming its token.
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
    details: The lock is no configuration; RV(lock) says who holds it.
  idempotent:
    support: full
options:
  claim:
    description:
      - Who claims, as RV(serving.sglang.rollout_plan#module:claim) returned it.
      - For O(state=absent) only C(token) counts.
    type: dict
    required: true
  break_tokens:
    description:
      - Tokens of stale claims that may be replaced.
    type: list
    elements: str
    default: []
  jobs_seen:
    description:
      - The jobs of the host as the plan saw them, RV(serving.sglang.rollout_info#module:jobs). When another start or
        stop has begun since, the host is not claimed and the task fails.
      - Without it jobs are not looked at.
    type: dict
  state:
    description:
      - V(present) claims the host, V(absent) gives it back. A claim of somebody else is never given back.
    type: str
    choices: [present, absent]
    default: present
  ledger:
    description:
      - Where the controller writes whether the claim holds, with keys C(path), C(run), C(replica) and C(host).
      - Handled on the controller, never sent to the host.
    type: dict
seealso:
  - module: serving.sglang.rollout_plan
"""

EXAMPLES = r"""
- name: Claim the host for this rollout
  serving.sglang.rollout_lock:
    claim: "{{ rollout.claim }}"
    break_tokens: "{{ rollout.plan.break_tokens }}"
    jobs_seen: "{{ sglang_reading.jobs }}"

- name: Give the host back
  serving.sglang.rollout_lock:
    claim: "{{ rollout.claim }}"
    state: absent
"""

RETURN = r"""
lock:
  description: The claim that holds after the call; null when the host is free.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import rollout_state


def _present(module: AnsibleModule, claim: dict) -> bool:
    take = rollout_state.would_take if module.check_mode else rollout_state.take_lock
    return take(claim, module.params["break_tokens"], module.params["jobs_seen"])


def _absent(module: AnsibleModule, token: str) -> bool:
    if not module.check_mode:
        return rollout_state.release_lock(token)
    held = rollout_state.read_lock()
    return held is not None and held.get("token") == token


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "claim": {"type": "dict", "required": True},
            # The tokens name claims, they open nothing.
            "break_tokens": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "jobs_seen": {"type": "dict"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "ledger": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    claim = module.params["claim"]
    needed = ("run", "token", "owner", "controller", "pid") if module.params["state"] == "present" else ("token",)
    missing = [key for key in needed if not claim.get(key)]
    if missing:
        module.fail_json(msg=f"claim: {', '.join(missing)} missing; pass the claim that rollout_plan returned")
    try:
        changed = _present(module, claim) if module.params["state"] == "present" else _absent(module, claim["token"])
        module.exit_json(changed=changed, lock=rollout_state.read_lock())
    except (rollout_state.LockHeld, rollout_state.JobBegun, rollout_state.StateError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"the rollout lock in {rollout_state.DIRECTORY} cannot be written: {error}. Make room or repair the "
            "directory (role sglang_host creates it), then run again"
        )


if __name__ == "__main__":
    main()
