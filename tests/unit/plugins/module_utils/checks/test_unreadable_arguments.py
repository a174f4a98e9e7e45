# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that cannot be read say nothing of what a server runs on: no check may take it for a server on cards."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.serving.sglang.plugins.module_utils import spec
from ansible_collections.serving.sglang.plugins.module_utils.checks import wanted
from ansible_collections.serving.sglang.plugins.module_utils.checks.declaration import read_declaration

MAIN = {"name": "main", "model": "/srv/models/tiny", "port": 30000, "cards": [0]}
DEFAULTS = {"version": "0.5.22", "output_cap_tokens": 4096, "slowest_tokens_per_s": 25.0}


def validate(options: Any, values: Any) -> tuple[dict[str, Any], list[str]]:
    result = ArgumentSpecValidator(dict(options)).validate(dict(values))
    return result.validated_parameters, list(result.error_messages)


def read(instance: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    host = spec.Host("h1", "h1", [], {})
    (one,) = read_declaration([instance], {**DEFAULTS, **defaults}, host, validate).instances
    return one


@pytest.mark.parametrize(("given", "device"), [("--foo", "unknown"), ({"tp-size": 1}, None)])
def test_what_a_server_runs_on_is_not_known_when_its_arguments_cannot_be_read(given: Any, device: str | None) -> None:
    for instance in (read({**MAIN, "arguments": given}), read(MAIN, arguments=given)):
        assert instance.get("device") == device
        assert wanted.read_wanted([instance])[0].on_cuda is (device is None)
        assert (instance["desired"] is None) is (device is not None)
