"""The settings that all runs of a comparison have in common: the images, their augmentation, the training.

The defaults are the recipe for CIFAR-10 as `fetch.py` makes it. It was chosen for a small product of a run's variance
and cost, with Foreload's `exact` alone and seeds from 1000, which are in no result: two networks of 6 epochs differed
by 0.8 points, three of 12 epochs (two of them in float32, no more accurate) by at most 0.4, at twice the cost. So few
runs show no more than that. `run.py` imports this without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Two runs with the same settings, seed and pipeline come to the same network."""

    data: Path
    """A directory with two image folders: train/CLASS/ and val/CLASS/."""
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
