#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the container side of a host: engines, NVIDIA's toolkit, CDI, and the cards of running containers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_info
short_description: Read whether containers with cards can start on a host, and keep their cards
version_added: "0.1.0"
description:
  - Reads Docker or Podman, NVIDIA's container toolkit, the CDI specifications, the image of each declared instance and
    the containers that run with cards.
  - Says what is wrong for the instances that are declared, each with the evidence and a line that repairs it.
  - Only what a declared runtime needs is asked for. Where every instance is native, nothing is.
  - A daemon that does not answer is no engine that is missing, and a specification that cannot be read is no missing
    one. What could not be read is reported with the severity V(unknown) and the reason. It is never taken for fine.
  - Podman is asked for its containers and images only where it has storage, which it would make otherwise.
  - C(nvidia-smi -L) is run inside a container only where its unit names no card.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  instances:
    description:
      - The instances that are declared for the host.
      - Of each the keys C(name), C(runtime) (V(native), V(docker) or V(podman)), C(image), C(arguments), C(tp),
        C(shm_size), C(ipc), C(entrypoint), C(command), C(init), C(privileged), C(userns), C(environment) and
        C(stop_signal) (that of the image where there is none) are read. Others are ignored.
      - C(entrypoint) and C(command) replace those of the image. Without C(entrypoint) those of the image are read, for
        which it must be on the host.
    type: list
    elements: dict
    default: []
  device_rules_before:
    description:
      - The devices that the unit of each container named earlier, by the name of the container, as
        RV(readings.running) has them in C(allowed).
      - Given after a C(systemctl daemon-reload), a container that lost its cards through it is found.
    type: dict
    default: {}
  timeout_s:
    description:
      - How long each reading may take. They are made side by side.
      - The default is that of a preflight, which has to be quick. What a unit depends on is worth more patience, as a
        busy engine answers late.
    type: float
    default: 1.8
seealso:
  - module: serving.sglang.host_info
  - module: serving.sglang.toolchain_info
"""

EXAMPLES = r"""
- name: Look at the container side for one instance
  serving.sglang.container_info:
    instances:
      - name: main
        runtime: podman
        image: lmsysorg/sglang:v0.5.22
        tp: 8
        ipc: host
  become: true
  register: sglang_containers

- name: Show what is wrong with it
  ansible.builtin.debug:
    msg: "{{ item.severity }}: {{ item.summary }} ({{ item.evidence }}). {{ item.fix }}"
  loop: "{{ sglang_containers.findings | rejectattr('severity', 'equalto', 'ok') }}"
  loop_control:
    label: "{{ item.id }}"

- name: Look again after systemd has read its units anew
  serving.sglang.container_info:
    instances:
      - name: main
        runtime: docker
    device_rules_before:
      sglang-main: ["/dev/char/195:0 rwm", "/dev/char/195:255 rwm"]
  become: true
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
    - id: podman.too_old
      severity: error
      summary: "podman 4.3.1 is too old for main: quadlets need podman 4.4"
      evidence: "podman version: 4.3.1"
      fix: install podman 4.4 or newer
readings:
  description: What was read. A reading that failed is a dictionary with the one key C(unknown), which says why.
  returned: success
  type: dict
  contains:
    servers:
      description: The declared instances that run in containers. Of an environment only the names are returned.
      type: list
      elements: dict
    docker:
      description: Docker, as its daemon describes itself.
      type: dict
    podman:
      description: Podman.
      type: dict
    toolkit:
      description: NVIDIA's container toolkit, with its version and the mode of its runtime.
      type: dict
    daemon_json:
      description: The settings of Docker's daemon that matter here.
      type: dict
    cdi:
      description: The CDI specifications, each with its devices and the paths that are missing.
      type: dict
    cards:
      description: The UUIDs of the cards and their parts.
      type: list
      elements: str
    driver:
      description: The release of the driver that is loaded.
      type: str
    nodes_without_link:
      description: NVIDIA's device nodes that C(/dev/char) has no link for.
      type: list
      elements: str
    images:
      description: What each declared image starts with. Of an environment only the names are returned.
      type: dict
    running:
      description: The running containers with cards, each with the devices that its unit names in C(allowed).
      type: list
      elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.checks import container_readings


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict", "default": []},
            "device_rules_before": {"type": "dict", "default": {}},
            "timeout_s": {"type": "float", "default": container_readings.LIMIT_S},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **container_readings.examine(module.params))


if __name__ == "__main__":
    main()
