"""The common code of the writers of layouts: their command line, and the images of a folder shard by shard."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import measure


@dataclass(frozen=True)
class Sample:
    """An image file and its class."""

    path: Path
    label: int

    def image(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True)
class Job:
    """The arguments of a writer."""

    output: Path
    """A folder, which exists and is empty."""
    samples: list[Sample]
    shard_samples: int
    """The most samples per shard."""

    def shards(self) -> Iterator[tuple[int, list[Sample]]]:
        for number, start in enumerate(range(0, len(self.samples), self.shard_samples)):
            yield number, self.samples[start : start + self.shard_samples]


def job() -> Job:
    parser = argparse.ArgumentParser(
        description="Writes an image folder in a layout, by the layout's own library."
    )
    parser.add_argument("source", type=Path, help="image folder, one sub-folder a class")
    parser.add_argument("output", type=Path, help="an empty folder")
    parser.add_argument("--copies", type=int, default=1, help="how often every image is written")
    parser.add_argument("--shard-samples", type=int, default=500)
    chosen = parser.parse_args()
    paths, labels = measure.list_images(chosen.source)
    samples = [Sample(Path(path), label) for path, label in zip(paths, labels, strict=True)]
    return Job(chosen.output, samples * chosen.copies, chosen.shard_samples)
