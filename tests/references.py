"""What the checks against reference values share: the collection on the import path, and configurations by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.serving.sglang.plugins.module_utils.model import Model

TESTS = Path(__file__).resolve().parent
MODELS = TESTS / "data" / "models"


def find_collection() -> None:
    """Let `import ansible_collections.serving.sglang` find this checkout."""
    command = [str(TESTS / "dev" / "collection_path")]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    for folder in reversed(path.split(":")):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def model_named(name: str, version: str, models: Path = MODELS) -> tuple[Model, Any]:
    """The model whose configuration lies in the folder of that name, and the configuration."""
    from ansible_collections.serving.sglang.plugins.module_utils import memory_releases, model_files

    return model_files.read_model(str(models / name), memory_releases.memory_release_for(version))
