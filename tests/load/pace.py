"""Keep real servers slow on purpose: long answers in flight for little processor time.

A server forgets its pace when it restarts, so each is told again and again, as soon as it answers.
"""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse


class Pace(threading.Thread):
    def __init__(self, servers: list[str], sleep_s: float, every_s: float = 1.0) -> None:
        super().__init__(name="pace", daemon=True)
        self.servers, self.sleep_s, self.every_s = servers, sleep_s, every_s
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            for server in self.servers:
                slow_down(server, self.sleep_s)
            self._ended.wait(self.every_s)

    def end(self) -> None:
        self._ended.set()


def slow_down(server: str, sleep_s: float) -> bool:
    """Make each step of the server's scheduler wait this long. False when the server does not answer now."""
    target = urllib.parse.urlsplit(server)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=3)
    try:
        body = json.dumps({"forward_sleep_time": sleep_s})
        connection.request("POST", "/slow_down", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
