"""What the peers built on torch's DataLoader share: loader, shuffled sampler, batched normalisation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from measure import MEAN, STD, Batches, Epoch, Options
from torch.utils.data import DataLoader, Dataset, Sampler


class ShuffledSampler(Sampler[int]):
    """A sampler with a new permutation every epoch, cut off after `limit` samples when that is set."""

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


def epochs_of(dataset: Dataset, options: Options, collate=None) -> Epoch:
    """Return epochs of a map-style dataset through a DataLoader whose workers live on between epochs."""
    sampler = ShuffledSampler(len(dataset), options.seed)
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.threads,
        persistent_workers=True,
        drop_last=True,
        collate_fn=collate,
    )

    def epoch(_number: int, batches: int | None) -> Batches:
        sampler.limit = None if batches is None else min(batches * options.batch_size, len(dataset))
        for images, labels in loader:
            yield images.numpy(), labels.numpy()

    return epoch


def normalise_batch(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack uint8 images (3, H, W) and normalise the whole batch at once, in the worker."""
    stacked = torch.stack([image for image, _ in samples])
    mean = torch.tensor(MEAN).view(1, 3, 1, 1) * 255
    deviation = torch.tensor(STD).view(1, 3, 1, 1) * 255
    images = stacked.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).div_(deviation)
    return images, torch.tensor([label for _, label in samples])
