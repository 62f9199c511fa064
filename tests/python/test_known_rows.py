"""Decoding in one epoch finds where the rows of JPEGs begin. Later epochs use these positions, and the results are the
same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest

SMALL = {"batch_size": 10, "image_size": 24, "seed": 3, "device": "cpu"}


def taken(loader: foreload.ImageLoader, epoch: int) -> tuple[list[bytes], dict[str, Any]]:
    """Return the pixels of each batch of an epoch, and the statistics at its end."""
    batches = loader.batches(epoch)
    pixels = [np.from_dlpack(batch.images).tobytes() for batch in batches]
    return pixels, batches.stats()


@pytest.mark.parametrize("decode", ["fast", "exact"])
def test_later_epochs_use_what_the_first_has_shown(dataset: Path, decode: str) -> None:
    loader = foreload.ImageLoader(dataset, decode=decode, **SMALL)
    for epoch in range(3):
        pixels, stats = taken(loader, epoch)
        assert (stats["decoded_region"], stats["rows_known"]) == (60, 60 if epoch else 0)
        assert pixels == taken(foreload.ImageLoader(dataset, decode=decode, **SMALL), epoch)[0]
