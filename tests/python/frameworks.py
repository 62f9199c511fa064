"""The environment with training frameworks, which `make test-frameworks` makes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import foreload
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RAY = {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
"""Settings of Ray: it logs everything, and sends nothing."""

sys.path += [str(ROOT / "benches"), str(ROOT / "tests" / "environment")]
import provide_frameworks  # noqa: E402
from harness import environments  # noqa: E402


def interpreter(name: str = "frameworks") -> Path:
    """Return the Python of an environment; skip the test, or fail it, if there is none."""
    if name == "ray" and not provide_frameworks.RAY:
        pytest.skip("takes a minute and an installation: FORELOAD_THOROUGH=1 without FORELOAD_RAY=0 runs it")
    folder = environments.DEFAULT_FOLDER / name
    if not (folder / environments.MARKER).is_file():
        message = "the frameworks are not installed: make test-frameworks does that"
        if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1":
            pytest.fail(message)
        pytest.skip(f"{message}; FORELOAD_REQUIRE_FRAMEWORKS=1 makes this a failure")
    return environments.python_of(name)


def environment(**more: str) -> dict[str, str]:
    """Return variables for a program in the environment: it finds Foreload, and is the only rank."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("SLURM_", "OMPI_", "PMI_", "MPI_", "MV2_"))
        and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    }
    # Small matrices do not profit from threads, and the processes of one test share two cores.
    module = Path(foreload.__file__).parents[1]
    return inherited | {"PYTHONPATH": str(module), "OMP_NUM_THREADS": "1"} | more
