#!/usr/bin/python

# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_worker
short_description: Bring an SGLang server into a gateway or out of it
version_added: "0.1.0"
description:
  - Adds a worker to a gateway, or takes it out, and waits until that holds. The gateways are C(smg) 1.13 and
    C(sglang-router) 0.3.2. It runs on the gateway's host.
  - A worker is named by its URL. The gateway's own name for it, a UUID that changes with each addition, is looked up.
  - A worker that leaves gets no new request from the moment the gateway is asked. Requests that run there go on and
    are answered.
  - The file that a starting gateway takes its workers from is kept in step, and before the gateway is asked. A gateway
    that is restarted at any moment comes back without a worker that is leaving.
  - A gateway accepts any address, and then tries for half an hour to reach it, which nothing calls off. So a worker is
    only added once it answers on C(/ready) (C(/health) where there is no C(/ready)), seen from the gateway's host.
  - A worker that a gateway is still trying to add is in no list, and its try cannot be called off. Taking it out takes
    it out of the file alone.
  - A gateway that is just being restarted is waited for.
options:
  url:
    description: The URL of the gateway's API.
    type: str
    default: http://127.0.0.1:30000
  api_key:
    description:
      - The key of the gateway's API. This is its C(--api-key), or one of its C(--control-plane-api-keys) with the role
        C(admin) when it has those.
    type: str
  worker_url:
    description:
      - The URL of the SGLang server, as the gateway reaches it.
      - Another spelling of the same URL is the same worker.
    type: str
    required: true
  state:
    description:
      - With V(present) the gateway has the worker and calls it healthy.
      - With V(absent) the gateway no longer lists it.
    type: str
    choices: [present, absent]
    default: present
  wait:
    description:
      - Whether to wait until it holds. Without, an addition is asked for whether the worker answers or not.
    type: bool
    default: true
  timeout_s:
    description: How many seconds this may take as a whole.
    type: float
    default: 60
  drain_settle_s:
    description:
      - How many seconds C(smg) keeps a worker that leaves in its list, so that requests on their way to it arrive.
        Its own default is 5. C(sglang-router) has no such time.
    type: int
    default: 1
  worker_api_key:
    description:
      - The key that the gateway shows to the worker. The default is O(api_key). An empty string is no key.
      - A gateway shows the key that its client sent on to the worker, and after a restart it shows each worker its own
        C(--api-key). So a gateway and its workers need the same key, unless the workers have none.
    type: str
  workers_file:
    description:
      - The file that a starting gateway takes its workers from. The role P(serving.sglang.sglang_gateway#role) makes
        it. An empty string means that there is none.
    type: str
    default: /etc/sglang-gateway/workers.env
  ledger:
    description:
      - Where the step is written on the controller, with the keys C(path), C(run), C(replica), C(host) and C(step). The
        default of C(step) is C(rejoin) for O(state=present) and C(leave) for O(state=absent).
      - The action plugin takes this option; the module does not see it.
    type: dict
author:
  - serving.sglang contributors (@serving-sglang)
requirements:
  - requests (on the gateway's host)
extends_documentation_fragment:
  - serving.sglang.attributes
  - serving.sglang.attributes.actiongroup_sglang
  - serving.sglang.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - Whether the worker answers is not tried in check mode. A gateway that does not answer fails there too.
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: serving.sglang.gateway_info
"""

EXAMPLES = r"""
- name: Take a server out of the gateway
  serving.sglang.gateway_worker:
    worker_url: http://10.0.0.11:30000
    state: absent
  delegate_to: gateway

- name: Bring it back and wait until the gateway calls it healthy
  serving.sglang.gateway_worker:
    worker_url: http://10.0.0.11:30000
    api_key: "{{ gateway_key }}"
    timeout_s: 30
  delegate_to: gateway

- name: Use a gateway that the role did not install
  serving.sglang.gateway_worker:
    url: http://gateway.example.com:8080
    worker_url: http://10.0.0.11:30000
    workers_file: ""
"""

RETURN = r"""
worker_url:
  description: The worker's URL as the gateway knows it.
  returned: always
  type: str
  sample: http://10.0.0.11:30000
worker:
  description: The worker as the gateway lists it. Null when it does not.
  returned: success
  type: dict
  contains:
    id:
      description: The gateway's own name for this addition of the worker.
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
      description: Requests that the gateway counts on it.
      type: int
    model:
      description: The model it serves.
      type: str
    routed:
      description: Whether the gateway sends it requests.
      type: bool
workers:
  description: The URLs of the workers that the gateway has and keeps.
  returned: success
  type: list
  elements: str
workers_file_changed:
  description: Whether O(workers_file) was changed.
  returned: always
  type: bool
elapsed_s:
  description: Seconds that it took.
  returned: always
  type: float
kind:
  description: What went wrong, as one word.
  returned: failure
  type: str
  sample: timeout
failed_at:
  description: Where a rollout was when it failed, as C(replica), C(host) and C(step) of the ledger.
  returned: failure, with O(ledger)
  type: dict
  sample: {"replica": "gpu1-main", "host": "gw1", "step": "leave"}
last_seen:
  description: What was last seen of the worker.
  returned: always
  type: str
  sample: healthy, status ready, 0 requests
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.gateway import canonical_url
from ansible_collections.serving.sglang.plugins.module_utils.gateway_change import Wanted, bring_about
from ansible_collections.serving.sglang.plugins.module_utils.gateway_client import GatewayClient


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": "http://127.0.0.1:30000"},
            "api_key": {"type": "str", "no_log": True},
            "worker_url": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "wait": {"type": "bool", "default": True},
            "timeout_s": {"type": "float", "default": 60},
            "drain_settle_s": {"type": "int", "default": 1},
            "worker_api_key": {"type": "str", "no_log": True},
            "workers_file": {"type": "str", "default": "/etc/sglang-gateway/workers.env"},
            "ledger": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        wanted = Wanted(
            url=canonical_url(options["worker_url"]),
            state=options["state"],
            timeout_s=options["timeout_s"],
            settle_s=options["drain_settle_s"],
            worker_api_key=options["api_key"] if options["worker_api_key"] is None else options["worker_api_key"],
            wait=options["wait"],
        )
        client = GatewayClient(options["url"], options["api_key"])
        result = bring_about(client, wanted, options["workers_file"] or None, module.check_mode)
    except EngineError as error:
        module.fail_json(msg=error.msg, kind=error.kind, **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
