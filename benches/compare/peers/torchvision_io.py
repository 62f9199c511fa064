"""torchvision at its fastest on the CPU: torchvision.io, v2 transforms on uint8, batched normalise."""

from __future__ import annotations

import measure
import torch
from torch_common import Epoch, Options, epochs_of, normalise
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


def read_image(path: str) -> torch.Tensor:
    """Return one JPEG as uint8 RGB, (3, H, W)."""
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def prepare(options: Options) -> Epoch:
    """ImageFolder with a tensor decoder; crop, antialiased resize and flip on uint8."""
    transform = v2.Compose(
        [v2.RandomResizedCrop(options.image_size, antialias=True), v2.RandomHorizontalFlip()]
    )
    dataset = ImageFolder(str(options.data), transform, loader=read_image)
    return epochs_of(dataset, options, normalise)


if __name__ == "__main__":
    measure.main(prepare)
