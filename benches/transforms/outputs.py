"""Compares Foreload's images of a recipe with those of its source's own transforms, for the same photographs.

It runs in an environment with torchvision and timm: `outputs.py DATA "moco_v3" --seed 0` prints a line of JSON for each
view and decoding mode. Both make two images of each photograph, each with its own random numbers.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import features
import numpy as np
import paired
import torch
from foreload import ImageLoader
from PIL import Image
from references import CONTESTS, WRONG, Contest, View
from torchvision.transforms.v2.functional import pil_to_tensor

DRAWS = 2
"""Images per photograph: they differ only through the recipe's random draws."""
BATCH = 20
RING = 4
"""The size of a mixing group: Foreload mixes each of its images with the one before it, and the first with the last,
like a source with a batch of this size, which has one draw. So the first images of such batches are independent, and
have the same partners.
"""
Features = dict[str, np.ndarray]
"""Each set of features, (photographs, draws, dimensions)."""


def opened(path: str) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def loader_of(data: Path, contest: Contest, seed: int, decode: str) -> ImageLoader:
    """Return the loader of a recipe, in the order of the files, so that images always have the same partners."""
    recipe = dict(contest.recipe())
    settings = {"transforms": recipe["transforms"], "decode": decode, "device": "cpu"}
    if contest.mix:
        settings |= {"mix": recipe["mix"], "batch_size": RING, "last_batch": "drop"}
    else:
        settings |= {"batch_size": BATCH, "last_batch": "partial"}
    return ImageLoader(data, seed=seed, shuffle=False, **settings)


def step_of(contest: Contest) -> int:
    return RING if contest.mix else 1


def own(loader: ImageLoader, views: list[View], sources: torch.Tensor, step: int) -> list[Features]:
    """Return Foreload's features of each view of every `step`-th photograph."""
    found: list[list[dict[str, torch.Tensor]]] = [[] for _ in views]
    for epoch in range(DRAWS):
        place = 0
        for batch in loader.batches(epoch):
            images = batch["image"]
            images = images if isinstance(images, tuple) else (images,)
            samples = torch.from_dlpack(batch.sample_ids)
            assert samples.tolist() == list(range(place, place + len(samples)))
            for view, rows in zip(views, found, strict=True):
                made = torch.from_dlpack(images[view.output])[::step]
                rows.append(features.of_images(made, view.normalised, sources[samples[::step]]))
            place += len(samples)
    return [joined(rows) for rows in found]


def theirs(
    paths: list[str], contest: Contest, views: list[View], sources: torch.Tensor, seed: int
) -> list[Features]:
    """Return the same for the source's transforms, with torch's, Python's and NumPy's random numbers."""
    for seeded in (torch.manual_seed, random.seed, np.random.seed):
        seeded(seed)
    mix, step = contest.mix and contest.mix(), step_of(contest)
    rows: list[list[list[dict[str, torch.Tensor]]]] = [[[] for _ in range(DRAWS)] for _ in views]
    for begin in range(0, len(paths), BATCH):
        chosen = paths[begin : begin + BATCH]
        images = [opened(path) for path in chosen]
        if not views[0].of_pillow:
            images = [pil_to_tensor(image) for image in images]
        near = sources[begin : begin + len(images) : step]
        for view, of_view in zip(views, rows, strict=True):
            for of_draw in of_view:
                made = torch.stack([view.transform(image) for image in images])
                if mix:
                    made = torch.stack([mixed(mix, made[at : at + step]) for at in range(0, len(made), step)])
                of_draw.append(features.of_images(made, view.normalised, near))
    return [joined([row for of_draw in of_view for row in of_draw]) for of_view in rows]


def mixed(mix: Any, ring: torch.Tensor) -> torch.Tensor:
    """Return the first of some images, which are mixed as a batch."""
    return mix(ring.clone(), torch.arange(len(ring)))[0][0]


def joined(rows: list[dict[str, torch.Tensor]]) -> Features:
    """Return the features of all batches, with those of the first draw first."""
    return {
        name: torch.cat([row[name] for row in rows])
        .unflatten(0, (DRAWS, -1))
        .transpose(0, 1)
        .numpy()
        .astype(np.float64)
        for name in rows[0]
    }


def compared(one: Features, other: Features, exchanges: int, seed: int) -> dict[str, Any]:
    """Return the p-values of each set's statistics, and figures for people."""
    found = {
        f"{name}, {statistic}": differences
        for name in one
        for statistic, differences in paired.differences(one[name], other[name]).items()
    }
    blocks = one["blocks"], other["blocks"]
    differ = blocks[0].mean(1) - blocks[1].mean(1)
    mean, error = differ.mean(0), differ.std(0) / np.sqrt(len(differ))
    variances = [np.trace(np.cov(values.reshape(-1, values.shape[-1]).T)) for values in blocks]
    return {
        "photographs": len(differ),
        "p": paired.p_values(found, exchanges, seed),
        "mean_difference": float(255 * mean.mean()),
        "largest_mean_difference": float(255 * np.abs(mean).max()),
        "standard_error": float(255 * error.mean()),
        "variance_ratio": float(variances[0] / variances[1]),
    }


def contest_of(
    data: Path, contest: Contest, exchanges: int, seed: int, decodes: Sequence[str] = ("exact",)
) -> Iterator[dict[str, Any]]:
    """Compare a recipe with its source, with a line for each view and decoding mode."""
    views, step = contest.views(), step_of(contest)
    loaders = {decode: loader_of(data, contest, seed, decode) for decode in decodes}
    loader = loaders[decodes[0]]
    paths = [str(loader.locate(sample)[0]) for sample in range(loader.samples // step * step)]
    sources = torch.cat([features.patterns(pil_to_tensor(opened(path))[None] / 255) for path in paths])
    others = theirs(paths, contest, views, sources, seed)
    for decode, loader in loaders.items():
        for view, one, other in zip(views, own(loader, views, sources, step), others, strict=True):
            about = {"view": view.output, "decode": decode}
            yield about | compared(one, other, exchanges, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="image folder")
    parser.add_argument("contest", choices=[*CONTESTS, *WRONG])
    parser.add_argument("--exchanges", type=int, default=50_000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--decode", nargs="+", choices=("exact", "fast"), default=["exact"])
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    contest = {**CONTESTS, **WRONG}[chosen.contest]
    for entry in contest_of(chosen.data, contest, chosen.exchanges, chosen.seed, chosen.decode):
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()
