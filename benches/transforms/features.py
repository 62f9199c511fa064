"""The features of each image that a network would get."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, normalize

GRID = 8
"""Blocks per side."""
FEW = 4


def of_images(
    images: torch.Tensor, normalised: tuple[Sequence[float], Sequence[float]], sources: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the features of images, float32 (n, 3, side, side): two sets, (n, dimensions) each.

    `blocks` are the means of 8 x 8 blocks of each channel. `looks` are figures of the whole image: mean and deviation
    of each channel, the distance of the channels and the grey part of the image, the steps between neighbours and their
    squares, and the part that is black or white. The last two are how much more the image resembles its photograph than
    the mirrored photograph, or the photograph upside down. `sources` are the photographs' `patterns`.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in normalised)
    # A few images at a time fit into the cache.
    parts = [
        _of_few(few * std + mean, near)
        for few, near in zip(images.split(FEW), sources.split(FEW), strict=True)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _of_few(images: torch.Tensor, sources: torch.Tensor) -> dict[str, torch.Tensor]:
    blocks = avg_pool2d(images, images.shape[-1] // GRID)
    across, down = images.diff(dim=-1), images.diff(dim=-2)
    apart = (images - images.roll(1, dims=1)).abs()
    means = images.mean((2, 3))
    looks = [
        *means.unbind(1),
        *((images**2).mean((2, 3)) - means**2).clamp(min=0).sqrt().unbind(1),
        *apart.mean((2, 3)).unbind(1),
        (apart.amax(1) < 1.5 / 255).float().mean((1, 2)),
        across.abs().mean((1, 2, 3)),
        down.abs().mean((1, 2, 3)),
        (across**2).mean((1, 2, 3)),
        (images < 0.5 / 255).float().mean((1, 2, 3)),
        (images > 254.5 / 255).float().mean((1, 2, 3)),
        *sides(patterns(images), sources).unbind(1),
    ]
    return {"blocks": blocks.flatten(1), "looks": torch.stack(looks, dim=1)}


def patterns(images: torch.Tensor) -> torch.Tensor:
    """Return the light and dark areas of images: means of blocks (n, 8, 8), centred on 0 and of length 1."""
    light = adaptive_avg_pool2d(images.mean(1), GRID).flatten(1)
    return normalize(light - light.mean(1, keepdim=True), dim=1).unflatten(1, (GRID, GRID))


def sides(images: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
    """Return how much more patterns resemble their sources than the mirrored and upside-down sources: (n, 2)."""
    alike = [(images * (sources - sources.flip(axis))).sum((1, 2)) for axis in (2, 1)]
    return torch.stack(alike, dim=1)
