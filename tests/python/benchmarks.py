"""Loads the programs of benches/, many of which have the same name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHES = Path(__file__).resolve().parents[2] / "benches"


def load(benchmark: str, module: str = "run") -> ModuleType:
    """Return a module of a benchmark, such as `run`, which can import the harness and its sibling modules."""
    folder = BENCHES / benchmark
    sys.path += [str(place) for place in (BENCHES, folder) if str(place) not in sys.path]
    name = f"{benchmark}_{module}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{module}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
