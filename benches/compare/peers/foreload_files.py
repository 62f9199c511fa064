"""Foreload's batches of encoded files: read unchanged, or rebuilt from packed shards. Nothing is decoded."""

from __future__ import annotations

import sys
import time

import foreload
import numpy as np
from harness import measure

FIRST = b"\xff\xd8\xff"
"""The first bytes of a JPEG."""
PAGE = 4096


def main() -> None:
    """Check the first batches, time whole epochs, print one JSON line."""
    options, raw = measure.parse_options()
    started = time.perf_counter()
    loader = foreload.ImageLoader(
        str(options.data),
        batch_size=options.batch_size,
        seed=options.seed,
        threads=options.threads,
        decoded=False,
        last_batch="drop",
    )
    batches = loader.batches(0)
    for step, batch in enumerate(batches, start=1):
        if not all(np.from_dlpack(file)[: len(FIRST)].tobytes() == FIRST for file in batch.files):
            sys.exit("a file that is no JPEG was handed over")
        if step == raw.warmup:
            break
    del batch, batches
    ready = time.perf_counter()

    def whole_epoch(number: int) -> int:
        images = 0
        for batch in loader.batches(number):
            for file in batch.files:
                np.from_dlpack(file)[::PAGE].sum()
            images += len(batch)
        return images

    measure.tell({**measure.timed(whole_epoch, raw), "start_seconds": ready - started})


if __name__ == "__main__":
    main()
