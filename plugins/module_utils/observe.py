# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what an instance is doing right now: its unit, its endpoints, its log."""

from __future__ import annotations

import glob
import os
import time
from dataclasses import replace

from . import cgroup, desired_state, journal, lifecycle, systemd
from .desired_state import Desired
from .errors import EngineError
from .server_client import Keys, Loads, Probe, ServerClient, parse_credentials, read_keys
from .server_log import LifeSigns, life_signs

_CREDENTIALS = "/run/credentials"
_LINES_OF_A_START = 2000
_LINES_OF_LATE = 2000


def ready_path(desired: Desired) -> str:
    """The endpoint that says whether this server takes traffic. A rank above 0 only has a stand-in for `/health`."""
    return "/ready" if desired.release.has_ready and desired.rank == 0 else "/health"


def ready_timeout_s(desired: Desired) -> float:
    return 4.0 if ready_path(desired) == "/ready" else float(desired.release.health_timeout_s)


def running_desired(desired: Desired, unit: systemd.Unit) -> Desired:
    """The desired state that the running server was started from, where the unit left its copy of it.

    The file on disk may already name another port or release.
    """
    if not (unit.running or unit.active_state == "deactivating"):
        return desired
    path = desired_state.running_path_of(desired.instance)
    try:
        with open(path, encoding="utf-8") as handle:
            return desired_state.parse(handle.read(), path)
    except (OSError, UnicodeDecodeError, EngineError):
        return desired


def keys_of(desired: Desired, unit: systemd.Unit) -> Keys:
    """The keys the running server was started with: systemd's own copy of its credentials, else the file's."""
    if unit.running or unit.active_state == "deactivating":
        for path in sorted(glob.glob(os.path.join(_CREDENTIALS, desired.unit, "*"))):
            try:
                with open(path, encoding="utf-8") as handle:
                    keys = parse_credentials(handle.read())
            except (OSError, UnicodeDecodeError):
                continue
            if keys.secrets:
                return keys
    return read_keys(desired.credentials_config)


def main_pid(desired: Desired, unit: systemd.Unit) -> int:
    """The server's main process, 0 when there is none. The unit's own is the engine's where there is a container."""
    if not unit.main_pid or desired.container is None:
        return unit.main_pid
    return cgroup.first_of_container(desired.slice)


def client_of(desired: Desired, unit: systemd.Unit) -> ServerClient:
    return ServerClient(desired.probe_url, keys_of(desired, unit))


def signs_of(unit: systemd.Unit, desired: Desired) -> LifeSigns:
    """What the log of this run says about the server's state: its beginning and its end, however long it is."""
    early = life_signs(journal.first_of_invocation(unit.invocation_id, _LINES_OF_A_START).lines, desired.release)
    late = life_signs(journal.of_invocation(unit.invocation_id, last=_LINES_OF_LATE).lines, desired.release)
    return replace(late, fired_up=early.fired_up or late.fired_up)


def observe(desired: Desired, client: ServerClient, unit: systemd.Unit, with_loads: bool = True) -> lifecycle.Readings:
    """One set of readings of an instance; asks no more than its state needs."""
    if not unit.running:
        return lifecycle.Readings(unit=unit)
    ready = client.probe(ready_path(desired), ready_timeout_s(desired))
    if ready.problem == "refused":
        return lifecycle.Readings(unit=unit, ready=ready)
    if not ready.ok:
        ping: Probe | None = None
        if ready.code is not None and desired.release.ping_knows_pause:
            ping = client.probe("/ping", anonymous=False)
        return lifecycle.Readings(unit=unit, ready=ready, ping=ping, signs=signs_of(unit, desired))
    if not with_loads:
        return lifecycle.Readings(unit=unit, ready=ready)
    try:
        loads: Loads | None = client.loads()
    except EngineError:
        loads = None
    age = None if loads is None or loads.published_at is None else max(0.0, time.time() - loads.published_at)
    return lifecycle.Readings(unit=unit, ready=ready, report_age_s=age, busy=None if loads is None else loads.busy)
