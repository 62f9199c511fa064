"""torch's DataLoader at its best: workers crop and flip uint8 images, which are normalised on the device."""

from __future__ import annotations

from collections.abc import Iterator

import serve
import torch
from harness.measure import MEAN, STD
from harness.torch_peers import image_folder
from serve import Batch, Feed, Options
from torch.utils.data import DataLoader, RandomSampler

PREFETCH = 2


def one_thread(_worker: int) -> None:
    """Use one thread, because workers already share the cores."""
    torch.set_num_threads(1)


class DataLoaderFeed(Feed):
    """A loader whose workers stay alive between epochs; with uint8 only a quarter of the bytes crosses the bus."""

    def __init__(self, options: Options) -> None:
        torch.manual_seed(options.seed)
        dataset = image_folder(str(options.data), options.image_size)
        self.loader = DataLoader(
            dataset,
            batch_size=options.batch_size,
            sampler=RandomSampler(dataset, num_samples=serve.EPOCHS * len(dataset)),
            num_workers=options.threads,
            persistent_workers=True,
            pin_memory=True,
            drop_last=True,
            prefetch_factor=PREFETCH,
            worker_init_fn=one_thread,
        )
        self.ready = PREFETCH * options.threads + 1
        self.dtype = options.torch_dtype
        self.mean = torch.tensor(MEAN, device=serve.DEVICE).view(1, 3, 1, 1) * 255
        self.scale = 1 / (torch.tensor(STD, device=serve.DEVICE).view(1, 3, 1, 1) * 255)

    def batches(self) -> Iterator[Batch]:
        while True:
            for images, labels in self.loader:
                images = images.cuda(non_blocking=True)
                images = images.float().sub_(self.mean).mul_(self.scale).to(self.dtype)
                yield images, labels.cuda(non_blocking=True)

    def close(self) -> None:
        del self.loader


if __name__ == "__main__":
    serve.serve(lambda options, _: DataLoaderFeed(options))
