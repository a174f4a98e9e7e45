"""The tests use the fleet through tests/lab/running_fleet.py, which the benchmarks use too."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "lab"))
