"""A real torchvision, given the operations that were drawn for a sample, makes the pixels of the batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from foreload import ImageLoader
from foreload import transforms as T

if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") != "1":
    pytest.importorskip(
        "torchvision",
        reason="torchvision is not installed; make test-frameworks has it, FORELOAD_REQUIRE_FRAMEWORKS=1 makes "
        "this a failure",
    )

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

# Height and width; of the last two, neither is a multiple of a vector.
SIZES = [(224, 224), (96, 131), (45, 33)]
# Images of each size.
IMAGES = 12

# What torchvision computes by whole numbers or by the same 32-bit floats, to the same levels.
EQUAL: dict[str, T.Transform] = {
    "grayscale": T.Grayscale(3),
    "brightness": T.ColorJitter(brightness=0.8),
    "contrast": T.ColorJitter(contrast=0.8),
    "fixed contrast": T.ColorJitter(contrast=(1.7, 1.7)),
    "saturation": T.ColorJitter(saturation=0.8),
    "hue": T.ColorJitter(hue=0.5),
    "jitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "channels": T.RandomChannelPermutation(),
    "invert": T.RandomInvert(1.0),
    "posterize": T.RandomPosterize(3, 1.0),
    "solarize": T.RandomSolarize(100.5, 1.0),
    "autocontrast": T.RandomAutocontrast(1.0),
    "equalize": T.RandomEqualize(1.0),
    "sharpness": T.RandomAdjustSharpness(1.9, 1.0),
    "smoothness": T.RandomAdjustSharpness(0.2, 1.0),
    "erasing": T.RandomErasing(1.0, value=(9.0, 99.0, 199.0)),
}
# What rounds another sum, so that a level in a thousand may be one off.
NEXT: dict[str, T.Transform] = {
    "blur": T.GaussianBlur(23, (0.1, 2.0)),
    "wide blur": T.GaussianBlur((9, 5), (1.0, 4.0)),
    "rotation": T.RandomRotation(180, "bilinear"),
    "filled rotation": T.RandomRotation(45, "bilinear", fill=(124, 116, 104), center=(10, 20)),
    "affine": T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), 20, "bilinear", fill=None),
    "shear": T.RandomAffine(0, shear=(-30, 30), interpolation="bilinear", fill=127),
    "translation": T.RandomAffine(0, (0.3, 0.3), interpolation="bilinear"),
}
# What chooses pixels, of which one in 10^4 may be another where two are as near.
NEAREST: dict[str, T.Transform] = {
    "rotation": T.RandomRotation(180, fill=7),
    "affine": T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), (-20, 20, -20, 20), fill=(1, 2, 3)),
    "shear": T.RandomAffine(0, shear=(-30, 30)),
    "translation": T.RandomAffine(0, (0.3, 0.3)),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "AutoAugment": T.AutoAugment(),
    "RandAugment": T.RandAugment(3, 20),
}
# What follows a level that is one off may move it further, or, as equalize does, levels of the whole image.
BEHIND_OTHERS: dict[str, T.Transform] = {
    "RandAugment": T.RandAugment(2, 9, interpolation="bilinear", fill=(124, 116, 104)),
    "timm's RandAugment": T.RandAugment.timm("rand-m9-mstd0.5-inc1", interpolation="bilinear"),
    "AugMix": T.AugMix(),
}


def replayed(image: torch.Tensor, drawn: dict[str, Any]) -> torch.Tensor:
    """Return what torchvision makes of a uint8 image by an operation as it is shown by `view`."""
    values = dict(drawn)
    name = values.pop("op")
    if name == "augmix":
        return augmix(image, **values)
    if name == "solarize_add":
        added = (image.int() + values["addition"]).clamp(0, 255).to(torch.uint8)
        return torch.where(image < values["threshold"], added, image)
    if name == "rgb_to_grayscale":
        values["num_output_channels"] = 3
    if "interpolation" in values:
        values["interpolation"] = InterpolationMode(values["interpolation"])
    if name == "erase":
        values["v"] = torch.tensor(values["v"], dtype=torch.uint8)[:, None, None]
    return getattr(F, name)(image, **values)


def augmix(image: torch.Tensor, weights: list[float], chains: list[list[dict[str, Any]]]) -> torch.Tensor:
    """Return the sum that torchvision's AugMix makes: the image's share is what the chains leave."""
    mixed = torch.tensor(1 - sum(weights)) * image
    for weight, chain in zip(weights, chains, strict=True):
        made = image
        for drawn in chain:
            made = replayed(made, drawn)
        mixed += torch.tensor(weight) * made
    return mixed.to(torch.uint8)


def differences(dataset: Path, transform: T.Transform) -> torch.Tensor:
    """Return by how many levels the pixels of images differ from torchvision's, of all sizes."""
    found = []
    for size in SIZES:
        steps = [T.RandomResizedCrop(size), T.RandomHorizontalFlip()]
        # What a list draws for its other transforms does not depend on one more.
        before, behind = (
            ImageLoader(dataset, batch_size=IMAGES, seed=6, transforms=list_, device="cpu")
            for list_ in (steps, [*steps, transform])
        )
        images, others = next(iter(before)), next(iter(behind))
        samples = torch.from_dlpack(images.sample_ids)
        assert torch.equal(samples, torch.from_dlpack(others.sample_ids))
        for image, other, sample in zip(
            torch.from_dlpack(images.images), torch.from_dlpack(others.images), samples, strict=True
        ):
            assert image.dtype == other.dtype == torch.uint8
            for drawn in behind.view(int(sample), epoch=0)["ops"]:
                image = replayed(image, drawn)
            found.append((image.int() - other.int()).abs().flatten())
    assert len(found) == IMAGES * len(SIZES)
    return torch.cat(found)


@pytest.mark.parametrize("name", EQUAL)
def test_operations_give_torchvisions_levels(dataset: Path, name: str) -> None:
    assert differences(dataset, EQUAL[name]).max() == 0


@pytest.mark.parametrize("name", NEXT)
def test_blurs_and_warps_give_torchvisions_levels_or_the_next(dataset: Path, name: str) -> None:
    found = differences(dataset, NEXT[name])
    assert found.max() <= 1
    assert (found > 0).float().mean() <= 0.003


@pytest.mark.parametrize("name", NEAREST)
def test_nearest_warps_give_torchvisions_pixels(dataset: Path, name: str) -> None:
    assert (differences(dataset, NEAREST[name]) > 0).float().mean() <= 1e-4


@pytest.mark.parametrize("name", BEHIND_OTHERS)
def test_operations_behind_others_give_nearly_torchvisions_levels(dataset: Path, name: str) -> None:
    assert (differences(dataset, BEHIND_OTHERS[name]) > 0).float().mean() <= 0.003
