#!/usr/bin/python3
"""Carry this machine's pip settings into another root: print a pip.conf, or the local paths that it names.

pip_settings.py conf     what pip is told by its files here, as one file
pip_settings.py env      NAME=VALUE of the environment variables that steer pip and its connections
pip_settings.py paths    the files and folders that those two name, which the other root has to see
"""

import ast
import os
import re
import shutil
import subprocess
import sys

STEERING = re.compile(r"^(PIP_.*|https?_proxy|all_proxy|no_proxy|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE)$", re.I)
LEFT_OUT = {"PIP_REQUIRE_VIRTUALENV", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_CACHE_DIR", "PIP_LOG", "PIP_PYTHON"}


def file_settings():
    """Return {(section, key): value} from `pip config list`, without what comes from the environment."""
    command = [shutil.which("pip") or shutil.which("pip3"), "config", "list"]
    if command[0] is None:
        command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    settings = {}
    for line in listed.splitlines():
        match = re.match(r"^([a-z-]+)\.([a-z-]+)=(.*)$", line)
        name = "PIP_" + match.group(2).upper().replace("-", "_") if match else ""
        if match and name not in LEFT_OUT:
            settings[match.group(1), match.group(2)] = str(ast.literal_eval(match.group(3)))
    return settings


def environment():
    return {name: value for name, value in os.environ.items() if STEERING.match(name) and name not in LEFT_OUT}


def paths():
    found = set()
    for value in [*file_settings().values(), *environment().values()]:
        for word in value.split():
            path = word
            if word.startswith("file://"):
                # The pages of a local index link to files beside its folder.
                path = os.path.dirname(word[len("file://") :].rstrip("/"))
            if path.startswith("/") and path != "/" and os.path.exists(path):
                found.add(os.path.realpath(path))
                found.add(os.path.normpath(path))
    return sorted(found, key=len)


def main():
    if sys.argv[1:] == ["conf"]:
        settings = file_settings()
        for section in sorted({section for section, _key in settings}):
            print(f"[{section}]")
            for (owner, key), value in settings.items():
                if owner == section:
                    print(f"{key} =\n    " + "\n    ".join(value.split("\n")))
    elif sys.argv[1:] == ["env"]:
        for name, value in environment().items():
            print(f"{name}={value}")
    elif sys.argv[1:] == ["paths"]:
        print("\n".join(paths()))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
