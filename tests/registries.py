"""Real registries on loopback, and images of a few layers made for them without an engine."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

# --- images ---------------------------------------------------------------------------------------------------------


class Layout:
    """A directory of images as OCI lays them out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, media_type: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (self.path / "blobs" / "sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    def image(self, architecture: str, build: str, cuda: str, filling: Sequence[bytes] = ()) -> dict[str, Any]:
        """An image with a layer for each filling, or of two small ones that are its own."""
        layers, contents = [], []
        for number, data in enumerate(filling or [f"{build} {number}".encode() for number in range(2)]):
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                entry = tarfile.TarInfo(f"file-{number}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
            layers.append(self.blob("layer.v1.tar+gzip", gzip.compress(archive.getvalue(), 1, mtime=0)))
            contents.append(f"sha256:{hashlib.sha256(archive.getvalue()).hexdigest()}")
        config = {
            "created": "2026-11-01T10:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Env": [f"CUDA_VERSION={cuda}", f"NVIDIA_REQUIRE_CUDA=cuda>={cuda}"],
                "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
                "Labels": {"build": build},
            },
            "rootfs": {"type": "layers", "diff_ids": contents},
        }
        described = self.blob("config.v1+json", json.dumps(config).encode())
        manifest = {"schemaVersion": 2, "config": described, "layers": layers}
        manifest["mediaType"] = "application/vnd.oci.image.manifest.v1+json"
        platform = {"os": "linux", "architecture": architecture}
        return {**self.blob("manifest.v1+json", json.dumps(manifest).encode()), "platform": platform}

    def index(self, *images: dict[str, Any]) -> dict[str, Any]:
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": images}
        return self.blob("index.v1+json", json.dumps(index).encode())

    def push(self, what: dict[str, Any], where: str, *options: str) -> str:
        """Put an image or an index into a registry, under a tag. Returns its digest."""
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [what]}))
        words = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--insecure-policy"]
        words += ["--dest-tls-verify=false", *options, f"oci:{self.path}", f"docker://{where}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        digest: str = what["digest"]
        return digest


# --- registries -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running_registry(directory: Path, htpasswd: str = "") -> Iterator[str]:
    """docker-registry on loopback with its storage in a directory. Gives host and port."""
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        "http": {"addr": address},
    }
    if htpasswd:
        (directory / "htpasswd").write_text(htpasswd)
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}
    # JSON is YAML.
    (directory / "config.yml").write_text(json.dumps(config))
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(directory / "config.yml")], stdout=log, stderr=log)
    try:
        host, port = address.split(":")
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                break
            assert process.poll() is None, (directory / "log").read_text()
            time.sleep(0.05)
        else:
            pytest.fail(f"the registry did not begin to listen: {(directory / 'log').read_text()}")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=10)
