# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the caches of the declared servers. Rules only: they judge readings and touch nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from ..compile_time import Deadline, start_deadline_s
from ..finding import ERROR, UNKNOWN, WARNING, Finding
from .cache_directories import BY_EXISTENCE, SGLANG
from .cache_readings import Caches, Directory, Server, Use
from .check import Check, Kind, check
from .reading import CouldNotTell, Unknown, known

GIB = 1 << 30
LITTLE_BYTES = 5 * GIB
TOO_LITTLE_BYTES = 1 * GIB
LITTLE_INODES = 20_000


def _of(directory: Directory) -> str:
    return f"{', '.join(directory.caches)} of {', '.join(directory.servers)}"


def _unknown(kind: Kind, directory: Directory, error: CouldNotTell) -> Finding:
    fix = (
        error.fix or "make this readable and run again (as root), or put the finding on the ignore list with the reason"
    )
    return Finding(kind.id, UNKNOWN, f"could not tell for {directory.path}: {kind.title}", str(error), fix)


NOT_WRITABLE = Kind(
    "cache.not_writable",
    ERROR,
    "the service user cannot write to a cache",
    "The server fails with PermissionError when it compiles its first kernel or fetches weights, minutes into a start.",
    "give the directory to the service user",
    "SGLang makes its cache directories itself (srt/environ.py, kernels/jit/utils/compile/cache.py)",
)


@check(NOT_WRITABLE)
def not_writable(caches: Caches) -> Iterator[Finding]:
    servers = {server.name: server for server in caches.servers}
    for directory in caches.directories:
        quoted = shlex.quote(directory.path)
        owned = f'install -d -o {directory.user} -g "$(id -gn {directory.user})" {quoted}'
        try:
            mount = known(directory.mount)
            exists = known(directory.exists)
            to_be_made = not exists and _made_by_roles(directory, servers, known(directory.probe))
            refusal = "" if to_be_made else known(directory.refusal)
        except CouldNotTell as error:
            yield _unknown(NOT_WRITABLE, directory, error)
            continue
        if mount.read_only:
            yield NOT_WRITABLE.found(
                f"{directory.path} ({_of(directory)}) is on a file system that is mounted read-only",
                mount.text,
                f"mount -o remount,rw {shlex.quote(mount.point)}",
            )
        elif refusal and not exists:
            yield NOT_WRITABLE.found(
                f"{directory.path} ({_of(directory)}) is not there, and {directory.user} cannot make it", refusal, owned
            )
        elif refusal:
            yield NOT_WRITABLE.found(
                f"{directory.user} cannot write to {directory.path} ({_of(directory)})",
                refusal,
                f"chown -R {directory.user}: {quoted}",
            )
    for use in caches.uses:
        server = servers[use.server]
        if use.read_only:
            yield NOT_WRITABLE.found(
                f"{use.server} has its cache {use.cache.name} mounted read-only",
                f"{use.host_path or use.path} at {use.path}",
                "declare the mount without ro",
            )
        elif server.native and use.host_path and not _allowed(use.host_path, server):
            yield NOT_WRITABLE.found(
                f"the unit of {use.server} does not let it write to its cache {use.cache.name}",
                f"{use.cache.variable} leads to {use.host_path}; it may write to {', '.join(server.writable)}",
                f"add {use.host_path} to writable_paths of {use.server}",
            )


def _allowed(path: str, server: Server) -> bool:
    return any(path == top or path.startswith(top + "/") for top in server.writable)


def _made_by_roles(directory: Directory, servers: Mapping[str, Server], probe: str) -> bool:
    """Whether nothing of it is there yet because the roles have not run: they make it for the service user."""
    return all(
        servers[name].native and _allowed(directory.path, servers[name]) and not _allowed(probe, servers[name])
        for name in directory.servers
    )


FOREIGN = Kind(
    "cache.foreign_owner",
    ERROR,
    "a cache has directories of another user inside",
    "Somebody ran SGLang with the same caches as another user, mostly root. The server fails with PermissionError as "
    "soon as it compiles a kernel whose directory is there already.",
    "give all of the cache to the service user",
    "every compiler cache makes its directories with the mode of the user who compiles",
)


@check(FOREIGN)
def foreign_owner(caches: Caches) -> Iterator[Finding]:
    for directory in caches.directories:
        try:
            contents = known(directory.contents)
        except CouldNotTell as error:
            yield _unknown(FOREIGN, directory, error)
            continue
        if contents.foreign:
            yield FOREIGN.found(
                f"{len(contents.foreign)} directories in {directory.path} ({_of(directory)}) cannot be written to by "
                f"{directory.user}",
                f"for example {contents.foreign[0]}",
                f"chown -R {directory.user}: {shlex.quote(directory.path)}",
            )


NOEXEC = Kind(
    "cache.noexec",
    ERROR,
    "a cache of compiled kernels is mounted noexec",
    "Compiled kernels are libraries, which the server loads into its process. From a noexec mount that fails with "
    '"failed to map segment from shared object: Operation not permitted", after the time of compiling was spent.',
    "mount it with exec, or move the cache",
    "dlopen(3) of the compiled .so files; mmap with PROT_EXEC is refused on a noexec mount",
)


@check(NOEXEC)
def noexec(caches: Caches) -> Iterator[Finding]:
    for directory in caches.directories:
        if not directory.loaded:
            continue
        try:
            mount = known(directory.mount)
        except CouldNotTell as error:
            yield _unknown(NOEXEC, directory, error)
            continue
        if mount.noexec:
            yield NOEXEC.found(
                f"{directory.path} ({_of(directory)}) is on a noexec mount: compiled kernels cannot be loaded from it",
                mount.text,
                f"`mount -o remount,exec {shlex.quote(mount.point)}`, and drop noexec from its line in /etc/fstab",
            )


SPACE = Kind(
    "cache.space",
    ERROR,
    "a cache has little space left",
    "A compiler that finds no space leaves half a kernel behind and the start fails; all caches together grow to "
    "several GiB for one model.",
    "free space, or move the caches to a larger file system",
    "errno 28 in the log of a start; sizes of caches after a cold start",
)


@check(SPACE)
def space(caches: Caches) -> Iterator[Finding]:
    seen: set[str] = set()
    for directory in caches.directories:
        try:
            left, mount = known(directory.space), known(directory.mount)
        except CouldNotTell as error:
            yield _unknown(SPACE, directory, error)
            continue
        if mount.point in seen:
            continue
        seen.add(mount.point)
        if left.free_bytes < LITTLE_BYTES:
            yield SPACE.found(
                f"{mount.point} has {left.free_bytes / GIB:.1f} GiB left for the caches in {directory.path}",
                f"{left.free_bytes} of {left.total_bytes} bytes free; {LITTLE_BYTES // GIB} GiB are advised",
                f"see what fills it: `du -xh --max-depth=2 {shlex.quote(mount.point)} | sort -h | tail`",
                ERROR if left.free_bytes < TOO_LITTLE_BYTES else WARNING,
            )
        # Some file systems make inodes as they need them and count none.
        if left.total_inodes and left.free_inodes < LITTLE_INODES:
            yield SPACE.found(
                f"{mount.point} has {left.free_inodes} inodes left: a cache is very many small files",
                f"{left.free_inodes} of {left.total_inodes} inodes free",
                f"see where they went: `du -x --inodes -d2 {shlex.quote(mount.point)} | sort -n | tail`",
                WARNING,
            )


NETWORK = Kind(
    "cache.on_network",
    WARNING,
    "compiled kernels are cached on a network file system",
    "Locks of compilers do not hold there as they do on a disk: servers that start together fail with a stale file "
    "handle, wait for each other across hosts, or load half a file. Weights may well lie there.",
    "put the kernels on a local disk",
    "flashinfer-ai/flashinfer#3777",
)


@check(NETWORK)
def on_network(caches: Caches) -> Iterator[Finding]:
    for directory in caches.directories:
        if not directory.kernels:
            continue
        try:
            mount = known(directory.mount)
        except CouldNotTell as error:
            yield _unknown(NETWORK, directory, error)
            continue
        if mount.network:
            yield NETWORK.found(
                f"{directory.path} ({_of(directory)}) is on a network file system",
                mount.text,
                f"mount a local disk there, or set {', '.join(_variables(caches, directory))} to a local directory",
            )


def _variables(caches: Caches, directory: Directory) -> list[str]:
    return sorted({use.cache.variable for use in caches.uses if use.cache.name in directory.caches})


LOST = Kind(
    "cache.lost_at_restart",
    WARNING,
    "caches are lost when a server is started again",
    "What is lost is compiled or fetched anew at every start: minutes to half an hour during which the replica is out, "
    "and up to 24.5 GB of host memory for the compilers.",
    "mount a directory of the host there",
    "srt/environ.py: third_party_cache_defaults; sgl-project/sglang#29170, #39364",
)


@check(LOST)
def lost_at_restart(caches: Caches) -> Iterator[Finding]:
    directories = {directory.path: directory for directory in caches.directories}
    for server in caches.servers:
        uses = [use for use in caches.uses if use.server == server.name]
        lost = [use for use in uses if use.lost]
        if lost:
            yield _lost(server, caches, lost)
        fleeting: list[Use] = []
        for use in uses:
            directory = directories.get(use.host_path)
            if directory is None or isinstance(directory.mount, Unknown):
                continue  # another check says that it could not be read
            if directory.mount.in_memory:
                fleeting.append(use)
        if fleeting:
            paths = sorted({use.host_path for use in fleeting})
            yield LOST.found(
                f"{server.name} keeps {', '.join(use.cache.name for use in fleeting)} in memory: lost at each boot, "
                "and taken from the host's memory",
                f"tmpfs: {', '.join(paths)}",
                "move these to a disk",
            )


def _lost(server: Server, caches: Caches, lost: list[Use]) -> Finding:
    release = caches.releases[server.version]
    kernels = [use.cache.name for use in lost if use.cache.kernels]
    others = [use.cache.name for use in lost if not use.cache.kernels]
    what = " and ".join(
        part
        for part in (
            f"kernels ({', '.join(kernels)})" if kernels else "",
            f"{', '.join(others)}" if others else "",
        )
        if part
    )
    assumed = f"; assumed to be as at {release.version}" if release.assumed else ""
    evidence = "; ".join(f"{use.cache.name} in {use.path} ({use.cache.variable}): {use.lost}" for use in lost)
    if server.native:
        fix = "set these variables to directories below /var/cache/sglang"
    else:
        fix = "declare mounts: " + ", ".join(
            f"/var/cache/sglang/{folder}:{path}" for folder, path in _mounts_for(lost).items()
        )
    return LOST.found(f"{server.name} ({server.version}{assumed}) loses at each restart: {what}", evidence, fix)


def _mounts_for(lost: list[Use]) -> dict[str, str]:
    """The fewest mounts that keep them: a directory inside another one needs none of its own."""
    paths = {use.cache.name: use.path for use in lost}
    return {
        name: path
        for name, path in paths.items()
        if not any(path != other and path.startswith(other + "/") for other in paths.values())
    }


FOLLOWS = Kind(
    "cache.jit_does_not_follow",
    WARNING,
    "SGLang's own kernels are not where SGLANG_CACHE_DIR says",
    "SGLANG_JIT_CACHE_DIR does not follow SGLANG_CACHE_DIR: who moves or mounts only the one keeps the other in the "
    "home directory.",
    "set SGLANG_JIT_CACHE_DIR as well",
    "kernels/jit/utils/compile/cache.py: cache_root (0.5.22, 0.5.23)",
)


@check(FOLLOWS)
def jit_does_not_follow(caches: Caches) -> Iterator[Finding]:
    for server in caches.servers:
        base = server.declared.get(SGLANG.variable)
        if not base:
            continue
        for use in caches.uses:
            if use.server != server.name or use.cache.name != "jit" or server.declared.get(use.cache.variable):
                continue
            if use.path != base and not use.path.startswith(base.rstrip("/") + "/"):
                yield FOLLOWS.found(
                    f"{server.name} moves SGLANG_CACHE_DIR, and SGLang's own kernels stay behind",
                    f"SGLANG_CACHE_DIR={base}, the kernels are in {use.path}",
                    f"SGLANG_JIT_CACHE_DIR: {base.rstrip('/')}/jit",
                )


STALE = Kind(
    "cache.stale_lock",
    ERROR,
    "a lock file was left behind by a process that is gone",
    "torch's lock is the file itself: whoever finds it waits for ever, with no line in the log. The log ends at "
    '"Loading JIT ops" or at the first extension that is built.',
    "remove the lock file while no server of the host is starting",
    "torch/utils/file_baton.py; flashinfer-ai/flashinfer#972; pytorch/pytorch#189245",
)


@check(STALE)
def stale_lock(caches: Caches) -> Iterator[Finding]:
    for directory in caches.directories:
        try:
            contents = known(directory.contents)
        except CouldNotTell as error:
            yield _unknown(STALE, directory, error)
            continue
        if not contents.complete:
            yield Finding(
                STALE.id,
                UNKNOWN,
                f"{directory.path} has more in it than could be looked through in time",
                f"a stale lock file may be there: {contents.stopped or 'the walk was cut short'}",
                f"find {shlex.quote(directory.path)} -name lock",
            )
        for lock in contents.locks:
            if lock.kind != BY_EXISTENCE:
                continue  # the kernel lets go of it when its holder dies: the file alone locks nothing
            if isinstance(lock.holders, Unknown):
                yield Finding(
                    STALE.id, UNKNOWN, f"could not tell who holds {lock.text}", lock.holders.reason, "run as root"
                )
                continue
            if lock.holders:
                continue
            if not isinstance(directory.mount, Unknown) and directory.mount.network:
                yield Finding(
                    STALE.id,
                    UNKNOWN,
                    f"nobody on this host holds {lock.text}; somebody on another host may",
                    directory.mount.text,
                    _removal(lock.path),
                )
                continue
            yield STALE.found(
                f"{lock.text} has no holder: every start that needs this kernel waits for ever",
                f"no process has it open, and {directory.path} is a cache of {', '.join(directory.servers)}",
                _removal(lock.path),
            )


def _removal(path: str) -> str:
    """Removes the file unless a process has it open by now, in a container under whatever path."""
    quoted = shlex.quote(path)
    # By its inode, whatever the device: -samefile would find the file open in find itself.
    held = f"find -L /proc/[0-9]*/fd -maxdepth 1 -inum $(stat -c %i {quoted}) 2>/dev/null"
    return f"{held} | grep -q . || rm -- {quoted}"


COLD = Kind(
    "cache.cold_deadline",
    WARNING,
    "the start deadline is too short for empty caches",
    "The first start compiles its kernels, silently. server_start gives up at the deadline (the server goes on), and a "
    "rollout stops there.",
    "raise start_deadline_s, or warm the caches before",
    "recorded on an H200: 115 to 269 s cold, 43 to 58 s warm; SGLang's own line says 10 to 20 minutes for DeepGEMM",
)


@check(COLD)
def cold_deadline(caches: Caches) -> Iterator[Finding]:
    for server in caches.servers:
        if server.start_deadline_s is None or not server.compiles:
            continue
        try:
            cold = is_cold(caches, server)
        except CouldNotTell as error:
            yield Finding(
                COLD.id, UNKNOWN, f"could not tell whether the caches of {server.name} are cold", str(error), COLD.fix
            )
            continue
        needed = deadline_of(caches, server, cold)
        if server.start_deadline_s < needed.seconds:
            state = "cold" if cold else "warm"
            yield COLD.found(
                f"{server.name} is given {server.start_deadline_s} s to start and may need {needed.seconds} s with "
                f"{state} caches",
                f"{needed.reason}; reading weights not counted",
                f"start_deadline_s: {needed.seconds}",
            )


def deadline_of(caches: Caches, server: Server, cold: bool) -> Deadline:
    return start_deadline_s(cold, caches.cores, server.deep_gemm)


def is_cold(caches: Caches, server: Server) -> bool:
    """Whether no kernel that this server's release can use is compiled. Raises CouldNotTell where none can be seen."""
    reasons: list[str] = []
    for use in caches.uses:
        if use.server != server.name or not use.cache.kernels:
            continue
        if not use.host_path:
            if not use.lost:
                reasons.append(f"{use.cache.name} is in a volume that only its engine can look into")
            continue
        for directory in caches.directories:
            if directory.path != use.host_path or directory.user != server.user:
                continue
            if isinstance(directory.contents, Unknown):
                reasons.append(directory.contents.reason)
            elif directory.contents.compiled:
                return False
    if reasons:
        raise CouldNotTell("; ".join(dict.fromkeys(reasons)))
    return True


SHARED = Kind(
    "cache.shared_cold",
    WARNING,
    "several servers share one empty cache",
    "Started together they compile the same kernels at the same time, wait for each other's locks, and need the "
    "memory of all their compilers at once (24.5 GB were recorded for one).",
    "start one, and the others when it serves",
    "sgl-project/sglang#27604; deepseek-ai/DeepGEMM#302",
)


@check(SHARED)
def shared_cold(caches: Caches) -> Iterator[Finding]:
    servers = {server.name: server for server in caches.servers}
    said: set[tuple[str, ...]] = set()
    for directory in caches.directories:
        if not directory.kernels or len(directory.servers) < 2 or directory.servers in said:
            continue
        said.add(directory.servers)
        cold: list[str] = []
        try:
            cold = [name for name in directory.servers if servers[name].compiles and is_cold(caches, servers[name])]
        except CouldNotTell as error:
            yield _unknown(SHARED, directory, error)
            continue
        if len(cold) > 1:
            first = cold[0]
            yield SHARED.found(
                f"{len(cold)} servers ({', '.join(cold)}) share the cold cache {directory.path}: warm it with one "
                "server first, then start the others",
                f"no compiled kernels in {directory.path}",
                "sglang_server_start_throttle: 1 for the first start; on the host: "
                f"`systemctl start sglang-{first}.service`, and the others when it is ready",
            )


CHECKS: tuple[Check[Caches], ...] = (
    not_writable,
    foreign_owner,
    noexec,
    space,
    on_network,
    lost_at_restart,
    jit_does_not_follow,
    stale_lock,
    cold_deadline,
    shared_cold,
)
