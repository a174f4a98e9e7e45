# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the gateway from its configuration file, with its keys on no command line.

    launch.py CONFIGURATION CREDENTIALS [words...]   become the gateway; more words are added to the command line
    launch.py --check                                say why it would not start with what stands on standard input
    launch.py --pending DIRECTORY FILES...           name the files that differ from their copies in DIRECTORY

`smg` takes keys as arguments only, and every user of a host can read the arguments of every process. So they are put
together here, inside the process that becomes the gateway.
"""

from __future__ import annotations

import argparse
import json
import os
import sys


def words(arguments):
    """The words of a command line: true is the flag alone, false and null nothing, a list the flag with its values."""
    found = []
    for name in sorted(arguments):
        value = arguments[name]
        if value is None or value is False or value == []:
            continue
        if value is True:
            found.append("--" + name)
        elif isinstance(value, list):
            found += ["--" + name, *(str(one) for one in value)]
        else:
            # As a word of its own, a value that begins with a dash would be taken for a flag.
            found.append("--" + name + "=" + str(value))
    return found


def trouble(arguments, credentials):
    """Why the gateway would not start with these arguments; an empty string when it would. Shows no secret."""
    from smg.router_args import RouterArgs

    parser = argparse.ArgumentParser(prog="smg launch", add_help=False, allow_abbrev=False)
    RouterArgs.add_cli_args(parser, use_router_prefix=False)
    known = {flag for action in parser._actions for flag in action.option_strings}
    unknown = sorted(name for name in [*arguments, *credentials] if "--" + name not in known)
    if unknown:
        return "this release of smg does not know " + ", ".join("--" + name for name in unknown)
    said = []

    def refuse(message):
        said.append(message)
        sys.exit(2)

    parser.error = refuse
    try:
        parsed = parser.parse_args(words(arguments) + words(credentials))
        RouterArgs.from_cli_args(parsed, use_router_prefix=False)._validate_router_args()
    except SystemExit:
        pass
    except Exception as error:
        said.append(str(error))
    text = "; ".join(said)
    for secret in credentials.values():
        for one in secret if isinstance(secret, list) else [secret]:
            text = text.replace(str(one), "********")
    return text


def content(path):
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def main():
    if sys.argv[1:] == ["--check"]:
        declared = json.load(sys.stdin)
        said = trouble(declared["arguments"], declared["secret_arguments"])
        print(said)
        return 1 if said else 0
    if sys.argv[1:2] == ["--pending"]:
        directory, *files = sys.argv[2:]
        copies = [os.path.join(directory, os.path.basename(path)) for path in files]
        print("\n".join(path for path, copy in zip(files, copies) if content(path) != content(copy)))
        return 0
    with open(sys.argv[1], encoding="utf-8") as handle:
        arguments = json.load(handle)["arguments"]
    with open(sys.argv[2], encoding="utf-8") as handle:
        credentials = json.load(handle)
    from smg.cli import main as become_gateway

    return become_gateway(["launch", *words(arguments), *words(credentials), *sys.argv[3:]])


if __name__ == "__main__":
    sys.exit(main())
