"""podman of the test hosts of Debian 13, for a test that runs on this machine: its storage is the test's own.

It runs in a root file system and a mount namespace of its own, and sees this machine's network.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

CACHE = Path(os.environ.get("SGLANG_TEST_CACHE", "/var/cache/serving-sglang"))
# Found now: a test may take away the PATH.
NSENTER, CHROOT, UMOUNT = (shutil.which(program) or program for program in ("nsenter", "chroot", "umount"))
ROOT = CACHE / "rootfs-trixie"

_ENTER = """
root={root} storage={storage}
mount -t overlay overlay -o lowerdir={lower},upperdir={work}/upper,workdir={work}/work "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/shm"
for node in null zero urandom random; do : > "$root/dev/$node"; mount --bind /dev/$node "$root/dev/$node"; done
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root$storage"
mount --bind "$storage" "$root$storage"
echo ready
exec sleep infinity
"""


class Podman:
    """A program `podman` in `programs` with its storage in `storage`; with a size, that is a disk of its own."""

    def __init__(self, directory: Path, size: str = "") -> None:
        self.directory = directory
        self.storage = directory / "storage"
        self.programs = directory / "bin"
        self.size = size

    def __enter__(self) -> Podman:
        work = self.directory / "work"
        for path in (work / "upper", work / "work", self.directory / "root", self.storage, self.programs):
            path.mkdir(parents=True)
        if self.size:
            # Outside the namespace: the module asks what is free there.
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.storage], check=True)
        script = _ENTER.format(
            root=shlex.quote(str(self.directory / "root")),
            storage=shlex.quote(str(self.storage)),
            lower=ROOT,
            work=work,
        )
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.keeper.stdout is not None
        assert self.keeper.stdout.readline() == "ready\n"
        configuration = self.directory / "root" / "etc" / "containers" / "storage.conf"
        text = f'[storage]\ndriver = "overlay"\ngraphroot = "{self.storage}/graph"\nrunroot = "/run/storage"\n'
        inside = Path(f"/proc/{self.keeper.pid}/root") / configuration.relative_to("/")
        inside.write_text(text)
        program = self.programs / "podman"
        program.write_text(
            f"#!/bin/sh\nexec {NSENTER} --mount --target {self.keeper.pid} -- {CHROOT} {self.directory}/root "
            '/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 podman "$@"\n'
        )
        program.chmod(0o755)
        return self

    def __exit__(self, *_error: object) -> None:
        self.keeper.kill()
        self.keeper.wait()
        for _ in range(50):
            if (
                not self.size
                or subprocess.run([UMOUNT, self.storage], check=False, capture_output=True).returncode == 0
            ):
                return
            time.sleep(0.1)
        subprocess.run([UMOUNT, "--lazy", self.storage], check=False)

    def __call__(self, *words: str) -> str:
        done = subprocess.run([self.programs / "podman", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
