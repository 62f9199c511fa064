"""The common code of the peers with torch's DataLoader: decoding, crops, loader, sampler, normalisation of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from harness.measure import MEAN, RATIO, SCALE, STD, Batches, Epoch, Options, list_images

Finish = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor | list[torch.Tensor], torch.Tensor]]
"""Turns the images and labels that workers send into those of a batch."""


def read_image(path: str) -> torch.Tensor:
    """Return one JPEG as uint8 RGB, (3, H, W)."""
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def decoded(image: bytes | Image.Image) -> torch.Tensor:
    """Return a JPEG's pixels, or those of an image that Pillow has opened, as uint8 RGB (3, H, W)."""
    if isinstance(image, Image.Image):
        return v2.functional.pil_to_tensor(image)
    return decode_jpeg(torch.frombuffer(bytearray(image), dtype=torch.uint8), mode=ImageReadMode.RGB)


def crop_and_flip(size: int) -> v2.Compose:
    """Return the transforms before normalisation, which is done per batch."""
    crop = v2.RandomResizedCrop(size, scale=SCALE, ratio=RATIO, antialias=True)
    return v2.Compose([crop, v2.RandomHorizontalFlip()])


def image_folder(data: str, size: int, read: Callable[[str], torch.Tensor] = read_image) -> ImageFolder:
    """Return torchvision's dataset at its fastest: tensors that `read` decodes, cropped and flipped as uint8."""
    return ImageFolder(data, crop_and_flip(size), loader=read)


class Files(Dataset):
    """The files of an image folder; a sample is the result of `load` for its path, and its label."""

    def __init__(self, options: Options, load: Callable[[str], object]) -> None:
        """List the images."""
        self.paths, self.labels = list_images(options.data)
        self.load = load

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[object, int]:
        """Return a sample."""
        return self.load(self.paths[index]), self.labels[index]


def as_they_are(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images and labels unchanged."""
    return images, labels


class ShuffledSampler(Sampler[int]):
    """A sampler with a new permutation every epoch, cut off after `limit` samples if that is set."""

    def __init__(self, size: int, seed: int) -> None:
        """Make a sampler over `size` samples."""
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)
        self.limit: int | None = None

    def __iter__(self) -> Iterator[int]:
        """Yield the next epoch's order."""
        yield from torch.randperm(self.size, generator=self.generator).tolist()[: self.limit]

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return self.size if self.limit is None else self.limit


def epochs_of(dataset: Dataset, options: Options, finish: Finish = as_they_are) -> Epoch:
    """Return epochs of a map-style dataset through a DataLoader whose workers stay alive between epochs.

    `finish` makes the batches from the workers' results. It runs in this process: sending uint8 and normalising here
    costs less than sending four times as many bytes.
    """
    torch.set_num_threads(1)
    sampler = ShuffledSampler(len(dataset), options.seed)
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.threads,
        persistent_workers=True,
        drop_last=True,
    )

    def epoch(_number: int, batches: int | None) -> Batches:
        sampler.limit = None if batches is None else min(batches * options.batch_size, len(dataset))
        for sent in loader:
            images, labels = finish(*sent)
            several = isinstance(images, list)
            yield [view.numpy() for view in images] if several else images.numpy(), labels.numpy()

    return epoch


def normalise(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise a batch."""
    return normalised(images), labels


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images (n, 3, H, W) as float32, contiguous; made one by one, because the processor's cache holds one
    image.
    """
    mean = torch.tensor(MEAN).view(3, 1, 1) * 255
    scale = 1 / (torch.tensor(STD).view(3, 1, 1) * 255)
    finished = torch.empty(images.shape)
    for place, image in zip(finished, images, strict=True):
        place.copy_(image).sub_(mean).mul_(scale)
    return finished
