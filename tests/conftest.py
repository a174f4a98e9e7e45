"""What every test of the repository needs: the collection under its own name, and the switch for the long tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def _find_collection_by_name() -> None:
    """Let `import ansible_collections.serving.sglang` find this checkout."""
    path = subprocess.run(
        [CHECKOUT / "tests" / "dev" / "collection_path"], check=True, capture_output=True, text=True
    ).stdout.strip()
    os.environ["ANSIBLE_COLLECTIONS_PATH"] = path
    for folder in reversed(path.split(":")):
        if folder not in sys.path:
            sys.path.insert(0, folder)


_find_collection_by_name()

# A busy machine is no failure; and where the same commit must give the same answer, so must the same test.
hypothesis.settings.register_profile("developer", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "developer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SGLANG_TEST_FULL") == "1":
        return
    skip = pytest.mark.skip(reason="takes long; `make test-full` runs it")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The repository's own folder."""
    return CHECKOUT
