"""Compare the stub of `foreload._core` with the module, by `mypy.stubtest`.

Usage: `target/debug/python/bin/python tests/environment/check_stub.py`. The stub consists of several files. Only one of
them is a module at run time, so the classes of the others are looked up in that module.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import foreload
from foreload import _core
from mypy import stubtest

PACKAGE = Path(foreload.__file__).parent
PARTS = [path.stem for path in PACKAGE.glob("_*.pyi") if path.stem != "_core"]


def main() -> int:
    """Compare stub and module."""
    for part in PARTS:
        stand_in = ModuleType(f"foreload.{part}")
        for node in ast.parse((PACKAGE / f"{part}.pyi").read_text()).body:
            if isinstance(node, ast.ClassDef):
                setattr(stand_in, node.name, getattr(_core, node.name))
        sys.modules[stand_in.__name__] = stand_in
    allowed = Path(__file__).with_name("stubtest.txt")
    modules = ["foreload._core", "foreload.transforms._made", *(f"foreload.{part}" for part in sorted(PARTS))]
    return stubtest.test_stubs(stubtest.parse_options(["--allowlist", str(allowed), *modules]))


if __name__ == "__main__":
    sys.exit(main())
