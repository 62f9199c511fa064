"""Random crops as torchvision's RandomResizedCrop draws them."""

from __future__ import annotations

import math
import random

SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


def draw_box(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Draw a box: x, y, width, height; after ten failed attempts, the central one."""
    for _ in range(ATTEMPTS):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h
