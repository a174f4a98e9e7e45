# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the module server_start and follows its job on the host, with progress."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.plugin_utils.host_job_follow import HostJobAction


class ActionModule(HostJobAction):
    KIND = "start"
