# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write plugins/module_utils/memory_tables.py from the published wheels of SGLang releases.

    pip download --no-deps sglang==0.5.22 -d wheels
    python tools/memory_tables.py 0.5.22=wheels/sglang-0.5.22-*.whl 0.5.23=wheels/sglang-0.5.23-*.whl

Reads `srt/configs/model_config.py` of each wheel without running it: which architectures are multimodal, which of them
keep the prefill graph, which are served as text unless asked otherwise, which use MLA, and which split their pool into
full and sliding-window layers.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import zipfile
from typing import Any

import python_text

TARGET = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "memory_tables.py"
SOURCE = "sglang/srt/configs/model_config.py"

HEADER = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of model architectures by release of SGLang. Made by tools/memory_tables.py: do not edit."""

from __future__ import annotations

# fmt: off
'''


class Names:
    """The names of architectures in a module's constants, without running the module."""

    def __init__(self, tree: ast.Module) -> None:
        self.constants: dict[str, list[str]] = {}
        for node in ast.walk(tree):
            value: ast.expr | None = None
            target: ast.expr | None = None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and value is not None:
                names = self.of(value)
                if names:
                    self.constants.setdefault(target.id, names)

    def of(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Call) and node.args:
            return self.of(node.args[0])
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, [])
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found: list[str] = []
            for element in node.elts:
                if isinstance(element, ast.Starred):
                    found += self.of(element.value)
                elif isinstance(element, ast.Constant) and isinstance(element.value, str):
                    found.append(element.value)
            return found
        return []


def _tested(test: ast.expr) -> list[str]:
    """The architectures that a condition such as `"A" in config.architectures or ...` asks for."""
    return [
        node.left.value
        for node in ast.walk(test)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, str)
        and any(isinstance(operator, ast.In) for operator in node.ops)
    ]


def _mla(tree: ast.Module) -> list[str]:
    """The architectures of every branch that sets the attention architecture to MLA."""
    found: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        for statement in node.body:
            if (
                isinstance(statement, ast.Assign)
                and isinstance(statement.targets[0], ast.Attribute)
                and statement.targets[0].attr == "attention_arch"
                and isinstance(statement.value, ast.Attribute)
                and statement.value.attr == "MLA"
            ):
                found += _tested(node.test)
    return found


def tables(source: str) -> dict[str, list[str]]:
    tree = ast.parse(source)
    names = Names(tree)
    found = {
        "multimodal": names.constants["multimodal_model_archs"],
        "graph_with_vision": names.constants["multimodal_breakable_cuda_graph_supported_model_archs"],
        "text_unless_asked": names.constants["mm_disabled_models"],
        "text_without_encoders": names.constants["MIMO_V2_MULTIMODAL_ARCHS"],
        "mla": _mla(tree),
        "sliding_pools": names.constants["hybrid_swa_archs"],
        "sparse_index": _compared(tree, names, "is_deepseek_dsa"),
    }
    missing = [kind for kind, archs in found.items() if not archs]
    if missing:
        raise SystemExit(f"memory_tables: found no {', '.join(missing)} in {SOURCE}; the source has changed its form")
    return {kind: sorted(set(archs)) for kind, archs in found.items()}


def _compared(tree: ast.Module, names: Names, function: str) -> list[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Compare) and isinstance(inner.comparators[0], (ast.Tuple, ast.List, ast.Set)):
                    return names.of(inner.comparators[0])
    return []


def read(wheel: pathlib.Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(SOURCE).decode()


def main(arguments: list[str]) -> None:
    by_version: dict[str, Any] = {}
    for argument in arguments:
        version, _, wheel = argument.partition("=")
        by_version[version] = tables(read(pathlib.Path(wheel)))
    if not by_version:
        raise SystemExit(__doc__)
    body = python_text.text(by_version)
    TARGET.write_text(f"{HEADER}ARCHITECTURES: dict[str, dict[str, list[str]]] = {body}\n", encoding="utf-8")
    print(f"wrote {TARGET}: {', '.join(by_version)}")


if __name__ == "__main__":
    main(sys.argv[1:])
