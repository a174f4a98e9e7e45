#!/usr/bin/python

# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_spec
short_description: Resolve the declared SGLang instances of a host
version_added: "0.1.0"
description:
  - Takes the instances that a host declares and returns for each the desired state that its files are written from.
    This is the whole command line, the environment, the memory limits, the drain timeout and the grace period with
    the sums they come from.
  - Refuses wrong declarations with everything that is wrong at once, before anything is touched.
  - Secrets are looked at and never returned.
  - It needs nothing from the host, so it can as well be delegated to the controller.
options:
  instances:
    description: The instances of the host.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the instance; lower-case letters, digits and underscores, at most 32. Always needed.
        type: str
      model:
        description: The model, as an absolute path on the host or as a hub id. Always needed.
        type: str
      revision:
        description: The revision of a model that is a hub id.
        type: str
      served_model_name:
        description: The name under which clients ask for the model. SGLang's own default is O(instances[].model).
        type: str
      port:
        description: The TCP port of the HTTP server. Always needed.
        type: int
      cards:
        description:
          - The cards of the instance, by index or by UUID as C(nvidia-smi -L) prints them.
          - Without it the instance takes what SGLang takes, which is refused next to another instance.
        type: list
        elements: raw
      cards_shared:
        description: Whether the cards may be those of another instance that says so too.
        type: bool
        default: false
      replica:
        description: Name of the replica in the fleet. The default is the host's name, a dash and O(instances[].name).
        type: str
      worker_url:
        description: The URL by which gateways reach the instance. The default is made from O(address) and the port.
        type: str
      nnodes:
        description: On how many hosts the replica runs. More than one is refused for now.
        type: int
        default: 1
      runtime: &runtime
        description: How SGLang is run. V(native), a virtual environment, or in a container by V(podman) or V(docker).
        type: str
      version: &version
        description: The exact release of SGLang.
        type: str
      image: &image
        description: The image of an instance in a container, by tag and digest. The tag says the release.
        type: str
      image_python: &image_python
        description: The interpreter that the image has SGLang in.
        type: str
      ipc: &ipc
        description: Whether the container has shared memory of its own or the host's.
        type: str
        choices: [private, host]
      shm_size: &shm_size
        description: The size of the container's own shared memory, as V(32g).
        type: str
      mounts: &mounts
        description: What else of the host the container sees.
        type: list
        elements: dict
        suboptions:
          source:
            description: The path on the host.
            type: str
            required: true
          target:
            description: The path in the container. Default is the same.
            type: str
          read_only:
            description: Whether the container may not write there.
            type: bool
            default: true
      engine_arguments: &engine_arguments
        description: Further options of C(podman run) or C(docker run), each one word.
        type: list
        elements: str
      cuda: &cuda
        description: The release of CUDA in the image, where its tag does not say it. For the preflight.
        type: str
      cuda_compat: &cuda_compat
        description: Whether the image has CUDA's compatibility library. For the preflight.
        type: bool
      lock: &lock
        description:
          - The lock that the environment of a native instance is installed from, one of O(locks) by its path. It names
            every package in its exact version, SGLang itself among them.
          - The environment bears the mark of the lock in its name. Another lock is another environment, and the one
            that servers run from stays as it is.
        type: str
      host: &host
        description: The address that the HTTP server listens on.
        type: str
      arguments: &arguments
        description:
          - Arguments of the server by their full names, with hyphens and without the dashes in front.
          - V(true) is the flag, V(false) leaves it out or is its C(--no-) form, a list is several values, a mapping is
            JSON, V(null) leaves it out.
        type: dict
      environment: &environment
        description: Variables of the server's environment.
        type: dict
      output_cap_tokens: &output_cap_tokens
        description: The longest answer in tokens, enforced by the server. Always needed.
        type: int
      slowest_tokens_per_s: &slowest_tokens_per_s
        description: The slowest rate at which one answer is made under full load. Always needed.
        type: float
      margin_s: &margin_s
        description: Seconds added to the computed drain timeout and grace period.
        type: int
      drain_timeout_s: &drain_timeout_s
        description: How long a drain may take before the server is told to end. Computed where it is not given.
        type: int
      drain_on_timeout: &drain_on_timeout
        description: What happens when the drain timeout passes.
        type: str
        choices: [fail, abort]
      start_deadline_s: &start_deadline_s
        description: How long a start may take.
        type: int
      memory_max: &memory_max
        description: Limit of host memory of the instance's slice, as V(24G).
        type: str
      memory_high: &memory_high
        description: Host memory from which the slice is slowed down. It does not exist with cgroup v1.
        type: str
      memory_swap_max: &memory_swap_max
        description: Limit of swap of the slice.
        type: str
      mem_fraction: &mem_fraction
        description:
          - V(auto) leaves the memory fraction to SGLang, V(choose) has it chosen for this machine as by
            M(serving.sglang.mem_fraction), a number is taken as it is.
          - A choice is kept until the card, the model, the arguments or the release change, or O(memory_again).
        type: raw
      memory: &memory
        description: What the choice is told of the machine.
        type: dict
        suboptions:
          kind:
            description: The kind of the machine. Default is what is read.
            type: str
            choices: [dedicated, shared, unified]
          wanted_tokens:
            description: Tokens that the pool must hold at least.
            type: int
          neighbours_may_take_gib:
            description: What others on the card, or on the host with unified memory, may still claim.
            type: float
          host_reserve_gib:
            description: What stays available to the operating system on unified memory.
            type: float
          needed_outside_gib:
            description: What was measured beside weights and pool.
            type: float
          weights_gib:
            description: The weights of one rank, where they cannot be read.
            type: float
          draft_model:
            description: The folder of the draft model.
            type: path
          proven:
            description: The value that M(serving.sglang.pool_advice) allows on evidence.
            type: float
      hf_home: &hf_home
        description: The directory of downloaded models.
        type: str
      writable_paths: &writable_paths
        description: Further directories that the server writes to.
        type: list
        elements: str
      api_key: &api_key
        description: The key that clients send.
        type: str
      admin_api_key: &admin_api_key
        description: The key that administrative requests send.
        type: str
      hf_token: &hf_token
        description: The token for the hub.
        type: str
  defaults:
    description: What holds for every instance that does not say it itself. Mappings are merged key by key.
    type: dict
    default: {}
    suboptions:
      runtime: *runtime
      version: *version
      image: *image
      image_python: *image_python
      ipc: *ipc
      shm_size: *shm_size
      mounts: *mounts
      engine_arguments: *engine_arguments
      cuda: *cuda
      cuda_compat: *cuda_compat
      lock: *lock
      host: *host
      arguments: *arguments
      environment: *environment
      output_cap_tokens: *output_cap_tokens
      slowest_tokens_per_s: *slowest_tokens_per_s
      margin_s: *margin_s
      drain_timeout_s: *drain_timeout_s
      drain_on_timeout: *drain_on_timeout
      start_deadline_s: *start_deadline_s
      memory_max: *memory_max
      memory_high: *memory_high
      memory_swap_max: *memory_swap_max
      mem_fraction: *mem_fraction
      memory: *memory
      hf_home: *hf_home
      writable_paths: *writable_paths
      api_key: *api_key
      admin_api_key: *admin_api_key
      hf_token: *hf_token
  cuda_homes:
    description:
      - The CUDA_HOME of environments that have a toolkit of their own, by the name of the environment
        (RV(environments[].name)), as M(serving.sglang.cuda_home) returns it. Instances that need no cards, or declare a
        toolkit in their environment, do not get it.
    type: dict
    default: {}
  engines:
    description:
      - What M(serving.sglang.container_info) read of the host's container engines
        (RV(serving.sglang.container_info#module:readings)).
      - Without it docker is taken to use systemd's control groups, and both engines to know cards by CDI.
    type: dict
    default: {}
  service_user:
    description:
      - The user and group that servers in containers run as, in numbers as V(998:998).
      - Without it the name of the service user stands in their desired state, which an image does not know.
    type: str
    default: ""
  locks:
    description:
      - What the locks say that the instances declare, as P(serving.sglang.lock#lookup) reads them on the controller.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The lock as it is declared.
        type: str
        required: true
      source:
        description: The file on the controller.
        type: str
      sha256:
        description: Of its lines without comments.
        type: str
        required: true
      version:
        description: The version of SGLang that it has; empty where it is taken from a URL.
        type: str
        default: ""
      hashed:
        description: Whether each package has a hash.
        type: bool
        default: false
      packages:
        description: How many packages it has.
        type: int
      problems:
        description: What keeps it from being a lock.
        type: list
        elements: str
        default: []
  memory_again:
    description: Has every memory fraction chosen anew, although nothing that it rests on has changed.
    type: bool
    default: false
  host_name:
    description: The host's name in the inventory, the first half of a replica's default name.
    type: str
    required: true
  address:
    description: The address by which gateways reach the host.
    type: str
    required: true
  gpus:
    description: The cards of the host, to compare an index with a UUID.
    type: list
    elements: dict
    default: []
    suboptions:
      index:
        description: The index as C(nvidia-smi) shows it.
        type: int
        required: true
      uuid:
        description: The UUID as C(nvidia-smi) shows it.
        type: str
        required: true
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.info_module
  - serving.sglang.attributes.actiongroup_sglang
author:
  - serving.sglang contributors (@serving-sglang)
seealso:
  - module: serving.sglang.server_start
  - module: serving.sglang.server_info
"""

EXAMPLES = r"""
- name: Resolve the instances of this host
  serving.sglang.server_spec:
    host_name: "{{ inventory_hostname }}"
    address: "{{ ansible_host }}"
    defaults:
      version: 0.5.22
      output_cap_tokens: 8192
      slowest_tokens_per_s: 30
    instances:
      - name: main
        model: /srv/models/Qwen3-8B
        port: 30000
        cards: [0]
        arguments:
          max-running-requests: 64
          max-queued-requests: 64
          enable-metrics: true
  register: spec

- name: Show how the grace period came about
  ansible.builtin.debug:
    msg: "{{ spec.instances[0].desired.grace.arithmetic }}"
"""

RETURN = r"""
instances:
  description: The instances in the order in which they were declared.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the instance.
      returned: always
      type: str
      sample: main
    desired:
      description: The content of the desired-state file.
      returned: always
      type: dict
      sample: {"schema": 1, "instance": "main", "port": 30000, "grace": {"period_s": 657}}
    unit:
      description: What the unit file needs besides, already quoted for systemd.
      returned: always
      type: dict
      sample: {"protect_home": "true", "load_credentials": []}
    slice:
      description: The limits of the slice as lines of its unit file.
      returned: always
      type: dict
      sample: {"lines": ["MemoryMax=25769803776"]}
    credentials:
      description: Which secrets the instance declares, by name.
      returned: always
      type: list
      elements: str
      sample: ["api_key"]
    container_check:
      description: The instance as M(serving.sglang.container_info) takes it; none for a native server.
      returned: always
      type: dict
      sample: {"name": "main", "runtime": "podman"}
    directories:
      description: Directories outside of C(/var/lib/sglang) and C(/var/cache/sglang) that the server writes to.
      returned: always
      type: list
      elements: str
      sample: ["/data/huggingface"]
versions:
  description: The releases of SGLang that native instances need an environment of.
  returned: success
  type: list
  elements: str
  sample: ["0.5.22"]
environments:
  description: The virtual environments that the native instances run from, each once.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The release, and with a lock the first eight digits of its hash.
      returned: always
      type: str
      sample: 0.5.22-1a2b3c4d
    path:
      description: The directory of the environment.
      returned: always
      type: str
      sample: /opt/sglang/0.5.22-1a2b3c4d
    version:
      description: The release of SGLang in it.
      returned: always
      type: str
      sample: 0.5.22
    lock_sha256:
      description: The hash of the lock; null without one.
      returned: always
      type: str
notes:
  description: What is doubtful about the declarations. They are shown as warnings too.
  returned: success
  type: list
  elements: str
  sample: []
problems:
  description: Everything that is wrong with the declarations.
  returned: failure
  type: list
  elements: str
  sample: ["instance 'main': version is missing"]
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.serving.sglang.plugins.module_utils import declared_types
from ansible_collections.serving.sglang.plugins.module_utils.container_spec import engine_facts
from ansible_collections.serving.sglang.plugins.module_utils.environments import LOCK_OPTIONS, locks_by_path
from ansible_collections.serving.sglang.plugins.module_utils.instance_memory import plan_instances
from ansible_collections.serving.sglang.plugins.module_utils.spec import Host, Outcome, resolve, wishes
from ansible_collections.serving.sglang.plugins.module_utils.spec_options import instance_options, shared_options


def with_memory(outcome: Outcome, given: dict[str, Any], host: Host) -> Outcome:
    """The instances again, with the memory part of each."""
    desired = [instance.desired for instance in outcome.instances]
    planned = plan_instances(desired, wishes(given["instances"], given["defaults"]), given["memory_again"])
    if planned.problems:
        return replace(outcome, problems=list(planned.problems))
    again = resolve(given["instances"], given["defaults"], host, planned.parts)
    return replace(again, warnings=again.warnings + list(planned.warnings))


def fits(option: Mapping[str, Any], value: Any) -> bool:
    """Whether Ansible takes a value for an option."""
    try:
        return not ArgumentSpecValidator({"value": dict(option)}).validate({"value": value}).error_messages
    except (TypeError, ValueError, OverflowError):  # as of infinity for a whole number
        return False


def wrong_types(given: Mapping[str, Any]) -> list[str]:
    """What Ansible would refuse of the declarations, by the instance in which it stands."""
    found: list[str] = []
    instances, defaults = given.get("instances"), given.get("defaults")
    for number, declared in enumerate(instances if isinstance(instances, list) else [], start=1):
        name = declared.get("name") if isinstance(declared, dict) else None
        whose = f"instance '{name or f'number {number}'}'"
        found += [f"{whose}: {text}" for text in declared_types.problems(declared, instance_options(), fits)]
    if isinstance(defaults, dict):
        found += [f"defaults: {text}" for text in declared_types.problems(defaults, shared_options(), fits)]
    return found


def refusal(host_name: str, problems: list[str]) -> str:
    count = len(problems)
    lines = "".join(f"\n- {problem}." for problem in problems)
    return f"{host_name}: {count} problem{'s' if count > 1 else ''} in its instances; nothing was touched:{lines}"


class Module(AnsibleModule):
    """Refuses a wrong type as any other problem. Ansible's own words name neither the instance nor the value."""

    def fail_json(self, msg: str, **facts: Any) -> NoReturn:
        if "problems" not in facts:
            wrong = wrong_types(self.params)
            if wrong:
                msg, facts = refusal(str(self.params.get("host_name")), wrong), {"problems": wrong}
            else:
                # Ansible gives the first of its reasons, which does not name the option of an element.
                reasons = self.validation_result.error_messages
                msg = next((reason for reason in reasons if reason.startswith("Elements value")), msg)
        super().fail_json(msg=msg, **facts)


def made() -> Module:
    """The module. Some wrong types end Ansible's own look at the options in a traceback: they are told as any."""
    options: dict[str, Any] = {
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance_options()},
        "defaults": {"type": "dict", "default": {}, "options": shared_options()},
        "cuda_homes": {"type": "dict", "default": {}},
        "engines": {"type": "dict", "default": {}},
        "service_user": {"type": "str", "default": ""},
        "locks": {"type": "list", "elements": "dict", "default": [], "options": LOCK_OPTIONS},
        "memory_again": {"type": "bool", "default": False},
        "host_name": {"type": "str", "required": True},
        "address": {"type": "str", "required": True},
        "gpus": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {"index": {"type": "int", "required": True}, "uuid": {"type": "str", "required": True}},
        },
    }
    try:
        return Module(argument_spec=options, supports_check_mode=True)
    except (TypeError, ValueError, OverflowError, AttributeError):
        # Nothing is known of these values, which may be secrets: they are not logged, and not returned.
        hidden = {"type": "raw", "no_log": True}
        module = Module(argument_spec={name: dict(hidden) for name in options}, supports_check_mode=True)
        given, module.params, module.no_log_values = module.params, {}, set()
        wrong, defaults = wrong_types(given), given.get("defaults") or {}
        if not isinstance(defaults, dict):
            wrong.append(f"defaults is of type {type(defaults).__name__}, expected a mapping")
        wrong = wrong or ["something in instances or defaults has a type that it cannot have"]
        module.fail_json(msg=refusal(str(given.get("host_name")), wrong), problems=wrong)


def main() -> None:
    module = made()
    given = module.params
    # Of the readings only these are looked at.
    read = {name: given["engines"].get(name) for name in ("docker", "podman", "cdi")}
    wrong = [
        f"{name} of '{key}' is {value!r}, expected what the module that is named in the documentation returns"
        for name, values, kind in (("cuda_homes", given["cuda_homes"], str), ("engines", read, Mapping))
        for key, value in values.items()
        if value is not None and not isinstance(value, kind)
    ]
    if wrong:
        module.fail_json(msg=refusal(given["host_name"], wrong), problems=wrong)
    host = Host(
        given["host_name"],
        given["address"],
        given["gpus"],
        given["cuda_homes"],
        engine_facts(given["engines"]),
        given["service_user"],
        locks_by_path(given["locks"]),
    )
    outcome = resolve(given["instances"], given["defaults"], host)
    if not outcome.problems:
        outcome = with_memory(outcome, given, host)
    if outcome.problems:
        module.fail_json(msg=refusal(host.name, outcome.problems), problems=outcome.problems)
    for note in outcome.warnings:
        module.warn(f"{host.name}: {note}.")
    module.exit_json(
        changed=False,
        instances=[instance.as_dict() for instance in outcome.instances],
        versions=outcome.versions,
        environments=outcome.environments,
        notes=outcome.warnings,
    )


if __name__ == "__main__":
    main()
