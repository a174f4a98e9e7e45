# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what a server writes to its log: how a start proceeds, how a drain proceeds, and why a start failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import missing_library
from .releases import Release

_PREFIX = re.compile(r"^\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(?P<ranks>(?: [A-Z_]+\d+)*)\] (?P<msg>.*)$")
_LONGEST_LINE = 600


@dataclass(frozen=True)
class LogLine:
    """One line, split into SGLang's own prefix and the message."""

    message: str
    timestamp: str | None = None
    ranks: str = ""


def split_prefix(line: str) -> LogLine:
    match = _PREFIX.match(line)
    if match is None:
        return LogLine(message=line)
    return LogLine(message=match.group("msg"), timestamp=match.group("ts"), ranks=match.group("ranks").strip())


def text_lines(entries: Iterable[str]) -> list[str]:
    """Log entries as single lines: progress bars rewrite theirs with carriage returns, the last state counts."""
    lines: list[str] = []
    for entry in entries:
        for raw in entry.split("\n"):
            parts = [part for part in raw.split("\r") if part.strip()]
            lines.append(parts[-1].rstrip() if parts else "")
    return lines


# --- the start ---------------------------------------------------------------------------------------------------

_TIMINGS = re.compile(r"Engine startup timings \(s\): (?P<body>.*)$")
_TIMING_GROUP = re.compile(r"(?P<group>\w+)=\{(?P<body>[^}]*)\}")
_TIMING = re.compile(r"(?P<name>\w+)=(?P<value>\d+(?:\.\d+)?)")
_POOL = re.compile(r"\bmax_total_num_tokens=(?P<tokens>\d+), ")
_PAIR = re.compile(r"(?P<key>\w+)=(?P<value>[\d.]+)(?= GB|,|$)")
_WEIGHTS = re.compile(r"Load weight end\. elapsed=(?P<elapsed>[\d.]+) s, type=(?P<type>\w+)")
_LAUNCHED = re.compile(r"server_args=ServerArgs\(")

# What the server has reached, in the words shown while it is waited for; the last one that matched counts.
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_LAUNCHED, "arguments resolved, processes starting"),
    (re.compile(r"Init torch distributed begin|Init parallel begin"), "joining the process group"),
    (re.compile(r"Init (?:torch distributed|parallel) ends"), "process group joined"),
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"KV Cache is allocated"), "KV cache allocated"),
    (re.compile(r"Memory pool end"), "memory pool allocated"),
    (re.compile(r"Capture .*prefill.* begin", re.IGNORECASE), "capturing prefill graphs"),
    (re.compile(r"Capture .*decode.* begin", re.IGNORECASE), "capturing decode graphs"),
    (re.compile(r"Capture .* end\.", re.IGNORECASE), "graphs captured"),
    (_POOL, "scheduler ready"),
    (_TIMINGS, "engine started"),
    (re.compile(r"Uvicorn running on"), "listening, warm-up request running"),
    (re.compile(r"fired up and ready to roll"), "warmed up"),
)
_PROGRESS_BAR = re.compile(r"^\s*(?P<what>[^:|]{3,60}?):\s+(?P<percent>\d{1,3})%\|")


def parse_timings(message: str) -> dict[str, float]:
    """`Engine startup timings` as `{load_weight_s: 0.25, cuda_graph_prefill_s: 82.83, …}`; empty for other lines."""
    match = _TIMINGS.search(message)
    if match is None:
        return {}
    body = match.group("body")
    phases: dict[str, float] = {}
    for group in _TIMING_GROUP.finditer(body):
        for item in _TIMING.finditer(group.group("body")):
            if float(item.group("value")) > 0:  # of the many kinds of graphs, only those that were captured
                phases[f"{group.group('group')}_{item.group('name')}_s"] = float(item.group("value"))
    for item in _TIMING.finditer(_TIMING_GROUP.sub("", body)):
        phases[f"{item.group('name')}_s"] = float(item.group("value"))
    return phases


def parse_pool(message: str) -> dict[str, float]:
    """The figures of the scheduler's `max_total_num_tokens=…` line; empty for other lines."""
    if _POOL.search(message) is None:
        return {}
    start = message.index("max_total_num_tokens=")
    return {match.group("key"): float(match.group("value")) for match in _PAIR.finditer(message[start:])}


@dataclass
class StartLog:
    """What the log of one start has said so far."""

    stage: str = "Python is importing"
    phases: dict[str, float] = field(default_factory=dict)
    max_total_num_tokens: int | None = None
    model_class: str | None = None
    fired_up: bool = False
    lines: int = 0
    # The last line that is none of the access log's.
    last: str = ""

    def feed(self, lines: Iterable[str], release: Release) -> None:
        for line in lines:
            message = split_prefix(line).message
            if message.strip() and not _NOISE.search(message):
                self.lines += 1
                self.last = message
            for pattern, stage in _STAGES:
                if pattern.search(message):
                    self.stage = stage
            shown = _PROGRESS_BAR.match(message)
            if shown is not None:
                self.stage = f"{shown.group('what').strip()} {shown.group('percent')} %"
            self.phases = parse_timings(message) or self.phases
            pool = parse_pool(message)
            if pool:
                tokens = int(pool["max_total_num_tokens"])
                self.max_total_num_tokens = tokens
            weights = _WEIGHTS.search(message)
            if weights is not None:
                self.model_class = weights.group("type")
            if re.search(release.fired_up, message):
                self.fired_up = True


# --- the drain ---------------------------------------------------------------------------------------------------

_CRASH = re.compile(r"Subprocess (?P<name>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)")


@dataclass
class DrainLog:
    """What the log of one shutdown has said so far."""

    begun: bool = False
    remaining: int | None = None
    most_remaining: int = 0
    forced: str | None = None
    stragglers: str | None = None
    crashed: str | None = None
    lines: list[str] = field(default_factory=list)
    first_rids: frozenset[str] | None = None
    all_rids: frozenset[str] = frozenset()

    @property
    def finished(self) -> bool:
        """True when the server itself said that nothing remained."""
        return self.remaining == 0

    @property
    def arrived_during_drain(self) -> int:
        """Requests that came after the first count: somebody still sends to this server."""
        return len(self.all_rids - (self.first_rids or frozenset()))

    def feed(self, lines: Iterable[str], release: Release) -> None:
        wording = release.drain
        for line in lines:
            message = split_prefix(line).message
            if re.search(wording.begin, message):
                self.begun = True
                self._keep(line)
                continue
            progress = re.search(wording.progress, message)
            if progress is not None:
                self.remaining = int(progress.group("count"))
                self.most_remaining = max(self.most_remaining, self.remaining)
                rids = frozenset(re.findall(r"'([^']*)'", progress.group("rids")))
                if self.first_rids is None:
                    self.first_rids = rids
                self.all_rids = self.all_rids | rids
                self._keep(line)
                continue
            forced = re.search(wording.forced, message)
            if forced is not None:
                self.forced = forced.group("why")
                self._keep(line)
                continue
            straggler = re.search(wording.straggler, message)
            if straggler is not None:
                self.stragglers = straggler.group("pids")
                self._keep(line)
                continue
            crash = _CRASH.search(message)
            if crash is not None:
                self.crashed = f"{crash.group('name')} ended with {crash.group('code')}"
                self._keep(line)

    def _keep(self, line: str) -> None:
        """Keeps a line without its list of request ids, which may be very long."""
        self.lines.append(re.sub(r"remaining_rids=\[.*\]", "remaining_rids=[…]", line)[:_LONGEST_LINE])


_PAUSE_CALLS = re.compile(r'"POST /(?P<call>pause|continue)_generation HTTP/[\d.]+" 200')
_HEALTH_FAILED = re.compile(r"Health check failed\. Server couldn't get a response from detokenizer")
_HEALTH_OK = re.compile(r'"GET /health(?:_generate)? HTTP/[\d.]+" 200')


@dataclass(frozen=True)
class LifeSigns:
    """What the log of a running server says about its state; a call counts as the last one of its kind."""

    fired_up: bool = False
    draining: bool = False
    paused: bool = False
    health_failed: bool = False


def life_signs(lines: Iterable[str], release: Release) -> LifeSigns:
    fired_up = draining = paused = health_failed = False
    for line in lines:
        message = split_prefix(line).message
        if re.search(release.fired_up, message):
            fired_up = True
        elif re.search(release.drain.begin, message):
            draining = True
        elif _HEALTH_FAILED.search(message):
            health_failed = True
        elif _HEALTH_OK.search(message):
            health_failed = False
        else:
            call = _PAUSE_CALLS.search(message)
            if call is not None:
                paused = call.group("call") == "pause"
    return LifeSigns(fired_up=fired_up, draining=draining, paused=paused, health_failed=health_failed)


# --- why a start failed ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """The line that explains a failure, and what to do about it. `generic`: the line names no cause itself."""

    line: str
    kind: str
    hint: str
    generic: bool = False

    def text(self) -> str:
        return f"{self.line} {self.hint}".strip()


@dataclass(frozen=True)
class _Cause:
    kind: str
    pattern: re.Pattern[str]
    hint: str


def _cause(kind: str, pattern: str, hint: str) -> _Cause:
    return _Cause(kind, re.compile(pattern), hint)


# Lines that name a cause. The first line of the log that matches any of them explains the failure.
_CAUSES: tuple[_Cause, ...] = (
    _cause(
        "library_missing",
        r"(?:ImportError|OSError): .*cannot open shared object file",
        "Install the package that has this library on the host.",
    ),
    _cause(
        "module_missing",
        r"^(?:ModuleNotFoundError|ImportError): ",
        "The virtual environment is incomplete or was made for another Python: make it anew.",
    ),
    _cause(
        "unknown_argument", r"error: unrecognized arguments: ", "Correct the argument; names are those of this release."
    ),
    _cause("bad_argument", r"error: (?:ambiguous option|argument [^:]+):? ", "Correct the argument's value or name."),
    _cause(
        "bad_config",
        r"ValueError: (?:Unsupported config option|Config file)",
        "Correct the credentials file of the instance.",
    ),
    _cause(
        "weights_too_large",
        r"Loaded weights leave no GPU memory",
        "Raise the memory fraction above the figure named, use a smaller model, or more cards.",
    ),
    _cause(
        "pool_too_small",
        r"Not enough (?:GPU )?memory\b.*|SWA pool \(\d+ tokens\) cannot hold|KV pool holds \d+ tokens, fewer than",
        "Raise the memory fraction or lower the context length.",
    ),
    _cause(
        "cards_unbalanced",
        r"The memory capacity is unbalanced",
        "Another process uses one of the cards: see which with nvidia-smi.",
    ),
    _cause(
        "card_memory",
        r"torch\.(?:cuda\.)?OutOfMemoryError: |CUDA out of memory",
        "The card's memory ran out: lower the memory fraction, or free the card of other processes.",
    ),
    _cause(
        "no_card",
        r"No CUDA GPUs are available|CUDA driver version is insufficient|Found no NVIDIA driver|CUDA error: ",
        "Check the driver with nvidia-smi, and that the instance's cards exist.",
    ),
    _cause(
        "port_taken",
        r"\[Errno 98\]|Address already in use|address already in use",
        "Another process holds the port: stop it or give the instance another one.",
    ),
    _cause("permission", r"PermissionError: .*|\[Errno 13\]", "The service user needs access to this path."),
    _cause("disk_full", r"\[Errno 28\]|No space left on device", "Free space on this file system."),
    _cause(
        "model_path",
        r"(?:does not appear to have a file named|is not a local folder and is not a valid model identifier"
        r"|Repo id must be|Cannot find the requested files in the disk cache"
        r"|Can't load the configuration of|[Uu]nrecognized model in"
        r"|No such file or directory: '[^']*config\.json'|couldn't connect to '[^']*' to load)",
        "Check the model's path: it must hold config.json and be readable by the service user.",
    ),
    _cause(
        "weights_broken",
        r"SafetensorError|Error while deserializing header|Cannot find any model weights",
        "The weight files are damaged or missing: fetch the model again.",
    ),
    _cause(
        "key_refused",
        r"API key is not supported in multi-tokenizer mode",
        "Leave out the API key or set tokenizer-worker-num to 1.",
    ),
    # What an engine says when the container never came to run (docker 26.1 and podman 5.4).
    _cause(
        "image_missing",
        r"image not known|No such image:|Unable to find image",
        "The image is not on this host, and a start does not pull: server_prefetch does, and so do deploy and rollout.",
    ),
    _cause(
        "engine_cards",
        r"could not select device driver|unresolvable CDI devices|CDI device injection failed|nvidia-container-cli",
        "The engine does not know the cards: the preflight's area container says what is missing.",
    ),
    _cause(
        "engine_limits",
        r"error setting rlimit",
        "The engine itself may not raise this limit: see the limits of docker.service, or lower it with "
        "engine_arguments, as --ulimit=memlock=8388608.",
    ),
    _cause(
        "mount_missing",
        r"bind source path does not exist|statfs \S+: no such file or directory",
        "A path that the container is to see is not on this host: create it, or correct what names it.",
    ),
    _cause(
        "image_python",
        r"executable file (?:`\S+` )?not found|exec: \S+: stat \S+: no such file",
        "The image has no such interpreter: set image_python.",
    ),
    _cause(
        "engine_down",
        r"Cannot connect to the Docker daemon",
        "docker does not run: `systemctl status docker.service`.",
    ),
    _cause(
        "engine_refused",
        r"docker: Error response from daemon: |OCI runtime|conmon failed",
        "The engine could not start the container.",
    ),
    # What systemd says when the process never came to run.
    _cause(
        "unit_exec",
        r"(?:Failed at step (?P<step>\w+) spawning|Failed to locate executable|Unable to locate executable)",
        "The unit cannot run this program: check that the virtual environment, the user and the paths exist.",
    ),
    _cause(
        "unit_setup",
        r"Failed to set up (?:mount namespacing|credentials)|Failed to load credential"
        r"|code=exited, status=(?:203|217|226|243)/",
        "The unit's environment could not be set up: check its user, its writable paths and its credentials file.",
    ),
    _cause("unit_condition", r"was skipped because", "A condition of the unit does not hold on this host."),
)

_IMPORTS = ("library_missing", "module_missing")
# It names no library: SGLang tries several files, and the lines before say what each of them lacks.
_NO_COMMON_OPS = re.compile(r"Could not load any common_ops library")

# Lines that look like an error and do not stop a start.
_HARMLESS = re.compile(
    r"Ignore import error when loading|UserWarning|FutureWarning|DeprecationWarning|Fail to set RLIMIT|"
    r"^\s*warnings\.warn|post-warmup freeze_gc failed|fall(?:ing)? ?back|No such container"
)

# Access-log lines of probes, and the usage text that comes before the complaint about an argument.
_NOISE = re.compile(r'"GET /|^\s+\[--|Using cgroups-v1 which is deprecated')

# The last line of a Python traceback.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)(?::|$)")

# Exceptions in the main process that only report the end of another one.
_REPORTS = ("EOFError", "BrokenPipeError", "KeyboardInterrupt")

# Lines that only say that something else failed. Used when the log holds nothing better.
_GENERIC: tuple[_Cause, ...] = (
    _cause(
        "killed_for_memory",
        r"A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill'",
        "The kernel ended the server for lack of memory: raise the instance's memory limit or free the host.",
    ),
    _cause(
        "scheduler_killed",
        r"scheduler died during initialization \(exit code: -9\)",
        "The scheduler was killed from outside. Most often the kernel ended it for lack of memory: compare the "
        "instance's memory limit with what a start needs, and see the kernel log.",
    ),
    _cause(
        "scheduler_died",
        r"scheduler died during initialization",
        "The scheduler ended without an error in the log: see the journal of the unit.",
    ),
    _cause(
        "child_crashed",
        r"Subprocess \S+ \(pid=\d+\) crashed with exit code",
        "One of the server's processes crashed: see the kernel log and the lines before.",
    ),
    _cause(
        "library_missing",
        r"Could not load any common_ops library",
        "SGLang's kernels could not be loaded: see the lines before for what is missing.",
    ),
    _cause("watchdog", r"watchdog timeout \(self\.watchdog_timeout=", "The scheduler stopped making progress."),
    _cause("warmup_failed", r"Initialization failed\. warmup error", "The warm-up request failed."),
    _cause(
        "child_failed",
        r"SIGQUIT received\.|[Rr]eceived sigquit from a child process",
        "One of the server's processes failed.",
    ),
    _cause("main_exited", r"Main process exited, code=", "The server ended without an error in its log."),
    _cause("unit_failed", r"Failed with result '", "See the journal of the unit."),
)


def _shortened(line: str) -> str:
    message = line.strip()
    return message if len(message) <= _LONGEST_LINE else message[: _LONGEST_LINE - 1] + "…"


def _found(line: str, cause: _Cause, generic: bool = False) -> Explanation:
    return Explanation(line=_shortened(line), kind=cause.kind, hint=cause.hint, generic=generic)


def _of_library(line: str, lines: Sequence[str]) -> Explanation:
    """What an import that failed really lacks, and how to get it."""
    only_a_report = _NO_COMMON_OPS.search(line)
    problem = missing_library.explain_import_error(lines if only_a_report else [line])
    if problem is not None:
        hint = f"{problem.summary}. Next step: {problem.fix}"
        return Explanation(line=_shortened(problem.line), kind="library_missing", hint=hint)
    message = split_prefix(line).message
    cause = next(each for each in (*_CAUSES, *_GENERIC) if each.pattern.search(message))
    return _found(line, cause)


def explain(lines: Sequence[str]) -> Explanation | None:
    """The line that explains why a start failed.

    The first line that names a cause; else the first exception that is not itself only the report of another
    failure; else what the server says about a child that died; else nothing.
    """
    candidates = [line for line in lines if line.strip() and not _HARMLESS.search(line) and not _LAUNCHED.search(line)]
    for line in candidates:
        message = split_prefix(line).message
        for cause in _CAUSES:
            if cause.pattern.search(message):
                return _of_library(line, candidates) if cause.kind in _IMPORTS else _found(line, cause)
    for line in candidates:
        message = split_prefix(line).message
        only_a_report = message.startswith(_REPORTS) or any(cause.pattern.search(message) for cause in _GENERIC)
        if _EXCEPTION.match(message) and not only_a_report:
            return Explanation(line=_shortened(line), kind="exception", hint="")
    for cause in _GENERIC:
        for line in candidates:
            if cause.pattern.search(split_prefix(line).message):
                return _found(line, cause, generic=True)
    return None


def tail(lines: Sequence[str], count: int = 15) -> list[str]:
    """The last lines that say something, without access-log noise, each cut to a readable length."""
    telling = [line for line in lines if line.strip() and not _NOISE.search(line) and not _LAUNCHED.search(line)]
    return [_shortened(line) for line in telling[-count:]]


def summary(log: StartLog) -> dict[str, Any]:
    return {
        "phases": dict(log.phases),
        "max_total_num_tokens": log.max_total_num_tokens,
        "model_class": log.model_class,
    }
