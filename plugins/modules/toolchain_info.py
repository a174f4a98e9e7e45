#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what native instances compile, link and load their kernels with, and where they cache them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: toolchain_info
short_description: Find what keeps the kernels of SGLang from being compiled, linked or loaded
version_added: "0.1.0"
description:
  - Reads the Python environment of each native instance through its own interpreter, and the compilers, the CUDA
    toolkit and the shared libraries as its unit would find them. Nothing is changed and no package is imported.
  - SGLang takes E(CUDA_HOME), else E(CUDA_PATH), else the directory above the C(nvcc) on E(PATH), else
    C(/usr/local/cuda). Each of them is looked at, and what is there of which release.
  - Libraries are asked of the loader, each in a process of its own.
  - Instances that share interpreter, release, device and environment are looked at once. Instances in containers bring
    their toolchain with them and are passed over.
  - The caches of compiled kernels are looked at too.
  - What cannot be read is a finding of severity V(unknown).
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
options:
  instances:
    description:
      - The instances, each with its C(name), C(version), C(runtime), C(python), C(environment) and C(arguments).
        What is missing is taken for the default.
      - Without it one environment is looked at, which O(python), O(version), O(environment) and O(device) describe.
    type: list
    elements: dict
  python:
    description:
      - The interpreter of the environment.
      - Without it that of C(/opt/sglang), below the directory that is named as O(version).
    type: path
  version:
    description: The release of SGLang that the environment is measured by.
    type: str
    default: 0.5.23
  environment:
    description: Environment variables of the server, as its unit gives them.
    type: dict
    default: {}
  device:
    description: What the server runs on. On V(cpu) nothing of CUDA is asked for.
    type: str
    choices: [cuda, cpu]
    default: cuda
  base_python:
    description:
      - The interpreter that environments are made from. It is asked where an environment is not there yet.
    type: str
    default: python3
seealso:
  - module: serving.sglang.cuda_home
"""

EXAMPLES = r"""
- name: Look at the environment of a release
  serving.sglang.toolchain_info:
    version: 0.5.23
  register: toolchain

- name: Refuse an environment that cannot serve
  ansible.builtin.assert:
    that: errors | length == 0
    fail_msg: "{{ errors | map(attribute='summary') | join('; ') }}"
  vars:
    errors: "{{ toolchain.findings | selectattr('severity', 'eq', 'error') }}"

- name: Look at the environment of a server with another toolkit
  serving.sglang.toolchain_info:
    instances:
      - name: main
        version: 0.5.22
        environment:
          CUDA_HOME: /usr/local/cuda-13.0
"""

RETURN = r"""
findings:
  description:
    - Each with C(id), C(severity) (V(ok), V(warning), V(error) or V(unknown)), C(summary), C(evidence) and C(fix), and
      with C(instance) where it is of one only.
  returned: success
  type: list
  elements: dict
  sample:
    - id: cuda.nvcc_missing
      severity: error
      summary: there is no nvcc where SGLang looks for it (/usr/local/cuda, by /usr/local/cuda)
      evidence: "/usr/local/cuda/bin/nvcc: not there"
      fix: set CUDA_HOME to a directory that has bin/nvcc, include and lib64/libcudart.so
readings:
  description: What was read. A reading that failed is a dictionary with C(unknown), the reason.
  returned: success
  type: dict
  contains:
    environments:
      description:
        - One for each distinct environment, with its C(instances), the C(interpreter), the compilers (C(cxx), C(cc),
          C(ninja)), the C(roots) of CUDA, what the linker said (C(links)), the C(wheels) with parts of CUDA, the
          C(driver) and the C(variables) that hold directories.
      type: list
      elements: dict
    caches:
      description: The directories of the caches.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.checks import cache_readings, toolchain_readings


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict"},
            "python": {"type": "path"},
            "version": {"type": "str", "default": "0.5.23"},
            "environment": {"type": "dict", "default": {}},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
            "base_python": {"type": "str", "default": "python3"},
        },
        supports_check_mode=True,
    )
    toolchain = toolchain_readings.examine(module.params)
    caches = cache_readings.examine_caches(module.params)
    module.exit_json(
        changed=False,
        findings=[*toolchain["findings"], *caches["findings"]],
        readings={**toolchain["readings"], "caches": caches["readings"]},
    )


if __name__ == "__main__":
    main()
