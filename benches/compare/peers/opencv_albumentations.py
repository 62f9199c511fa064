"""OpenCV and albumentations in DataLoader workers: fast, but its linear resize does not antialias."""

from __future__ import annotations

import albumentations
import cv2
import torch
from harness import measure
from harness.measure import Epoch, Options
from harness.torch_peers import Files, epochs_of, normalise


def prepare(options: Options) -> Epoch:
    """Use one OpenCV thread per worker: the workers are the parallelism."""
    cv2.setNumThreads(0)
    size = (options.image_size, options.image_size)
    crop = albumentations.RandomResizedCrop(size, scale=measure.SCALE, ratio=measure.RATIO)
    transform = albumentations.Compose([crop, albumentations.HorizontalFlip(p=0.5)])

    def load(path: str) -> torch.Tensor:
        image = cv2.imread(path, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        return torch.from_numpy(transform(image=image)["image"]).permute(2, 0, 1)

    return epochs_of(Files(options, load), options, normalise)


if __name__ == "__main__":
    measure.main(prepare)
