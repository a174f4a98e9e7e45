"""Put pip into an empty virtual environment, given get-pip.py's arguments.

ansible-test fetches get-pip.py from its maintainers' own server before it makes the environments of its sanity tests,
unless a file of that name is in its cache. This one stands there instead, so that the package index is all that has to
be reachable: pip comes from the Python itself, and from the index in the version that was asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> None:
    packages = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    environment = {name: value for name, value in os.environ.items() if name != "GET_PIP"}
    subprocess.run([sys.executable, "-m", "ensurepip"], check=True, env=environment, stdout=subprocess.DEVNULL)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages],
        check=True,
        env=environment,
    )


if __name__ == "__main__":
    main()
