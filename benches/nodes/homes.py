"""Which node keeps which sample, as the caches themselves say, and how many samples had to move because of it.

A cache is asked by a loader over a hollow dataset: files of the same names and sizes without any contents. What comes
with contents came from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import foreload
import numpy as np


def hollow(folder: Path, target: Path) -> Path:
    """Make `target` a dataset of the same names and sizes as `folder`, of which no file has contents."""
    for place, _, names in os.walk(folder):
        beside = target / Path(place).relative_to(folder)
        beside.mkdir(parents=True, exist_ok=True)
        for name in names:
            (beside / name).touch()
            os.truncate(beside / name, Path(place, name).stat().st_size)
    return target


def held(empty: Path, index: Path, cache: Path, capacity: int) -> set[int]:
    """Return the numbers of the samples in a cache of the dataset of which `empty` is the hollow one."""
    loader = foreload.ImageLoader(
        empty,
        batch_size=50,
        train=False,
        rank=0,
        world_size=1,
        index_dir=index,
        cache=[foreload.Directory(cache, capacity, fill="use")],
        immutable=True,
        decoded=False,
        on_error="zero",
        max_errors=10**6,
        progress=False,
    )
    found = set()
    for batch in loader:
        found |= set(np.from_dlpack(batch.sample_ids)[np.from_dlpack(batch.mask)].tolist())
    return found


def least_moves(batches: Iterable[Iterable[int]], kept: list[set[int]], share: int) -> int:
    """Return how many samples must move at least: of those that a node keeps of a global batch, all above `share`."""
    return sum(max(0, sum(number in node for number in batch) - share) for batch in batches for node in kept)
