"""h5py, zarr-python or NumPy in a map-style dataset, and torch's DataLoader with worker processes.

Each worker opens the files once. Rows of npy files are memory-mapped.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import array_epochs
import numpy as np
import torch
from array_epochs import Epoch
from harness.measure import Options
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """The samples of a dataset, read by the container's library."""

    def __init__(self, root: Path, about: dict) -> None:
        self.root, self.about = root, about
        self.source, self.by_file = about["source"], about["axis"] == "file"
        self.paths = sorted(path for path in root.iterdir() if path.is_file() and path.suffix != ".json")
        self.starts = [0]
        if about["container"] == "hdf5" and not self.by_file:
            counts = [len(self.array(place)) for place in range(len(self.paths))]
            self.starts = [0, *itertools.accumulate(counts)]
        # The workers open the files themselves.
        self.opened: dict[int, Any] = {}

    def __len__(self) -> int:
        return self.about["samples"]

    def array(self, place: int) -> Any:
        """Open a file, or the whole store."""
        if self.about["container"] == "hdf5":
            import h5py

            with suppress(ImportError):
                import hdf5plugin  # noqa: F401 - It registers the filters.

            return h5py.File(self.paths[place], "r")[self.source]
        if self.about["container"] == "zarr":
            import zarr

            return zarr.open_group(self.root, mode="r")[self.source.strip("/")]
        if self.about["container"] == "npz":
            with np.load(self.paths[place]) as archive:
                return archive[self.source]
        return np.load(self.root / self.source, mmap_mode="r")

    def __getitem__(self, number: int) -> np.ndarray:
        if self.by_file:
            values = np.asarray(self.array(number)[...])
        else:
            place = bisect.bisect_right(self.starts, number) - 1
            if place not in self.opened:
                self.opened[place] = self.array(place)
            values = np.array(self.opened[place][number - self.starts[place]])
        # torch stacks few kinds of unsigned numbers.
        return values.view(np.int16) if values.dtype == np.uint16 else values


def prepare(options: Options, about: dict, _choices: dict[str, str]) -> Epoch:
    """Return epochs of a DataLoader whose workers stay alive."""
    torch.set_num_threads(1)
    loader = DataLoader(
        Samples(options.data / "data", about),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.threads,
        persistent_workers=True,
    )

    def epoch(_number: int) -> Iterator[np.ndarray]:
        for batch in loader:
            yield batch.numpy()

    return epoch


if __name__ == "__main__":
    array_epochs.main(prepare)
