# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a CUDA_HOME is made from and made into: reads wheels, torch and toolkits, builds a tree and switches to it.

The path of a tree is a link to a directory beside it (`cuda-home` -> `.cuda-home-k3x9d2ab`). A new tree is built under
a name of its own and becomes the tree by one rename, so a compiler that runs meanwhile finds the old one or the new one
and never nothing. A tree that something still runs from stays until a later run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .checks.cuda_wheels import DISTRIBUTIONS, NVRTC, CudaPart, CudaWheels, header_release
from .checks.reading import CouldNotTell, read_first, read_text, run_command
from .cuda_home import FILE, FileStatus, RootFiles, Toolkit, Torch, Tree, described
from .errors import EngineError

# Written last: what has none of it was left half-made.
RECORD = ".serving-sglang.json"
LOCK_LIMIT_S = 60.0

_SITE_PACKAGES = "import json, sys; print(json.dumps([p for p in sys.path if p.rstrip('/').endswith('-packages')]))"
_TORCH_VALUE = r"^{name}\b[^=\n]*=\s*(?:None|['\"](.*?)['\"])"


# --- readings -------------------------------------------------------------------------------------------------------


def read_site_packages(python: str) -> list[str]:
    """The directories that an interpreter takes packages from, in its own order."""
    output = run_command([python, "-Ic", _SITE_PACKAGES], limit_s=10)
    if output.code != 0:
        raise CouldNotTell(f"{python} does not run: {output.said}")
    try:
        return [str(path) for path in json.loads(output.stdout)]
    except ValueError:
        raise CouldNotTell(f"{python} answered {output.stdout[:80]!r} when asked for its packages") from None


def read_torch(site_packages: Sequence[str]) -> Torch | None:
    """What torch says of itself, without importing it; None when there is none."""
    for site in site_packages:
        path = os.path.join(site, "torch", "version.py")
        text = read_first(path)
        if text is None:
            continue
        values = {
            name: re.search(_TORCH_VALUE.format(name=name), text, re.MULTILINE) for name in ("__version__", "cuda")
        }
        version, cuda = values["__version__"], values["cuda"]
        if version is None or cuda is None:
            raise CouldNotTell(f"{path} does not say which version of torch and which CUDA it is")
        return Torch(version.group(1) or "unknown", cuda.group(1), _distribution(site_packages, "cuda_toolkit"))
    return None


def read_toolkit(path: str) -> Toolkit | None:
    """The toolkit that is installed at a path; None when nothing is."""
    if not os.path.isdir(path):
        return None
    nvcc = os.path.join(path, "bin", "nvcc")
    release = ""
    if os.access(nvcc, os.X_OK):
        with contextlib.suppress(CouldNotTell):
            found = re.search(r"release (\d+\.\d+)", run_command([nvcc, "--version"], limit_s=5).stdout)
            release = found.group(1) if found else ""
    headers = ""
    with contextlib.suppress(CouldNotTell):
        headers = header_release(os.path.join(path, "include")) or ""
    cudart = os.path.join(path, "lib64", "libcudart.so")
    return Toolkit(path, release, headers, cudart if os.path.exists(cudart) else "")


def read_roots(wheels: CudaWheels, parts: Sequence[CudaPart]) -> dict[str, RootFiles]:
    """The files of the chosen parts' roots, and of the other roots of the same major release."""
    major = parts[0].major
    roots = list(dict.fromkeys(part.root for part in parts))
    for site in dict.fromkeys(wheels.site_packages):
        root = os.path.join(site, "nvidia", f"cu{major}")
        if os.path.isdir(root) and root not in roots:
            roots.append(root)
    return {root: RootFiles(_files_of(root), _compiler_files(root)) for root in roots}


def read_driver_library() -> str | None:
    """The driver's libcuda on this host, as the loader knows it."""
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            output = run_command([ldconfig, "-p"], limit_s=5)
        except CouldNotTell:
            continue
        found = re.findall(r"^\s*libcuda\.so\.1 \(([^)]*)\) => (.+)$", output.stdout, re.MULTILINE)
        return next((path for kinds, path in found if "64" in kinds or "AArch64" in kinds), None)
    return None


def processes_with(path: str) -> list[int]:
    """Processes that were started with this CUDA_HOME. They look for the compiler when they need a kernel."""
    wanted = {f"{name}={path}".encode() for name in ("CUDA_HOME", "CUDA_PATH")}
    found = []
    for process in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
            if wanted & {variable.rstrip(b"/") for variable in file.read().split(b"\0")}:
                found.append(process)
    return found


def _distribution(site_packages: Sequence[str], name: str) -> str:
    """The version of an installed distribution, by the name of its directory; empty when it is not installed."""
    pattern = re.compile(rf"{re.escape(name)}-([^-]+)\.dist-info$", re.IGNORECASE)
    for site in site_packages:
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(site)):
                found = pattern.match(entry)
                if found:
                    return found.group(1)
    return ""


def _files_of(root: str) -> dict[str, FileStatus]:
    files = {}
    for folder in ("bin", "include", "lib", "lib64", "nvvm"):
        for path, _status in _walk(os.path.join(root, folder)):
            # What a link in a wheel leads to, not the link.
            status = os.stat(path)
            files[os.path.relpath(path, root)] = _file_status(status)
    return files


def _file_status(status: os.stat_result) -> FileStatus:
    return FileStatus(status.st_size, status.st_mtime_ns, bool(status.st_mode & stat.S_IXUSR))


def _compiler_files(root: str) -> frozenset[str]:
    """The files below a root that belong to the compiler's distributions (not NVRTC, which stands for itself)."""
    site, names = os.path.dirname(os.path.dirname(root)), set()
    prefix = os.path.relpath(root, site) + "/"
    distributions = {value.replace("-", "_") for name, value in DISTRIBUTIONS.items() if name != NVRTC}
    for entry in sorted(os.listdir(site)):
        if entry.endswith(".dist-info") and entry.split("-")[0] in distributions:
            text = read_first(os.path.join(site, entry, "RECORD")) or ""
            names |= {line.split(",")[0] for line in text.splitlines()}
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and link below a folder."""
    for directory, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(directory, name))]
        for name in files + links:
            path = os.path.join(directory, name)
            yield path, os.lstat(path)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


# --- the tree on disk -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Present:
    """What is at the path of a tree. `real` is the directory behind it, empty when there is none of ours."""

    path: str
    real: str = ""
    record: Mapping[str, Any] | None = None
    foreign: str = ""
    # Directories of trees beside it that are no longer used, and half-made ones.
    leftovers: tuple[str, ...] = ()


def look(path: str) -> Present:
    """What is there, and whose it is."""
    folder, name = os.path.split(path)
    ours = re.compile(rf"\.{re.escape(name)}-[a-z0-9_]{{8}}(?:\.link)?$")
    beside = sorted(entry for entry in _listed(folder) if ours.match(entry))
    if not os.path.lexists(path):
        return Present(path, leftovers=tuple(os.path.join(folder, entry) for entry in beside))
    target = os.readlink(path) if os.path.islink(path) else ""
    real = os.path.join(folder, target)
    if not target or os.path.basename(target) != target or not ours.match(target):
        what = f"a link to {target}" if target else "a directory" if os.path.isdir(path) else "a file"
        return Present(path, foreign=what)
    leftovers = tuple(os.path.join(folder, entry) for entry in beside if entry != target)
    return Present(path, real, _record_of(real), leftovers=leftovers)


def signatures(real: str) -> dict[str, str]:
    """Each entry of a tree on disk, to compare with the wanted ones."""
    found = {}
    for path, status in _walk(real):
        name = os.path.relpath(path, real)
        if name == RECORD:
            continue
        if stat.S_ISLNK(status.st_mode):
            found[name] = f"link {os.readlink(path)}"
        else:
            is_executable = bool(status.st_mode & stat.S_IXUSR)
            found[name] = f"file {status.st_size} {status.st_mtime_ns} {int(is_executable)}"
            if status.st_uid != os.geteuid() or not _is_readable(status):
                found[name] += f" {stat.filemode(status.st_mode)} {status.st_uid}"
    return found


def build(tree: Tree, path: str) -> str:
    """Build the tree beside its path and switch to it. Returns the directory behind the path."""
    folder, name = os.path.split(path)
    real = tempfile.mkdtemp(prefix=f".{name}-", dir=folder)
    try:
        for entry_path, entry in tree.entries.items():
            into = os.path.join(real, entry_path)
            os.makedirs(os.path.dirname(into), exist_ok=True)
            if entry.kind == FILE:
                _put_file(entry.source, into, entry.status)
            else:
                os.symlink(entry.source, into)
        for directory, _folders, _files in os.walk(real):
            os.chmod(directory, 0o755)
        record = os.path.join(real, RECORD)
        with open(record, "w", encoding="utf-8") as file:
            json.dump(described(tree), file, indent=2, sort_keys=True)
            file.write("\n")
        os.chmod(record, 0o644)
        link = f"{real}.link"
        os.symlink(os.path.basename(real), link)
        os.replace(link, path)
    except BaseException:
        shutil.rmtree(real, ignore_errors=True)
        raise
    return real


def remove(path: str) -> None:
    """Take the tree away: first the link, so that nobody finds half of it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def removable(directories: Sequence[str]) -> list[str]:
    """Those of the directories that no process runs a program from."""
    programs = []
    for process in _processes():
        with contextlib.suppress(OSError):
            programs.append(os.readlink(f"/proc/{process}/exe"))
    return [path for path in directories if not any(program.startswith(f"{path}/") for program in programs)]


def sweep(directories: Sequence[str]) -> None:
    """Remove directories of trees, and links, that are no longer used."""
    for path in directories:
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)


@contextlib.contextmanager
def locked(folder: str, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
    """Keep other runs from changing trees in this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        until = time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise EngineError(
                        "cuda_home.locked",
                        f"another run has been changing {folder} for more than {limit_s:g} s. Wait for it, then run "
                        "again",
                    ) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def _put_file(source: str, into: str, wanted: FileStatus) -> None:
    """The file itself under a second name where it is already as it shall be, else a copy.

    A second name costs no space and keeps the content when pip replaces the wheel, which writes new files.
    """
    status = os.stat(source)
    is_fitting = status.st_uid == os.geteuid() and _is_readable(status) and not status.st_mode & 0o022
    if is_fitting and not os.path.islink(source):
        try:
            os.link(source, into)
            return
        except OSError:
            pass  # another file system, or one without second names
    shutil.copyfile(source, into)
    os.chmod(into, 0o755 if wanted.executable else 0o644)
    os.utime(into, ns=(wanted.mtime_ns, wanted.mtime_ns))


def _is_readable(status: os.stat_result) -> bool:
    return status.st_mode & 0o444 == 0o444


def _record_of(real: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(read_text(os.path.join(real, RECORD)))
    except (CouldNotTell, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
