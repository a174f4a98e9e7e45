#!/usr/bin/python

# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_info
short_description: Read what a gateway routes to
version_added: "0.1.0"
description:
  - Returns the workers of a gateway as it sees them. The gateways are C(smg) 1.13 and C(sglang-router) 0.3.2.
  - A worker that a gateway is still trying to add is in no list, and is not returned.
  - An open circuit breaker keeps requests away from a worker that is called healthy. The gateway's API does not tell;
    its metric C(smg_worker_cb_state) does.
options:
  url:
    description: The URL of the gateway's API.
    type: str
    default: http://127.0.0.1:30000
  api_key:
    description:
      - The key of the gateway's API. This is its C(--api-key), or one of its C(--control-plane-api-keys) when it has
        those.
    type: str
  timeout_s:
    description: How many seconds one question to the gateway may take.
    type: float
    default: 5
author:
  - serving.sglang contributors (@serving-sglang)
requirements:
  - requests (on the host where the module runs)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.info_module
seealso:
  - module: serving.sglang.gateway_worker
"""

EXAMPLES = r"""
- name: Read the workers of the gateway
  serving.sglang.gateway_info:
  register: routes

- name: Refuse to go on with a worker that gets no requests
  ansible.builtin.assert:
    that: routes.workers | rejectattr('routed') | length == 0
"""

RETURN = r"""
url:
  description: The URL of the gateway's API.
  returned: always
  type: str
ready:
  description: Whether the gateway has a healthy worker and is not shutting down.
  returned: success
  type: bool
version:
  description: The gateway's release. Null where the gateway does not tell.
  returned: success
  type: str
  sample: 1.13.0
workers:
  description: The workers, ordered by URL.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The gateway's own name for the worker, new with each addition.
      type: str
    url:
      description: The worker's URL.
      type: str
    is_healthy:
      description: Whether the gateway's health check calls it healthy.
      type: bool
    status:
      description: The gateway's word for its state. Null for a gateway that has none.
      type: str
      sample: ready
    load:
      description:
        - Requests that the gateway counts on it. C(sglang-router) counts only where its policy needs it.
      type: int
    model:
      description: The model it serves.
      type: str
    routed:
      description: Whether the gateway sends it requests.
      type: bool
kind:
  description: What went wrong, as one word.
  returned: failure
  type: str
  sample: refused
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.gateway_client import GatewayClient


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": "http://127.0.0.1:30000"},
            "api_key": {"type": "str", "no_log": True},
            "timeout_s": {"type": "float", "default": 5},
        },
        supports_check_mode=True,
    )
    url = module.params["url"].rstrip("/")
    try:
        client = GatewayClient(url, module.params["api_key"], module.params["timeout_s"])
        workers = [worker.as_dict() for worker in client.workers()]
        module.exit_json(changed=False, url=url, ready=client.ready(), version=client.version(), workers=workers)
    except EngineError as error:
        module.fail_json(msg=error.msg, kind=error.kind, url=url)


if __name__ == "__main__":
    main()
