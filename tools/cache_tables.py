# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write plugins/module_utils/checks/cache_tables.py from published wheels of SGLang.

    python tools/cache_tables.py sglang-0.5.17-*.whl sglang-0.5.22-*.whl sglang-0.5.23-*.whl

Reads the source in the wheels and runs nothing: the variables that a release points elsewhere at import, and the
defaults of its own. `{base}` stands for SGLANG_CACHE_DIR, `{home}` for HOME.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
import zipfile

TARGET = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "checks" / "cache_tables.py"
OWN = (
    "SGLANG_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "SGLANG_CUTE_AOT_CACHE_DIR",
    "SGLANG_JIT_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
)
HEADER = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where releases of SGLang put their caches. Made by tools/cache_tables.py: do not edit."""

from __future__ import annotations

# fmt: off
'''


def template(path: str) -> str:
    """`~/.cache/x` as the tables write it."""
    return "{home}" + path[1:] if path.startswith("~") else path


def own_default(value: ast.expr) -> str | None:
    """The default of one `NAME = EnvStr(…)`; None where the code that uses it holds the default."""
    call = value.args[0] if isinstance(value, ast.Call) and value.args else None
    if isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant):
        return template(str(call.args[0].value))
    if isinstance(call, ast.Lambda) and isinstance(call.body, ast.Call):
        folder = call.body.args[0]
        if isinstance(folder, ast.Constant):
            return "{base}/" + str(folder.value)
    return None


def redirected(function: ast.FunctionDef) -> dict[str, str]:
    """What third_party_cache_defaults() returns."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values):
            if not isinstance(key, ast.Constant):
                continue
            if isinstance(value, ast.Name) and value.id == "base":
                found[str(key.value)] = "{base}"
            elif isinstance(value, ast.Call) and isinstance(value.args[-1], ast.Constant):
                found[str(key.value)] = "{base}/" + str(value.args[-1].value)
            else:
                raise SystemExit(f"{key.value}: not understood: {ast.unparse(value)}")
    return found


def defaults_in_use(wheel: zipfile.ZipFile) -> dict[str, str]:
    """`envs.NAME.get() or "~/…"` and `os.environ.get("NAME", "~/…")`, wherever they stand."""
    found: dict[str, str] = {}
    for name in wheel.namelist():
        if not name.endswith(".py"):
            continue
        text = wheel.read(name).decode("utf-8", "replace")
        for variable in OWN:
            match = re.search(rf'{variable}(?:\.get\(\) or|",) "(~/[^"]+)"', text)
            if match:
                found[variable] = template(match[1])
    return found


def read_release(path: str) -> tuple[str, dict[str, str]]:
    """Version, default by variable."""
    wheel = zipfile.ZipFile(path)
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    version = re.search(r"^Version: (.+)$", wheel.read(metadata).decode(), re.M)
    if version is None:
        raise SystemExit(f"{path}: no version in its metadata")
    defaults = defaults_in_use(wheel)
    tree = ast.parse(wheel.read("sglang/srt/environ.py").decode())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in OWN:
            default = own_default(node.value)
            if default is not None:
                defaults[node.targets[0].id] = default
        elif isinstance(node, ast.FunctionDef) and node.name == "third_party_cache_defaults":
            defaults.update(redirected(node))
    return version[1], dict(sorted(defaults.items()))


def main(paths: list[str]) -> None:
    releases = sorted(read_release(path) for path in paths)
    lines = ["DEFAULTS: dict[str, dict[str, str]] = {"]
    for version, defaults in releases:
        lines.append(f'    "{version}": {{')
        lines += [f'        "{variable}": "{default}",' for variable, default in defaults.items()]
        lines.append("    },")
    lines.append("}")
    TARGET.write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
