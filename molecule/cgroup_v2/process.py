"""What runs in the containers of this scenario in the place of SGLang, whose start takes too long there.

A server with a child process that can be told what a test needs: to answer late, or to take memory. Like SGLang it
finishes the requests that it has when SIGTERM comes, and ends with 0.
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
import threading
import time
import urllib.parse


class Requests(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = urllib.parse.urlsplit(self.path)
        number = int(dict(urllib.parse.parse_qsl(asked.query)).get("n", 0))
        if asked.path == "/wait":
            time.sleep(number)
        if asked.path == "/take":
            # Each page is written to, and all of it is given back at the end.
            taken = bytearray(number << 20)
            for page in range(0, len(taken), 4096):
                taken[page] = 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{asked.path} {number}\n".encode())

    def log_message(self, *_words: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # so that closing it waits for the requests


def say(word: str) -> None:
    print(word, flush=True)


def main() -> None:
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, lambda *_: say("the child got SIGTERM"))
        while True:
            signal.pause()
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = Server(("127.0.0.1", port), Requests)

    def end(*_: object) -> None:
        say("the first process got SIGTERM")
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    say(f"process {os.getpid()} listens on {port}")
    server.serve_forever()
    server.server_close()
    say("every request is answered")
    os._exit(0)


main()
