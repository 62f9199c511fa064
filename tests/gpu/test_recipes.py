"""Recipes of well-known trainings on a device: lists that change pixels give the bits of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import driver
import foreload
import numpy as np
import pytest
from foreload import transforms as T

pytestmark = pytest.mark.usefixtures("gpu")

FINISH = [T.ToDtype("float32"), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
CROP = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
JITTER = T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8)

LISTS = {
    "jitter": [*CROP, T.ColorJitter(0.4, 0.4, 0.4, 0.1), *FINISH],
    "SimCLR": [*CROP, JITTER, T.RandomGrayscale(0.2), T.RandomApply([T.GaussianBlur(9)], p=0.5), *FINISH],
    "three of 3-Augment": [
        *CROP,
        T.RandomChoice([T.Grayscale(), T.RandomSolarize(128, p=1), T.GaussianBlur(5)]),
        *FINISH,
    ],
    "RandAugment": [*CROP, T.RandAugment(interpolation="bilinear"), *FINISH, T.RandomErasing(value="random")],
    "timm": [*CROP, T.RandAugment.timm("rand-m9-mstd0.5-inc1"), *FINISH],
    "TrivialAugmentWide": [*CROP, T.TrivialAugmentWide(), *FINISH, T.RandomErasing(0.1)],
    "AutoAugment": [*CROP, T.AutoAugment("cifar10", fill=128), T.ToDtype("float16")],
    "AugMix": [*CROP, T.AugMix(), T.ToDtype("uint8")],
    "affine": [*CROP, T.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 10, interpolation="bilinear"), *FINISH],
    "erasing alone": [*CROP, *FINISH, T.RandomErasing(1, value="random")],
}
"""The lists of transforms, by name."""


def made(root: Path, device: str, transforms: object) -> list[np.ndarray]:
    """Return the images of an epoch in host memory."""
    loader = foreload.ImageLoader(root, batch_size=20, seed=5, transforms=transforms, device=device)
    batches = []
    for batch in loader:
        assert batch.images.__dlpack_device__()[0] == (2 if device == "cuda" else 1)
        batches.append(driver.to_host(batch.images))
    return batches


@pytest.mark.parametrize("name", LISTS)
def test_a_recipe_has_the_bits_of_the_cpu(dataset: Path, backend: Callable[[str], None], name: str) -> None:
    backend("cpu")
    on_gpu, on_cpu = (made(dataset, device, LISTS[name]) for device in ("cuda", "cpu"))
    assert len(on_gpu) == len(on_cpu) == 3
    for images, expected in zip(on_gpu, on_cpu, strict=True):
        wrong = [
            at for at, (a, b) in enumerate(zip(images, expected, strict=True)) if a.tobytes() != b.tobytes()
        ]
        assert not wrong, f"images {wrong} of {len(expected)}"


def test_a_recipe_changes_pixels(dataset: Path, backend: Callable[[str], None]) -> None:
    backend("cpu")
    plain, jittered = (
        made(dataset, "cuda", [*CROP, *steps, *FINISH]) for steps in ([], [T.ColorJitter(0.4)])
    )
    assert all(not np.array_equal(a, b) for a, b in zip(plain, jittered, strict=True))
