#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a CUDA_HOME out of the wheels of a Python environment."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_home
short_description: Make a CUDA_HOME out of the wheels of a Python environment
version_added: "0.1.0"
description:
  - SGLang and FlashInfer compile kernels when a server starts. Wheels bring nvcc, its headers and libraries, and cannot
    be used as they lie in C(site-packages), where there is neither C(lib64) nor a C(libcudart.so) for the linker, and
    where nvcc may be of another release than the headers.
  - Makes one directory of them with C(bin/nvcc), C(include), C(nvvm) and C(lib64/libcudart.so), of one release of CUDA.
    The release that torch is built for is preferred.
  - Files are second names of those in the wheels where that is possible and copies where it is not. Other libraries of
    CUDA, as cuBLAS, are links to the wheels.
  - A new tree is built beside the old one and takes its place by one rename. It is built again when the wheels have
    changed, and when a file of it is missing, was added or was replaced by another one.
  - A tree and its wheels share their files. Who writes into a file of the tree changes the wheel as well. That is found
    by the C(RECORD) of the wheel and refused, because there is nothing whole left to build it of; the line that
    installs the wheel again comes with it.
  - Wheels that are missing, not whole, or only there in different releases are refused with their versions, their paths
    and what to install. A wheel is whole when all of its files are there in the size that C(RECORD) says. The content
    is compared too for C(nvcc), C(cicc), the headers and the library of the runtime, and for every file that was
    written after the installation.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  environment:
    description: The virtual environment with torch, as C(/opt/sglang/0.5.22).
    type: path
    required: true
  path:
    description:
      - Where the tree is made. It is a link to a directory beside it; what is there and was not made by this module is
        never touched. The path is absolute, and the directory that it is in exists.
      - The default is C(cuda-home) in O(environment).
    type: path
  wheels:
    description:
      - Directories with the wheels of a compiler, looked at before the environment itself, as C(pip install --target)
        fills them. One that does not exist is refused.
      - The default is C(cuda-wheels) in O(environment), where it exists.
    type: list
    elements: path
  toolkit:
    description: The toolkit of the host that V(auto) prefers where it is whole and of torch's major release.
    type: path
    default: /usr/local/cuda
  state:
    description:
      - V(present) makes the tree, and fails when the wheels do not have all of it, whole and in one release.
      - V(auto) makes it where torch in the environment is built for CUDA and O(toolkit) does not serve, and removes it
        where it is not needed. Where it is needed and the wheels do not make it, RV(findings) says so.
      - V(absent) removes it.
      - A tree that processes run with is not removed before they have ended. RV(notes) says so.
    type: str
    choices: [auto, present, absent]
    default: auto
seealso:
  - module: serving.sglang.server_spec
"""

EXAMPLES = r"""
- name: Give the environment a compiler where it needs one
  serving.sglang.cuda_home:
    environment: /opt/sglang/0.5.22
  register: cuda

- name: Show what CUDA_HOME shall be
  ansible.builtin.debug:
    msg: "CUDA_HOME={{ cuda.home }}, {{ cuda.reason }}"

- name: Make it elsewhere, out of wheels of its own
  serving.sglang.cuda_home:
    environment: /opt/sglang/0.5.22
    wheels: [/srv/cuda-13.0]
    path: /opt/cuda-13.0
    state: present

- name: Remove it
  serving.sglang.cuda_home:
    environment: /opt/sglang/0.5.22
    state: absent
"""

RETURN = r"""
tree:
  description: Where the tree is or would be.
  returned: success
  type: str
  sample: /opt/sglang/0.5.22/cuda-home
home:
  description: What CUDA_HOME shall be. Null where there is no tree, or one with damaged files.
  returned: success
  type: str
  sample: /opt/sglang/0.5.22/cuda-home
reason:
  description: Why there is a tree, or why there is none.
  returned: success
  type: str
  sample: torch 2.14.1+cu130 is built for CUDA 13.0, and the host has no toolkit
release:
  description: The release of CUDA that the tree is of.
  returned: success
  type: str
  sample: "13.0"
parts:
  description: The wheels that it is made of.
  returned: success
  type: dict
  sample: {"nvcc": "nvidia-cuda-nvcc 13.0.88", "runtime": "nvidia-cuda-runtime 13.0.96"}
torch_version:
  description: The version of torch in the environment.
  returned: success
  type: str
  sample: 2.14.1+cu130
torch_cuda:
  description: The release of CUDA that torch is built for. Null where it is built without.
  returned: success
  type: str
  sample: "13.0"
requirements:
  description: What C(pip install) takes to have a compiler of torch's release.
  returned: success
  type: list
  elements: str
  sample: ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.3"]
findings:
  description:
    - With O(state=auto), what keeps a tree that is needed from being made, with C(id), C(severity), C(summary),
      C(evidence) and C(fix).
  returned: success
  type: list
  elements: dict
finding:
  description: What keeps the tree from being made.
  returned: failure
  type: dict
notes:
  description: What is to be known besides, as a missing stub of C(libcuda.so).
  returned: success
  type: list
  elements: str
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import CouldNotTell
from ansible_collections.serving.sglang.plugins.module_utils.cuda_home_change import change, refusal
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError


def shown(state: dict[str, Any]) -> str:
    return json.dumps(state, indent=2, sort_keys=True) + "\n" if state else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "path": {"type": "path"},
            "wheels": {"type": "list", "elements": "path"},
            "toolkit": {"type": "path", "default": "/usr/local/cuda"},
            "state": {"type": "str", "choices": ["auto", "present", "absent"], "default": "auto"},
        },
        supports_check_mode=True,
    )
    try:
        result = change(module.params, module.check_mode)
    except CouldNotTell as error:
        module.fail_json(msg=f"cannot tell what CUDA_HOME needs: {error}")
    except EngineError as error:
        module.fail_json(msg=error.msg, kind=error.kind, **error.facts)
    except OSError as error:
        module.fail_json(msg=f"cannot change the tree of CUDA_HOME: {error}")
    for finding in result.findings:
        module.warn(refusal(finding))
    diff = {"before": shown(result.before), "after": shown(result.after)}
    module.exit_json(diff=diff, **result.as_dict())


if __name__ == "__main__":
    main()
