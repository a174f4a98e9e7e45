# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an instance takes requests right now: the one question a rollout asks, at the price of two readings."""

from __future__ import annotations

from . import desired_state, lifecycle, observe, systemd
from .errors import EngineError


def check(instance: str) -> tuple[bool, str]:
    """(whether the instance serves, why it does not). Reads its unit and asks for one cheap answer."""
    try:
        desired = desired_state.read(instance)
        unit = systemd.show(desired.unit)
        running = observe.running_desired(desired, unit)
        readings = observe.observe(running, observe.client_of(running, unit), unit, with_loads=False)
        state = lifecycle.classify(readings, running.release)
    except EngineError as error:
        return False, error.msg
    if state == lifecycle.UP:
        return True, ""
    if state == lifecycle.STOPPED:
        return False, f"{desired.unit} is {unit.active_state} (result {unit.result or 'none'})"
    return False, f"it is {state}"
