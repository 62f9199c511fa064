"""A real torchvision, given the numbers that were drawn for a batch, mixes images and labels to the same bits.

Its own random numbers have the same distribution as Foreload's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import need
from foreload import ImageLoader
from foreload import transforms as T

with need("torchvision"):
    import torch
    from torchvision.transforms import v2

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches" / "transforms"))
import replay

CLASSES = 3

# The distance that samples of the same distribution exceed with a probability of 10⁻⁴.
KOLMOGOROV = 2.23


def test_torchvision_mixes_a_ring_to_the_same_bits(dataset: Path) -> None:
    choice = T.RandomChoice(
        [T.MixUp(alpha=0.3, num_classes=CLASSES), T.CutMix(alpha=0.8, num_classes=CLASSES)]
    )
    loaders = [
        ImageLoader(dataset, batch_size=20, image_size=(48, 40), seed=11, mix=mix, device="cpu")
        for mix in (choice, None)
    ]
    rings = 0
    for epoch in range(3):
        for batch, unmixed in zip(*(loader.batches(epoch) for loader in loaders), strict=True):
            images, labels = torch.from_dlpack(batch.images), torch.from_dlpack(batch.labels)
            before, classes = torch.from_dlpack(unmixed.images), torch.from_dlpack(unmixed.labels)
            for first in range(0, 20, 4):
                ring = slice(first, first + 4)
                drawn = replay.mixing(loaders[0].mix(batch.step * 20 + first, epoch), CLASSES)
                expected, soft = drawn(before[ring], classes[ring])
                assert torch.equal(images[ring], expected)
                assert torch.equal(labels[ring], soft)
                rings += 1
    assert rings == 45


def shares_of(
    dataset: Path, mix: Any, size: tuple[int, int], seed: int, batches: int
) -> list[dict[str, Any]]:
    """Return the draws of this many batches."""
    loader = ImageLoader(dataset, batch_size=20, image_size=size, seed=seed, mix=mix, device="cpu")
    return [loader.mix(20 * batch, 0) for batch in range(batches)]


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the two-sample Kolmogorov-Smirnov distance, in units in which `KOLMOGOROV` is its limit."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    at = np.concatenate([ours, theirs])
    gap = np.abs(
        np.searchsorted(ours, at, "right") / len(ours) - np.searchsorted(theirs, at, "right") / len(theirs)
    )
    return gap.max() * np.sqrt(len(ours) * len(theirs) / (len(ours) + len(theirs)))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.8, 1.0, 4.0])
def test_shares_have_torchs_distribution(dataset: Path, alpha: float) -> None:
    seed = int.from_bytes(os.urandom(4))
    print("seed", seed)
    torch.manual_seed(seed)
    drawn = shares_of(dataset, T.MixUp(alpha=alpha), (32, 32), seed, 100_000)
    ours = np.array([mix["lam"] for mix in drawn])
    theirs = torch.distributions.Beta(alpha, alpha).sample((100_000,)).double().numpy()
    # Numbers that float32 rounds to 0 and 1 are drawn by torch as the nearest numbers inside.
    ours, theirs = (np.clip(shares, 1e-6, 1 - 1e-6) for shares in (ours, theirs))
    assert distance(ours, theirs) < KOLMOGOROV, f"alpha {alpha}, seed {seed}"


def test_rectangles_have_torchvisions_distribution(dataset: Path) -> None:
    seed, n, (height, width) = int.from_bytes(os.urandom(4)), 100_000, (40, 24)
    print("seed", seed)
    torch.manual_seed(seed)
    drawn = shares_of(dataset, T.CutMix(alpha=0.7), (height, width), seed, n)
    own = v2.CutMix(alpha=0.7, num_classes=CLASSES)
    image = [torch.zeros(1, 3, height, width)]
    theirs = [own.make_params(image) for _ in range(n)]
    shares = [np.array([mix["lam"] for mix in drawn]), np.array([p["lam_adjusted"] for p in theirs])]
    assert distance(*shares) < KOLMOGOROV, f"seed {seed}"
    boxes = [np.array([mix["box"] for mix in drawn]), np.array([p["box"] for p in theirs])]
    for side in range(4):
        counts = np.array([np.bincount(box[:, side], minlength=41) for box in boxes])
        counts = counts[:, counts.sum(0) >= 20]
        # Two samples of one distribution: chi-squared with one degree of freedom less than the number of values.
        chi = ((counts[0] - counts[1]) ** 2 / counts.sum(0)).sum()
        freedom = counts.shape[1] - 1
        assert chi < freedom + 4.5 * np.sqrt(2 * freedom), f"side {side}, seed {seed}: {chi} of {freedom}"
