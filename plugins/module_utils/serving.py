# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an instance takes requests right now, and how many it has: what a rollout asks, for two readings."""

from __future__ import annotations

from dataclasses import dataclass

from . import desired_state, lifecycle, observe, systemd
from .errors import EngineError


@dataclass(frozen=True)
class Serving:
    """Whether an instance serves, why it does not, and its requests; None where the server did not tell.

    ``worker_url`` is where gateways reach what runs now, which may differ from what is declared.
    """

    serves: bool
    why: str = ""
    running: int | None = None
    waiting: int | None = None
    worker_url: str = ""


def check(instance: str, with_requests: bool = False) -> Serving:
    """Read the unit of an instance and ask its server for one cheap answer, or two ``with_requests``."""
    try:
        desired = desired_state.read(instance)
        unit = systemd.show(desired.unit)
        running = observe.running_desired(desired, unit)
        client = observe.client_of(running, unit)
        readings = observe.observe(running, client, unit, with_loads=False)
        state = lifecycle.classify(readings, running.release)
    except EngineError as error:
        return Serving(False, error.msg)
    if state == lifecycle.STOPPED:
        return Serving(False, f"{desired.unit} is {unit.active_state} (result {unit.result or 'none'})")
    if state != lifecycle.UP:
        return Serving(False, f"it is {state}")
    url = str(running.raw.get("worker_url") or "")
    if with_requests:
        try:
            loads = client.loads()
            return Serving(True, running=loads.running, waiting=loads.waiting, worker_url=url)
        except EngineError:
            pass  # the count is for the record only; whether it serves is known
    return Serving(True, worker_url=url)
