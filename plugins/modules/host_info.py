#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what of a host decides whether SGLang can start on it, and what it means."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Read what of a host decides whether an instance can start on it
version_added: "0.1.0"
description:
  - Reads the NVIDIA driver and its library, the cards and their health, the kernel's log about them, ports, memory and
    the daemons that guard it, C(/dev/shm) and what dead processes left in it, limits, space on disk, the clock, and
    whether automatic upgrades would replace the driver.
  - Says what is wrong for the instances that are declared, each with the evidence and a line that repairs it.
  - Every reading has a time limit, so that a driver that hangs does not hang the module. What could not be read is
    reported with the severity V(unknown) and the reason. It is never taken for fine.
  - Some readings are for root alone, such as the processes of others and the kernel's log.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  instances:
    description:
      - The instances that are declared for the host. Those with the argument C(device) V(cpu) need neither card nor
        driver.
      - Of each the keys C(name), C(version), C(runtime) (V(native), V(docker) or V(podman)), C(arguments), C(port),
        C(cards), C(cards_shared), C(image), C(python) and C(nnodes) are read. Others are ignored.
      - C(cuda) is the CUDA release of the image, where its tag does not tell. C(cuda_compat) says that the image
        carries CUDA's compatibility library.
    type: list
    elements: dict
    default: []
  cache_dir:
    description: Where the kernel caches are.
    type: path
    default: /var/cache/sglang
  disk_cache_gib:
    description: Space that must be free for the kernel caches, in GiB. The default is an estimate.
    type: float
    default: 10
  disk_environment_gib:
    description:
      - Space that must be free for each environment that is not there yet, in GiB.
      - The default is an estimate of torch with its CUDA libraries, the kernel packages and pip's own copies.
    type: float
    default: 15
  disk_image_gib:
    description:
      - Space that must be free for each image in the storage of Docker or Podman, in GiB. Too little is a warning, as
        the image may be there.
      - The default is an estimate of an image packed and unpacked.
    type: float
    default: 45
  disk_needs:
    description: More space that must be free.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: A path on the file system. It need not exist.
        type: path
        required: true
      gib:
        description: The space in GiB.
        type: float
        required: true
      purpose:
        description: What it is for.
        type: str
seealso:
  - module: serving.sglang.gpu_info
"""

EXAMPLES = r"""
- name: Look at the host for one instance
  serving.sglang.host_info:
    instances:
      - name: main
        version: 0.5.22
        port: 30000
        cards: [0]
    disk_needs:
      - path: /srv/models
        gib: 160
        purpose: weights
  become: true
  register: sglang_host

- name: Show what is wrong with it
  ansible.builtin.debug:
    msg: "{{ item.severity }}: {{ item.summary }} ({{ item.evidence }}). {{ item.fix }}"
  loop: "{{ sglang_host.findings | rejectattr('severity', 'equalto', 'ok') }}"
  loop_control:
    label: "{{ item.id }}"
"""

RETURN = r"""
findings:
  description:
    - What was looked for, each with C(id), C(severity) (V(ok), V(warning), V(unknown) or V(error)), C(summary),
      C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
  sample:
    - id: driver.too_old
      severity: error
      summary: "driver 570.124.06 is too old for lmsysorg/sglang:v0.5.22: CUDA 13 needs driver 580 or newer"
      evidence: driver 570.124.06; SGLang 0.5.22 requires CUDA 13; CUDA 13 needs 580.65.06 or newer
      fix: upgrade the driver
readings:
  description:
    - What was read. A reading that failed is a mapping with the one key C(unknown), the reason.
  returned: success
  type: dict
  contains:
    kernel_module:
      description: The C(version) of the driver in the kernel, its C(source), and whether C(nouveau) is loaded.
      type: dict
    library:
      description: The C(version) and the C(path) of the driver's library.
      type: dict
    gpus:
      description: The cards as the module M(serving.sglang.gpu_info) returns them.
      type: dict
    health:
      description: The health of the C(cards), and the C(source).
      type: dict
    processes:
      description: The C(listeners) on the declared ports, the files in C(/dev/shm), and the memory C(guards) that run.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.checks import host_readings


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict", "default": []},
            "cache_dir": {"type": "path", "default": "/var/cache/sglang"},
            "disk_cache_gib": {"type": "float", "default": 10},
            "disk_environment_gib": {"type": "float", "default": 15},
            "disk_image_gib": {"type": "float", "default": 45},
            "disk_needs": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "gib": {"type": "float", "required": True},
                    "purpose": {"type": "str"},
                },
            },
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **host_readings.examine(module.params))


if __name__ == "__main__":
    main()
