#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at a host and at what is declared for it, before anything is touched."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_info
short_description: Say what will not start on a host before anything is touched
version_added: "0.1.0"
description:
  - Looks at everything that a start of the declared instances depends on, in one call, and changes nothing. The areas
    are the declarations and their arguments, the memory plan, the toolchain, the caches, the host and the container
    engine.
  - It works before anything is deployed and afterwards. The areas are looked at side by side, each with a time limit,
    so a hung driver or network file system costs one area and never the run.
  - What cannot be read is a finding of severity V(unknown) with the reason. As root it can read everything; as an
    ordinary user it says what it could not tell.
  - The declarations are taken as they are. A wrong one is a finding and no failure of the task.
  - The playbook C(serving.sglang.preflight) runs it on a fleet and makes the report.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  instances:
    description:
      - The declared instances of the host, as O(serving.sglang.server_spec#module:instances), unchecked.
      - Secrets have no bearing here, only whether there is one. The filter P(serving.sglang.without_secrets#filter)
        puts stand-ins in their place, so that they do not leave the controller.
    type: raw
    default: []
  defaults:
    description: What holds for every instance, as O(serving.sglang.server_spec#module:defaults), unchecked.
    type: raw
    default: {}
  host_name:
    description: The host's name in the inventory. Without it the name that the host has itself.
    type: str
    default: ""
  address:
    description: The address by which gateways reach the host.
    type: str
    default: ""
  gpus:
    description: The cards of the host, as O(serving.sglang.server_spec#module:gpus), unchecked.
    type: raw
    default: []
  cuda_home:
    description: As C(sglang_server_cuda_home) of the role sglang_server, V(auto), V(none) or the path of a toolkit.
    type: raw
    default: auto
  locks:
    description:
      - What the locks say that the instances declare, as O(serving.sglang.server_spec#module:locks), unchecked.
    type: raw
    default: []
  python:
    description:
      - As C(sglang_server_python) of the role sglang_server. Where it is given and an environment is still to be made,
        it must be there.
    type: raw
    default: ""
  variable_problems:
    description: What is wrong with the variables of the host, as P(serving.sglang.role_variables#filter) says it.
    type: list
    elements: str
    default: []
  unknown_variables:
    description: Variables of the host that do not exist, as P(serving.sglang.role_variables#filter) says it.
    type: list
    elements: str
    default: []
  declaration_problem:
    description:
      - Why the declarations of the host could not even be read, for instance because a variable in them is not defined.
        It becomes a finding, and the host is looked at without them.
    type: str
    default: ""
  upgrade_to:
    description:
      - A release, as V(0.5.23) or V(v0.5.23). Everything is looked at as if it were declared for every instance, and
        RV(upgrade) says what it changes for the arguments in use.
    type: str
    default: ""
  patience:
    description:
      - A factor on the time that each reading may take, from 1 to 100. With 1 a host is done within 3 s, and what a
        host without a processor to spare answers later than that is unknown.
      - Another value is a finding, and 1 is used.
    type: raw
    default: 1
seealso:
  - module: serving.sglang.server_spec
  - module: serving.sglang.gpu_info
  - module: serving.sglang.mem_fraction
"""

EXAMPLES = r"""
- name: Look at the host alone
  serving.sglang.preflight_info:
  register: sglang_preflight

- name: Look at the host and at what would run there
  serving.sglang.preflight_info:
    host_name: "{{ inventory_hostname }}"
    defaults:
      version: 0.5.23
      output_cap_tokens: 8192
      slowest_tokens_per_s: 30
    instances:
      - name: main
        model: /srv/models/Qwen3-8B
        port: 30000
        cards: [0]
  become: true
  register: sglang_preflight

- name: Refuse to go on when something will not start
  ansible.builtin.assert:
    that: sglang_preflight.outcome == 'clean'
    fail_msg: "{{ sglang_preflight.findings | rejectattr('severity', 'in', ['ok', 'warning']) | list }}"
"""

RETURN = r"""
findings:
  description:
    - One entry for each thing that was looked for, by C(id), C(severity) (V(ok), V(warning), V(error) or V(unknown)),
      C(summary), C(evidence), C(fix) and C(area), and by C(instance) where it is about one of them.
    - The ids are stable; docs/findings.md of the collection lists them.
  returned: success
  type: list
  elements: dict
  sample:
    - id: declaration.model_missing
      severity: error
      summary: /srv/models/none is not there
      evidence: "/srv/models/none: No such file or directory"
      fix: put the model there, mount its file system, or correct model of the instance
      area: declaration
      instance: main
outcome:
  description:
    - V(clean) when nothing was found that keeps an instance from starting, V(differs) when an error was found,
      V(unknown) when something could not be told.
  returned: success
  type: str
  sample: clean
readings:
  description: What was read, by area. What could not be read is a dictionary with C(unknown), the reason.
  returned: success
  type: dict
elapsed_s:
  description: Seconds that each area took. They run side by side.
  returned: success
  type: dict
  sample: {"declaration": 0.002, "memory": 0.31}
upgrade:
  description: >-
    What O(upgrade_to) changes for the arguments in use, by instance, with C(from), C(to), C(lines) for people and
    C(changes) as data.
  returned: success
  type: dict
"""

import socket
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.serving.sglang.plugins.module_utils.checks.preflight import preflight


def validate(options: dict[str, Any], values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values in the types of the options, and what is wrong with them, as Ansible says it for a module."""
    result = ArgumentSpecValidator(options).validate(values)
    return result.validated_parameters, [text.replace("argument '", "option '", 1) for text in result.error_messages]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "raw", "default": []},
            "defaults": {"type": "raw", "default": {}},
            "host_name": {"type": "str", "default": ""},
            "address": {"type": "str", "default": ""},
            "gpus": {"type": "raw", "default": []},
            "cuda_home": {"type": "raw", "default": "auto"},
            "locks": {"type": "raw", "default": []},
            "python": {"type": "raw", "default": ""},
            "variable_problems": {"type": "list", "elements": "str", "default": []},
            "unknown_variables": {"type": "list", "elements": "str", "default": []},
            "declaration_problem": {"type": "str", "default": ""},
            "upgrade_to": {"type": "str", "default": ""},
            "patience": {"type": "raw", "default": 1},
        },
        supports_check_mode=True,
    )
    given = {**module.params, "host_name": module.params["host_name"] or socket.gethostname()}
    module.exit_json(changed=False, **preflight(given, validate))


if __name__ == "__main__":
    main()
