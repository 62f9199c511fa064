"""A DataLoader with a bucket sampler, as diffusers' training scripts have it: Pillow, torchvision's resize and crop.

`BucketBatchSampler` and `find_nearest_bucket` do what those of diffusers' DreamBooth scripts do: the samples of each
bucket are shuffled and cut into batches, and all batches are shuffled. Images are decoded and transformed when they are
drawn, as in the scripts for text-to-image, because a large dataset does not fit into memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import bucket_peer
import numpy as np
import torch
from harness.measure import Options, list_images
from PIL import Image
from PIL.ImageOps import exif_transpose
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms.functional import crop, hflip


def bucket_sizes() -> list[tuple[int, int]]:
    """Return the sizes, (height, width), of the same buckets as Foreload's."""
    found: dict[float, tuple[int, int]] = {}
    for width in range(bucket_peer.STEP, bucket_peer.AREA // bucket_peer.STEP, bucket_peer.STEP):
        height = bucket_peer.AREA // (width * bucket_peer.STEP) * bucket_peer.STEP
        for h, w in ((height, width), (width, height)):
            if min(h, w) > 0 and max(h, w) <= 2 * min(h, w):
                found[w / h] = max(found.get(w / h, (0, 0)), (h, w))
    return sorted(found.values())


class Images(Dataset):
    """Images with their buckets; an item is decoded when it is asked for."""

    def __init__(self, paths: list[str], sizes: list[tuple[int, int]]) -> None:
        self.paths, self.sizes, self.buckets = paths, sizes, []
        for path in paths:
            with Image.open(path) as image:
                width, height = image.size
            far = [abs(np.log(w / h) - np.log(width / height)) for h, w in sizes]
            self.buckets.append(int(np.argmin(far)))
        self.finish = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        height, width = self.sizes[self.buckets[number]]
        image = exif_transpose(Image.open(self.paths[number])).convert("RGB")
        scale = max(height / image.height, width / image.width)
        size = (max(height, round(image.height * scale)), max(width, round(image.width * scale)))
        image = transforms.Resize(size, interpolation=transforms.InterpolationMode.BILINEAR)(image)
        top, left, h, w = transforms.RandomCrop.get_params(image, output_size=(height, width))
        image = crop(image, top, left, h, w)
        return self.finish(hflip(image) if random.random() < 0.5 else image)


class BucketBatchSampler(BatchSampler):
    """Batches of one bucket each, in random order."""

    def __init__(self, dataset: Images, batch_size: int) -> None:
        self.batch_size = batch_size
        self.indices: list[list[int]] = [[] for _ in dataset.sizes]
        for number, bucket in enumerate(dataset.buckets):
            self.indices[bucket].append(number)

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for indices in self.indices:
            random.shuffle(indices)
            whole = range(0, len(indices) // self.batch_size * self.batch_size, self.batch_size)
            batches += [indices[first : first + self.batch_size] for first in whole]
        random.shuffle(batches)
        yield from batches

    def __len__(self) -> int:
        return sum(len(indices) // self.batch_size for indices in self.indices)


def prepare(options: Options) -> tuple[list[tuple[int, int]], bucket_peer.Epoch]:
    torch.set_num_threads(1)
    random.seed(options.seed)
    paths, _ = list_images(options.data)
    sizes = bucket_sizes()
    dataset = Images(paths, sizes)
    loader = DataLoader(
        dataset,
        batch_sampler=BucketBatchSampler(dataset, options.batch_size),
        num_workers=options.threads,
        persistent_workers=True,
    )

    def epoch(_: int) -> Iterator[np.ndarray]:
        for batch in loader:
            yield batch.numpy()

    return sizes, epoch


if __name__ == "__main__":
    bucket_peer.main(prepare)
