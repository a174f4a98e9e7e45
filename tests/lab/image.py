#!/usr/bin/env python3
"""Make the images of the tests: real SGLang on a CPU, out of what setup.sh has made, put into a registry's storage.

    image.py CACHE STORAGE

CACHE is the folder that setup.sh fills; STORAGE is made: a folder that docker-registry serves, with the repository
`sglang`, and beside its own files `pins.json`, the digest of each tag. The tags:

    v0.5.22, v0.5.23    the two releases; they share all but their last layer
    v0.5.23-broken      v0.5.23 whose server cannot start, as its first module is missing

Layers are not compressed: packing two gigabytes would take longer than everything else.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fnmatch
import functools
import hashlib
import io
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ("0.5.22", "0.5.23")
BROKEN = "v0.5.23-broken"
REPOSITORY = "sglang"
HOME = "opt/sglang"
PACKAGES = "lib/python3.11/site-packages"
CREATED = "2026-11-01T00:00:00Z"

# What a server never needs of Debian and of the packages, and what is large.
DEBIAN_WITHOUT = """
boot/* dev/* home/* media/* mnt/* opt/* proc/* root/* run/* srv/* sys/* tmp/* var/*
etc/apt/* etc/ssh/* etc/systemd/* etc/sudoers* etc/udev/* etc/*shadow* etc/.pwd.lock etc/machine-id etc/resolv.conf
usr/lib/apt/* usr/lib/openssh/* usr/lib/systemd/* usr/lib/udev/* usr/lib/*/perl* usr/lib/*/gconv/* usr/lib/*/systemd/*
usr/lib/python3/* usr/sbin/* usr/share/* usr/bin/perl* usr/bin/ssh* usr/bin/sudo* usr/bin/systemd* usr/bin/*ctl
usr/lib/*/libperl* usr/lib/*/libapt* usr/lib/*/sudo/*
"""
PACKAGES_WITHOUT = """
*.a *.cu *.cuh *.h *.hpp *.pyi pip/* pip-*/* jedi/third_party/*
triton/backends/nvidia/bin/* triton/backends/nvidia/lib/* triton/_C/libproton.so
triton/instrumentation/* triton/plugins/* torch/test/* torch/bin/test_* torch/bin/protoc* torch/include/* torch/share/*
sympy/*/tests/* networkx/*/tests/* numpy/*/tests/* sglang/multimodal_gen/* sglang/test/*
"""
# These carry what only a debugger reads, more than half of their size.
STRIPPED = ("triton/_C/libtriton.so", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so")

# As in the published images: something that says a word and becomes the command. Whoever runs the server skips it.
ENTRYPOINT = b'#!/bin/sh\necho "== the entry point of the test image =="\nexec "$@"\n'
ENVIRONMENT = {
    "PATH": f"/{HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": f"/{HOME}/stubs",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
}


class Layer:
    """A layer being written: its tar goes to a file and through the hash that names it."""

    def __init__(self, blobs: pathlib.Path) -> None:
        self._blobs = blobs
        self._hash = hashlib.sha256()
        self._file = tempfile.NamedTemporaryFile(dir=blobs, delete=False)  # noqa: SIM115
        self._tar = tarfile.open(fileobj=self, mode="w|", bufsize=1 << 20)  # noqa: SIM115

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def add(self, source: pathlib.Path, name: str, content: pathlib.Path | None = None) -> None:
        """A file, a link or a folder without what is in it. Times stay: Python's compiled files name them."""
        entry = self._tar.gettarinfo(source, name)
        if entry is None or (entry.islnk() and content is not None):
            return
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        if not entry.isreg():
            self._tar.addfile(entry)
            return
        with (content or source).open("rb") as file:
            entry.size = os.fstat(file.fileno()).st_size
            self._tar.addfile(entry, file)

    def add_tree(self, top: pathlib.Path, prefix: str, without: str, instead: dict[str, pathlib.Path]) -> None:
        for folder, folders, files in os.walk(top):
            inside = pathlib.Path(folder).relative_to(top)
            folders[:] = sorted(name for name in folders if not _matches(f"{inside / name}/", without))
            for name in sorted([*folders, *files]):
                path = str(inside / name)
                if not _matches(path, without):
                    self.add(top / path, f"{prefix}/{path}".lstrip("/"), instead.get(path))

    def add_bytes(self, name: str, data: bytes = b"", mode: int = 0o644) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), mode
        self._tar.addfile(entry, io.BytesIO(data))

    def add_folder(self, name: str, mode: int = 0o755) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)

    def close(self) -> dict[str, Any]:
        """Its descriptor."""
        self._tar.close()
        size = self._file.tell()
        self._file.close()
        digest = self._hash.hexdigest()
        pathlib.Path(self._file.name).rename(self._blobs / digest)
        return {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": f"sha256:{digest}",
            "size": size,
        }


@functools.cache
def _pattern(patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns.split()))


def _matches(path: str, patterns: str) -> bool:
    return bool(patterns) and _pattern(patterns).match(path) is not None


class Layout:
    """A folder of images as OCI lays them out."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.blobs = path / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self._manifests: list[dict[str, Any]] = []

    def layer(self) -> Layer:
        return Layer(self.blobs)

    def _blob(self, media_type: str, content: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    def image(self, tag: str, version: str, layers: list[dict[str, Any]]) -> str:
        """Put an image together. Returns its digest."""
        config = {
            "created": CREATED,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
                "Entrypoint": [f"/{HOME}/entrypoint.sh"],
                "Cmd": ["/bin/bash"],
                "Labels": {"org.opencontainers.image.version": version},
            },
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self._blob("config.v1+json", config),
            "layers": layers,
        }
        described = self._blob("manifest.v1+json", manifest)
        self._manifests.append({**described, "annotations": {"org.opencontainers.image.ref.name": tag}})
        index = {"schemaVersion": 2, "manifests": self._manifests}
        (self.path / "index.json").write_text(json.dumps(index))
        return str(described["digest"])


def debian(layout: Layout, root: pathlib.Path) -> dict[str, Any]:
    layer = layout.layer()
    layer.add_tree(root, "", DEBIAN_WITHOUT, {})
    layer.add_folder("var/tmp", 0o1777)
    layer.add_folder("tmp", 0o1777)
    return layer.close()


def packages(layout: Layout, environment: pathlib.Path, work: pathlib.Path) -> dict[str, Any]:
    """The environment without SGLang itself, with the stubs and the entry point."""
    layer = layout.layer()
    layer.add_folder(HOME)
    layer.add_bytes(f"{HOME}/entrypoint.sh", ENTRYPOINT, 0o755)
    layer.add_bytes(f"{HOME}/pyvenv.cfg", (environment / "pyvenv.cfg").read_bytes())
    layer.add_folder(f"{HOME}/bin")
    for name in ("python", "python3", "python3.11"):
        layer.add(environment / "bin" / name, f"{HOME}/bin/{name}")
    layer.add(environment / "lib64", f"{HOME}/lib64")
    layer.add_folder(f"{HOME}/stubs")
    layer.add_tree(environment / "stubs", f"{HOME}/stubs", "", {})
    for folder in ("lib", "lib/python3.11", PACKAGES):
        layer.add_folder(f"{HOME}/{folder}")
    instead = {}
    for name in STRIPPED:
        instead[name] = work / pathlib.Path(name).name
        subprocess.run(["strip", "--strip-unneeded", "-o", instead[name], environment / PACKAGES / name], check=True)
    without = PACKAGES_WITHOUT + "sglang/ sglang-*.dist-info/"
    layer.add_tree(environment / PACKAGES, f"{HOME}/{PACKAGES}", without, instead)
    return layer.close()


def release(layout: Layout, environment: pathlib.Path) -> dict[str, Any]:
    """SGLang itself."""
    layer = layout.layer()
    for folder in sorted((environment / PACKAGES).glob("sglang*")):
        inside = f"{HOME}/{PACKAGES}/{folder.name}"
        layer.add_folder(inside)
        without = PACKAGES_WITHOUT.replace(" sglang/", " ")
        layer.add_tree(folder, inside, without, {})
    return layer.close()


def breakage(layout: Layout) -> dict[str, Any]:
    """What takes the module away that a server is started by."""
    layer = layout.layer()
    inside = f"{HOME}/{PACKAGES}/sglang"
    layer.add_bytes(f"{inside}/.wh.launch_server.py")
    layer.add_bytes(f"{inside}/__pycache__/.wh.launch_server.cpython-311.pyc")
    return layer.close()


@contextlib.contextmanager
def registry(storage: pathlib.Path) -> Iterator[str]:
    """docker-registry on loopback. Gives host and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": address},
    }
    # JSON is YAML.
    path = storage.with_suffix(".yml")
    path.write_text(json.dumps(config))
    process = subprocess.Popen(["docker-registry", "serve", path], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(tuple(address.split(":")), timeout=1):
                break
            if process.poll() is not None:
                sys.exit(f"image: docker-registry ended with {process.returncode}")
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def build(cache: pathlib.Path, layout: Layout, work: pathlib.Path) -> dict[str, str]:
    environments = [cache / "sglang" / version for version in VERSIONS]
    with concurrent.futures.ProcessPoolExecutor(2) as at_once:
        most = at_once.submit(packages, layout, environments[0], work)
        base = at_once.submit(debian, layout, cache / "rootfs-bookworm")
        releases = [at_once.submit(release, layout, environment) for environment in environments]
        digests = {}
        layers: list[dict[str, Any]] = []
        for version, own in zip(VERSIONS, releases):
            layers = [base.result(), most.result(), own.result()]
            digests[f"v{version}"] = layout.image(f"v{version}", version, layers)
    digests[BROKEN] = layout.image(BROKEN, VERSIONS[-1], [*layers, breakage(layout)])
    return digests


def main() -> None:
    cache, storage = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    storage.mkdir()
    with tempfile.TemporaryDirectory(dir=storage.parent) as folder:
        work = pathlib.Path(folder)
        layout = Layout(work / "layout")
        digests = build(cache, layout, work)
        with registry(storage) as address:
            for tag in digests:
                words = ["skopeo", "copy", "--quiet", "--preserve-digests", "--insecure-policy"]
                words += [
                    "--dest-tls-verify=false",
                    f"oci:{layout.path}:{tag}",
                    f"docker://{address}/{REPOSITORY}:{tag}",
                ]
                subprocess.run(words, check=True)
    storage.with_suffix(".yml").unlink()
    (storage / "pins.json").write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
