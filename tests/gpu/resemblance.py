"""When do pixels of two decoders count as the same picture: limits in grey levels, and the message of a failure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MEAN_LIMIT = 1.5
"""The largest mean absolute difference over all images, since decoders may round differently."""
IMAGE_LIMIT = 4.0
"""The largest mean difference of one small image. Pixels of another sample, or half overwritten ones, differ by
tens."""
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)[:, None, None]


def levels_of(image: np.ndarray) -> np.ndarray:
    """Return the grey levels 0..255 of a normalised CHW image as float32; uint8 values are returned unchanged."""
    if image.dtype == np.uint8:
        return image.astype(np.float32)
    return (image.astype(np.float32) * STD + MEAN) * 255


def compare(seen: Mapping[int, np.ndarray], expected: Mapping[int, np.ndarray]) -> float:
    """Compare CHW images by sample id with the expected ones; return the mean difference."""
    assert seen, "no image to compare"
    differences = {
        sample: float(np.abs(levels_of(pixels) - levels_of(expected[sample])).mean())
        for sample, pixels in seen.items()
    }
    worst = max(differences, key=differences.__getitem__)
    mean = float(np.mean(list(differences.values())))
    told = f"sample {worst} differs by {differences[worst]:.2f} grey levels; the mean over {len(seen)} is {mean:.2f}"
    assert differences[worst] <= IMAGE_LIMIT, told
    assert mean <= MEAN_LIMIT, told
    return mean
