"""Times whole epochs of batches in buckets; the common part of the two programs that `run.py` compares."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from harness import measure

AREA = 512 * 512
STEP = 64
Epoch = Callable[[int], Iterator[np.ndarray]]


def main(prepare: Callable[[measure.Options], tuple[list[tuple[int, int]], Epoch]]) -> None:
    """Run a loader: a warm-up epoch, whose batches are checked, then timed epochs, and one JSON line.

    `prepare` returns the sizes of the buckets, (height, width), and the function that yields an epoch's images.
    """
    options, raw = measure.parse_options()
    started = time.perf_counter()
    sizes, epoch = prepare(options)
    pixels, seen, images = measure.Pixels(), set(), 0
    for batch in epoch(0):
        if batch.shape[1] != 3 or batch.shape[2:] not in sizes or batch.dtype != np.float32:
            sys.exit(f"batch of {batch.shape} {batch.dtype}, expected sizes {sizes}")
        seen.add(batch.shape[2:])
        images += len(batch)
        pixels.add(batch[:1])
    ready = time.perf_counter()

    def whole_epoch(number: int) -> int:
        images = 0
        for batch in epoch(number):
            measure.touch(batch)
            images += len(batch)
        return images

    facts = {"dtype": "float32", "buckets": len(seen), "epoch_images": images, **pixels.described()}
    measure.tell({**measure.timed(whole_epoch, raw), "start_seconds": ready - started, **facts})
