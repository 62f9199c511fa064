"""Trains on very many small images, and prints the memory of the process after given numbers of images.

The source is a Python iterator, or a directory whose files are removed after they are acknowledged. A state is saved
and acknowledged ten times as often as memory is measured.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from foreload import Rehearsal, StreamLoader, streams
from harness import accounting, programs
from PIL import Image

DISTINCT = 500
"""The number of different images."""
SIDE = 56
"""The side in pixels; such a JPEG has 2 KB."""
QUEUE = "64MB"
"""The size of the queue: less than arrives before the first measurement of memory."""
LOOKS = 10
"""The number of measurements of memory."""


def small_images(count: int = DISTINCT) -> list[bytes]:
    """Return JPEGs of 2 KB, the same in every run."""
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        noise = chance.integers(0, 256, size=(SIDE // 4, SIDE // 4, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=88)
        made.append(file.getvalue())
    return made


class Numbered:
    """An endless sequence of samples, each made from its number by `sample`, from which a stream can resume without
    files.
    """

    def __init__(self, sample: Callable[[int], dict[str, Any]]) -> None:
        self._sample, self._first = sample, 0

    def seek(self, key: str | None) -> None:
        """Resume after the sample of this key."""
        self._first = 0 if key is None else int(key) + 1

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in itertools.count(self._first):
            yield str(number), self._sample(number)


class Files(programs.Worker):
    """A process that renames small images into a directory; it gets the number of used samples."""

    LEAD = 20_000

    def __init__(self, folder: Path, images: list[bytes]) -> None:
        originals = folder / "originals" / "small"
        originals.mkdir(parents=True)
        for number, image in enumerate(images):
            (originals / f"{number}.jpg").write_bytes(image)
        self.incoming = folder / "incoming"
        self.incoming.mkdir()
        words = [sys.executable, Path(__file__), "--renames", originals, "--folder", folder]
        super().__init__(words)
        self.used(0)

    def used(self, count: int) -> None:
        """Report how many samples were used so far."""
        self.send(str(count))


def rename_files(originals: Path, incoming: Path) -> None:
    """Rename files into a directory, `LEAD` more than the number of used samples on standard input."""
    files = sorted(originals.iterdir())
    sent = 0
    for line in sys.stdin:
        while sent < int(line) + Files.LEAD:
            hidden = incoming / f".{sent}"
            hidden.hardlink_to(files[sent % len(files)])
            hidden.rename(incoming / f"{sent:09}.jpg")
            sent += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=("iterator", "folder"), default="iterator")
    parser.add_argument("--samples", type=int, default=1_000_000, help="new samples")
    parser.add_argument("--capacity", type=int, default=10_000, help="samples that are kept for rehearsal")
    parser.add_argument("--folder", type=Path, required=True, help="a directory that is empty")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--renames", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.renames:
        rename_files(chosen.renames, chosen.folder / "incoming")
        return
    images = small_images()
    files = Files(chosen.folder, images) if chosen.source == "folder" else None
    if files:
        source, members = streams.Folder(files.incoming, after="delete"), ["image"]
    else:
        numbered = Numbered(lambda number: {"jpg": images[number % len(images)], "cls": number % 10})
        source, members = streams.Iterator(numbered, name="small"), ["image", "label"]
    kept = Rehearsal(chosen.capacity, share=0.5, directory=chosen.folder / "kept", directory_size="1GB")
    loader = StreamLoader(
        source,
        batch_size=chosen.batch_size,
        image_size=16,
        threads=chosen.threads,
        device="cpu",
        fields=members,
        queue_size=QUEUE,
        rehearsal=kept,
    )
    every = max(1, chosen.samples // (LOOKS * LOOKS))
    new, saved, looks, began = 0, 0, [], time.perf_counter()
    for batch in loader:
        new += int((np.from_dlpack(batch.occurrences) == 0).sum())
        if files:
            files.used(new)
        if new // every > saved:
            saved = new // every
            loader.acknowledge(loader.state_dict())
        if new * LOOKS // chosen.samples > len(looks):
            looks.append({"samples": new, "resident_bytes": accounting.resident_bytes()})
        if new >= chosen.samples:
            break
    if files:
        # It is killed, because the measured time includes its end.
        files.end(0)
    mean_bytes = sum(map(len, images)) / len(images)
    print(json.dumps({"looks": looks, "seconds": time.perf_counter() - began, "mean_bytes": mean_bytes}))


if __name__ == "__main__":
    main()
