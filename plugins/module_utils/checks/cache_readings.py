# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The caches of the declared servers as they are on the host. It reads and does not decide."""

from __future__ import annotations

import functools
import os
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import spec
from ..server_args import canonical
from ..server_flags import KINDS
from . import file_systems, lock_holders
from .cache_directories import BY_EXISTENCE, CACHES, CacheDirectory, CacheRelease, Place, cache_release_for
from .file_systems import Identity, Mount, Space
from .instance_shape import NOT_CUDA, instances_of
from .lock_holders import Lock
from .plain import plain
from .reading import CouldNotTell, Reader, Reading, Unknown, gather

NATIVE = "native"
CONTAINER_HOME = "/root"
# A cache may hold very many files; what a walk has not seen by then is said to be unknown.
WALK_ENTRIES = 200_000
WALK_S = 0.8
LIMIT_S = 1.8
# Lock files of each kind that are looked at one by one.
LOCKS = 500
NOT_READ = Unknown("it was not read")


@dataclass(frozen=True)
class Bind:
    """A directory of the host in a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Server:
    """A declared instance, as far as its caches go. `declared` is the environment that the operator gave it.

    `compiles`: it runs on cards, so its kernels are compiled. `deep_gemm`: also those that take longest may be.
    """

    name: str
    version: str
    runtime: str
    user: str
    home: str
    environment: Mapping[str, str]
    declared: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    writable: tuple[str, ...] = ()
    start_deadline_s: int | None = None
    deep_gemm: bool = False
    compiles: bool = True

    @property
    def native(self) -> bool:
        return self.runtime == NATIVE


@dataclass(frozen=True)
class Use:
    """One cache of one server: where the server sees it, and where on the host that is.

    `lost` says why it does not outlive the server; `host_path` is then empty.
    """

    server: str
    cache: CacheDirectory
    path: str
    host_path: str
    lost: str
    follows: bool
    explicit: bool
    read_only: bool = False


@dataclass(frozen=True)
class Contents:
    """What a walk through a cache found.

    `compiled` counts the files of compiled kernels that this release can use, `compiled_for_others` those in a folder
    of another release. `foreign` are directories inside that the service user may not write to. `complete` is false
    where the walk was cut short; `stopped` then says by what.
    """

    compiled: int = 0
    compiled_for_others: int = 0
    foreign: tuple[str, ...] = ()
    locks: tuple[Lock, ...] = ()
    complete: bool = True
    stopped: str = ""


@dataclass(frozen=True)
class Directory:
    """A directory of the host that is a cache of one or several servers.

    `probe` is the nearest directory that is there: where the missing ones are made. `refusal` says why the user cannot
    write there, and is empty when he can.
    """

    path: str
    caches: tuple[str, ...]
    servers: tuple[str, ...]
    user: str
    kernels: bool
    loaded: bool
    exists: Reading[bool] = NOT_READ
    probe: Reading[str] = NOT_READ
    owner: Reading[str] = NOT_READ
    refusal: Reading[str] = NOT_READ
    mount: Reading[Mount] = NOT_READ
    space: Reading[Space] = NOT_READ
    contents: Reading[Contents] = NOT_READ


@dataclass(frozen=True)
class Caches:
    """All caches of the declared servers of a host."""

    servers: tuple[Server, ...] = ()
    releases: Mapping[str, CacheRelease] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    directories: tuple[Directory, ...] = ()
    cores: int = 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "uses": [
                {
                    "instance": use.server,
                    "cache": use.cache.name,
                    "variable": use.cache.variable,
                    "path": use.path,
                    "host_path": use.host_path,
                    "lost": use.lost,
                }
                for use in self.uses
            ],
            "directories": [plain(directory) for directory in self.directories],
            "cores": self.cores,
        }


# --- what is declared -----------------------------------------------------------------------------------------------


def server_of(instance: Mapping[str, Any]) -> Server:
    """A declared instance with the environment that its unit or its image gives it."""
    name = str(instance.get("name") or "sglang")
    runtime = str(instance.get("runtime") or NATIVE)
    declared = _variables(instance.get("environment"))
    desired = instance.get("desired") or {}
    native = runtime == NATIVE
    # The unit gives each instance a home of its own below the service user's.
    home = str(instance.get("home") or (f"{spec.STATE_DIR}/{name}" if native else CONTAINER_HOME))
    if native:
        given = {variable: f"{spec.CACHE_DIR}/{folder}" for variable, folder in spec.CACHES.items()}
        given["HF_HOME"] = str(instance.get("hf_home") or spec.DEFAULTS["hf_home"])
        environment = {"HOME": home, **given, **declared}
    else:
        environment = {"HOME": home, **declared}
    return Server(
        name=name,
        version=str(instance.get("version") or max(KINDS)),
        runtime=runtime,
        user=str(instance.get("user") or (spec.USER if native else "root")),
        home=home,
        environment=environment,
        declared=_variables(instance["declared_environment"]) if "declared_environment" in instance else declared,
        binds=() if native else tuple(_binds(instance, home)),
        writable=_writable(instance, name, environment) if native else (),
        start_deadline_s=_whole(
            instance.get("start_deadline_s")
            or (desired.get("start") or {}).get("deadline_s", spec.DEFAULTS["start_deadline_s"])
        ),
        deep_gemm=_uses_deep_gemm(instance),
        compiles=canonical(instance.get("arguments") or {}).get("device", instance.get("device")) not in NOT_CUDA,
    )


def _variables(declared: Any) -> dict[str, str]:
    return {str(key): _text(value) for key, value in (declared or {}).items()}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, ArithmeticError):
        return None


def _writable(instance: Mapping[str, Any], name: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What the unit lets the server write to; everything else is read-only for it."""
    paths = [f"{spec.STATE_DIR}/{name}", spec.CACHE_DIR, environment["HF_HOME"], "/tmp", "/var/tmp", "/dev/shm"]
    paths += [str(path) for path in instance.get("writable_paths") or ()]
    paths += [str(path) for path in (instance.get("desired") or {}).get("writable_paths") or ()]
    paths += [environment[variable] for variable in spec.CACHES if environment.get(variable)]
    return tuple(path.rstrip("/") for path in paths if path.startswith("/"))


def _binds(instance: Mapping[str, Any], home: str) -> list[Bind]:
    """Mounts as `-v` writes them or as mappings. A name without a slash is a volume, which outlives the container."""
    found: list[Bind] = []
    for mount in instance.get("mounts") or instance.get("volumes") or ():
        if isinstance(mount, Mapping):
            source, target = str(mount.get("source") or ""), str(mount.get("target") or "")
            options = ["ro"] if mount.get("read_only") else []
        else:
            source, _colon, rest = str(mount).partition(":")
            target, _colon, said = rest.partition(":")
            options = said.split(",")
            target = target or source
        if target.startswith("~"):
            target = home + target[1:]
        found.append(Bind(os.path.expanduser(source), posixpath.normpath(target or source), "ro" in options))
    return found


def _uses_deep_gemm(instance: Mapping[str, Any]) -> bool:
    """DeepGEMM compiles for block-quantised FP8; a declaration may also say so outright."""
    if instance.get("deep_gemm") is not None:
        return bool(instance["deep_gemm"])
    arguments = canonical(instance.get("arguments") or {})
    words = " ".join(str(arguments.get(name) or "") for name in ("moe-runner-backend", "fp8-gemm-backend"))
    model = f"{instance.get('model') or ''} {arguments.get('quantization') or ''}".lower()
    return "deep_gemm" in words or "fp8" in model or "deepseek-v3" in model or "deepseek-r1" in model


def use_of(server: Server, place: Place) -> Use:
    """Where one cache of one server is on the host, or why it is lost."""

    def use(host_path: str, lost: str = "", read_only: bool = False) -> Use:
        return Use(server.name, place.cache, place.path, host_path, lost, place.follows, place.explicit, read_only)

    if server.native:
        if _below(place.path, "/tmp") or _below(place.path, "/var/tmp"):
            return use("", "the unit has a private /tmp, which goes with each stop")
        path = (
            place.path if place.path.startswith("/") else posixpath.join(f"{spec.STATE_DIR}/{server.name}", place.path)
        )
        return use(path)
    best: Bind | None = None
    for bind in server.binds:
        if _below(place.path, bind.target) and (best is None or len(bind.target) > len(best.target)):
            best = bind
    if best is None:
        return use("", "it lies in the container, without a mount")
    if not best.source.startswith("/"):
        return use("", "", best.read_only)  # a volume: it stays, and only its engine knows where
    rest = place.path[len(best.target.rstrip("/")) :]
    return use(posixpath.normpath(best.source + rest), "", best.read_only)


def _below(path: str, top: str) -> bool:
    top = top.rstrip("/")
    return path == top or path.startswith(top + "/")


# --- what is on the host --------------------------------------------------------------------------------------------


def resolve(instances: Sequence[Mapping[str, Any]], cores: int) -> Caches:
    """The caches of the declared instances, without a look at the host."""
    servers = tuple(server_of(instance) for instance in instances)
    releases = {server.version: cache_release_for(server.version) for server in servers}
    uses = tuple(
        use_of(server, place)
        for server in servers
        for place in releases[server.version].places(server.environment, server.home, server.user)
    )
    users = {server.name: server.user for server in servers}
    directories: dict[tuple[str, str], Directory] = {}
    for use in uses:
        if not use.host_path:
            continue
        key = (use.host_path, users[use.server])
        known = directories.get(key) or Directory(use.host_path, (), (), key[1], False, False)
        directories[key] = replace(
            known,
            caches=_with(known.caches, use.cache.name),
            servers=_with(known.servers, use.server),
            kernels=known.kernels or use.cache.kernels,
            loaded=known.loaded or use.cache.loaded,
        )
    return Caches(servers, releases, uses, tuple(directories.values()), cores)


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def read_caches(instances: Sequence[Mapping[str, Any]]) -> Caches:
    """Read the caches of the declared instances. All directories are read at once, each within its limit."""
    caches = resolve(instances, _cores())
    try:
        mounts: Reading[tuple[Mount, ...]] = file_systems.read_mounts()
    except CouldNotTell as error:
        mounts = Unknown(str(error))
    tops = {directory.path for directory in caches.directories}
    versions = _flashinfer_versions(caches)
    readers = {
        f"the cache {directory.path} as {directory.user}": Reader(
            functools.partial(read_directory, directory, mounts, tops, versions), LIMIT_S
        )
        for directory in caches.directories
    }
    read: list[Directory] = []
    for directory, result in zip(caches.directories, gather(readers).values()):
        if isinstance(result, Unknown):
            read.append(_unread(directory, result))
        else:
            read.append(result)
    return replace(caches, directories=_with_holders(read))


def _unread(directory: Directory, reason: Unknown) -> Directory:
    return replace(
        directory,
        exists=reason,
        probe=reason,
        owner=reason,
        refusal=reason,
        mount=reason,
        space=reason,
        contents=reason,
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _flashinfer_versions(caches: Caches) -> frozenset[str]:
    """The releases of FlashInfer whose kernels count; none named where one of them is not known."""
    releases = caches.releases.values()
    if any(release.assumed or not release.flashinfer for release in releases):
        return frozenset()
    return frozenset(release.flashinfer for release in releases)


def read_directory(
    directory: Directory,
    mounts: Reading[tuple[Mount, ...]],
    tops: set[str],
    flashinfer: frozenset[str] = frozenset(),
) -> Directory:
    """One directory. The readings fail one by one: what can be read is."""
    path = os.path.realpath(directory.path)
    probe = file_systems.nearest_existing(path)
    exists = probe == path
    who = _try(lambda: file_systems.identity_of(directory.user))
    # Before the first deployment the user is not there: the roles make it, and give it their directories.
    to_be_made = not exists or _below(directory.path, spec.CACHE_DIR)
    refusal = "" if to_be_made and isinstance(who, Unknown) and not file_systems.user_exists(directory.user) else None
    contents: Reading[Contents] = Contents()
    if exists and directory.kernels:
        contents = _try(lambda: walk(directory, who, tops, flashinfer))
    return replace(
        directory,
        exists=exists,
        probe=probe,
        owner=_try(lambda: file_systems.user_name(os.stat(probe).st_uid)),
        refusal=refusal if refusal is not None else _refusal(probe, who),
        mount=mounts if isinstance(mounts, Unknown) else _try(lambda: file_systems.mount_of(probe, mounts)),
        space=_try(lambda: file_systems.space_of(probe)),
        contents=contents,
    )


def _refusal(probe: str, who: Reading[Identity]) -> Reading[str]:
    return who if isinstance(who, Unknown) else _try(lambda: file_systems.may_write(probe, who))


def _try(read: Any) -> Any:
    try:
        return read()
    except CouldNotTell as error:
        return Unknown(str(error), error.fix)
    except OSError as error:
        return Unknown(str(error))


def walk(
    directory: Directory, who: Reading[Identity], tops: set[str], flashinfer: frozenset[str] = frozenset()
) -> Contents:
    """Look through a cache for compiled kernels, lock files, and directories of somebody else.

    Caches that lie in one another are walked each on its own.
    """
    endings = tuple(ending for cache in _named(directory.caches) for ending in cache.compiled)
    by_version = bool(flashinfer) and directory.caches == ("flashinfer",)
    compiled = others = seen = 0
    foreign: list[str] = []
    locks: dict[str, list[Lock]] = {}
    until = time.monotonic() + WALK_S
    stopped = ""
    for entry, version in _entries(directory.path, tops):
        if isinstance(entry, str):
            stopped = stopped or f"{entry} may not be listed"
            continue
        seen += 1
        if seen > WALK_ENTRIES or time.monotonic() > until:
            stopped = f"counting stopped after {seen - 1} files ({WALK_S:g} s and {WALK_ENTRIES} files at most)"
            break
        if entry.is_dir(follow_symlinks=False):
            if not isinstance(who, Unknown) and not _writable_by(entry, who):
                foreign.append(entry.path)
        elif entry.name.endswith(endings):
            if by_version and version not in flashinfer:
                others += 1
            else:
                compiled += 1
        else:
            kind = lock_holders.kind_of(entry.name)
            of_kind = locks.setdefault(kind, []) if kind else []
            lock = _lock_of(entry) if kind and len(of_kind) < LOCKS else None
            if lock is not None:
                of_kind.append(lock)
            elif kind == BY_EXISTENCE and len(of_kind) >= LOCKS:
                stopped = stopped or f"more than {LOCKS} lock files were not looked at"
    found = tuple(lock for of_kind in locks.values() for lock in of_kind)
    return Contents(compiled, others, tuple(foreign), found, not stopped, stopped)


def _entries(top: str, tops: set[str]) -> Iterator[tuple[os.DirEntry[str] | str, str]]:
    """Everything below a directory but what is a cache of its own, with the directory below `top` that it lies in.

    A path in the place of an entry is one that may not be listed.
    """
    stack = [(top, "")]
    while stack:
        path, version = stack.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.path in tops:
                            continue
                        stack.append((entry.path, version or entry.name))
                    yield entry, version
        except FileNotFoundError:
            continue
        except PermissionError:
            if path == top:
                raise CouldNotTell(f"{path} may not be listed") from None
            yield path, version


def _named(names: Sequence[str]) -> list[CacheDirectory]:
    return [cache for cache in CACHES if cache.name in names]


def _writable_by(entry: os.DirEntry[str], who: Identity) -> bool:
    try:
        return file_systems.allows(entry.stat(follow_symlinks=False), who, 3)
    except OSError:
        return True  # it went meanwhile


def _lock_of(entry: os.DirEntry[str]) -> Lock | None:
    kind = lock_holders.kind_of(entry.name)
    if kind is None:
        return None
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return Lock(entry.path, kind, max(0.0, time.time() - info.st_mtime), Unknown("not looked for yet"))


def _with_holders(directories: Sequence[Directory]) -> tuple[Directory, ...]:
    """Find who holds the locks, of all directories in one look through the processes."""
    files: dict[lock_holders.Key, str] = {}
    keys: dict[str, lock_holders.Key] = {}
    for directory in directories:
        if isinstance(directory.contents, Unknown):
            continue
        for lock in directory.contents.locks:
            try:
                info = os.stat(lock.path)
            except OSError:
                continue  # it was let go meanwhile
            keys[lock.path] = (info.st_dev, info.st_ino)
            files[keys[lock.path]] = lock.path
    held = lock_holders.holders(files)
    found: list[Directory] = []
    for directory in directories:
        contents = directory.contents
        if not isinstance(contents, Unknown) and contents.locks:
            locks = tuple(replace(lock, holders=held[keys[lock.path]]) for lock in contents.locks if lock.path in keys)
            directory = replace(directory, contents=replace(contents, locks=locks))
        found.append(directory)
    return tuple(found)


def examine_caches(params: Mapping[str, Any]) -> dict[str, Any]:
    """The caches of the declared instances: what was read, and what follows from it."""
    # The checks import the readings.
    from . import cache_checks
    from .check import as_dicts, run_checks

    caches = read_caches(instances_of(params.get("instances")))
    return {"readings": caches.as_dict(), "findings": as_dicts(run_checks(cache_checks.CHECKS, caches))}
