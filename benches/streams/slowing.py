"""Trains from a stream that slows down for a while, and prints how long the training waited for batches.

The training is a pause per batch. With an adaptive share, fewer new samples are replaced by more rehearsed ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from endurance import small_images
from foreload import Rehearsal, StreamLoader, streams

BATCH = 32
STEP_SECONDS = 0.02
SHARE = 0.25
"""The share of rehearsed samples while the stream is fast."""
SLOWER = 4.0
"""The factor by which the stream is slower in its second third."""


def slowing(count: int) -> Iterator[dict[str, Any]]:
    """Yield samples at the pace of the training, and slower in the second third."""
    images = itertools.cycle(small_images(100))
    pause = STEP_SECONDS / (BATCH * (1 - SHARE))
    due = time.monotonic()
    for number in range(count):
        due += pause * (SLOWER if count // 3 <= number < 2 * count // 3 else 1.0)
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)
        yield {"jpg": next(images), "cls": number % 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--share", type=float, nargs="+", default=[SHARE], help="one, or the least and greatest"
    )
    parser.add_argument("--samples", type=int, default=9600)
    chosen = parser.parse_args()
    share = chosen.share[0] if len(chosen.share) == 1 else tuple(chosen.share)
    loader = StreamLoader(
        streams.Iterator(slowing(chosen.samples), name="slowing"),
        batch_size=BATCH,
        image_size=16,
        threads=1,
        device="cpu",
        rehearsal=Rehearsal(1000, share=share),
    )
    batches = iter(loader)
    began, waited, steps, used = time.perf_counter(), 0.0, 0, 0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        if steps:
            # The first batch includes the start of threads.
            waited += time.perf_counter() - asked
        if batch is None:
            break
        steps, used = steps + 1, used + len(np.from_dlpack(batch.labels))
        time.sleep(STEP_SECONDS)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "waited_seconds": waited, "steps": steps, "used": used}))


if __name__ == "__main__":
    main()
