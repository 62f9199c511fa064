"""WebDataset tar shards through torchvision.io and v2 transforms, batched normalise, DataLoader workers."""

from __future__ import annotations

import sys

import measure
import torch
import webdataset
from torch.utils.data import default_collate
from torch_common import Epoch, Options, normalised
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2


def prepare(options: Options) -> Epoch:
    """Split shards over the workers, with a shuffle buffer of 1 000 samples; batches are stacked in the worker."""
    urls = sorted(str(path) for path in options.shards.glob("*.tar")) if options.shards else []
    if len(urls) < options.threads:
        sys.exit(f"{len(urls)} tar shards in {options.shards}: fewer than {options.threads} workers")
    torch.set_num_threads(1)
    transform = v2.Compose(
        [v2.RandomResizedCrop(options.image_size, antialias=True), v2.RandomHorizontalFlip()]
    )

    def decode(sample: dict) -> tuple[torch.Tensor, int]:
        data = torch.frombuffer(bytearray(sample["jpg"]), dtype=torch.uint8)
        return transform(decode_jpeg(data, mode=ImageReadMode.RGB)), int(sample["cls"])

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
        # If it is cut short the workers keep reading into the timed epoch, so the warm-up is a whole one.
        for images, labels in loader:
            yield normalised(images).numpy(), labels.numpy()

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
