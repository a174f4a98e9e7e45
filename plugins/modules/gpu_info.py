#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the cards and the memory of a host as far as SGLang's memory depends on them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the cards and the memory of a host as SGLang would see them
version_added: "0.1.0"
description:
  - Reads the cards through NVML, and through C(nvidia-smi) where NVML cannot be asked, and the memory of the host with
    the limit that really holds.
  - Says what SGLang would take for the capacity of a card, and whether the machine is dedicated, shared or has unified
    memory, each with the evidence.
  - A card without memory of its own (GB10, Jetson) reports none, which is no error. A lost card, a driver that does not
    fit its library, or no driver at all is said in RV(problems) and never taken for such a card.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
requirements:
  - The Python library C(nvidia-ml-py) on the host (imported as C(pynvml)), or the program C(nvidia-smi).
options:
  instance:
    description:
      - The instance for which the host is read. Its own processes are no neighbours, and the memory limit is that of
        its slice.
      - Without it the limit is that of C(sglang.slice), and every process on a card counts as a neighbour.
    type: str
  version:
    description: The release of SGLang whose way of reading the capacity is followed.
    type: str
    default: 0.5.23
  platform:
    description: What SGLang runs on. V(cpu) takes the memory of the host for the capacity.
    type: str
    choices: [cuda, cpu]
    default: cuda
  environment:
    description: Environment variables of the server, as far as they change what it reads.
    type: dict
    default: {}
  shared:
    description: Declares that others use the cards too, although none holds memory right now.
    type: bool
    default: false
seealso:
  - module: serving.sglang.mem_fraction
"""

EXAMPLES = r"""
- name: Read the cards of the host
  serving.sglang.gpu_info:
    instance: main
  register: sglang_gpus

- name: Say what kind of machine it is, and why
  ansible.builtin.debug:
    msg: "{{ sglang_gpus.kind.kind }}: {{ sglang_gpus.kind.evidence | join('; ') }}"

- name: Refuse a host with a broken card
  ansible.builtin.assert:
    that: sglang_gpus.cards | selectattr('problem') | length == 0
    fail_msg: "{{ sglang_gpus.cards | map(attribute='problem') | select | join('; ') }}"
"""

RETURN = r"""
cards:
  description: One entry for each card of the host.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Its number by bus address, as C(nvidia-smi) shows it.
      type: int
    uuid:
      description: Its UUID.
      type: str
    name:
      description: Its name.
      type: str
    bus:
      description: Its bus address.
      type: str
    total_mib:
      description: Its memory; none when the card reports none.
      type: float
    free_mib:
      description: Its free memory.
      type: float
    used_mib:
      description: Its used memory.
      type: float
    memory_status:
      description:
        - V(ok), V(not_supported) (the card has no memory of its own), or the kind of failure.
      type: str
    compute_capability:
      description: CUDA's compute capability.
      type: str
    clocks_mhz:
      description: The clocks, and the highest the card can do.
      type: dict
    temperature_c:
      description: The temperature.
      type: int
    mig:
      description: Whether it is divided by MIG.
      type: bool
    processes:
      description: Processes that hold memory, by C(pid), C(name), C(owner), C(used_mib) and whether they are C(ours).
      type: list
      elements: dict
    problem:
      description: What is wrong with the card; empty when nothing is.
      type: str
host:
  description:
    - The memory of the host in bytes. C(limit_bytes) is the tightest limit of a control group above the instance, with
      C(limit_source), the file that says so.
  returned: success
  type: dict
capacity:
  description: What SGLang takes for the capacity of a card, in C(mib) with its C(source); C(mib) is none when unknown.
  returned: success
  type: dict
  sample: {"mib": 143771.0, "source": "nvidia-smi", "platform": "cuda", "compute_major": 9}
kind:
  description: The C(kind), V(dedicated), V(shared), V(unified) or V(unknown), with the C(evidence).
  returned: success
  type: dict
findings:
  description: What the readings mean for a start, each with C(id), C(severity), C(summary), C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
source:
  description: Where the cards were read from, V(nvml), V(nvidia-smi) or V(none).
  returned: success
  type: str
driver:
  description: The version of the driver.
  returned: success
  type: str
cuda:
  description: The version of CUDA that the driver supports.
  returned: success
  type: str
smi_totals:
  description: The lines that SGLang reads the capacity from.
  returned: success
  type: list
  elements: str
smi_error:
  description: Why C(nvidia-smi) gave none.
  returned: success
  type: str
cuda_totals_mib:
  description: CUDA's own totals, read where C(nvidia-smi) has no number.
  returned: success
  type: list
  elements: float
problems:
  description: Sources that could not be read, by C(source), C(status) and C(text).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import gpu_report


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str"},
            "version": {"type": "str", "default": "0.5.23"},
            "platform": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
            "environment": {"type": "dict", "default": {}},
            "shared": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **gpu_report.report(module.params))


if __name__ == "__main__":
    main()
