"""torch's DataLoader at its best: uint8 images are cropped and flipped in workers, normalised on the device."""

from __future__ import annotations

from collections.abc import Iterator

import serve
import torch
from serve import MEAN, STD, Batch, Feed, Options
from torch.utils.data import DataLoader, RandomSampler
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

PREFETCH = 2


def read_image(path: str) -> torch.Tensor:
    """Return one JPEG as uint8 RGB, (3, H, W)."""
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def one_thread(_worker: int) -> None:
    """Use one thread, since workers share the cores already."""
    torch.set_num_threads(1)


class DataLoaderFeed(Feed):
    """A loader whose workers live on between epochs; as uint8 a quarter of the bytes crosses the bus."""

    def __init__(self, options: Options) -> None:
        transform = v2.Compose(
            [v2.RandomResizedCrop(options.image_size, antialias=True), v2.RandomHorizontalFlip()]
        )
        torch.manual_seed(options.seed)
        dataset = ImageFolder(str(options.data), transform, loader=read_image)
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
        """Yield epoch after epoch."""
        while True:
            for images, labels in self.loader:
                images = images.cuda(non_blocking=True)
                images = images.float().sub_(self.mean).mul_(self.scale).to(self.dtype)
                yield images, labels.cuda(non_blocking=True)

    def close(self) -> None:
        """End the workers."""
        del self.loader


if __name__ == "__main__":
    serve.serve(lambda options, _: DataLoaderFeed(options))
