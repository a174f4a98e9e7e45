"""A hub of models on loopback, for huggingface_hub itself: the few answers that it needs to fetch a revision."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Model:
    """A model with one revision. `token`: who reads it must have it."""

    files: dict[str, bytes]
    revision: str = "v1"
    token: str = ""

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass
class Hub:
    """What the hub has, and what it was asked. `slow_s` is waited before each file's bytes."""

    models: dict[str, Model] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    slow_s: float = 0.0
    url: str = ""

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for."""
        return [line.rpartition("/")[2] for line in self.asked if line.startswith("GET") and "/resolve/" in line]

    def __enter__(self) -> Hub:
        hub = self

        class Handler(_Answers):
            pass

        Handler.hub = hub
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # More than the threads that download at once: who finds it full tries again much later.
    request_queue_size = 64


class _Answers(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(True)

    def do_HEAD(self) -> None:
        self._answer(False)

    def log_message(self, *_words: Any) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append(f"{self.command} {path}")
        words = path.strip("/").split("/")
        name = "/".join(words[2:4] if words[0] == "api" else words[:2])
        model = self.hub.models.get(name)
        if model is None:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif model.token and self.headers.get("Authorization") != f"Bearer {model.token}":
            self._json({"error": "Access is restricted"}, 401, {"X-Error-Code": "GatedRepo"})
        elif words[0] == "api":
            self._api(name, model, words[4], words[5] if len(words) > 5 else "main")
        elif words[2] == "resolve" and words[3] in (model.commit, model.revision):
            self._file(model, "/".join(words[4:]), body)
        else:
            self._json({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})

    def _api(self, name: str, model: Model, what: str, revision: str) -> None:
        if revision not in (model.revision, model.commit):
            self._json({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
        elif what == "tree":
            self._json(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for path, data in model.files.items()
                ]
            )
        else:
            siblings = [{"rfilename": path, "size": len(data)} for path, data in model.files.items()]
            self._json({"id": name, "modelId": name, "sha": model.commit, "siblings": siblings, "tags": []})

    def _file(self, model: Model, path: str, body: bool) -> None:
        data = model.files.get(path)
        if data is None:
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", model.commit)
        self.end_headers()
        if not body:
            return
        time.sleep(self.hub.slow_s)
        self.wfile.write(data)

    def _json(self, what: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
