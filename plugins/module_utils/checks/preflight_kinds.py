# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a preflight can find that no check does: hosts and parts of them that nobody could look at."""

from __future__ import annotations

from ..finding import UNKNOWN
from .check import Kind

NOT_LOOKED_AT = Kind(
    "preflight.not_looked_at",
    UNKNOWN,
    "a part of the host was not looked at",
    "Nothing is known of it: it may be in order or not. The finding names the part, and why it was not looked at in "
    "time.",
    "remove the cause that the finding names (a hung driver, a hung network file system) and run again",
)
HOST_NOT_READ = Kind(
    "preflight.host_not_read",
    UNKNOWN,
    "a host could be reached and not be looked at",
    "Nothing is known of it. Usually Python or the right to become root is missing there, or a variable that the "
    "declarations use is not defined.",
    "read the message of the finding, and run the playbook again with -vvv for all of it",
)
HOST_UNREACHABLE = Kind(
    "preflight.host_unreachable",
    UNKNOWN,
    "a host could not be reached",
    "Nothing is known of it. The playbook ends with 4.",
    "check `ansible HOST -m ansible.builtin.ping`; to look at the others without it, use --limit",
)
PREFLIGHT_KINDS = (NOT_LOOKED_AT, HOST_NOT_READ, HOST_UNREACHABLE)
