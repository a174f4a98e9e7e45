# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the playbook size: what it shows of the memory of a fleet."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.module_utils import size_report


def _registered(hosts, hostvars, name):
    return {host: (hostvars[host].get(name) or {}) if host in hostvars else {} for host in hosts}


def size_table(hosts, hostvars, name):
    """The table of the memory of each instance, from the results registered as ``name``."""
    return size_report.lines(_registered(hosts, hostvars, name))


def size_data(hosts, hostvars, name):
    """The same as data."""
    return size_report.data(_registered(hosts, hostvars, name))


class FilterModule:
    """What ansible-core asks for."""

    def filters(self):
        return {"size_data": size_data, "size_table": size_table}
