"""What all runs of a comparison have in common: the images, how they are augmented, how the network is trained.

The defaults are the recipe for CIFAR-10 as `fetch.py` makes it. It was chosen for a small product of a run's variance
and cost, by Foreload's `exact` alone and on seeds from 1000, which are in no result: two networks of 6 epochs lay 0.8
points apart, three of 12 epochs (two of them in float32, no more accurate) within 0.4, at twice the cost. So few runs
show no more than that. `run.py` imports this without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Two runs of the same settings, seed and pipeline come to the same network."""

    data: Path
    """Two image folders: train/CLASS/ and val/CLASS/."""
    image_size: int = 24
    resize: int = 24
    """Length of the shorter side before validation's centre crop."""
    scale: tuple[float, float] = (0.5, 1.0)
    """Bounds of the random crop's share of the area."""
    width: int = 16
    """Channels of the network's first stage."""
    epochs: int = 12
    batch_size: int = 128
    peak_rate: float = 0.2
    """Learning rate at the top of its one cycle, which ends at zero."""
    warm_up: float = 0.25
    """Share of the steps until the top."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    precision: str = "bfloat16"
    """Of the convolutions in training, by torch's autocast; weights and all that judges are float32."""
