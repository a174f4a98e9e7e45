#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the arguments and variables of a server against the release of SGLang that will run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: args_check
short_description: Check the arguments of an SGLang server against the release that will run
version_added: "0.1.0"
description:
  - Says what the server's own parser would refuse (unknown and removed arguments, wrong types and choices), what it
    would take and should not be given (abbreviations, aliases, deprecated arguments), which arguments are known to fail
    together at a start or to lose requests at a stop, and which variables do nothing or mislead.
  - Says what another release changes for the arguments in use, and for the defaults that are in use because nothing is
    set.
  - The data comes from the releases themselves. A release that there is no data for is judged by that of the nearest
    one, and everything that follows is marked as assumed.
  - It looks at nothing but its options, so it can as well be delegated to the controller. A deployment refuses the same
    things as soon as it meets them.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  version:
    description: The release of SGLang that will run. A leading V(v) is overlooked.
    type: str
    required: true
  upgrade_to:
    description: Another release, whose changes for this server are returned as RV(difference).
    type: str
  arguments:
    description:
      - Arguments of the server by their full names, with hyphens and without the dashes in front, as an instance
        declares them.
    type: dict
    default: {}
  environment:
    description: Variables of the server's environment.
    type: dict
    default: {}
  config:
    description: The content of a configuration file that the server is given with C(--config).
    type: dict
    default: {}
  command_line:
    description: The words of an existing command line, after the name of the program.
    type: list
    elements: str
    default: []
  keys:
    description: Which keys the server has. Their values are not needed.
    type: list
    elements: str
    choices: [api_key, admin_api_key]
    default: []
  port:
    description: The TCP port of the HTTP server.
    type: int
  model:
    description: The model, as a path or a hub id.
    type: str
  served_model_name:
    description: The name under which clients ask for the model.
    type: str
  nnodes:
    description: On how many hosts the replica runs.
    type: int
    default: 1
seealso:
  - module: serving.sglang.server_spec
"""

EXAMPLES = r"""
- name: Check what an old start script gives the server
  serving.sglang.args_check:
    version: 0.5.23
    command_line: "{{ lookup('file', 'start.txt') | split }}"
    environment:
      SGLANG_FORCE_SHUTDOWN: "1"
  delegate_to: localhost
  register: sglang_arguments

- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ sglang_arguments.findings | map(attribute='summary') }}"

- name: Say what an upgrade changes for the arguments in use
  serving.sglang.args_check:
    version: 0.5.22
    upgrade_to: v0.5.23
    arguments: "{{ sglang_server_arguments }}"
  delegate_to: localhost
  register: sglang_upgrade

- name: Show it
  ansible.builtin.debug:
    msg: "{{ sglang_upgrade.difference.lines }}"
"""

RETURN = r"""
version:
  description: The release that was asked about, without a leading V(v).
  returned: success
  type: str
data_of:
  description: The release whose data was used.
  returned: success
  type: str
assumed:
  description: Whether that is another one, so that every conclusion is an assumption.
  returned: success
  type: bool
findings:
  description: What was found, each with C(id), C(severity), C(summary), C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
checked:
  description: The ids of everything that was looked for.
  returned: success
  type: list
  elements: str
outcome:
  description: The worst severity of the findings; V(ok) when there is none.
  returned: success
  type: str
difference:
  description: What O(upgrade_to) changes.
  returned: when O(upgrade_to) is given
  type: dict
  contains:
    from:
      description: The release now.
      type: str
    to:
      description: The release then.
      type: str
    assumed:
      description: Which of the two has no data of its own, and whose was taken.
      type: list
      elements: str
    changes:
      description:
        - The changes that meet the arguments and variables that are set, and the defaults that hold because they are
          not. Each has C(what) (V(flag) or V(variable)), C(name), C(change), C(before), C(after), C(in_use) (V(set) or
          V(default)), C(severity) and C(text).
      type: list
      elements: dict
    lines:
      description: The same for people.
      type: list
      elements: str
    table:
      description: The same as rows of a table, all as text.
      type: list
      elements: dict
    counts:
      description: How many changes of each sort there are altogether.
      type: dict
    new_findings:
      description: What is found with O(upgrade_to) and not with O(version).
      type: list
      elements: dict
    all:
      description: Every change, whether it meets what is declared or not.
      type: list
      elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import args_report


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "upgrade_to": {"type": "str"},
            "arguments": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}},
            "config": {"type": "dict", "default": {}},
            "command_line": {"type": "list", "elements": "str", "default": []},
            "keys": {
                "type": "list",
                "elements": "str",
                "choices": ["api_key", "admin_api_key"],
                "default": [],
                "no_log": False,
            },
            "port": {"type": "int"},
            "model": {"type": "str"},
            "served_model_name": {"type": "str"},
            "nnodes": {"type": "int", "default": 1},
        },
        supports_check_mode=True,
    )
    module.no_log_values.update(args_report.secrets_among(module.params))
    module.exit_json(changed=False, **args_report.report(module.params))


if __name__ == "__main__":
    main()
