# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the data of a release of SGLang out of its published wheel: flags and variables.

    python tools/release_data.py RELEASE --python ENVIRONMENT/bin/python [--wheel FILE | --installed]
    python tools/release_data.py RELEASE --drop

ENVIRONMENT is one in which the release can be imported: its own, or that of a near release. The wheel is downloaded
by that environment's pip, unpacked into a temporary folder and put first on PYTHONPATH; what PYTHONPATH holds already
stays behind it. --installed takes the package as the environment has it.

Writes plugins/module_utils/server_flags.py and environment_names.py anew; the data of all other releases stays.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import python_text

TOOLS = pathlib.Path(__file__).resolve().parent
TARGETS = TOOLS.parent / "plugins" / "module_utils"
NAME = re.compile(r"SGL(?:ANG)?_[A-Z][A-Z0-9_]*[A-Z0-9]")
# Other programs of the package, and its tests: their variables do nothing for a server of language models.
OTHER_PROGRAMS = ("multimodal_gen", "test")
NATIVE_SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs")

HEAD = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""{title} Made by tools/release_data.py: do not edit."""

from __future__ import annotations

from typing import Any

from .release_rows import by_release

# fmt: off
'''

FLAGS_COMMENT = """\
# The flags of the oldest release. Left out is what is usual: type str, nargs None, default None (False for the
# kind flag). `open`: a plugin can add choices. `deprecated`: what to use instead. `removed_after`: announced.
"""
VARIABLES_COMMENT = """\
# The variables of the oldest release. `former`: an older name that is still read. `direct`: read as a truth value
# without the registry too. `unregistered`: named in the code, and not in the registry. `unread`: nothing reads it.
"""
FLAGS_TAIL = """
# release -> flag -> its row
FLAGS: dict[str, dict[str, Any]] = by_release(_OLDEST, _ROWS, _CHANGES)
# release -> flag -> kind (flag: no value, switch: with a --no- form, value: a word, optional: may take one, values)
KINDS: dict[str, dict[str, str]] = {
    release: {name: row["kind"] for name, row in rows.items()} for release, rows in FLAGS.items()
}
# release -> another spelling -> the flag
ALIASES: dict[str, dict[str, str]] = {
    release: {alias: name for name, row in rows.items() for alias in row.get("aliases", ())}
    for release, rows in FLAGS.items()
}
"""
VARIABLES_TAIL = """
# release -> variable -> its row
VARIABLES: dict[str, dict[str, Any]] = by_release(_OLDEST, _ROWS, _CHANGES)
# release -> variable that is only warned about -> what SGLang says of it
RETIRED: dict[str, dict[str, Any]] = by_release(_OLDEST, _RETIRED, _RETIRED_CHANGES)
"""


# --- reading a release ----------------------------------------------------------------------------------------------


def unpacked(release: str, python: str, wheel: str | None, folder: pathlib.Path) -> pathlib.Path:
    """The folder that holds the package, out of the wheel."""
    if wheel is None:
        words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), f"sglang=={release}"]
        subprocess.run([python, "-m", "pip", *words], check=True)
        wheel = str(next(folder.glob("sglang-*.whl")))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def dump(python: str, path: pathlib.Path | None) -> dict[str, Any]:
    """What release_dump.py prints in the environment, with the package in `path` before its own."""
    parts = [str(path)] if path else []
    parts += [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_", "SGL_"))}
    environment["PYTHONPATH"] = os.pathsep.join(parts)
    words = [python, str(TOOLS / "release_dump.py")]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    line = next(line for line in said.splitlines() if line.startswith("DUMP "))
    found: dict[str, Any] = json.loads(line[5:])
    return found


def sources(package: pathlib.Path) -> Iterator[pathlib.Path]:
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.relative_to(package).parts[0] not in OTHER_PROGRAMS:
            yield path


@dataclass
class Names:
    """The variables that the package names in its code, in three ways.

    `named`: as a text. `used`: as a text outside of the registry, or as a field of it. `direct`: read as a truth value
    past the registry.
    """

    named: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    direct: set[str] = field(default_factory=set)


def names_in(package: pathlib.Path) -> Names:
    found = Names()
    for path in sources(package):
        texts: set[str] = set()
        if path.suffix == ".py":
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
                elif isinstance(node, ast.Attribute):
                    found.used.add(node.attr)
                elif isinstance(node, ast.Call) and node.args and _called(node) == "get_bool_env_var":
                    first = node.args[0]
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        found.direct.add(first.value)
        elif path.suffix in NATIVE_SOURCES:
            texts.update(re.findall(r'"(\w+)"', path.read_text(errors="replace")))
        elif path.suffix == ".so":
            texts.update(match.decode() for match in re.findall(NAME.pattern.encode(), path.read_bytes()))
        found.named.update(text for text in texts if NAME.fullmatch(text))
        if path != package / "srt" / "environ.py":
            found.used.update(texts)
    return found


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def announced(package: pathlib.Path) -> dict[str, str]:
    """The date after which a flag is to be removed, by flag: a comment above its registration says so."""
    found = {}
    text = (package / "srt" / "server_args.py").read_text()
    for comment, flag in re.findall(r'((?:^ *#.*\n)+) *parser\.add_argument\(\s*"--([\w-]+)"', text, re.M):
        date = re.search(r"remove\b.*?\bafter\s+(\d{4}-\d\d-\d\d)", re.sub(r"\s*#\s*", " ", comment), re.S)
        if date:
            found[flag] = date.group(1)
    return found


def data_of(found: dict[str, Any], package: pathlib.Path) -> dict[str, Any]:
    """Everything that the generated files hold of one release."""
    flags = found["flags"]
    for flag, date in announced(package).items():
        if "deprecated" in flags.get(flag, {}):
            flags[flag]["removed_after"] = date
    rows = dict(found["variables"])
    names = names_in(package)
    formers = {row["former"] for row in rows.values() if "former" in row}
    for name in sorted(set(rows) - names.used):
        # Others than SGLang's own are read by the libraries they belong to. In a library, text may follow a name.
        if name.startswith("SGLANG_") and not any(one.startswith(name) for one in names.named - set(rows)):
            rows[name] = {**rows[name], "unread": True}
    for name in sorted(names.named - set(rows) - set(found["retired"]) - formers):
        if not any(name.startswith(known) for known in rows):
            rows[name] = {"unregistered": True}
    for name in names.direct & set(rows):
        rows[name] = {"type": "bool", **rows[name], "direct": True}
    return {
        "flags": flags,
        "yaml": found["yaml"],
        "graph_keys": found["graph_keys"],
        "variables": rows,
        "retired": found["retired"],
    }


# --- the generated files --------------------------------------------------------------------------------------------


def _module(name: str) -> Any:
    """A generated file as it is now, by the name that relative imports need."""
    if str(TARGETS.parent) not in sys.path:
        sys.path.insert(0, str(TARGETS.parent))
    spec = importlib.util.spec_from_file_location(f"module_utils.{name}", TARGETS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def present() -> dict[str, dict[str, Any]]:
    """The data of every release that the generated files hold."""
    flags, names = _module("server_flags"), _module("environment_names")
    return {
        release: {
            "flags": flags.FLAGS[release],
            "yaml": flags.YAML_EXCEPTIONS[release],
            "graph_keys": flags.GRAPH_KEYS[release],
            "variables": names.VARIABLES[release],
            "retired": names.RETIRED[release],
        }
        for release in flags.FLAGS
    }


def one_line(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{one_line(key)}: {one_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(one_line, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def mapping(value: dict[str, Any], depth: int = 0) -> str:
    """A mapping with a line for each of its rows, where the row fits."""
    if not value:
        return "{}"
    inner = "    " * (depth + 1)
    text = "{\n"
    for key, row in value.items():
        line = f"{inner}{one_line(key)}: {one_line(row)},\n"
        if len(line) > python_text.WIDTH:
            long = _long(row, depth + 1) if isinstance(row, dict) else _pieces(row, depth + 1)
            line = f"{inner}{one_line(key)}: {long},\n"
        text += line
    return text + "    " * depth + "}"


def _long(row: dict[str, Any], depth: int) -> str:
    inner = "    " * (depth + 1)
    text = "{\n"
    for key, item in row.items():
        line = f"{inner}{one_line(key)}: {one_line(item)},\n"
        if len(line) > python_text.WIDTH:
            line = f"{inner}{one_line(key)}: {python_text.text(item, depth + 1)},\n"
        text += line
    return text + "    " * depth + "}"


def _pieces(text: str, depth: int) -> str:
    """A long text over several lines."""
    inner = "    " * (depth + 1)
    width = python_text.WIDTH - len(inner) - 4
    lines = [""]
    for word in re.findall(r"\S+\s*|\s+", text):
        if lines[-1] and len(one_line(lines[-1] + word.rstrip())) > width:
            lines.append("")
        lines[-1] += word
    return "(\n" + "".join(f"{inner}{one_line(line)}\n" for line in lines) + "    " * depth + ")"


def rows_and_changes(releases: dict[str, dict[str, Any]], what: str, prefix: str, shape: str) -> str:
    """`_ROWS` of the oldest release and `_CHANGES` of the others."""
    changes_between = _module("release_rows").changes_between
    names = list(releases)
    changes = {
        later: changes_between(releases[earlier][what], releases[later][what])
        for earlier, later in zip(names, names[1:])
    }
    text = f"{prefix or '_ROWS'}: dict[str, {shape}] = {mapping(releases[names[0]][what])}\n\n"
    text += "# What each later release changed; None where it has the row no more.\n"
    text += f"{prefix}_CHANGES: dict[str, dict[str, Any]] = {{\n"
    text += "".join(f"    {json.dumps(release)}: {mapping(rows, 1)},\n" for release, rows in changes.items())
    return text + "}\n"


def flags_text(releases: dict[str, dict[str, Any]]) -> str:
    text = HEAD.format(title="The command-line flags of SGLang by release.")
    text += f"_OLDEST = {json.dumps(next(iter(releases)))}\n\n"
    text += FLAGS_COMMENT
    text += rows_and_changes(releases, "flags", "", "Any")
    text += (
        "\n# release -> key of a configuration file -> what is made of it, where the flag's kind lets expect another\n"
    )
    text += "# thing: a flag is a boolean there, a switch is refused, the rest takes values.\n"
    by_name = {release: data["yaml"] for release, data in releases.items()}
    text += f"YAML_EXCEPTIONS: dict[str, dict[str, str]] = {mapping(by_name)}\n"
    by_name = {release: data["graph_keys"] for release, data in releases.items()}
    text += "\n# release -> phase -> the settings that cuda-graph-config knows\n"
    text += f"GRAPH_KEYS: dict[str, dict[str, list[str]]] = {mapping(by_name)}\n"
    return text + "# fmt: on\n" + FLAGS_TAIL


def variables_text(releases: dict[str, dict[str, Any]]) -> str:
    text = HEAD.format(title="The environment variables of SGLang by release.")
    text += f"_OLDEST = {json.dumps(next(iter(releases)))}\n\n"
    text += VARIABLES_COMMENT
    text += rows_and_changes(releases, "variables", "", "Any")
    text += "\n# Names that do nothing, with what SGLang says of them.\n"
    text += rows_and_changes(releases, "retired", "_RETIRED", "Any")
    return text + "# fmt: on\n" + VARIABLES_TAIL


def write(releases: dict[str, dict[str, Any]]) -> None:
    key = _module("release_rows").release_key
    ordered = {release: releases[release] for release in sorted(releases, key=key)}
    for data in ordered.values():
        for what in ("flags", "variables", "retired"):
            data[what] = dict(sorted(data[what].items()))
    (TARGETS / "server_flags.py").write_text(flags_text(ordered))
    (TARGETS / "environment_names.py").write_text(variables_text(ordered))


# --- the command ----------------------------------------------------------------------------------------------------


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--wheel", help="the wheel, where it is here already")
    source.add_argument("--installed", action="store_true", help="take the package as the environment has it")
    source.add_argument("--drop", action="store_true", help="take the release out of the data")
    given = parser.parse_args(words)
    releases = present() if (TARGETS / "environment_names.py").exists() else {}
    if given.drop:
        del releases[given.release]
        write(releases)
        return 0
    with tempfile.TemporaryDirectory() as name:
        path = None if given.installed else unpacked(given.release, given.python, given.wheel, pathlib.Path(name))
        found = dump(given.python, path)
        package = pathlib.Path(found["from"]).parent
        if path is not None and path not in package.parents:
            print(f"the environment imported {package} instead of the wheel", file=sys.stderr)
            return 1
        releases[given.release] = data_of(found, package)
    write(releases)
    for release, data in releases.items():
        print(f"{release}: {len(data['flags'])} flags, {len(data['variables'])} variables")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
