#!/usr/bin/env python3
# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/findings.md from the table of all checks.

    tests/dev/run python tools/findings_page.py [--check]

With --check nothing is written, and it ends with 1 when the page is not up to date.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Iterable

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "findings.md"

# The topics in the order of the page, with what each is about. The topic of a finding is what stands before its dot.
TOPICS = {
    "declaration": "What is declared for the instances of a host.",
    "args": "The arguments of the server, against the release that would run.",
    "env": "The environment variables of the server, against the release that would run.",
    "release": "The release of SGLang.",
    "environment": "The virtual environment that SGLang runs in.",
    "python": "The Python interpreter of the environment.",
    "compiler": "What kernels are compiled with.",
    "cuda": "The CUDA toolkit.",
    "libraries": "Shared libraries that the kernels load.",
    "packages": "The packages that a release of SGLang pins.",
    "cache": "Directories of compiled kernels and downloaded models.",
    "driver": "NVIDIA's driver.",
    "cards": "The cards.",
    "memory": "The memory of the cards and of the host. [memory.md](memory.md) has the sums.",
    "ports": "TCP ports.",
    "host": "The host as a whole.",
    "shm": "Shared memory.",
    "limits": "Limits of processes.",
    "disk": "Space on disks.",
    "clock": "The clock.",
    "container": "Servers in containers.",
    "docker": "Docker.",
    "podman": "Podman.",
    "cdi": "The specification by which container engines find the cards.",
    "preflight": "The preflight itself: what nobody could look at.",
}

HEAD = """\
# Findings

<!-- Made by tools/findings_page.py from the checks: do not edit. -->

Everything that `ansible-playbook serving.sglang.preflight`, the modules `*_info` and `args_check` can find, by its id.
Ids are stable: they may be put on the ignore list ([preflight.md](preflight.md)). The severity is the worst one that a
finding can have; any of them is `unknown` where it could not be told, with the reason, and `ok` where it was looked for
and is not there.

"""


def text_of(kinds: Iterable[object]) -> str:
    """The page for these kinds of findings."""
    by_topic: dict[str, list[object]] = {}
    for kind in kinds:
        by_topic.setdefault(kind.id.partition(".")[0], []).append(kind)
    strange = sorted(set(by_topic) - set(TOPICS))
    if strange:
        raise SystemExit(f"findings_page: topics without a line in TOPICS: {', '.join(strange)}")
    topics = [topic for topic in TOPICS if topic in by_topic]
    text = HEAD + "".join(f"- [{topic}](#{topic}) ({len(by_topic[topic])})\n" for topic in topics)
    for topic in topics:
        text += f"\n## {topic}\n\n{TOPICS[topic]}\n"
        for kind in sorted(by_topic[topic], key=lambda one: one.id):
            text += f"\n### {kind.id}\n\n**{kind.severity}**: {_sentence(kind.title)}\n\n{_sentence(kind.meaning)}\n\n"
            text += f"*What to do*: {_sentence(kind.fix)}\n"
            text += f"\n*How we know*: {_sentence(kind.source)}\n" if kind.source else ""
    return text


def _sentence(text: str) -> str:
    """One line that begins and ends as a sentence, and in which nothing is taken for HTML."""
    line = " ".join(text.split())
    parts = line.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    line = "`".join(parts)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    path = subprocess.run([CHECKOUT / "tests/dev/collection_path"], check=True, capture_output=True, text=True).stdout
    sys.path[:0] = path.strip().split(":")
    from ansible_collections.serving.sglang.plugins.module_utils.checks.table import all_kinds

    text = text_of(all_kinds())
    if given.check:
        fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("" if fresh else f"{PAGE} is not up to date: run tools/findings_page.py", file=sys.stderr)
        return int(not fresh)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
