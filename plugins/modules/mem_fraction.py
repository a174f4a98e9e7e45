#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute the memory fraction of an instance, predict its pool, and explain both."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mem_fraction
short_description: Compute the memory fraction of an instance, predict its pool, and explain both
version_added: "0.1.0"
description:
  - Computes C(--mem-fraction-static) as SGLang of the given release computes it, or chooses one for a machine on which
    SGLang's own value is not right (shared cards, unified memory, unknown capacity).
  - Predicts the KV pool that the fraction leads to, and the window of fractions that can work. Where none can, it says
    so with both sums and what would make room.
  - Nothing is started, downloaded or changed. It needs the model's C(config.json) and, for the size of the weights, its
    safetensors files or their index. Without those the size is computed from the dimensions.
  - Works on the host, and on the controller with readings of the host or with figures of a card that is only planned.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  model:
    description: The folder of the model, which holds its C(config.json).
    type: path
    required: true
  version:
    description:
      - The release of SGLang. One that there is no data for takes that of the nearest, and RV(assumed) says so.
    type: str
    required: true
  arguments:
    description: The arguments of the server, by the names of its flags.
    type: dict
    default: {}
  environment:
    description: The environment variables of the server.
    type: dict
    default: {}
  mem_fraction:
    description:
      - V(auto) is the value that SGLang computes itself.
      - V(choose) is that value on a dedicated card, and one that is chosen from the free memory on every other machine.
      - A number between 0 and 1 is taken as it is, and what it leads to is said.
      - C(mem-fraction-static) among the O(arguments) counts as such a number.
    type: raw
    default: choose
  readings:
    description: What M(serving.sglang.gpu_info) returned for the host.
    type: dict
  cards:
    description: The cards of the instance, by index or UUID. Default is as many as it has ranks, from the first one on.
    type: list
    elements: raw
    default: []
  kind:
    description: The kind of the machine. Default is what the O(readings) say; without readings V(dedicated).
    type: str
    choices: [dedicated, shared, unified]
  platform:
    description: What SGLang runs on.
    type: str
    choices: [cuda, hip, xpu, npu, musa, mps, cpu]
    default: cuda
  capacity_mib:
    description: The memory of a card, instead of what the O(readings) say.
    type: float
  compute_major:
    description: The first number of the card's compute capability (9 is Hopper, 10 Blackwell, 12 GB10).
    type: int
  free_mib:
    description:
      - Free memory of the card now, or available memory of the host where it is unified. On a shared card give the low
        point of a longer time.
    type: float
  before_gib:
    description:
      - Measured free memory before the weights are loaded. Together with O(after_gib) it replaces the estimate.
    type: float
  after_gib:
    description: Measured free memory once the weights are loaded.
    type: float
  weights_gib:
    description: The weights of one rank, where they cannot be read.
    type: float
  draft_model:
    description: The folder of the draft model of speculative decoding.
    type: path
  wanted_tokens:
    description: Tokens that the pool must hold at least.
    type: int
    default: 0
  request_tokens:
    description: Lengths of requests, prompt and answer together, for which to say how many the pool holds.
    type: list
    elements: int
    default: [2048, 8192, 32768]
  neighbours_may_take_gib:
    description: What others on the card, or on the host where memory is unified, may still claim.
    type: float
    default: 0
  host_reserve_gib:
    description: What stays available to the operating system on unified memory. Default is 12.
    type: float
  needed_outside_gib:
    description:
      - What was measured beside weights and pool at the peak, instead of what SGLang's rule reserves for it.
    type: float
  shm_gib:
    description: The size of C(/dev/shm) of the instance; on unified memory it comes out of the same memory.
    type: float
  proven:
    description: The value that M(serving.sglang.pool_advice) allows on evidence.
    type: float
  kept:
    description:
      - An earlier result. Its fraction is kept as long as C(inputs_key) is the same, although free memory has moved.
    type: dict
seealso:
  - module: serving.sglang.gpu_info
  - module: serving.sglang.pool_advice
"""

EXAMPLES = r"""
- name: Read the cards
  serving.sglang.gpu_info:
    instance: main
  register: sglang_gpus

- name: Choose the fraction of an instance
  serving.sglang.mem_fraction:
    model: /srv/models/Qwen3-8B
    version: 0.5.23
    arguments:
      tp-size: 1
    readings: "{{ sglang_gpus }}"
  register: memory

- name: Explain it
  ansible.builtin.debug:
    msg: "{{ memory.lines }}"

- name: Plan for cards that are not bought yet, on the controller
  serving.sglang.mem_fraction:
    model: /srv/models/Llama-3.3-70B
    version: 0.5.23
    arguments:
      tp-size: 4
    capacity_mib: 81559
    compute_major: 9
    wanted_tokens: 500000
  delegate_to: localhost
"""

RETURN = r"""
fraction:
  description: The fraction; none when no value can work.
  returned: success
  type: float
  sample: 0.903
feasible:
  description: Whether the instance would start with it, hold the wanted tokens and leave what runs outside.
  returned: success
  type: bool
source:
  description: V(automatic), V(explicit), V(proven), V(auto) or V(given).
  returned: success
  type: str
kept:
  description: Whether an earlier choice was kept.
  returned: success
  type: bool
inputs_key:
  description: What the choice depends on, as one word.
  returned: success
  type: str
lines:
  description: Three lines for people. Where the fraction comes from, the pool, and the window.
  returned: success
  type: list
  elements: str
reasons:
  description: The figures that the choice rests on, each with C(name), C(value), C(unit) and C(why).
  returned: success
  type: list
  elements: dict
automatic:
  description:
    - What SGLang would compute, with every term of its reserve in C(terms) and what is multiplied afterwards in
      C(factors).
  returned: success
  type: dict
prediction:
  description:
    - The pool, with C(max_total_num_tokens), C(max_running_requests), C(longest_prompt_tokens), the bytes of a token
      and where they come from, and how many C(requests) of each length fit.
  returned: success
  type: dict
window:
  description: The fractions that can work, from C(low) to C(high), with both sums, and C(remedies) where it is empty.
  returned: success
  type: dict
candidates:
  description: The tokens that some fractions around it would give.
  returned: success
  type: list
  elements: dict
estimate:
  description: Free memory before and after the load as it was measured or estimated, and why.
  returned: success
  type: dict
host_memory:
  description:
    - The host memory that a start needs in GiB. C(warm_gib), C(cold_gib) and C(compiling_gib) (kernels are compiled by
      nvcc), each with C(pinned_gib) for the hierarchical cache and offloaded weights.
  returned: success
  type: dict
findings:
  description: What stands in the way of a start, each with C(id), C(severity), C(summary), C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
warnings_found:
  description: What is doubtful about the result.
  returned: success
  type: list
  elements: str
model:
  description: What was read of the model. C(unverified) when nothing was compared with a real server yet.
  returned: success
  type: dict
kind:
  description: The kind of the machine with its evidence.
  returned: success
  type: dict
capacity:
  description: The capacity of a card as SGLang reads it.
  returned: success
  type: dict
release:
  description: The release whose rules were applied.
  returned: success
  type: str
assumed:
  description: Whether that is another release than the one asked for.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils import fraction_plan


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "arguments": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}},
            "mem_fraction": {"type": "raw", "default": "choose"},
            "readings": {"type": "dict"},
            "cards": {"type": "list", "elements": "raw", "default": []},
            "kind": {"type": "str", "choices": ["dedicated", "shared", "unified"]},
            "platform": {
                "type": "str",
                "choices": ["cuda", "hip", "xpu", "npu", "musa", "mps", "cpu"],
                "default": "cuda",
            },
            "capacity_mib": {"type": "float"},
            "compute_major": {"type": "int"},
            "free_mib": {"type": "float"},
            "before_gib": {"type": "float"},
            "after_gib": {"type": "float"},
            "weights_gib": {"type": "float"},
            "draft_model": {"type": "path"},
            "wanted_tokens": {"type": "int", "no_log": False, "default": 0},
            "request_tokens": {"type": "list", "no_log": False, "elements": "int", "default": [2048, 8192, 32768]},
            "neighbours_may_take_gib": {"type": "float", "default": 0},
            "host_reserve_gib": {"type": "float"},
            "needed_outside_gib": {"type": "float"},
            "shm_gib": {"type": "float"},
            "proven": {"type": "float"},
            "kept": {"type": "dict"},
        },
        required_together=[("before_gib", "after_gib")],
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **fraction_plan.from_params(module.params))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
