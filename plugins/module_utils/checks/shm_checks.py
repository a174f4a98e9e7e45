# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether /dev/shm is large enough, and what dead processes left in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ..finding import ERROR, WARNING, Finding
from .check import Kind, check
from .host_readings import HostReadings
from .process_scan import SHM, ProcessScan, ShmFile
from .reading import CouldNotTell, known
from .wanted import CONTAINERS, GIB

# Between the making of a segment and its first use it belongs to nobody, for a moment.
YOUNG_S = 600.0
# Of so many the names are written out in the fix; above it goes by kind.
_NAMED = 12
# NCCL's buffers, the tokenizers' arguments and the load counters; measured needs are below 1 GiB for 8 ranks.
_LEAST_FREE = GIB


@dataclass(frozen=True)
class Family:
    """Names that a library gives to its segments. The group `pid` of the pattern is the process that made it."""

    pattern: str
    glob: str
    who: str
    base: int = 10


FAMILIES = (
    Family(r"nccl-\w+", "nccl-*", "NCCL"),
    Family(r"sglang_loads_.+", "sglang_loads_*", "SGLang's load counters"),
    Family(r"multi_tokenizer_args_(?P<pid>\d+)", "multi_tokenizer_args_*", "SGLang's tokenizer workers"),
    Family(r"torch_(?P<pid>\d+)_.+", "torch_*", "torch"),
    Family(r"psm_[0-9a-f]+", "psm_*", "Python's shared memory"),
    Family(r"cuda\.shm\.[0-9a-f]+\.(?P<pid>[0-9a-f]+)\.\w+", "cuda.shm.*", "CUDA", base=16),
    Family(r"nvshmem-shm.*", "nvshmem-shm*", "NVSHMEM"),
)

LEAKED = Kind(
    "shm.leaked",
    WARNING,
    "dead processes left segments in /dev/shm",
    "They hold memory of the host until someone removes them or it reboots, and on unified memory that of the card. "
    "A server that was killed leaves them.",
    "remove what no process maps or holds open; the finding has the line that looks first",
    "SGLang and NCCL make these segments and unlink them in a clean end alone",
)
SMALL = Kind(
    "shm.too_small",
    ERROR,
    "/dev/shm is too small",
    "NCCL and the tokenizer workers share memory through it: the start fails with `No space left on device` or a bus "
    "error.",
    f"`mount -o remount,size=32G {SHM}`, and in /etc/fstab for the next boot",
    "NCCL: shared memory transport; SGLang's documentation runs containers with --shm-size 32g",
)


def family_of(name: str) -> Family | None:
    return next((family for family in FAMILIES if re.fullmatch(family.pattern, name)), None)


def leaked(scan: ProcessScan) -> list[ShmFile]:
    """Segments of known makers that no process uses, whose maker is gone, and which are not just being made."""
    found = []
    for file in scan.shm:
        family = family_of(file.name)
        if family is None or file.users or file.age_s < YOUNG_S:
            continue
        match = re.fullmatch(family.pattern, file.name)
        pid = match.groupdict().get("pid") if match else None
        if pid is not None and int(pid, family.base) in scan.alive:
            continue
        found.append(file)
    return found


def removal(files: Iterable[ShmFile]) -> str:
    """A line for a shell that looks again before it removes anything."""
    names = sorted(file.name for file in files)
    look = f"used=$(grep -hsF {SHM}/ /proc/[0-9]*/maps; ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F {SHM}/)"
    remove = 'printf "%s\\n" "$used" | grep -qF -- "$f" || rm -- "$f"'
    if len(names) <= _NAMED:
        paths = " ".join(shlex.quote(f"{SHM}/{name}") for name in names)
        return f"{look}; for f in {paths}; do {remove}; done"
    families = {family.glob for family in map(family_of, names) if family is not None}
    chosen = " -o ".join(f"-name {shlex.quote(glob)}" for glob in sorted(families))
    old = f"-type f -mmin +{YOUNG_S / 60:.0f}"
    return f"{look}; find {SHM} -maxdepth 1 {old} \\( {chosen} \\) | while read -r f; do {remove}; done"


@check(LEAKED)
def leaked_segments(readings: HostReadings) -> Iterable[Finding]:
    scan = known(readings.processes)
    candidates = leaked(scan)
    if not candidates:
        yield LEAKED.fine(f"no leaked segment among {len(scan.shm)} files in {SHM}")
        return
    if scan.hidden:
        # Who uses them may be among the processes that were not seen.
        raise CouldNotTell(f"{len(candidates)} segments in {SHM} look unused, and {scan.hidden}")
    total = sum(file.bytes for file in candidates)
    largest = sorted(candidates, key=lambda file: -file.bytes)
    named = ", ".join(f"{file.name} ({_size(file.bytes)}, {file.age_s / 3600:.1f} h old)" for file in largest[:_NAMED])
    more = f" and {len(candidates) - _NAMED} more" if len(candidates) > _NAMED else ""
    yield LEAKED.found(
        f"{len(candidates)} segments of dead processes hold {_size(total)} in {SHM}",
        f"no process maps or holds open: {named}{more}",
        removal(candidates),
    )


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB / 100 else f"{size / 2**20:.2f} MiB"


@check(SMALL)
def shm_size(readings: HostReadings) -> Iterable[Finding]:
    space = known(readings.shm)
    if not space.exists:
        yield SMALL.found(f"{SHM} is not there", f"nearest: {space.found}", f"mount -t tmpfs -o size=32G tmpfs {SHM}")
        return
    evidence = f"{SHM}: {_size(space.total)}, {_size(space.free)} free"
    # A container has its own, unless it takes the host's; that is looked at with the containers.
    native = [each.name for each in readings.wanted if each.runtime not in CONTAINERS]
    if space.free >= _LEAST_FREE or (readings.wanted and not native):
        yield SMALL.fine(f"{SHM} has {_size(space.free)} free", evidence)
        return
    full = space.total >= 4 * _LEAST_FREE
    yield SMALL.found(
        f"{SHM} has {_size(space.free)} free of {_size(space.total)}, below {_size(_LEAST_FREE)}",
        evidence,
        "see what fills it: `ls -lS /dev/shm | head`" if full else SMALL.fix,
        severity=WARNING if space.free >= _LEAST_FREE // 4 else ERROR,
    )


CHECKS = (leaked_segments, shm_size)
