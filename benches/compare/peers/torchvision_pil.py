"""torchvision as its tutorials use it: ImageFolder with Pillow (or Pillow-SIMD), DataLoader workers."""

from __future__ import annotations

from harness import measure
from harness.torch_peers import MEAN, STD, Epoch, Options, epochs_of
from torchvision import datasets, transforms


def prepare(options: Options) -> Epoch:
    """ImageFolder → RandomResizedCrop → flip → ToTensor → Normalize, batches collated by the DataLoader."""
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(options.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return epochs_of(datasets.ImageFolder(str(options.data), transform), options)


if __name__ == "__main__":
    measure.main(prepare)
