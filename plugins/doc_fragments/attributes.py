# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # Every module. It says itself what it supports of the first three.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Whether a run in check mode says what a real run would change, and changes nothing.
  diff_mode:
    description: Whether the result shows what is different before and after, when a diff is asked for.
  idempotent:
    description:
      - Whether a second run with the same options finds nothing left to change.
      - Taken for granted is that nobody else changes the same things in between.
  platform:
    description: The systems that the module can work on. It needs systemd and Linux' own C(/proc) and cgroup files.
    support: full
    platforms: linux
"""

    # A module that belongs to the action group, which is every module of the collection.
    ACTIONGROUP_SGLANG = r"""
options: {}
attributes:
  action_group:
    description:
      - Options that stand under C(group/serving.sglang.sglang) in C(module_defaults) hold for this module too.
    support: full
    membership:
      - serving.sglang.sglang
"""

    # A module that only looks. Replaces what it would have to say itself of the first three.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module looks and never changes anything, so a run in check mode is the real run.
  diff_mode:
    support: N/A
    details:
      - This module looks and never changes anything.
  idempotent:
    support: full
    details:
      - This module looks and never changes anything. What it returns is what it found, which may differ each time.
"""

    # A module with an action plugin of the same name: part of the work is done on the controller.
    ACTION = r"""
options: {}
attributes:
  action:
    description: Whether an action plugin of the same name does a part of the work on the controller.
    support: full
  async:
    description: Whether the task keyword C(async) can be used.
    support: none
    details:
      - What lasts is already a job of its own on the host, which goes on without the controller.
"""
