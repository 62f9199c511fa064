"""A share of the node's processors, and how a loader reports it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import foreload
import numpy as np
import pytest
from waiting import until


def test_batches_are_the_same_within_a_share(dataset: Path) -> None:
    """Parked threads change no byte."""

    def bytes_of(**settings: object) -> list[bytes]:
        loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, seed=3, **settings)
        return [np.from_dlpack(batch.images).tobytes() for batch in loader]

    assert bytes_of() == bytes_of(resources=foreload.Resources(cpu=0.3)) == bytes_of(cpu=0.3, threads=2)


def test_statistics_say_how_many_processors_a_share_is(dataset: Path) -> None:
    """The value is None without a share."""

    def cores(**settings: object) -> float | None:
        batches = iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32, **settings))
        list(batches)
        return batches.stats()["cores"]

    assert cores() is None
    assert 0 < cores(resources={"cpu": 0.01}) < 100


@pytest.mark.parametrize("wrong", [0, -0.5, 1.5, float("nan"), "half"])
def test_a_share_is_above_0_and_at_most_1(dataset: Path, wrong: object) -> None:
    """Other values are refused with an error that names the setting."""
    with pytest.raises(foreload.ConfigError, match="cpu"):
        foreload.ImageLoader(dataset, cpu=wrong)


KEEPS = """
import sys, time
from pathlib import Path
import foreload

def taken():
    of_loader = [task for task in Path("/proc/self/task").iterdir()
                 if (task / "comm").read_text().startswith("foreload")]
    return len(of_loader), sum(int((task / "schedstat").read_text().split()[0]) / 1e9 for task in of_loader)

loader = foreload.ImageLoader(sys.argv[1], batch_size=4, image_size=64, cpu=float(sys.argv[2]))
begun = time.monotonic()
while time.monotonic() < begun + 1.5:
    for batch in loader:
        pass
print(*taken(), time.monotonic() - begun)
"""


def test_threads_take_no_more_than_their_share(dataset: Path) -> None:
    """With a share, threads use at most a tenth of one processor on any machine; without one, they use all that is
    free.
    """
    share = 0.1 / len(os.sched_getaffinity(0))
    told = subprocess.run(
        [sys.executable, "-c", KEEPS, dataset, str(share)], capture_output=True, text=True, check=True
    )
    threads, taken, passed = map(float, told.stdout.split())
    assert threads >= 2
    assert 0 < taken < 0.2 * passed, "twice the share: what they take at once comes on top"


def test_loaders_amid_epochs_divide_the_processors(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While there are two loaders, each has half of its share."""
    monkeypatch.setenv("FORELOAD_RUNTIME_DIR", str(tmp_path))

    def loader() -> foreload.ImageLoader:
        return foreload.ImageLoader(dataset, batch_size=4, image_size=32, cpu=1.0)

    def counts() -> Iterator[float]:
        """Yield the number of processors of the loader; its reading thread updates the share every two seconds while it
        reads.
        """
        while True:
            for _ in (epoch := iter(one)):
                yield epoch.stats()["cores"]

    one, two = loader(), loader()
    epoch = iter(one)
    next(epoch)
    alone = epoch.stats()["cores"]
    amid = iter(two)
    next(amid)
    reading = counts()
    until("the loader has half of its share", lambda: next(reading), lambda cores: cores == alone / 2)
    del amid, two
    until("the loader has all of its share", lambda: next(reading), lambda cores: cores == alone)
