#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give a host the end that its preflight had."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_end
short_description: Give a host the end that its preflight had
version_added: "0.1.0"
description:
  - Succeeds for a host that is V(clean), fails for any other one, and is unreachable for one that could not be reached
    when it was looked at. With that C(ansible-playbook) ends with 0, 2 or 4.
  - It runs on the controller alone and connects to no host.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.action
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It changes nothing.
  idempotent:
    support: full
options:
  state:
    description: Whether the host was looked at.
    type: str
    choices: [looked_at, failed, unreachable]
    required: true
  outcome:
    description: What was found on it.
    type: str
    choices: [clean, differs, unknown]
    required: true
  summary:
    description: The same in one sentence.
    type: str
    required: true
seealso:
  - module: serving.sglang.preflight_report
"""

EXAMPLES = r"""
- name: End with what was found
  serving.sglang.preflight_end:
    state: "{{ preflight.hosts[inventory_hostname].state }}"
    outcome: "{{ preflight.hosts[inventory_hostname].outcome }}"
    summary: "{{ preflight.hosts[inventory_hostname].summary }}"
"""

RETURN = r"""
msg:
  description: The summary.
  returned: always
  type: str
"""
