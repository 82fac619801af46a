"""The benchmark of the coverage of intervals, loaded as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_benchmark():
    place = ROOT / "research" / "benchmarks" / "statistics" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_benchmark", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = load_benchmark()
