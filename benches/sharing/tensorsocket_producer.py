"""A TensorSocket producer with the fastest of torchvision's DataLoaders in `benches/compare`."""

from __future__ import annotations

import sys

import tensorsocket
import torch
from harness.torch_peers import image_folder, normalised
from torch.utils.data import DataLoader


class Normalising(DataLoader):
    """Normalises the workers' images here, which costs least."""

    def __iter__(self):
        for images, labels in super().__iter__():
            yield normalised(images), labels


def main(data: str, threads: str, batch_size: str) -> None:
    torch.set_num_threads(1)
    loader = Normalising(
        image_folder(data, 224),
        batch_size=int(batch_size),
        shuffle=True,
        num_workers=int(threads),
        persistent_workers=True,
        drop_last=True,
    )
    producer = tensorsocket.TensorProducer(loader)
    while True:
        for _ in producer:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
