"""A TensorSocket producer around the fastest DataLoader of torchvision's that `benches/compare` has."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorsocket
import torch
from measure import Options
from torch.utils.data import DataLoader
from torch_common import normalised
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
from torchvision_io import read_image


def main(data: str, threads: str, batch_size: str) -> None:
    """Send one epoch after another until killed."""
    options = Options(Path(data), None, Path("/tmp"), int(batch_size), 224, int(threads), 0, "")
    torch.set_num_threads(1)
    transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])

    class Normalising(DataLoader):
        """What the workers send is normalised here, which costs least."""

        def __iter__(self):
            for images, labels in super().__iter__():
                yield normalised(images), labels

    loader = Normalising(
        ImageFolder(str(options.data), transform, loader=read_image),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.threads,
        persistent_workers=True,
        drop_last=True,
    )
    producer = tensorsocket.TensorProducer(loader)
    while True:
        for _ in producer:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
