"""Fixtures that make small datasets of real JPEG files once in a test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import kills
import numpy as np
import pytest
from consumers import none_are_left
from PIL import Image

THOROUGH = os.environ.get("FORELOAD_THOROUGH") == "1"
"""Whether kills, seeds and draws are repeated many times, as in `make thorough`."""
LONG_TOO = THOROUGH or os.environ.get("FORELOAD_ALL") == "1"
"""Whether all tests run, including slow ones, as in `make test-all` and CI."""


ONLY_ALL = pytest.mark.skipif(
    not LONG_TOO, reason="takes long: make test-all and CI run it, or FORELOAD_ALL=1"
)
"""Marks tests that `make test` skips: they take three seconds or more of one core, or wait for longer."""
ONLY_THOROUGH = pytest.mark.skipif(
    not THOROUGH, reason="takes long: make thorough runs it, or FORELOAD_THOROUGH=1"
)
"""Marks tests that `.ci/run` leaves to `make thorough`, which must pass before a feature counts as finished."""


SLICE = int(os.environ.get("FORELOAD_SLICE", "0"))
"""The tenth of its seeds, 0 to 9, that a campaign tries if it does not try all. CI derives it from the commit."""
assert SLICE in range(10), "FORELOAD_SLICE is 0 to 9"


def seeds(whole: int) -> range:
    """Return the seeds of a campaign that has `whole` of them: all in `make thorough`, otherwise a tenth."""
    chosen = range(whole) if THOROUGH else range(whole // 10 * SLICE, whole // 10 * (SLICE + 1))
    print(f"FORELOAD_SLICE={SLICE}: seeds {chosen.start} to {chosen.stop - 1} of {whole}")
    return chosen


def need(*packages: str, required_by: str = "FRAMEWORKS") -> nullcontext[None]:
    """Skip a test or a file without these packages, unless FORELOAD_REQUIRE_<`required_by`> is 1.

    In a file, `with need(...):` has the imports that need them.
    """
    variable = f"FORELOAD_REQUIRE_{required_by}"
    target = "make test-frameworks has it, " if required_by == "FRAMEWORKS" else ""
    for name in packages if os.environ.get(variable) != "1" else ():
        reason = f"{name} is not installed; {target}{variable}=1 makes this a failure"
        pytest.importorskip(name, reason=reason)
    return nullcontext()


FIFTH = pytest.mark.fifth
"""Marks tests of a campaign without seeds: `make thorough` runs all of them, other targets run a fifth per file."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "fifth: of these tests in a file, all but `make thorough` run a fifth")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of campaigns that are not in this slice. At least one of the selected tests of a file runs."""
    if THOROUGH:
        return
    seen: Counter[Path] = Counter()
    marked = [item for item in items if item.get_closest_marker(FIFTH.name)]
    whole = Counter(item.path for item in marked)
    for item in marked:
        turns = min(5, whole[item.path])
        if seen[item.path] % turns != SLICE % turns:
            reason = "a fifth of these runs at a time, by FORELOAD_SLICE: make thorough runs all"
            item.add_marker(pytest.mark.skip(reason=reason))
        seen[item.path] += 1


def _image(rng: np.random.Generator) -> Image.Image:
    """Return smooth colours with some noise, of a random size."""
    height, width = rng.integers(60, 160, size=2)
    coarse = rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)
    smooth = np.asarray(
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16
    )
    noisy = smooth + rng.integers(-12, 13, size=smooth.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


@pytest.fixture(scope="session", autouse=True)
def _index_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests' index files out of the user's cache."""
    os.environ["FORELOAD_INDEX_DIR"] = str(tmp_path_factory.mktemp("index"))


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    """Kill the processes that a test has started, even if it fails."""
    yield
    kills.end_all()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 20 JPEG files each, shared by tests that do not change them."""
    return make_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def own_dataset(tmp_path: Path) -> Path:
    """The same dataset for one test, which may change it."""
    return make_dataset(tmp_path / "own")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for this test in which processes find each other. Checks at the end that no process is left in it."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("FORELOAD_RUNTIME_DIR", str(tmp_path / "runtime"))
    yield tmp_path / "runtime"
    kills.end_all()
    none_are_left(tmp_path / "runtime")


def make_dataset(root: Path) -> Path:
    """Write the files; sample i is the i-th path in order."""
    rng = np.random.default_rng(0)
    for number in range(60):
        path = root / f"class_{number // 20}" / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        subsampling = (2, 0, 1)[number % 3]
        _image(rng).save(path, quality=90, subsampling=subsampling)
    return root


def checksums(dataset: Path, *arguments: str) -> list[str]:
    """Return the SHA-256 of each epoch that `foreload bench` reads on the CPU with these arguments."""
    command = [sys.executable, "-m", "foreload", "bench", str(dataset), *arguments]
    command += ["--device", "cpu", "--checksum", "--json"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [epoch["sha256"] for epoch in json.loads(report)["epochs"]]


def paths(root: Path) -> list[Path]:
    """Return the files by sample id."""
    return sorted(root.glob("*/*.jpg"))
