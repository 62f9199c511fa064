"""Determines which node stores which sample, from the caches themselves, and how many samples had to move because of
that.

A loader over a hollow dataset shows what a cache contains: the dataset's files have the same names and sizes, but no
contents. A sample with contents came from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import foreload
import numpy as np


def hollow(folder: Path, target: Path) -> Path:
    """Make `target` a dataset with the same names and sizes as `folder`, whose files have no contents."""
    for place, _, names in os.walk(folder):
        beside = target / Path(place).relative_to(folder)
        beside.mkdir(parents=True, exist_ok=True)
        for name in names:
            (beside / name).touch()
            os.truncate(beside / name, Path(place, name).stat().st_size)
    return target


def held(empty: Path, index: Path, cache: Path, capacity: int) -> set[int]:
    """Return the numbers of the samples in a cache; `empty` is the hollow version of its dataset."""
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
    """Return the least number of samples that must move: for each node and global batch, the stored samples above
    `share`.
    """
    return sum(max(0, sum(number in node for number in batch) - share) for batch in batches for node in kept)
