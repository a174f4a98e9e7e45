#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the state that an instance served with, or put it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_previous
short_description: Keep the state that an instance served with, or put it back
version_added: "0.1.0"
description:
  - Before a deployment writes another desired state of an instance, the one that has served is kept in
    C(/etc/sglang/INSTANCE.previous.json), with the text of its unit and its slice.
  - A rollback writes these files again, and keeps what it replaces in their place. It starts and stops nothing. The
    restart is pending until a rollout does it.
  - A state has served when a start of it has ended well, or when it serves at this moment. What was deployed and never
    became ready is not kept, so that deploying twice without a rollout in between, or after a start that failed, keeps
    what served before.
  - Secrets are not kept. The keys of today stay.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  instance:
    description:
      - The instance's name, as in C(/etc/sglang/INSTANCE.json).
    type: str
    required: true
  state:
    description:
      - V(kept) keeps what is on disk before O(desired) is written, where it has served and differs.
      - V(restored) puts back what is kept. What it replaces becomes the kept state, marked as put aside by a rollback,
        and a second call leaves it alone.
    type: str
    choices: [kept, restored]
    required: true
  desired:
    description:
      - For O(state=kept), the desired state that is about to be written, as M(serving.sglang.server_spec) returns it.
    type: dict
  undo:
    description:
      - For O(state=restored), whether to take a rollback back. Only what a rollback has put aside is put back then.
    type: bool
    default: false
  accept_claims:
    description:
      - Tokens of rollouts' claims beside which O(state=restored) is done, for example the rollout's own, or those that
        are stale. Any other claim on the host refuses it.
    type: list
    elements: str
    default: []
requirements:
  - The Python library C(requests) on the host.
seealso:
  - module: serving.sglang.rollback_plan
  - module: serving.sglang.rollout_info
"""

EXAMPLES = r"""
- name: Keep what serves before another state is written
  serving.sglang.server_previous:
    instance: main
    state: kept
    desired: "{{ item.desired }}"

- name: Put the previous state back
  serving.sglang.server_previous:
    instance: main
    state: restored
"""

RETURN = r"""
why:
  description: Why a state was kept or was not.
  returned: for O(state=kept)
  type: str
version:
  description: The release of the state that is on disk after the call.
  returned: for O(state=restored)
  type: str
worker_url:
  description: Where gateways reach an instance that is started from it.
  returned: for O(state=restored)
  type: str
difference:
  description:
    - How the state that was put back differs from the one that it replaced, as
      RV(serving.sglang.rollout_info#module:instances) tells it of an upgrade; none when nothing was replaced.
  returned: for O(state=restored)
  type: dict
reloaded:
  description: Whether systemd read its units anew.
  returned: for O(state=restored)
  type: bool
kind:
  description:
    - What kind of failure it was, one of V(no_instance), V(no_previous), V(previous_state), V(credentials),
      V(environment_gone), V(image_gone), V(claimed), V(bad_instance) and others that the message explains.
  returned: failure
  type: str
"""

import dataclasses
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import (
    desired_state,
    previous_state,
    rollout_state,
    served_states,
    serving,
    upgrade_plan,
)
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError


def _keep(module: AnsibleModule) -> dict[str, Any]:
    instance, new = module.params["instance"], module.params["desired"]
    found = previous_state.read(instance)
    changes = found.disk is not None and found.desired != new
    # Asked only where nobody has noted it: a server that was started at boot, say.
    if changes and found.disk == found.running and not _noted(found):
        serves = serving.check(instance).serves
        found = dataclasses.replace(found, serves_now=serves)
        if serves and not module.check_mode:
            served_states.note(instance, found.disk or "")
    plan = previous_state.keeping(found, new, previous_state.now_text())
    if plan.warning:
        module.warn(plan.warning)
    result: dict[str, Any] = {"changed": plan.write is not None, "why": plan.why}
    if plan.write is not None:
        path = previous_state.path_of(instance)
        before = "" if found.previous is None else found.previous.render()
        result["diff"] = [
            {"before_header": path, "after_header": path, "before": before, "after": plan.write.render()},
        ]
    if found.disk is None and not module.check_mode:
        served_states.begin(instance)
    if changes and not module.check_mode:
        previous_state.keep(instance, plan.write)
    return result


def _noted(found: previous_state.Found) -> bool:
    return found.served is not None and served_states.digest(found.disk or "") in found.served


def _restore(module: AnsibleModule) -> dict[str, Any]:
    if module.check_mode:
        rollout_state.refuse_claimed(module.params["accept_claims"])
        return _restore_now(module)
    with rollout_state.unclaimed(module.params["accept_claims"]):
        return _restore_now(module)


def _restore_now(module: AnsibleModule) -> dict[str, Any]:
    instance = module.params["instance"]
    unfinished = previous_state.cut_off(instance)
    if unfinished is not None and not module.check_mode:
        previous_state.keep(instance, unfinished)
    found = previous_state.read(instance)
    if unfinished is not None:
        found = dataclasses.replace(found, previous=unfinished)
    plan = previous_state.restoring(found, module.params["undo"], previous_state.now_text())
    moves = plan.aside is not None
    if moves:
        previous_state.refuse_missing(plan.desired)
    state_path = desired_state.path_of(instance)
    before = {path: found.files.get(path, "") for path in {*plan.write, *plan.remove}}
    differ = [path for path, text in sorted(before.items()) if text != plan.write.get(path, "")]
    if not module.check_mode:
        previous_state.write(instance, plan)
    reloads = any(path != state_path for path in differ) or previous_state.needs_reload(plan)
    if reloads and not module.check_mode:
        previous_state.reload_units(plan)
    return {
        "changed": moves or unfinished is not None or reloads,
        "version": plan.desired.get("version"),
        "worker_url": plan.desired.get("worker_url"),
        "difference": upgrade_plan.difference(found.desired, plan.desired) if moves else None,
        "reloaded": reloads,
        "diff": [
            {"before_header": path, "after_header": path, "before": before[path], "after": plan.write.get(path, "")}
            for path in differ
        ],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["kept", "restored"], "required": True},
            "desired": {"type": "dict"},
            "undo": {"type": "bool", "default": False},
            # The tokens name claims, they open nothing.
            "accept_claims": {"type": "list", "elements": "str", "default": [], "no_log": False},
        },
        required_if=[("state", "kept", ("desired",))],
        supports_check_mode=True,
    )
    instance = module.params["instance"]
    if not desired_state.INSTANCE_NAME.match(instance):
        module.fail_json(
            kind="bad_instance", msg=f"Instance name {instance!r} does not match {desired_state.INSTANCE_NAME.pattern}."
        )
    if os.geteuid() != 0:
        module.fail_json(kind="not_root", msg="The files of an instance belong to root on the host: set become.")
    try:
        result = _keep(module) if module.params["state"] == "kept" else _restore(module)
    except rollout_state.LockHeld as error:
        module.fail_json(kind="claimed", msg=f"Instance {instance} was left as it is: {error}")
    except rollout_state.StateError as error:
        module.fail_json(kind="claimed", msg=f"Whether a rollout is moving this host cannot be read: {error}.")
    except EngineError as error:
        module.fail_json(kind=error.kind, msg=error.msg)
    except OSError as error:
        module.fail_json(
            kind="previous_state",
            msg=f"The previous state of instance {instance} cannot be written: {error}. Make room or repair the "
            "directory, then run again; what was begun is ended then.",
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
