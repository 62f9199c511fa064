"""Compares uint8 images with the reference: mean absolute difference and PSNR, as one JSON line."""

from __future__ import annotations

import json
import sys

import numpy as np

IDENTICAL_DB = 100.0
"""The PSNR given to identical images, whose true value is infinite."""


def score(reference: np.ndarray, images: np.ndarray) -> dict:
    """Return differences in 8-bit levels over all images, and the median and tail of each image's PSNR."""
    difference = images.astype(np.int16) - reference
    squared = np.square(difference.astype(np.float64)).mean(axis=(1, 2, 3))
    with np.errstate(divide="ignore"):
        psnr = np.minimum(10 * np.log10(255**2 / squared), IDENTICAL_DB)
    return {
        "images": len(images),
        "mean_difference": float(np.abs(difference).mean()),
        "greatest_difference": int(np.abs(difference).max()),
        "psnr_median": float(np.median(psnr)),
        "psnr_first_percentile": float(np.percentile(psnr, 1)),
        "psnr_least": float(psnr.min()),
        "least_index": int(psnr.argmin()),
    }


if __name__ == "__main__":
    print(json.dumps(score(np.load(sys.argv[1]), np.load(sys.argv[2]))))
