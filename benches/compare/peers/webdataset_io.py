"""WebDataset tar shards through torchvision.io and v2 transforms, batched normalise, DataLoader workers."""

from __future__ import annotations

import sys

import torch
import webdataset
from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import crop_and_flip, decoded, normalised
from torch.utils.data import default_collate


def prepare(options: Options) -> Epoch:
    """Split shards over the workers, with a shuffle buffer of 1 000 samples; batches are stacked in the worker."""
    urls = sorted(str(path) for path in options.shards.glob("*.tar")) if options.shards else []
    if len(urls) < options.threads:
        sys.exit(f"{len(urls)} tar shards in {options.shards}: fewer than {options.threads} workers")
    torch.set_num_threads(1)
    transform = crop_and_flip(options.image_size)

    def decode(sample: dict) -> tuple[torch.Tensor, int]:
        return transform(decoded(sample["jpg"])), int(sample["cls"])

    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls), seed=options.seed)
        .shuffle(1000)
        .map(decode)
        .batched(options.batch_size, collation_fn=default_collate, partial=False)
    )
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=options.threads, persistent_workers=True
    )

    def epoch(_number: int, _batches: int | None) -> measure.Batches:
        # If it is stopped early the workers keep reading into the timed epoch, so the warm-up is a whole epoch.
        for images, labels in loader:
            yield normalised(images).numpy(), labels.numpy()

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
