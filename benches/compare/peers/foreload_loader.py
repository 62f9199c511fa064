"""Foreload itself: batches through NumPy (DLPack, no copy) or, variant `torch-…`, through its torch dataset.

The variant names decode mode and data type: fast-f32, fast-f16, exact-f32, torch-fast-f32, tar-fast-f32 …
"""

from __future__ import annotations

import sys

import foreload
import numpy as np
from harness import measure
from harness.measure import Batches, Epoch, Options

DTYPES = {"f32": "float32", "f16": "float16"}


def prepare(options: Options) -> Epoch:
    *path, decode, dtype = options.variant.split("-")
    source = options.shards if "tar" in path else options.data
    if source is None:
        sys.exit("no tar shards given")
    arguments = {
        "batch_size": options.batch_size,
        "image_size": options.image_size,
        "seed": options.seed,
        "threads": options.threads,
        "decode": decode,
        "dtype": DTYPES[dtype],
        "last_batch": "drop",
    }
    if "torch" in path:
        return torch_epochs(str(source), arguments)
    loader = foreload.ImageLoader(str(source), **arguments)
    return measure.foreload_epochs(loader, lambda batch: np.from_dlpack(batch.images))


def torch_epochs(source: str, arguments: dict) -> Epoch:
    """Make the same loader through `foreload.torch.ImageDataset` under a DataLoader."""
    from foreload.torch import ImageDataset
    from torch.utils.data import DataLoader

    dataset = ImageDataset(source, **arguments)
    loader = DataLoader(dataset, batch_size=None, num_workers=0)

    def epoch(number: int, batches: int | None) -> Batches:
        dataset.set_epoch(number)
        for step, (images, labels) in enumerate(loader, start=1):
            yield images.numpy(), labels.numpy()
            if step == batches:
                return

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
