"""The common code of every peer program: its options, the timed epoch, and the measurement of CPU time and memory.

A peer program provides one function, `prepare(options)`, which returns `epoch(number, batches)`: an iterator over
(images, labels) of that epoch, cut off after `batches` batches if the peer can do so (None: all of it). Images of
several views are a sequence of arrays. `main` runs a warm-up, which starts workers, compiles kernels and checks the
output, then times whole epochs and prints one JSON line.

CPU time is counted only over the timed epochs, as a difference of two readings (`accounting`). So it does not include
imports, index building and the start of workers, which happen in the warm-up. The peers find this module through
PYTHONPATH, which `run.py` sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.accounting import tree_cpu_seconds
from harness.crops import RATIO as RATIO
from harness.crops import SCALE as SCALE
from harness.datasets import SUFFIXES

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
FLOATS_PER_PAGE = 1024
FACTS: dict = {}
"""Additional fields of a peer program's result, such as the bytes of its own copy of the data."""


@dataclass(frozen=True)
class Options:
    """The options of a peer program."""

    data: Path
    """An image folder with one sub-folder per class."""
    shards: Path | None
    """A folder of tar shards with the same samples, for peers that read shards."""
    scratch: Path
    """A folder for a peer's own copy of the data (FFCV)."""
    batch_size: int
    image_size: int
    threads: int
    seed: int
    variant: str
    """A choice that is specific to the peer, for example a data type."""


Images = np.ndarray | Sequence[np.ndarray]
"""One array (n, 3, side, side), or one for each view."""
Batches = Iterable[tuple[Images, np.ndarray]]
Epoch = Callable[[int, int | None], Batches]


def parse_options(arguments: list[str] | None = None) -> tuple[Options, argparse.Namespace]:
    """Parse the command line that every peer program understands."""
    parser = argparse.ArgumentParser(description="Times one loader; prints one JSON line.")
    parser.add_argument("data", type=Path, help="image folder, one sub-folder a class")
    parser.add_argument("--shards", type=Path, help="folder of tar shards with the same samples")
    parser.add_argument(
        "--scratch", type=Path, default=Path("/tmp"), help="folder for a peer's own copy of the data"
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2, help="worker threads or processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", default="", help="peer-specific choice")
    parser.add_argument("--warmup", type=int, default=8, help="batches before all epochs")
    parser.add_argument("--epochs-before", type=int, default=0, help="whole epochs before the timed ones")
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs at least")
    parser.add_argument(
        "--seconds", type=float, default=0, help="timed epochs are repeated until this much time has passed"
    )
    raw = parser.parse_args(arguments)
    options = Options(
        raw.data, raw.shards, raw.scratch, raw.batch_size, raw.image_size, raw.threads, raw.seed, raw.variant
    )
    return options, raw


def one_view(options: Options) -> list[int]:
    """Return the side of the images of a peer with one view."""
    return [options.image_size]


def foreload_epochs(loader: Any, arrays: Callable[[Any], Images]) -> Epoch:
    """Return the epochs of Foreload's loader; `arrays` returns the images of a batch, through DLPack and without a
    copy.
    """

    def epoch(number: int, batches: int | None) -> Batches:
        loader.set_epoch(number)
        for step, batch in enumerate(loader, start=1):
            yield arrays(batch), np.from_dlpack(batch.labels)
            if step == batches:
                return

    return epoch


def main(
    prepare: Callable[[Options], Epoch], sides_of: Callable[[Options], Sequence[int]] = one_view
) -> None:
    """Run one peer: warm-up, timed epochs, one JSON line on stdout. `sides_of` returns the size of each view."""
    options, raw = parse_options()
    started = time.perf_counter()
    epoch = prepare(options)
    output = check_warm_up(epoch(0, raw.warmup), sides_of(options))
    ready = time.perf_counter()

    def whole_epoch(number: int) -> int:
        images = 0
        for batch, labels in epoch(number, None):
            for view in views(batch):
                touch(view)
            images += len(labels)
        return images

    tell({**timed(whole_epoch, raw), "start_seconds": ready - started, **output})


def timed(whole_epoch: Callable[[int], int], raw: argparse.Namespace) -> dict:
    """Time whole epochs. `whole_epoch` consumes the epoch with this number and returns its number of images."""
    images, per_epoch = 0, []
    for number in range(raw.epochs_before):
        whole_epoch(number + 1)
    cpu_before = tree_cpu_seconds()
    while len(per_epoch) < raw.epochs or sum(per_epoch) < raw.seconds:
        epoch_started = time.perf_counter()
        images += whole_epoch(raw.epochs_before + len(per_epoch) + 1)
        per_epoch.append(time.perf_counter() - epoch_started)
    cpu = tree_cpu_seconds() - cpu_before
    return {"images": images, "seconds": sum(per_epoch), "cpu_seconds": cpu, "epoch_seconds": per_epoch}


def tell(result: dict) -> None:
    """Print the JSON line that `contest` reads, with the `FACTS` of the peer."""
    print(json.dumps({**result, **FACTS}), flush=True)


def check_warm_up(batches: Batches, sides: Sequence[int]) -> dict:
    """Consume the warm-up and describe its batches: shapes, data type, and the pixels of all views together."""
    pixels = Pixels()
    shapes, dtype = None, None
    for images, labels in batches:
        arrays = views(images)
        shapes = [list(array.shape) for array in arrays]
        expected = [[len(labels), 3, side, side] for side in sides]
        if shapes != expected:
            sys.exit(f"batch of shapes {shapes}, expected {expected}")
        dtype = str(arrays[0].dtype)
        for array in arrays:
            pixels.add(array)
    if shapes is None:
        sys.exit("no batch came in the warm-up")
    return {"shape": shapes[0] if len(shapes) == 1 else shapes, "dtype": dtype, **pixels.described()}


def views(images: Images) -> Sequence[np.ndarray]:
    """Return the arrays of all views, even if there is only one."""
    return [images] if isinstance(images, np.ndarray) else images


class Pixels:
    """Sums over pixels: mean and deviation of each channel, and the difference of neighbours in a row."""

    def __init__(self) -> None:
        self.count = self.pairs = 0
        self.total, self.squares, self.steps = np.zeros(3), np.zeros(3), 0.0

    def add(self, images: np.ndarray) -> None:
        """Add a batch, one image at a time: a copy of the whole batch would increase the loader's peak memory."""
        for image in images:
            sample = image.astype(np.float32)
            self.total += sample.sum(axis=(1, 2), dtype=np.float64)
            self.squares += np.square(sample).sum(axis=(1, 2), dtype=np.float64)
            self.count += sample[0].size
            steps = np.abs(np.diff(sample))
            self.steps += float(steps.sum(dtype=np.float64))
            self.pairs += steps.size

    def described(self) -> dict:
        """Return the figures: `mean` and `std` of R, G and B, and `detail`, the mean step between neighbours."""
        mean = self.total / self.count
        deviation = np.sqrt(self.squares / self.count - mean**2)
        return {
            "mean": mean.round(4).tolist(),
            "std": deviation.round(4).tolist(),
            "detail": round(self.steps / self.pairs, 4),
        }


def touch(images: np.ndarray) -> float:
    """Read one value of every page of a batch, as a copy to the device would read all pages."""
    return float(images.reshape(-1)[::FLOATS_PER_PAGE].sum(dtype=np.float32))


def list_images(folder: Path) -> tuple[list[str], list[int]]:
    """Return paths and labels of an image folder, classes sorted by name."""
    paths, labels = [], []
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in SUFFIXES:
                paths.append(str(path))
                labels.append(label)
    if not paths:
        sys.exit(f"no JPEG in the sub-folders of {folder}")
    return paths, labels
