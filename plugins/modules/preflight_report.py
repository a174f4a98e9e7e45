#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the report of a preflight on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_report
short_description: Print and write the report of a preflight of many hosts
version_added: "0.1.0"
description:
  - Makes one report out of what M(serving.sglang.preflight_info) returned on each host, prints it as plain text, and
    writes it as JSON and as JUnit XML where files are named.
  - What O(ignores) accepts is shown with its reason and does not count. An entry whose day has passed counts again.
  - It runs on the controller alone and connects to no host. Use it with C(run_once).
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.action
attributes:
  check_mode:
    support: full
    details: The files of the report are written in check mode too; nothing else is ever changed.
  diff_mode:
    support: none
    details: It configures nothing.
  idempotent:
    support: full
options:
  hosts:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  results:
    description: What the task with M(serving.sglang.preflight_info) returned on each of them, in the same order.
    type: list
    elements: dict
    required: true
  ignores:
    description: The ignore list of each host, in the same order.
    type: list
    elements: raw
    default: []
  strict:
    description: Whether warnings count as well.
    type: bool
    default: false
  upgrade_to:
    description: The release that the hosts were looked at for, where it is not the declared one.
    type: str
    default: ""
  json_path:
    description:
      - A file on the controller for the report as JSON. Its folder must be there, and a link is followed.
      - V(/dev/stdout) and V(/dev/stderr) are the screen; other devices and pipes are refused.
    type: path
  junit_path:
    description: A file on the controller for the report as JUnit XML, as O(json_path).
    type: path
seealso:
  - module: serving.sglang.preflight_info
  - module: serving.sglang.preflight_end
"""

EXAMPLES = r"""
- name: Show what was found
  serving.sglang.preflight_report:
    hosts: "{{ ansible_play_hosts_all }}"
    results: "{{ ansible_play_hosts_all | serving.sglang.readings(hostvars, 'sglang_preflight') }}"
    junit_path: preflight.xml
  run_once: true
  register: preflight
"""

RETURN = r"""
outcome:
  description: V(clean), V(differs) or V(unknown), of all hosts together.
  returned: success
  type: str
summary:
  description: The outcome in one sentence.
  returned: success
  type: str
  sample: "differs: 2 errors, 0 unknown, 1 warning on 3 hosts"
counts:
  description: How many hosts, and how many findings of each severity.
  returned: success
  type: dict
hosts:
  description: For each host its C(state) (V(looked_at), V(failed) or V(unreachable)), C(outcome) and C(summary).
  returned: success
  type: dict
"""
