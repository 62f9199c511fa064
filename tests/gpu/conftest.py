"""Fixtures of the tests on a GPU.

`FORELOAD_REQUIRE_GPU=1` turns every skip into a failure. `FORELOAD_REQUIRE_GPU=stand-in` demands a device too, but
allows skips of tests that need torch or CuPy, which cannot work with the stand-in libraries. `test_refusals.py` runs
only with the stand-ins, because no real driver fails on request.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import driver
import foreload
import images
import numpy as np
import pytest

REQUIRED = os.environ.get("FORELOAD_REQUIRE_GPU", "")


def _has_dali() -> bool:
    """Whether to test with DALI, which is not part of the kit: only `FORELOAD_REQUIRE_DALI=1` demands it."""
    if os.environ.get("FORELOAD_REQUIRE_DALI") == "1":
        return True
    try:
        return importlib.util.find_spec("nvidia.dali") is not None
    except ImportError:
        return False


collect_ignore = [] if _has_dali() else ["test_dali.py"]
if REQUIRED != "stand-in":
    collect_ignore.append("test_refusals.py")


@pytest.fixture(scope="session", autouse=True)
def _index_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests' index files out of the user's cache."""
    os.environ["FORELOAD_INDEX_DIR"] = str(tmp_path_factory.mktemp("index"))


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a directory of its own for processes that share batches."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("FORELOAD_RUNTIME_DIR", str(tmp_path / "runtime"))


def _devices() -> int | str:
    """Return the number of devices, or why there is none."""
    try:
        devices = driver.device_count()
    except (OSError, AttributeError, driver.DriverError) as reason:
        return f"there is no CUDA driver with a device: {reason}"
    return devices or "the CUDA driver shows no device"


def pytest_report_header() -> list[str]:
    """Return a line that says why all tests are skipped, if they are."""
    found = _devices()
    lines = [f"GPU: {found}" if isinstance(found, int) else f"skipped: {found}"]
    if "test_refusals.py" in collect_ignore:
        lines.append(
            "left out: test_refusals.py, which tells a stand-in to refuse (FORELOAD_REQUIRE_GPU=stand-in)"
        )
    if "test_dali.py" in collect_ignore:
        lines.append("skipped: DALI is not installed; FORELOAD_REQUIRE_DALI=1 makes this a failure")
    return lines


def _missing(what: str, required: bool) -> None:
    if required:
        pytest.fail(f"FORELOAD_REQUIRE_GPU={REQUIRED}, but {what}", pytrace=False)
    pytest.skip(f"{what}; FORELOAD_REQUIRE_GPU=1 makes this a failure")


@pytest.fixture(scope="session")
def gpu() -> int:
    """The number of devices; skips the test where there is none."""
    found = _devices()
    if isinstance(found, str):
        _missing(found, bool(REQUIRED))
    return found


def _need(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as reason:
        return _missing(f"{name} is not installed ({reason})", REQUIRED == "1")


@pytest.fixture(scope="session")
def torch(gpu: int) -> ModuleType:
    """Torch, if it can use the device."""
    module = _need("torch")
    # If torch's CUDA cannot use the driver, torch warns. That is a reason to skip, not an error of the test.
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = module.cuda.is_available()
    if not available:
        reasons = "".join(f": {warning.message}" for warning in said)
        _missing(f"torch {module.__version__} sees no CUDA device{reasons}", REQUIRED == "1")
    return module


@pytest.fixture(scope="session")
def cupy(gpu: int) -> ModuleType:
    """CuPy."""
    return _need("cupy")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 baseline JPEGs in three classes, shared by tests that do not change them."""
    return images.make(tmp_path_factory.mktemp("dataset"))


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 files of all kinds in turn, shared by tests."""
    return images.make(tmp_path_factory.mktemp("mixed"), images.KINDS, samples=64)


@pytest.fixture
def own_dataset(tmp_path: Path) -> Path:
    """60 baseline JPEGs for one test, which may change them."""
    return images.make(tmp_path / "own")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Force one decoding backend (hardware, cuda or cpu) for loaders that are made after the call."""
    return lambda name: monkeypatch.setenv("FORELOAD_GPU_BACKEND", name)


Levels = Callable[..., dict[int, np.ndarray]]


@pytest.fixture(scope="session")
def on_cpu() -> Levels:
    """The CPU's uint8 NCHW pixels of an epoch by sample id, which batches of a GPU must resemble."""

    def levels(root: Path, epoch: int = 0, **settings: object) -> dict[int, np.ndarray]:
        settings = {"batch_size": 4, "image_size": 32, "last_batch": "partial", **settings}
        settings |= {"device": "cpu", "dtype": "uint8", "memory_format": "nchw"}
        loader = foreload.ImageLoader(root, **settings)
        loader.set_epoch(epoch)
        return {
            int(sample): pixels
            for batch in loader
            for sample, pixels in zip(
                driver.to_host(batch.sample_ids), driver.to_host(batch.images), strict=True
            )
        }

    return levels
