"""The input pipelines that are compared, torchvision's and Foreload's, for the same files and with the same parameters.

A training pipeline is a function of the epoch that gives its batches: images, float32 [n, 3, side, side], normalised,
and labels, int64 [n].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from settings import Settings
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

if TYPE_CHECKING:
    from foreload.torch import ImageDataset

# These are the values of ImageNet, as is usual.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
VALIDATION_BATCH = 500

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def training(pipeline: str, settings: Settings, seed: int) -> Callable[[int], Batches]:
    """Return a pipeline by name: `torchvision`, or Foreload's `decode`. Each drops samples that fill no batch."""
    make = torchvision_training if pipeline == "torchvision" else foreload_training
    return make(settings, seed, pipeline)


# Pillow decodes a file to the same pixels each time, so once in a process is enough; the crops are drawn each time.
decoded = functools.cache(default_loader)


def torchvision_training(settings: Settings, seed: int, _: str) -> Callable[[int], Batches]:
    """Pillow and torchvision in this process. Crops are drawn from torch's global generator."""
    steps = [
        transforms.RandomResizedCrop(settings.image_size, scale=settings.scale),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    dataset = ImageFolder(str(settings.data / "train"), transforms.Compose(steps), loader=decoded)
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(dataset, settings.batch_size, shuffle=True, drop_last=True, generator=order)
    return lambda _: loader


def foreload_training(settings: Settings, seed: int, decode: str) -> Callable[[int], Batches]:
    """Foreload, with one decoding thread."""
    dataset = foreload_dataset(
        settings, "train", decode, batch_size=settings.batch_size, seed=seed, scale=settings.scale
    )

    def epoch(number: int) -> Batches:
        dataset.set_epoch(number)
        return dataset

    return epoch


@functools.cache
def torchvision_validation(settings: Settings) -> Batches:
    """The batches by which every trained network is judged, made once per process."""
    steps = [
        transforms.Resize(settings.resize),
        transforms.CenterCrop(settings.image_size),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    dataset = ImageFolder(str(settings.data / "val"), transforms.Compose(steps))
    return list(DataLoader(dataset, VALIDATION_BATCH))


def foreload_validation(settings: Settings, decode: str) -> Batches:
    """The same images loaded by Foreload, for a network that was trained by it."""
    return foreload_dataset(
        settings, "val", decode, batch_size=VALIDATION_BATCH, train=False, resize=settings.resize
    )


def foreload_dataset(settings: Settings, folder: str, decode: str, **more: object) -> ImageDataset:
    """The settings that training and validation by Foreload have in common."""
    from foreload.torch import ImageDataset

    return ImageDataset(
        settings.data / folder,
        image_size=settings.image_size,
        mean=MEAN,
        std=STD,
        decode=decode,
        device="cpu",
        threads=1,
        progress=False,
        **more,
    )
