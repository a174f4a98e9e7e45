# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write plugins/module_utils/release_pins.py from the metadata of the published wheels of SGLang.

    python tools/release_pins.py 0.5.22 0.5.23      all releases that the file shall have

pip is asked what it would install, for each version of CPython that a wheel could be for; nothing is installed. The
release of CUDA comes from the metadata of the torch that the release requires.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

TARGET = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "release_pins.py"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# No torch for a version of Python is built before the others: one is enough for its metadata.
PLATFORM = "manylinux_2_34_x86_64"

HEADER = '''# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the wheels of SGLang require, by release. Made by tools/release_pins.py: do not edit."""

from __future__ import annotations

from typing import Any

# requires_python and wheels: from the wheel's metadata and name. requires: distributions that the release names with a
# version (extras and what is only for other platforms left out). torch_requires: the same of the torch that it names.
# fmt: off
PINS: dict[str, dict[str, Any]] = {
'''

REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def ask_pip(requirement: str, python: str) -> dict[str, Any] | None:
    """Metadata and file name of the wheel that pip would take; None when there is none for this Python."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    command += ["--only-binary", ":all:", "--python-version", python, "--platform", PLATFORM, "--target", "unused"]
    command += ["--use-feature", "fast-deps", "--report", "-", requirement]
    for lower in ("manylinux_2_28_x86_64", "manylinux2014_x86_64"):
        command += ["--platform", lower]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "No matching distribution" in done.stderr:
            return None
        raise SystemExit(f"{requirement} for Python {python}: {done.stderr.strip()[-400:]}")
    # pip may warn on the same stream before the report begins.
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["install"][0]
    return found


def pinned(metadata: dict[str, Any]) -> dict[str, str]:
    """What it requires with a version, on this platform and without an extra."""
    found = {}
    for line in metadata.get("requires_dist", []):
        match = REQUIREMENT.fullmatch(line)
        if match is None:
            raise SystemExit(f"a requirement that this tool cannot read: {line}")
        name, _extras, specifier, marker = match.groups()
        if specifier.strip() and wanted(marker or ""):
            found[normal(name)] = specifier.replace(" ", "")
    return dict(sorted(found.items()))


def wanted(marker: str) -> bool:
    if "extra ==" in marker:
        return False
    others = re.search(r"(sys_platform|platform_system)\s*==\s*[\"'](?!linux|Linux)", marker)
    here = re.search(r"(sys_platform|platform_system)\s*==\s*[\"'](linux|Linux)", marker)
    only_arm = "aarch64" in marker and "x86_64" not in marker and "!=" not in marker
    return not only_arm and (here is not None or others is None)


def cuda_extra(metadata: dict[str, Any]) -> str:
    """The major release of CUDA by the extras that it takes of others: 13 of flashinfer_python[cu13]."""
    found = re.findall(r"\[cu(\d\d)\]", "\n".join(metadata.get("requires_dist", [])))
    return found[0] if found else ""


def read_release(version: str) -> dict[str, Any]:
    wheels = []
    metadata: dict[str, Any] = {}
    for python in PYTHONS:
        answer = ask_pip(f"sglang=={version}", python)
        if answer is not None:
            metadata = answer["metadata"]
            name = answer["download_info"]["url"].rsplit("/", 1)[-1].split("#")[0]
            wheels.append(name[: -len(".whl")].split("-", 2)[2])
    if not metadata:
        raise SystemExit(f"there is no wheel of sglang {version}")
    requires = pinned(metadata)
    supported = f"3.{wheels[0].split('-')[0][3:]}"
    torch = ask_pip(f"torch{requires['torch']}", supported)
    if torch is None:
        raise SystemExit(f"there is no wheel of torch{requires['torch']} for Python {supported}")
    return {
        "requires_python": metadata["requires_python"],
        "wheels": wheels,
        "cuda_major": cuda_extra(metadata),
        "requires": requires,
        "torch_requires": {
            name: specifier
            for name, specifier in pinned(torch["metadata"]).items()
            if name in ("triton", "cuda-toolkit") or name.startswith("nvidia-")
        },
    }


def render(releases: dict[str, dict[str, Any]]) -> str:
    text = HEADER
    for version, release in releases.items():
        text += f'    "{version}": {{\n'
        for key, value in release.items():
            if isinstance(value, dict):
                text += f'        "{key}": {{\n'
                text += "".join(f'            "{name}": "{specifier}",\n' for name, specifier in value.items())
                text += "        },\n"
            elif isinstance(value, list):
                text += f'        "{key}": [\n'
                text += "".join(f'            "{name}",\n' for name in value)
                text += "        ],\n"
            else:
                text += f'        "{key}": "{value}",\n'
        text += "    },\n"
    return text + "}\n# fmt: on\n"


def main(versions: list[str]) -> int:
    if not versions or any(not version[0].isdigit() for version in versions):
        print(__doc__, file=sys.stderr)
        return 2
    TARGET.write_text(render({version: read_release(version) for version in versions}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
