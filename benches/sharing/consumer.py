"""One of several trainings beside one another: it takes batches as fast as they come, and counts what it got.

The count is in a file that the benchmark reads while this runs, so that all are measured over the same time.
"""

from __future__ import annotations

import argparse
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import measure
from harness.measure import Options

RECIPES: dict[str, dict[str, Any]] = {
    "usual": {},
    "smaller": {"image_size": 160},
    "other": {"scale": (0.35, 1.0), "flip": 0.0, "dtype": "float16"},
    "augmented": {
        "transforms": [
            ("RandomResizedCrop", (224,)),
            ("RandomHorizontalFlip", ()),
            ("ColorJitter", (0.4, 0.4, 0.4)),
            ("ToDtype", ("float32", True)),
            ("Normalize", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ]
    },
}
"""What is made of samples, by name. Transforms have the names and arguments of `foreload.transforms`."""


def foreload_batches(
    options: Options, shared: str | None, recipe: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    import foreload

    settings = dict(RECIPES[recipe])
    if transforms := settings.get("transforms"):
        settings["transforms"] = [
            getattr(foreload.transforms, name)(*arguments) for name, arguments in transforms
        ]
    loader = foreload.ImageLoader(
        options.data, batch_size=options.batch_size, device="cpu", shared=shared, **settings
    )
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
    parser.add_argument("--recipe", choices=RECIPES, default="usual", help="of Foreload")
    parser.add_argument("--touch", action="store_true", help="read a number of each page of the images")
    chosen = parser.parse_args()
    options = Options(chosen.data, None, Path("/tmp"), chosen.batch_size, 224, chosen.threads, 0, "")
    batches = {
        "alone": lambda: foreload_batches(options, None, chosen.recipe),
        "shared": lambda: foreload_batches(options, "benchmark", chosen.recipe),
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
