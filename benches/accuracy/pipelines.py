"""The compared input pipelines, torchvision's and Foreload's, for the same files and with the same parameters.

A training pipeline is a function that returns the batches of an epoch: images, float32 [n, 3, side, side], normalised,
and labels, int64 [n], or float32 [n, classes] if the recipe mixes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from settings import ERASING, MIXUP_ALPHA, Settings
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2

if TYPE_CHECKING:
    from foreload.torch import ImageDataset

# The usual values for ImageNet.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
VALIDATION_BATCH = 500

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def training(pipeline: str, settings: Settings, seed: int) -> Callable[[int], Batches]:
    """Return a pipeline by name: `torchvision`, or Foreload's `decode`. Each drops an incomplete last batch."""
    make = torchvision_training if pipeline == "torchvision" else foreload_training
    return make(settings, seed, pipeline)


# Pillow decodes a file to the same pixels each time, so one decoding per process is enough; crops are drawn each time.
decoded = functools.cache(default_loader)


@functools.cache
def decoded_tensor(path: str) -> torch.Tensor:
    """Return the same pixels as a tensor, uint8 [3, h, w]."""
    return v2.functional.pil_to_tensor(decoded(path))


def torchvision_training(settings: Settings, seed: int, _: str) -> Callable[[int], Batches]:
    """Pillow and torchvision in this process. Crops and later transforms are drawn from torch's global generator."""
    plain = settings.recipe == "plain"
    steps, loader = (torchvision_plain, decoded) if plain else (torchvision_strong, decoded_tensor)
    dataset = ImageFolder(str(settings.data / "train"), steps(settings), loader=loader)
    order = torch.Generator().manual_seed(seed)
    batches = DataLoader(dataset, settings.batch_size, shuffle=True, drop_last=True, generator=order)
    if plain:
        return lambda _: batches
    mix = v2.MixUp(alpha=MIXUP_ALPHA, num_classes=len(dataset.classes))
    return lambda _: (mix(images, labels) for images, labels in batches)


def torchvision_plain(settings: Settings) -> transforms.Compose:
    """The recipe `plain`, on Pillow's images."""
    steps = [
        transforms.RandomResizedCrop(settings.image_size, scale=settings.scale),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return transforms.Compose(steps)


def torchvision_strong(settings: Settings) -> v2.Compose:
    """The recipe `strong` without its mixing, on tensors of uint8."""
    steps = [
        v2.RandomResizedCrop(settings.image_size, scale=settings.scale, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.TrivialAugmentWide(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
        v2.RandomErasing(ERASING),
    ]
    return v2.Compose(steps)


def foreload_training(settings: Settings, seed: int, decode: str) -> Callable[[int], Batches]:
    """Foreload, with one decoding thread."""
    of_recipe = foreload_plain if settings.recipe == "plain" else foreload_strong
    dataset = foreload_dataset(
        settings, "train", decode, batch_size=settings.batch_size, seed=seed, **of_recipe(settings)
    )

    def epoch(number: int) -> Batches:
        dataset.set_epoch(number)
        return dataset

    return epoch


def foreload_plain(settings: Settings) -> dict[str, object]:
    """The settings of the recipe `plain`."""
    return {"image_size": settings.image_size, "scale": settings.scale, "mean": MEAN, "std": STD}


def foreload_strong(settings: Settings) -> dict[str, object]:
    """The settings of the recipe `strong`."""
    from foreload import transforms as T

    classes = sum(1 for _ in (settings.data / "train").iterdir())
    steps = [
        T.RandomResizedCrop(settings.image_size, scale=settings.scale),
        T.RandomHorizontalFlip(),
        T.TrivialAugmentWide(),
        T.ToDtype("float32"),
        T.Normalize(MEAN, STD),
        T.RandomErasing(ERASING),
    ]
    return {"transforms": steps, "mix": [T.MixUp(alpha=MIXUP_ALPHA, num_classes=classes)]}


@functools.cache
def torchvision_validation(settings: Settings) -> Batches:
    """The batches with which every trained network is evaluated, made once per process."""
    steps = [
        transforms.Resize(settings.resize),
        transforms.CenterCrop(settings.image_size),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    dataset = ImageFolder(str(settings.data / "val"), transforms.Compose(steps))
    return list(DataLoader(dataset, VALIDATION_BATCH))


def foreload_validation(settings: Settings, decode: str) -> Batches:
    """The same images loaded by Foreload, for a network that was trained with Foreload."""
    images = {"image_size": settings.image_size, "resize": settings.resize, "mean": MEAN, "std": STD}
    return foreload_dataset(settings, "val", decode, batch_size=VALIDATION_BATCH, train=False, **images)


def foreload_dataset(settings: Settings, folder: str, decode: str, **more: object) -> ImageDataset:
    """The common settings of training and validation with Foreload."""
    from foreload.torch import ImageDataset

    return ImageDataset(
        settings.data / folder,
        decode=decode,
        device="cpu",
        threads=1,
        progress=False,
        **more,
    )
