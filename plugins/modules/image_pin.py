#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pin an image: resolve its tag to the digest, and keep the two together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_pin
short_description: Pin an image of SGLang by tag and digest
version_added: "0.1.0"
description:
  - A tag can be moved to another image at any time, and hosts pull on different days. A pin has the tag, for people,
    and the digest, which docker and podman pull by.
  - Resolves a tag to its digest and returns the pin, or writes it into a file of variables.
  - A pin that is there is checked. When its tag points to another image now, the module fails with both digests, and
    nothing is changed unless O(refresh=true).
  - Refused, with the way out, are tags that are made to move (C(latest), C(latest-runtime), C(dev), C(nightly) and what
    begins with them), images without a tag, and tags that do not begin with a whole release of SGLang.
  - The digest is that of the index where an image is for several platforms, so that one pin is right on all hosts.
  - The registry is asked through skopeo or docker, the storage of a host through docker or podman. Credentials, proxies
    and certificates are theirs. No layer is pulled.
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
    details:
      - The diff has the line of the variable alone, because what stands beside it in the file may be secret.
  idempotent:
    support: full
requirements:
  - skopeo, or docker with its plugin buildx, where a registry is asked. Without the plugin docker tells the digest of
    images for one platform alone, and no more of them.
  - docker or podman, where the storage of a host is asked.
options:
  image:
    description:
      - The image with its tag, as C(lmsysorg/sglang:v0.5.22). A name without a registry is one of Docker Hub, and the
        pin is written with the registry, because podman completes short names otherwise.
      - With a digest too, the digest is checked against the tag.
      - Without it the image is taken that O(variable) has in O(path).
    type: str
  path:
    description:
      - A YAML file of variables that the pin is written into. Without it the pin is returned only.
      - The file is edited as text, so that comments, order and quotes stay. A link is followed. Mode and owner stay.
    type: path
  variable:
    description:
      - The variable in O(path) that holds the image, as C(sglang_server_image). It must stand there once, at the left
        margin, with the image or nothing as its value. Anything else is refused with the line to write by hand.
    type: str
  refresh:
    description: Take the image that the tag points to now, although the pin is another one.
    type: bool
    default: false
  source:
    description:
      - Where the tag is looked up. V(registry) asks the registry.
      - V(local) asks the engine what it has stored of the tag, for hosts that reach no registry. A tag that was moved
        in the registry since the pull is not noticed.
    type: str
    choices: [registry, local]
    default: registry
  engine:
    description:
      - The program that is asked. V(auto) takes skopeo or else docker for a registry, docker or else podman for the
        storage of a host.
      - V(podman) cannot tell the digest of a tag in a registry, and V(skopeo) knows no storage. Both are refused.
    type: str
    choices: [auto, skopeo, docker, podman]
    default: auto
  authfile:
    description:
      - A file with the credentials for the registry, as C(skopeo login --authfile) and C(docker login) write it. For
        docker its name must be C(config.json).
      - Without it the program takes its own.
    type: path
  tls_verify:
    description:
      - Whether the registry must have a certificate that is trusted. V(false) allows plain HTTP too, and is meant for
        tests.
    type: bool
    default: true
  platform:
    description:
      - What the image must run on, as C(linux/amd64) or C(linux/arm64). C(x86_64) and C(aarch64) are understood, so
        C(ansible_facts.architecture) can be given.
      - Without it every image is taken, and its facts are read for C(linux/amd64), else for the first platform it has.
    type: str
  driver:
    description:
      - The oldest version of NVIDIA's driver among the hosts, as C(580.65.06). An image whose CUDA needs a newer one is
        refused.
    type: str
  timeout_s:
    description: How long each question to the registry or the engine may take.
    type: float
    default: 60
seealso:
  - module: serving.sglang.container_info
  - module: serving.sglang.host_info
notes:
  - It runs where the program and the file are, so mostly on the controller.
"""

EXAMPLES = r"""
- name: Pin a release in the variables of the fleet
  serving.sglang.image_pin:
    image: lmsysorg/sglang:v0.5.22
    path: "{{ playbook_dir }}/group_vars/all.yml"
    variable: sglang_server_image
    platform: linux/amd64
    driver: 580.65.06
  delegate_to: localhost
  run_once: true

- name: Fail where a tag was moved since it was pinned
  serving.sglang.image_pin:
    path: "{{ playbook_dir }}/group_vars/all.yml"
    variable: sglang_server_image
  delegate_to: localhost
  run_once: true
  check_mode: true

- name: Take the image that the tag points to now
  serving.sglang.image_pin:
    path: "{{ playbook_dir }}/group_vars/all.yml"
    variable: sglang_server_image
    refresh: true
  delegate_to: localhost
  run_once: true

- name: Ask a registry that needs a login
  serving.sglang.image_pin:
    image: registry.example.com/ml/sglang:v0.5.22-team3
    authfile: /etc/sglang-controller/auth.json
  delegate_to: localhost
  register: sglang_image

- name: Show the pin
  ansible.builtin.debug:
    msg: "{{ sglang_image.pin }}, made {{ sglang_image.created }}, CUDA {{ sglang_image.cuda }}"
"""

RETURN = r"""
pin:
  description: The image with its registry, tag and digest.
  returned: success
  type: str
  sample: docker.io/lmsysorg/sglang:v0.5.22@sha256:2a5c9bc413aa8afad8091e36dfb5c54de12fd4304905993db95a993a5cfdf689
name:
  description: Registry and repository.
  returned: success
  type: str
  sample: docker.io/lmsysorg/sglang
tag:
  description: The tag.
  returned: success
  type: str
  sample: v0.5.22
digest:
  description: The digest that the tag has now.
  returned: success
  type: str
replaced:
  description: What the variable had before where it is changed; without a file, the digest that no longer held.
  returned: success
  type: str
index:
  description: Whether the digest is that of an index of several platforms. Null where a host's storage was asked.
  returned: success
  type: bool
platforms:
  description: What the image runs on.
  returned: success
  type: list
  elements: str
  sample: [linux/amd64, linux/arm64]
platform_digests:
  description: The digest of each platform's own manifest. They are not for pins, and are what an engine may show.
  returned: success
  type: dict
facts_of:
  description: The platform whose facts were read.
  returned: success
  type: str
created:
  description: When the image was made, in its own words.
  returned: success
  type: str
labels:
  description: The labels of the image.
  returned: success
  type: dict
entrypoint:
  description: What the image starts its command with.
  returned: success
  type: list
  elements: str
cuda:
  description: The release of CUDA that the image says it has, in C(CUDA_VERSION) or C(NVIDIA_REQUIRE_CUDA).
  returned: success
  type: str
  sample: 12.9.1
cuda_required:
  description: What the image requires of driver and CUDA, in C(NVIDIA_REQUIRE_CUDA).
  returned: success
  type: str
tag_says:
  description: What the tag says by SGLang's rules.
  returned: success
  type: dict
  contains:
    release:
      description: The release of SGLang.
      type: str
    cuda:
      description: The release of CUDA, as of C(-cu129).
      type: str
    rocm:
      description: The release of ROCm, as of C(-rocm700).
      type: str
    runtime:
      description: Whether it is the smaller variant C(-runtime).
      type: bool
    architecture:
      description: The architecture, as of C(-amd64).
      type: str
    other:
      description: Words that are not known.
      type: list
      elements: str
tool:
  description: What was asked.
  returned: success
  type: str
  sample: skopeo
notes:
  description: What could not be told, as whether the driver is new enough.
  returned: success
  type: list
  elements: str
kind:
  description:
    - What is wrong. V(image.refused), V(image.not_a_reference), V(image.moved), V(image.platform_digest),
      V(image.platform), V(image.driver), V(image.unreachable), V(image.unauthorized), V(image.rate_limited),
      V(image.no_such_tag), V(image.no_digest), V(image.ambiguous), V(image.tool_missing), V(image.engine),
      V(image.garbled), V(image.vars_file) or
      V(bad_timeout).
  returned: failure
  type: str
pinned:
  description: The digest of the pin.
  returned: when the tag was moved
  type: str
present:
  description: The digest that the tag has now.
  returned: when the tag was moved
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.image_pin import pin


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str"},
            "path": {"type": "path"},
            "variable": {"type": "str"},
            "refresh": {"type": "bool", "default": False},
            "source": {"type": "str", "choices": ["registry", "local"], "default": "registry"},
            "engine": {"type": "str", "choices": ["auto", "skopeo", "docker", "podman"], "default": "auto"},
            "authfile": {"type": "path"},
            "tls_verify": {"type": "bool", "default": True},
            "platform": {"type": "str"},
            "driver": {"type": "str"},
            "timeout_s": {"type": "float", "default": 60},
        },
        required_one_of=[["image", "path"]],
        required_together=[["path", "variable"]],
        supports_check_mode=True,
    )
    try:
        result = pin(module.params, module.check_mode)
    except EngineError as error:
        module.fail_json(msg=error.msg, kind=error.kind, **error.facts)
    for note in result.notes:
        module.warn(note)
    module.exit_json(diff=result.diff, **result.as_dict())


if __name__ == "__main__":
    main()
