# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of a host job: reads its request, does it, keeps its status file."""

# A host job runs this too, where there is no AnsibleModule.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Any

from . import observe, start_job, stop_job, systemd
from .desired_state import read as read_desired
from .errors import EngineError
from .host_job import Reporter
from .redaction import redact_text


def _secrets(instance: str) -> tuple[str, ...]:
    try:
        desired = read_desired(instance)
        return observe.keys_of(desired, systemd.show(desired.unit)).secrets
    except EngineError:
        return ()


def _terminated(number: int, _frame: FrameType | None) -> None:
    raise EngineError(
        "job_stopped",
        f"The job was ended with signal {number} from outside. What was begun is not undone; look with server_info.",
    )


def perform(request: dict[str, Any]) -> bool:
    """Does one request; True when it went well."""
    instance = str(request["instance"])
    kind = str(request["job"])
    options = dict(request.get("options") or {})
    reporter = Reporter(kind, instance, str(request["id"]), str(request.get("request") or ""), _secrets(instance))
    error: dict[str, Any] | None = None
    try:
        if kind == "start":
            start_job.run(start_job.StartOptions(instance=instance, **options), reporter)
        else:
            stop_job.run(stop_job.StopOptions(instance=instance, **options), reporter)
    except EngineError as failure:
        error = failure.as_dict()
    except Exception as failure:
        # Whatever it is, the status file must say that the job ended and on what.
        where = traceback.extract_tb(failure.__traceback__)[-1]
        error = {
            "kind": "internal",
            "msg": redact_text(
                f"{type(failure).__name__}: {failure} ({where.name}, line {where.lineno}). This is an error in "
                "serving.sglang; please report it.",
                reporter.secrets,
            ),
        }
        traceback.print_exc()
    reporter.finish(error)
    return error is None


def main() -> int:
    signal.signal(signal.SIGTERM, _terminated)
    with open(sys.argv[1], encoding="utf-8") as handle:
        request = json.load(handle)
    os.unlink(sys.argv[1])
    return 0 if perform(request) else 1


if __name__ == "__main__":
    sys.exit(main())
