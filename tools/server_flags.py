# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write plugins/module_utils/server_flags.py from the argument parsers of SGLang releases.

    python tools/server_flags.py dump VENV/bin/python > server_args_0.5.22.json    once per release
    python tools/server_flags.py write server_args_*.json                         writes the Python file

`dump` asks the installed package for its parser (no GPU is needed; PYTHONPATH is passed on).
Kinds: "flag" takes no value, "switch" has a --no- form, "value" takes a word,
"optional" may take one, "values" takes several.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

TARGET = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "server_flags.py"

DUMP = """
import argparse, importlib.metadata, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
flags = [
    {"flag": a.option_strings[0], "aliases": a.option_strings, "action": type(a).__name__, "nargs": a.nargs}
    for a in parser._actions if a.option_strings and a.dest != "help"
]
print(json.dumps({"sglang_version": importlib.metadata.version("sglang"), "flags": flags}, indent=1))
"""

HEADER = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command-line flags of SGLang by release. Made by tools/server_flags.py: do not edit."""

from __future__ import annotations

# fmt: off
'''


def kind_of(flag: dict[str, Any]) -> str:
    if flag["action"] == "BooleanOptionalAction":
        return "switch"
    if flag["nargs"] == 0:
        return "flag"
    if flag["nargs"] in ("+", "*"):
        return "values"
    return "optional" if flag["nargs"] == "?" else "value"


def name_of(option: str) -> str:
    return option[2:]


def read_release(path: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return version, kind by canonical name, canonical name by alias."""
    dump = json.loads(pathlib.Path(path).read_text())
    kinds: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for flag in dump["flags"]:
        name = name_of(flag["flag"])
        kinds[name] = kind_of(flag)
        for alias in map(name_of, flag["aliases"]):
            if alias != name and not (kinds[name] == "switch" and alias == "no-" + name):
                aliases[alias] = name
    return dump["sglang_version"], kinds, aliases


def wrap(words: list[str], indent: str) -> str:
    lines, line = [], indent
    for word in words:
        piece = f'"{word}", '
        if len(line) + len(piece) > 118:
            lines.append(line.rstrip())
            line = indent
        line += piece
    return "\n".join([*lines, line.rstrip()])


def render_kinds(kinds: dict[str, str]) -> str:
    text = "{\n"
    for kind in ("flag", "switch", "value", "optional", "values"):
        names = sorted(name for name, its in kinds.items() if its == kind)
        if names:
            text += f'        "{kind}": [\n{wrap(names, " " * 12)}\n        ],\n'
    return text + "    }"


def write(paths: list[str]) -> None:
    releases = sorted(read_release(path) for path in paths)
    shared = {
        name: kind for name, kind in releases[0][1].items() if all(kinds.get(name) == kind for _, kinds, _ in releases)
    }
    text = HEADER
    text += "# Names that have the same kind in every release below, by kind.\n"
    text += (
        f"_SHARED: dict[str, list[str]] = {render_kinds(shared).replace('        ', '    ').replace('    }', '}')}\n\n"
    )
    text += "# What only some releases have, or have as another kind.\n_ONLY: dict[str, dict[str, list[str]]] = {\n"
    for version, kinds, _ in releases:
        rest = {name: kind for name, kind in kinds.items() if name not in shared}
        text += f'    "{version}": {render_kinds(rest)},\n'
    text += "}\n\n# Other spellings, and the name they stand for.\nALIASES: dict[str, dict[str, str]] = {\n"
    for version, _, aliases in releases:
        text += f'    "{version}": {{\n'
        text += "".join(f'        "{alias}": "{name}",\n' for alias, name in sorted(aliases.items()))
        text += "    },\n"
    text += "}\n# fmt: on\n\n\ndef _by_name(version: str) -> dict[str, str]:\n"
    text += "    kinds: dict[str, str] = {}\n"
    text += "    for group in (_SHARED, _ONLY[version]):\n"
    text += "        for kind, names in group.items():\n"
    text += "            kinds.update(dict.fromkeys(names, kind))\n"
    text += "    return kinds\n\n\n"
    text += "# version -> canonical flag name -> kind (flag, switch, value, optional, values)\n"
    text += "KINDS: dict[str, dict[str, str]] = {version: _by_name(version) for version in _ONLY}\n"
    TARGET.write_text(text)


def main(words: list[str]) -> int:
    if len(words) == 2 and words[0] == "dump":
        return subprocess.run([words[1], "-c", DUMP], check=False).returncode
    if len(words) > 1 and words[0] == "write":
        write(words[1:])
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
