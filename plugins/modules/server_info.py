#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tell the live state of the instances of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_info
short_description: Tell the live state of the instances of a host
version_added: "0.1.0"
description:
  - Reads the desired-state files of a host and what each instance is doing right now, from its unit, its endpoints, its
    control group and its port.
  - A server that hangs does not make this module hang. Every question has a time limit, and what was not answered is
    none.
  - No generation is run. The health check of a server, which runs one, is left alone.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
requirements:
  - The Python library C(requests) on the host.
options:
  instance:
    description:
      - Only this instance. Default is every instance that has a desired-state file.
    type: str
seealso:
  - module: serving.sglang.server_start
  - module: serving.sglang.server_stop
"""

EXAMPLES = r"""
- name: Look at the instances of the host
  serving.sglang.server_info:
  register: serving

- name: Name the instances that wait for a restart
  ansible.builtin.debug:
    msg: "{{ serving.instances | selectattr('restart_pending') | map(attribute='instance') }}"
"""

RETURN = r"""
instances:
  description: One entry for each instance, in the order of their names.
  returned: always
  type: list
  elements: dict
  contains:
    instance:
      description: The instance's name.
      type: str
    replica:
      description: The replica it belongs to.
      type: str
    error:
      description: Why the instance could not be read; none when it could.
      type: str
    state:
      description:
        - One of V(up), V(starting), V(loading), V(paused), V(unhealthy), V(hung), V(draining), V(restarting),
          V(stopped), V(absent) and V(unknown).
      type: str
    ready:
      description: Whether it takes requests.
      type: bool
    unit:
      description: The systemd unit, by C(name), C(active), C(sub), C(result), C(restarts), C(enabled) and C(exit_code).
      type: dict
    main_pid:
      description: The main process.
      type: int
    since:
      description: When the unit became active, in UTC.
      type: str
    endpoint:
      description: The address that was asked, and the status code of C(/ready) or what was wrong.
      type: dict
    worker_url:
      description: Where gateways reach what runs now; RV(instances[].desired) has the URL after the next restart.
      type: str
    version:
      description: The release that the server says it is.
      type: str
    model:
      description: The model that is served, as the server tells it.
      type: dict
    arguments:
      description: Resolved arguments of the running server, redacted.
      type: dict
    max_total_num_tokens:
      description: The size of the KV pool in tokens.
      type: int
    token_usage:
      description: The share of the pool that is in use, of the fullest rank.
      type: float
    running:
      description: Requests that run.
      type: int
    waiting:
      description: Requests that wait.
      type: int
    slice:
      description: The slice, its memory limits as the kernel holds them, and what it uses.
      type: dict
    listeners:
      description: Who listens on the port, with C(pid), C(owner), and C(command), the name of the program alone.
      type: list
      elements: dict
    restart_pending:
      description: Whether the server runs with another desired state than the one on disk; none when it cannot be told.
      type: bool
    desired:
      description: What the desired-state file asks for, in short.
      type: dict
    job:
      description: The last or running job of the instance on this host; none when there was none since the boot.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import live_state


def main() -> None:
    module = AnsibleModule(argument_spec={"instance": {"type": "str"}}, supports_check_mode=True)
    module.exit_json(changed=False, instances=live_state.of_host(module.params["instance"]))


if __name__ == "__main__":
    main()
