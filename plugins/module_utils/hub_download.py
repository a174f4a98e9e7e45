# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches one revision of a model into the cache of huggingface_hub.

Runs with an interpreter that has SGLang, on the host or in an image, as the service user: the module that fetches
hands it its text with -c. So it imports nothing of the collection, and answers with one line of JSON.
"""

# There is no AnsibleModule where it runs.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

NOTES = ".serving-sglang"
# The weights a second time, where they are there as safetensors. With the index alone SGLang would miss its files.
DOUBLES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")


def left_out(names: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """The patterns of files that no server reads, given all names of a revision."""
    safe = any(name.endswith(".safetensors") and "/" not in name for name in names)
    return [*ignored, *(DOUBLES if safe else ())]


def kept(names: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """The names of the files that servers read."""
    patterns = left_out(names, ignored)
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def lacking(snapshot: str, files: Mapping[str, int | None]) -> tuple[int, list[str]]:
    """The bytes that are not there yet, and the files whose size is not told."""
    missing = [name for name in files if not os.path.exists(os.path.join(snapshot, name))]
    return sum(files[name] or 0 for name in missing), [name for name in missing if files[name] is None]


def existing(path: str) -> str:
    """The folder that a path lies in, as far as it is there already."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def note(folder: str, commit: str, files: Mapping[str, int]) -> None:
    """Write down what belongs to the revision, so that it is known to be whole without asking the hub."""
    notes = os.path.join(folder, NOTES)
    os.makedirs(notes, exist_ok=True)
    path = os.path.join(notes, f"{commit}.json")
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump({"files": files}, handle)
    os.replace(path + ".new", path)


def fetch(repository: str, revision: str, ignored: Sequence[str]) -> dict[str, Any]:
    """Look what the revision has, check that there is room, and download what is missing."""
    from huggingface_hub import HfApi, constants, snapshot_download  # type: ignore[import-not-found]

    info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    sizes = {each.rfilename: each.size for each in info.siblings}
    files = {name: sizes[name] for name in kept(list(sizes), ignored)}
    folder = os.path.join(constants.HF_HUB_CACHE, "models--" + repository.replace("/", "--"))
    needed, untold = lacking(os.path.join(folder, "snapshots", info.sha), files)
    free = shutil.disk_usage(existing(folder)).free
    told = {"commit": info.sha, "files": len(files), "bytes": needed, "untold": len(untold), "free_bytes": free}
    if needed > free:
        return {**told, "problem": "disk", "said": f"{needed} bytes are missing and {free} are free"}
    snapshot = snapshot_download(repository, revision=revision, ignore_patterns=left_out(list(sizes), ignored))
    found = {name: os.stat(os.path.join(snapshot, name)).st_size for name in files}
    note(folder, info.sha, found)
    return told


def main() -> None:
    repository, revision, ignored = json.loads(sys.argv[1])
    try:
        answer = fetch(repository, revision, ignored)
    except BaseException as error:
        # Their names are stable, and where they are imported from is not.
        names = [kind.__name__ for kind in type(error).__mro__]
        text = " ".join(str(error).split())
        answer = {"problem": "error", "names": names, "errno": getattr(error, "errno", None), "said": text[:600]}
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
