# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a path lies on: the mount and its options, the space that is left, and who may write there."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .reading import CouldNotTell, read_text

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "wekafs", "glusterfs")
# Through FUSE come both: what is of another machine is named by the program that serves it.
NETWORK_FUSE = ("ceph", "glusterfs", "sshfs", "s3fs", "juicefs", "gcsfuse", "goofys", "mountpoint-s3", "rclone")
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    point: str
    filesystem: str
    source: str
    options: tuple[str, ...] = ()

    @property
    def noexec(self) -> bool:
        return "noexec" in self.options

    @property
    def read_only(self) -> bool:
        return "ro" in self.options

    @property
    def in_memory(self) -> bool:
        return self.filesystem in IN_MEMORY

    @property
    def network(self) -> bool:
        kind, _dot, program = self.filesystem.partition(".")
        return self.filesystem in NETWORK or (kind == "fuse" and program in NETWORK_FUSE)

    @property
    def text(self) -> str:
        return f"{self.point} ({self.filesystem} {self.source}, {','.join(self.options)})"


@dataclass(frozen=True)
class Space:
    """What is left of a file system. `total_inodes` is 0 where it does not count them."""

    free_bytes: int
    total_bytes: int
    free_inodes: int
    total_inodes: int


@dataclass(frozen=True)
class Identity:
    """A user as the kernel sees him."""

    name: str
    uid: int
    gids: tuple[int, ...] = ()


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The mounts in the text of mountinfo; a later one hides an earlier one at the same point."""
    mounts: list[Mount] = []
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        left, right = head.split(" "), tail.split(" ")
        if not dash or len(left) < 6 or len(right) < 2:
            continue
        options = [*left[5].split(","), *(right[2].split(",") if len(right) > 2 else ())]
        mounts.append(Mount(_plain(left[4]), right[0], _plain(right[1]), tuple(dict.fromkeys(options))))
    return tuple(mounts)


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def read_mounts() -> tuple[Mount, ...]:
    mounts = parse_mounts(read_text("/proc/self/mountinfo"))
    if not mounts:
        raise CouldNotTell("/proc/self/mountinfo names no mount")
    return mounts


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """The mount that a path lies on. Raises CouldNotTell when none matches."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    if best is None:
        raise CouldNotTell(f"no mount holds {path}")
    return best


def space_of(path: str) -> Space:
    try:
        info = os.statvfs(path)
    except OSError as error:
        raise CouldNotTell(f"{path}: {error.strerror}") from None
    return Space(info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize, info.f_favail, info.f_files)


def nearest_existing(path: str) -> str:
    """The path, or the nearest directory above it that is there. Raises CouldNotTell when that cannot be seen."""
    for each in (path, *_above(path)):
        try:
            os.stat(each)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise CouldNotTell(f"{each}: {error.strerror}") from None
        return each
    raise CouldNotTell(f"nothing of {path} is there")


def _above(path: str) -> Iterator[str]:
    while path not in ("/", ""):
        path = os.path.dirname(path)
        yield path


def identity_of(user: str) -> Identity:
    """Raises CouldNotTell when the host has no such user."""
    try:
        entry = pwd.getpwnam(user)
        groups = os.getgrouplist(user, entry.pw_gid)
    except KeyError:
        fix = "deploy the host once, the role sglang_host makes the user; or name the right user"
        raise CouldNotTell(f"user {user} does not exist on this host (the role sglang_host creates it)", fix) from None
    return Identity(user, entry.pw_uid, tuple(groups))


def user_exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def allows(info: os.stat_result, who: Identity, wanted: int) -> bool:
    """Whether mode bits give a user these of rwx (4, 2, 1). Root passes."""
    if who.uid == 0:
        return True
    if info.st_uid == who.uid:
        bits = info.st_mode >> 6
    elif info.st_gid in who.gids:
        bits = info.st_mode >> 3
    else:
        bits = info.st_mode
    return bits & wanted == wanted


def may_write(path: str, who: Identity) -> str:
    """Why the user cannot make files in this existing directory; empty when he can.

    Raises CouldNotTell where an access list may say otherwise than the mode.
    """
    for each in reversed((path, *_above(path))):
        try:
            info = os.stat(each)
        except OSError as error:
            raise CouldNotTell(f"{each}: {error.strerror}") from None
        wanted = 3 if each == path else 1
        if each == path and not stat.S_ISDIR(info.st_mode):
            return f"{each} is no directory"
        if not allows(info, who, wanted):
            if has_access_list(each):
                raise CouldNotTell(f"{each} has an access list, and its mode alone does not let {who.name} in")
            what = "write to" if each == path else "pass"
            owner = f"{user_name(info.st_uid)}:{group_name(info.st_gid)}"
            return f"{who.name} may not {what} {each} ({owner}, mode {stat.S_IMODE(info.st_mode):04o})"
    return ""


def has_access_list(path: str) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (OSError, AttributeError):
        return False
