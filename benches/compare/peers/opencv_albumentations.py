"""OpenCV and albumentations in DataLoader workers: fast, but its linear resize does not antialias."""

from __future__ import annotations

import albumentations
import cv2
import measure
import torch
from torch.utils.data import Dataset
from torch_common import Epoch, Options, epochs_of, normalise


class Images(Dataset):
    """Decoded and augmented uint8 images, (3, H, W)."""

    def __init__(self, options: Options) -> None:
        """List the images and build the transform."""
        self.paths, self.labels = measure.list_images(options.data)
        size = (options.image_size, options.image_size)
        crop = albumentations.RandomResizedCrop(size, scale=measure.SCALE, ratio=measure.RATIO)
        self.transform = albumentations.Compose([crop, albumentations.HorizontalFlip(p=0.5)])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Return an image (3, size, size) and its label."""
        image = cv2.imread(self.paths[index], cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        image = self.transform(image=image)["image"]
        return torch.from_numpy(image).permute(2, 0, 1), self.labels[index]


def prepare(options: Options) -> Epoch:
    """Use one OpenCV thread a worker: the workers are the parallelism."""
    cv2.setNumThreads(0)
    return epochs_of(Images(options), options, normalise)


if __name__ == "__main__":
    measure.main(prepare)
