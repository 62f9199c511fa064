"""The common code of the loaders of arrays: timed epochs, the share of an epoch that is spent waiting, a digest.

A loader provides `prepare(options, about, choices)`, which returns `epoch(number)`: an iterator over the batches of an
epoch as NumPy arrays. The variant of a loader is a list of choices, `cache,pace=20`: with a cache, and with a consumer
that is busy for 20 ms after each batch, as a GPU would be.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from harness import measure
from harness.measure import Options

PAGE = 4096
Epoch = Callable[[int], Iterable[np.ndarray]]


def choices_of(variant: str) -> dict[str, str]:
    """Return the choices of a variant; one without a value has an empty text."""
    return {part.partition("=")[0]: part.partition("=")[2] for part in variant.split(",") if part}


def main(prepare: Callable[[Options, dict, dict[str, str]], Epoch]) -> None:
    """Read an epoch for its digest, which fills caches and starts workers, then time epochs."""
    options, raw = measure.parse_options()
    about = json.loads((options.data / "about.json").read_text())
    choices = choices_of(options.variant)
    pace = float(choices.get("pace", 0)) / 1000
    epoch = prepare(options, about, choices)
    # The order of samples does not change the digest.
    digest, shape, dtype = 0, [], ""
    for batch in epoch(0):
        shape, dtype = list(batch.shape[1:]), batch.dtype.name
        for sample in batch:
            digest = (digest + zlib.crc32(np.ascontiguousarray(sample).view(np.uint8))) % 2**32
    waiting: list[float] = []

    def whole_epoch(number: int) -> int:
        samples, waited, begun = 0, 0.0, time.perf_counter()
        batches = iter(epoch(number))
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            # A copy to a device would read each page.
            batch.reshape(-1).view(np.uint8)[::PAGE].sum()
            samples += len(batch)
            time.sleep(pace)
        waiting.append(waited / (time.perf_counter() - begun))
        return samples

    result = measure.timed(whole_epoch, raw)
    measure.tell(result | {"waiting": waiting, "digest": digest, "shape": shape, "dtype": dtype})
