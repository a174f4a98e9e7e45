#!/usr/bin/python
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring the images and models of a host's instances to the host before anything is started."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_prefetch
short_description: Bring the images and models of a host's instances to the host
version_added: "0.1.0"
description:
  - Looks at what each instance starts from, as its desired-state file says it, and brings what is missing to the host.
    What runs is not touched. A start after it needs no registry and no hub.
  - An image is pulled by its digest, by the engine that runs it, and must be known to the engine by this digest
    afterwards. Before the pull, the tag must still point to the pinned digest, the image must be made for the platform
    and, where it gets cards, the driver of the host, and the disk must have room for the layers that are missing.
  - A model that is a hub id with a revision is downloaded into the cache of huggingface_hub (C(HF_HOME)), by
    huggingface_hub of the environment or of the image that will load it, as the service user. The draft model and the
    tokenizer of an instance are treated as its model is. A model that is a folder must be there and readable.
  - Of an instance without a container, the environment C(/opt/sglang/<version>) must be there. It is not made here.
  - One run at a time fetches on a host. A second one waits, and then finds done what it came for.
  - What cannot be fetched for any instance is said in one message, after everything else was fetched.
author:
  - serving.sglang contributors (@serving-sglang)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - In check mode the tag and the disk are checked for images that are missing, and nothing is pulled. The hub is
        not asked.
  diff_mode:
    support: none
    details: It changes no file that is declared.
  idempotent:
    support: full
requirements:
  - docker or podman on the host, for instances that run in a container.
  - skopeo on the host, or docker's plugin buildx, to check the tag and the size of an image. Where there is neither,
    RV(notes) says that they were not checked.
options:
  instances:
    description:
      - The instances, by their names. The default is every instance that has a desired-state file on the host.
    type: list
    elements: str
  states:
    description:
      - The desired states themselves, for instances whose files are still to be written, as
        M(serving.sglang.server_spec) returns them. A deployment fetches before it writes, so that what is on disk can
        always be started.
    type: list
    elements: dict
  authfile:
    description:
      - File with credentials for registries, on the host, as C(podman login --authfile) writes it. It is given to
        podman and skopeo. docker reads its own configuration.
    type: path
  tls_verify:
    description:
      - Whether the registry must have a certificate that is trusted. It is for podman and skopeo; docker has its own
        list of registries without.
    type: bool
    default: true
  check_tag:
    description:
      - Whether to refuse an image that is not on the host and whose tag was moved to another one.
      - Without it, or where no tool can tell, the engine pulls what the digest says. That is the pinned image.
    type: bool
    default: true
  timeout_s:
    description:
      - How long one image, one model, and waiting for another run may each take. What takes longer is ended.
    type: float
    default: 7200
  touch:
    description:
      - Files on the host whose time is renewed every 20 seconds meanwhile, for example a rollout's lock. A file that is
        not there is not made.
    type: list
    elements: path
    default: []
  ledger:
    description:
      - Where the step C(prefetch) is written, one entry for each replica with keys C(path), C(run), C(replica) and
        C(host). Handled on the controller, never sent to the host.
    type: list
    elements: dict
    default: []
seealso:
  - module: serving.sglang.image_pin
  - module: serving.sglang.server_start
  - module: serving.sglang.server_cleanup
"""

EXAMPLES = r"""
- name: Bring everything that the instances of the host start from
  serving.sglang.server_prefetch:
  throttle: 4

- name: From a registry of one's own
  serving.sglang.server_prefetch:
    instances: [main]
    authfile: /etc/containers/auth.json
    timeout_s: 1800
"""

RETURN = r"""
instances:
  description: What was found and done for each instance.
  returned: always
  type: list
  elements: dict
  contains:
    instance:
      description: Its name.
      type: str
    replica:
      description: The replica that it belongs to.
      type: str
    changed:
      description: Whether something was brought for it, or would be in check mode.
      type: bool
    parts:
      description: What it starts from.
      type: list
      elements: dict
      contains:
        kind:
          description: V(image), V(environment), V(model), V(draft model) or V(tokenizer).
          type: str
        name:
          description: The pin, the interpreter, or the model with its revision.
          type: str
        state:
          description:
            - V(there) when it was there, V(pulled) or V(fetched) when it was brought or would be in check mode,
              V(local) for a folder, V(not_pinned) for a hub id without a revision, which is left alone, or V(failed).
          type: str
        bytes:
          description: Compressed bytes of the layers that were missing, or bytes of files; none where it is not known.
          type: int
        seconds:
          description: How long it took.
          type: float
        commit:
          description: The commit of the model.
          type: str
        notes:
          description: What could not be told.
          type: list
          elements: str
    notes:
      description: What could not be told of it, and why a restart depends on the hub where it does.
      type: list
      elements: str
bytes:
  description: Bytes that were brought, as far as they are known.
  returned: always
  type: int
elapsed_s:
  description: Seconds that the run took on the host.
  returned: always
  type: float
notes:
  description: The notes of all instances.
  returned: always
  type: list
  elements: str
kind:
  description:
    - What kind the first failure is, as V(image.moved), V(image.platform), V(image.driver), V(image.disk),
      V(image.pull), V(image.not_verified), V(image.engine), V(model.disk), V(model.unauthorized),
      V(model.no_such_revision), V(model.unreachable), V(model.missing), V(prefetch.environment), V(prefetch.lock),
      V(no_instance), V(desired_state) or V(bad_timeout).
  returned: failure
  type: str
failed_at:
  description: Where a rollout was when it failed, as C(replica), C(host) and C(step) of the ledger.
  returned: failure, with O(ledger)
  type: dict
  sample: {"replica": "gpu1-main", "host": "gpu1", "step": "prefetch"}
lost_connection:
  description: Whether the host could not be reached any more. What was begun there goes on.
  returned: when it is so
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.prefetch import prefetch


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "str"},
            "states": {"type": "list", "elements": "dict"},
            "authfile": {"type": "path"},
            "tls_verify": {"type": "bool", "default": True},
            "check_tag": {"type": "bool", "default": True},
            "timeout_s": {"type": "float", "default": 7200},
            "touch": {"type": "list", "elements": "path", "default": []},
            "ledger": {"type": "list", "elements": "dict", "default": []},
        },
        mutually_exclusive=[("instances", "states")],
        supports_check_mode=True,
    )
    result = prefetch(module.params, module.check_mode)
    for note in result["notes"]:
        module.warn(note)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
