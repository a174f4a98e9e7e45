# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an instance may declare, by name and type, as the modules that take declarations tell Ansible."""

from __future__ import annotations

from typing import Any


def shared_options() -> dict[str, Any]:
    """What can be said for one instance or for the whole host."""
    return {
        "runtime": {"type": "str"},
        "version": {"type": "str"},
        "image": {"type": "str"},
        "image_python": {"type": "str"},
        "ipc": {"type": "str", "choices": ["private", "host"]},
        "shm_size": {"type": "str"},
        "mounts": {
            "type": "list",
            "elements": "dict",
            "options": {
                "source": {"type": "str", "required": True},
                "target": {"type": "str"},
                "read_only": {"type": "bool", "default": True},
            },
        },
        "engine_arguments": {"type": "list", "elements": "str"},
        "cuda": {"type": "str"},
        "cuda_compat": {"type": "bool"},
        "lock": {"type": "str"},
        "host": {"type": "str"},
        "arguments": {"type": "dict"},
        "environment": {"type": "dict"},
        "output_cap_tokens": {"type": "int", "no_log": False},
        "slowest_tokens_per_s": {"type": "float", "no_log": False},
        "margin_s": {"type": "int"},
        "drain_timeout_s": {"type": "int"},
        "drain_on_timeout": {"type": "str", "choices": ["fail", "abort"]},
        "start_deadline_s": {"type": "int"},
        "memory_max": {"type": "str"},
        "memory_high": {"type": "str"},
        "memory_swap_max": {"type": "str"},
        "mem_fraction": {"type": "raw"},
        "memory": {
            "type": "dict",
            "options": {
                "kind": {"type": "str", "choices": ["dedicated", "shared", "unified"]},
                "wanted_tokens": {"type": "int", "no_log": False},
                "neighbours_may_take_gib": {"type": "float"},
                "host_reserve_gib": {"type": "float"},
                "needed_outside_gib": {"type": "float"},
                "weights_gib": {"type": "float"},
                "draft_model": {"type": "path"},
                "proven": {"type": "float"},
            },
        },
        "hf_home": {"type": "str"},
        "writable_paths": {"type": "list", "elements": "str"},
        "api_key": {"type": "str", "no_log": True},
        "admin_api_key": {"type": "str", "no_log": True},
        "hf_token": {"type": "str", "no_log": True},
    }


def instance_options() -> dict[str, Any]:
    """What one instance declares."""
    return {
        "name": {"type": "str"},
        "model": {"type": "str"},
        "revision": {"type": "str"},
        "served_model_name": {"type": "str"},
        "port": {"type": "int"},
        "cards": {"type": "list", "elements": "raw"},
        "cards_shared": {"type": "bool", "default": False},
        "replica": {"type": "str"},
        "worker_url": {"type": "str"},
        "nnodes": {"type": "int", "default": 1},
        **shared_options(),
    }
