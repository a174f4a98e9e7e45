# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # A module whose work is a job on the host. Its argument_spec takes these from module_utils/host_job.py.
    DOCUMENTATION = r"""
options:
  instance:
    description:
      - The instance's name, as in C(/etc/sglang/INSTANCE.json).
    type: str
    required: true
  wait:
    description:
      - Whether to wait for the end. Without it the job is begun and its status returned as RV(job).
    type: bool
    default: true
  request:
    description:
      - Whose job this is, for example a rollout and its replica. With the same text, one of the same kind that runs or
        has ended already is taken up and not begun anew.
    type: str
    default: ""
  reconnect_s:
    description:
      - How long to look for the host again when the connection is lost, before the task fails with
        RV(lost_connection). The job on the host goes on.
    type: float
    default: 60
  ledger:
    description:
      - Appends a line for each finished step to a rollout's ledger on the controller.
    type: dict
    suboptions:
      path:
        description: The ledger's file on the controller.
        type: path
        required: true
      run:
        description: The rollout's id.
        type: str
        required: true
      replica:
        description: The replica's name.
        type: str
        required: true
      host:
        description: The host's name in the inventory.
        type: str
        required: true
  touch:
    description:
      - Files on the host whose time is renewed while the job is followed, for example a rollout's lock.
    type: list
    elements: str
    default: []
"""
