#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drain an instance and stop it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_stop
short_description: Drain an instance and stop it
version_added: "0.1.0"
description:
  - Waits until no request runs or waits, sends SIGTERM to the main process through its unit, follows the server's own
    drain, and checks in its log and by its exit code that nothing was lost.
  - Take the instance out of the gateway first. A draining server still accepts what is sent to it.
  - What it finds gets its own treatment. A paused server is resumed and drained. An unhealthy one is probed, which
    revives it when it is alive, and else treated as O(on_timeout) says. One that is still starting is stopped. A
    stopped one stays so.
  - There is no SIGKILL unless asked for, except by systemd itself when the grace period of the unit has passed, which
    is then reported as a failure.
  - A server is stopped by force only where its unit was started for it, with C(SGL_FORCE_SHUTDOWN) in its environment
    (C(SGLANG_FORCE_SHUTDOWN) is not read by the supported releases). It then drops what it runs and waits until its
    clients have closed their connections.
  - The work is done by a job on the host (unit C(sglang-job-INSTANCE.service), status file
    C(/run/sglang/jobs/INSTANCE.json)) which goes on when the connection or the controller is lost. A second stop of
    the same instance joins it; a start is refused meanwhile.
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
      - In check mode the instance's state is read and nothing is drained or stopped.
  diff_mode:
    support: none
    details: A stop changes no file.
  idempotent:
    support: full
requirements:
  - The Python library C(requests) on the host.
options:
  drain_timeout_s:
    description:
      - Seconds that the requests may take to end before SIGTERM. Default is what the desired state says.
    type: float
  on_timeout:
    description:
      - What happens when the drain timeout passes, before any signal. Default is what the desired state says.
      - V(fail) leaves the instance serving and fails with RV(kind=drain_timeout).
      - V(abort) ends what still runs and waits through the API, counts it in RV(aborted), then stops the instance.
    type: str
    choices: [fail, abort]
  drain:
    description:
      - Whether to wait for zero requests before SIGTERM. Without it the server's own drain finishes what runs, within
        the grace period of its unit.
    type: bool
    default: true
  kill:
    description:
      - Whether to end a server with SIGKILL that still runs after its grace period.
    type: bool
    default: false
seealso:
  - module: serving.sglang.server_start
  - module: serving.sglang.server_info
"""

EXAMPLES = r"""
- name: Drain the instance and stop it
  serving.sglang.server_stop:
    instance: main

- name: Stop it after five minutes at most, ending what still runs then
  serving.sglang.server_stop:
    instance: main
    drain_timeout_s: 300
    on_timeout: abort
"""

RETURN = r"""
already:
  description: Whether the instance was stopped before.
  returned: success
  type: bool
state_found:
  description:
    - What the instance was found in, one of V(up), V(unhealthy), V(starting), V(paused), V(stopped), V(draining),
      V(hung) and V(restarting).
  returned: always
  type: str
running_at_leave:
  description: Requests that ran when the drain began.
  returned: when the instance served
  type: int
waiting_at_leave:
  description: Requests that waited when the drain began.
  returned: when the instance served
  type: int
aborted:
  description: Requests that were ended through the API.
  returned: always
  type: int
exit_code:
  description: What the main process ended with, a signal as a negative number.
  returned: when it was stopped
  type: int
drain_lines:
  description: The lines in which the server reports its drain, without the ids of requests.
  returned: when it was stopped
  type: list
  elements: str
remaining_at_signal:
  description: The most requests that the server itself counted during its drain.
  returned: when it was stopped
  type: int
arrived_during_drain:
  description: Requests that arrived after SIGTERM. Something still sends to this instance.
  returned: when it was stopped
  type: int
clean:
  description: Whether log and exit code prove that nothing was lost.
  returned: when it was stopped
  type: bool
killed:
  description: Whether it was ended with SIGKILL because O(kill) asked for it.
  returned: always
  type: bool
steps:
  description: The steps C(drain) and C(stop), each with C(ok), C(elapsed_s), C(at) and C(detail).
  returned: always
  type: list
  elements: dict
kind:
  description:
    - What kind of failure it was, one of V(no_instance), V(desired_state), V(drain_timeout), V(unhealthy),
      V(unclean_stop), V(stop_timeout), V(died), V(unauthorized), V(busy), V(job_launch), V(job_lost),
      V(lost_connection) and others that the message explains.
    - After V(drain_timeout), V(unhealthy) and V(unauthorized) nothing was signalled and the instance runs as before.
  returned: failure
  type: str
failed_at:
  description: Where a rollout was when it failed, as C(replica), C(host) and C(step) of the ledger.
  returned: failure, with O(ledger)
  type: dict
  sample: {"replica": "gpu1-main", "host": "gpu1", "step": "drain"}
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
from ansible_collections.serving.sglang.plugins.module_utils.server_modules import run_stop


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "drain_timeout_s": {"type": "float"},
            "on_timeout": {"type": "str", "choices": ["fail", "abort"]},
            "drain": {"type": "bool", "default": True},
            "kill": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    result = run_stop(module.params, module.check_mode)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
