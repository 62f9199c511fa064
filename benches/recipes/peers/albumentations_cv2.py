"""albumentations and OpenCV in DataLoader workers. It has no policies; erasing and mixing use torchvision.

Resizing uses OpenCV's INTER_AREA: OpenCV's linear and cubic modes do not antialias, and would give rougher images.
"""

from __future__ import annotations

import sys

import albumentations as A
import cv2
import numpy as np
import recipes
import torch
import torch_batches
from harness import measure
from harness.measure import RATIO, Epoch, Options
from recipes import View


def read_image(path: str) -> np.ndarray:
    """Return one JPEG as uint8 RGB, (H, W, 3)."""
    return cv2.imread(path, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)


class Steps:
    """The steps of a view."""

    def __init__(self, view: View) -> None:
        """Make the steps; end the program if albumentations lacks one."""
        if view.policy:
            sys.exit(f"albumentations has no {view.policy}")
        steps = [
            A.RandomResizedCrop((view.side, view.side), view.scale, RATIO, interpolation=cv2.INTER_AREA),
            A.HorizontalFlip(p=recipes.FLIP),
        ]
        if view.jitter:
            steps.append(
                A.ColorJitter(
                    *(around(change) for change in view.jitter.strengths[:3]),
                    (-view.jitter.hue, view.jitter.hue),
                    p=view.jitter.p,
                )
            )
        if view.grey:
            steps.append(A.ToGray(p=view.grey))
        if view.blur:
            kernel = (view.blur_kernel, view.blur_kernel)
            steps.append(A.GaussianBlur(kernel, recipes.BLUR_SIGMA, p=view.blur))
        if view.solarise:
            threshold = recipes.SOLARISE_FROM / 255
            steps.append(A.Solarize((threshold, threshold), p=view.solarise))
        self.compose = A.Compose(steps)

    def __call__(self, image: np.ndarray) -> torch.Tensor:
        """Return the view as uint8 (3, side, side)."""
        return torch.from_numpy(self.compose(image=image)["image"]).permute(2, 0, 1)


def around(change: float) -> tuple[float, float]:
    """Return torchvision's bounds of a factor that changes by `change`."""
    return max(0.0, 1 - change), 1 + change


def prepare(options: Options) -> Epoch:
    """Use one OpenCV thread per worker: the workers are the parallelism."""
    cv2.setNumThreads(0)
    return torch_batches.epochs(options, read_image, Steps)


if __name__ == "__main__":
    measure.main(prepare, recipes.sides)
