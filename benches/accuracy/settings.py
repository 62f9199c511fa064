"""The common settings of all runs of a comparison: the images, their augmentation, the training.

The defaults are the recipe for CIFAR-10 as `fetch.py` makes it. It was chosen for a small product of a run's variance
and cost, only with Foreload's `exact` and with seeds from 1000, which are in no result. Two networks of 6 epochs
differed by 0.8 points. Three of 12 epochs (two of them in float32, which was not more accurate) differed by at most
0.4, at twice the cost. So few runs show no more than that. `run.py` imports this module without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Recipe:
    """The transforms of training images after the random crop, and the required precision of the result."""

    steps: str
    half_width: float
    """The largest half-width of an interval that decides, in percentage points."""
    seeds: int
    """The number of runs of each pipeline, if `--seeds` does not set it."""


ERASING = 0.1
"""The probability of the recipe `strong` to erase a rectangle."""
MIXUP_ALPHA = 0.2
RECIPES = {
    "plain": Recipe("flip, normalise", half_width=0.3, seeds=36),
    "strong": Recipe(
        f"flip, TrivialAugmentWide, normalise, RandomErasing({ERASING}), MixUp({MIXUP_ALPHA})",
        half_width=0.5,
        seeds=24,
    ),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Two runs with the same settings, seed and pipeline give the same network."""

    data: Path
    """A directory with two image folders: train/CLASS/ and val/CLASS/."""
    recipe: str = "plain"
    """A name of `RECIPES`."""
    image_size: int = 24
    resize: int = 24
    """The length of the shorter side before validation's centre crop."""
    scale: tuple[float, float] = (0.5, 1.0)
    """The bounds of the random crop's share of the area."""
    width: int = 16
    """The channels of the network's first stage."""
    epochs: int = 12
    batch_size: int = 128
    peak_rate: float = 0.2
    """The learning rate at the top of its one cycle, which ends at zero."""
    warm_up: float = 0.25
    """The share of the steps until the top."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    precision: str = "bfloat16"
    """The type of the convolutions in training, by torch's autocast; weights and evaluation are float32."""
