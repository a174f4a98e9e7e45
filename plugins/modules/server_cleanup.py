#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show or remove images and environments of SGLang that nothing on the host points to."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_cleanup
short_description: Show or remove images and environments that no instance points to
version_added: "0.1.0"
description:
  - Finds the images of SGLang in the storage of docker and podman, and the environments under C(/opt/sglang), that
    nothing points to. What points to something are the desired states (C(/etc/sglang/<instance>.json)), the previous
    states that a rollback returns to, the states that running servers were started from, containers of anybody, running
    or not, and for environments also processes and units.
  - Looks only at images of repositories that one of these states names, or that O(repositories) names. An image that
    has a name of another repository too is kept, and so is an environment that the role C(sglang_server) did not make
    or made less than an hour ago.
  - Nothing is forced. What an engine does not let go of is reported, and the others are removed all the same.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: What is removed is returned.
  idempotent:
    support: full
options:
  remove:
    description:
      - Whether to remove what nothing points to. Without it, it is only said.
    type: bool
    default: false
  repositories:
    description:
      - Further repositories whose images may be removed, by their full names, for example C(docker.io/lmsysorg/sglang).
        Needed for images of a repository that no state names any more.
    type: list
    elements: str
    default: []
  keep:
    description:
      - How many images of each repository, and how many environments, are kept although nothing points to them. The
        newest ones are kept.
    type: int
    default: 0
  engines:
    description:
      - In whose storage to look. One that is not installed is passed over.
    type: list
    elements: str
    choices: [docker, podman]
    default: [docker, podman]
  timeout_s:
    description:
      - How long to wait for a M(serving.sglang.server_prefetch) that is under way on the host.
    type: float
    default: 600
seealso:
  - module: serving.sglang.server_prefetch
"""

EXAMPLES = r"""
- name: See what could be removed
  serving.sglang.server_cleanup:
  register: found

- name: Remove it, but keep the newest of each
  serving.sglang.server_cleanup:
    remove: true
    keep: 1
"""

RETURN = r"""
unused:
  description: What nothing points to. In a run that removes, what it set out to remove.
  returned: success
  type: list
  elements: dict
  contains: &found
    kind:
      description: V(image) or V(environment).
      type: str
    name:
      description: The name of the image, or of the directory under C(/opt/sglang).
      type: str
    engine:
      description: In whose storage the image is.
      type: str
    id:
      description: The image's id.
      type: str
    bytes:
      description: The size of the image as its engine says it. Layers that other images share are counted too.
      type: int
    kept:
      description: Why it is kept; none where nothing keeps it.
      type: str
kept:
  description: What was looked at and is kept, with the reason.
  returned: success
  type: list
  elements: dict
  contains: *found
removed:
  description: What was removed.
  returned: always
  type: list
  elements: dict
  contains: *found
notes:
  description: What could not be looked at, as the storage of an engine that does not answer.
  returned: always
  type: list
  elements: str
kind:
  description:
    - V(cleanup.unreadable) when a state cannot be read, so that nothing was removed; V(cleanup.failed) when something
      could not be removed; V(prefetch.lock) when a prefetch did not end in time.
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.cleanup import clean_up


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "remove": {"type": "bool", "default": False},
            "repositories": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "int", "default": 0},
            "engines": {
                "type": "list",
                "elements": "str",
                "choices": ["docker", "podman"],
                "default": ["docker", "podman"],
            },
            "timeout_s": {"type": "float", "default": 600},
        },
        supports_check_mode=True,
    )
    if module.params["keep"] < 0:
        module.fail_json(msg=f"keep is {module.params['keep']}, expected 0 or more", kind="cleanup.failed")
    result = clean_up(module.params, module.check_mode)
    for note in result["notes"]:
        module.warn(note)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
