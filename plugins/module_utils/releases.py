# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between releases of SGLang in how a server starts, answers and ends.

One table keyed by version. Everything else in the collection asks this table and never compares versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .release_rows import nearest


@dataclass(frozen=True)
class DrainWording:
    """Regular expressions of the lines a server writes while it ends."""

    begin: str = r"SIGTERM received\. signum=.* frame=.*\. Draining requests and shutting down\.\.\."
    progress: str = (
        r"Gracefully exiting\.\.\. Remaining number of requests (?P<count>\d+)\. "
        r"Remaining requests remaining_rids=\[(?P<rids>.*)\]\."
    )
    forced: str = (
        r"Signal SIGTERM received while (?P<why>health check failed|force shutdown flag set)\. Force exiting\."
    )
    straggler: str = (
        r"Schedulers still alive (?P<seconds>\d+)s after ShutdownReq, "
        r"killing them before they released: \[(?P<pids>.*)\]"
    )


@dataclass(frozen=True)
class Release:
    """The behaviour of one release.

    `clean_exit_code` is what the main process ends with after a drain in which nothing was lost; a negative number is
    a signal. The three `*_s` figures of the shutdown add up to `tail_s`, the time a server may take after its last
    request has ended.
    """

    version: str
    has_ready: bool
    ping_knows_pause: bool
    clean_exit_code: int
    drain: DrainWording = DrainWording()
    drain_poll_s: int = 5
    scheduler_exit_s: int = 15
    children_exit_s: int = 60
    unhealthy_exit_s: int = 90
    health_check_s: int = 20
    force_shutdown_variable: str = "SGL_FORCE_SHUTDOWN"
    force_shutdown_values: tuple[str, ...] = ("true", "1")
    output_cap_variable: str = "SGLANG_MAX_NEW_TOKENS_LIMIT"
    fired_up: str = r"The server is fired up and ready to roll!"
    assumed: bool = False

    @property
    def tail_s(self) -> int:
        """Seconds from the end of the last request to the exit of the main process, at most."""
        return self.drain_poll_s + self.scheduler_exit_s + self.children_exit_s

    @property
    def health_timeout_s(self) -> int:
        """How long a client of the generating health check must wait to see its negative answer."""
        return self.health_check_s + 5

    def forces_shutdown(self, environment: dict[str, str]) -> bool:
        """True when a server started with this environment ends at once on SIGTERM, losing what runs."""
        return environment.get(self.force_shutdown_variable, "").strip().lower() in self.force_shutdown_values


RELEASES: dict[str, Release] = {
    release.version: release
    for release in (
        Release(version="0.5.17", has_ready=False, ping_knows_pause=False, clean_exit_code=-9),
        Release(version="0.5.22", has_ready=True, ping_knows_pause=False, clean_exit_code=0),
        Release(version="0.5.23", has_ready=True, ping_knows_pause=True, clean_exit_code=0),
    )
}


def release_for(version: str) -> Release:
    """The data of this version, or of the nearest one, marked as assumed.

    The nearest is the newest release that is not newer than the one asked for; below the oldest one it is the oldest.
    """
    exact = RELEASES.get(version)
    if exact is not None:
        return exact
    return replace(RELEASES[nearest(version, RELEASES)], assumed=True)
