# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the locks that native instances declare, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lock
short_description: Read the locks of virtual environments
version_added: "0.1.0"
author:
  - serving.sglang contributors (@serving-sglang)
description:
  - Reads requirements files on the controller and says what they lock, for M(serving.sglang.server_spec) and
    M(serving.sglang.preflight_info). The role C(sglang_server) uses it.
  - A file that cannot be read, or is no lock, is told in RV(_raw[].problems) and is no error here.
options:
  _terms:
    description: The files, as the lookup P(ansible.builtin.file#lookup) takes them.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show which release a lock is for
  ansible.builtin.debug:
    msg: "{{ lookup('serving.sglang.lock', inventory_dir ~ '/locks/sglang-0.5.22.lock').version }}"
"""

RETURN = r"""
_raw:
  description: What each lock says.
  type: list
  elements: dict
  contains:
    path:
      description: The lock as it was given.
      type: str
    source:
      description: The file that was read.
      type: str
    sha256:
      description: Of its lines without comments. Comments may be changed without making another lock of it.
      type: str
    version:
      description: The version of SGLang that it has; empty where it is taken from a URL.
      type: str
    hashed:
      description: Whether each package has a hash.
      type: bool
    packages:
      description: How many packages it has.
      type: int
    problems:
      description: What keeps it from being a lock.
      type: list
      elements: str
"""

from ansible.errors import AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.lookup import LookupBase

from ansible_collections.serving.sglang.plugins.module_utils.environments import Lock, read_lock


class LookupModule(LookupBase):
    """What ansible-core asks for."""

    def run(self, terms, variables=None, **kwargs):
        return [self.lock_of(str(term), variables) for term in terms]

    def lock_of(self, path, variables):
        source, lock = "", Lock("")
        try:
            source = self.find_file_in_search_path(variables, "files", path, ignore_missing=True) or ""
            if source:
                with open(source, "rb") as file:
                    lock = read_lock(to_text(file.read(), errors="surrogate_or_strict"))
            else:
                lock = Lock("", problems=("there is no such file on the controller",))
        except (OSError, UnicodeError, AnsibleError) as error:
            lock = Lock("", problems=(f"it cannot be read: {error}",))
        return {"path": path, "source": source, **lock.as_dict()}
