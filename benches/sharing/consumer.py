"""One of several concurrent trainings: it takes batches as fast as they come, and counts them.

The count is in a file that the benchmark reads during the run, so that all trainings are measured over the same time.
"""

from __future__ import annotations

import argparse
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from harness import measure
from harness.measure import Options


def foreload_batches(options: Options, shared: str | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    import foreload

    loader = foreload.ImageLoader(options.data, batch_size=options.batch_size, device="cpu", shared=shared)
    while True:
        for batch in loader:
            yield np.from_dlpack(batch.images), np.from_dlpack(batch.labels)


def torchvision_batches(options: Options) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    import torchvision_io

    epoch = torchvision_io.prepare(options)
    number = 0
    while True:
        yield from epoch(number, None)
        number += 1


def tensorsocket_batches(_options: Options) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    import tensorsocket

    consumer = tensorsocket.TensorConsumer()
    while True:
        for images, labels in consumer:
            yield images.numpy(), labels.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=("alone", "shared", "torchvision", "tensorsocket"))
    parser.add_argument("data", type=Path)
    parser.add_argument("counter", type=Path, help="a file of 8 bytes, which has the number of images")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--touch", action="store_true", help="read a number of each page of the images")
    chosen = parser.parse_args()
    options = Options(chosen.data, None, Path("/tmp"), chosen.batch_size, 224, chosen.threads, 0, "")
    batches = {
        "alone": lambda: foreload_batches(options, None),
        "shared": lambda: foreload_batches(options, "benchmark"),
        "torchvision": lambda: torchvision_batches(options),
        "tensorsocket": lambda: tensorsocket_batches(options),
    }[chosen.loader]()
    with chosen.counter.open("r+b") as file:
        counter = mmap.mmap(file.fileno(), 8)
    total = 0
    for images, labels in batches:
        if chosen.touch:
            images.reshape(-1)[:: measure.FLOATS_PER_PAGE].sum()
        total += len(labels)
        struct.pack_into("<Q", counter, 0, total)


if __name__ == "__main__":
    main()
