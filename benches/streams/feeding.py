"""The common code of this benchmark's programs: options, the producer of the samples, and CPU times by program."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import measure, programs
from harness.accounting import process_cpu_seconds, tree_cpu_seconds

HERE = Path(__file__).resolve().parent
SETTLING = 16
"""The number of batches before the timed ones. They use up the batches that were made ahead while pixels were
checked."""
LEAD = 1024
"""The number of samples that are ready and not yet used: enough that no loader waits for the producer."""


@dataclass(frozen=True)
class Feed:
    """The input of a program."""

    kind: str
    """`folder` or `redis`."""
    share: float
    """The share of rehearsed samples in each batch."""


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line that every program of this benchmark understands."""
    parser = argparse.ArgumentParser(description="Times one loader of a stream; prints one JSON line.")
    parser.add_argument("data", type=Path, help="image folder, one sub-folder a class")
    parser.add_argument("--variant", default="folder", help="folder or redis, and -rehearsal behind it")
    parser.add_argument("--images", type=int, required=True, help="timed images, rehearsed ones among them")
    parser.add_argument("--scratch", type=Path, required=True, help="on the same file system as data")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=8, help="batches before those that are timed")
    parser.add_argument("--capacity", type=int, default=2000, help="samples that are kept for rehearsal")
    parser.add_argument("--rate", type=float, help="samples a second; as fast as they are taken without it")
    parser.add_argument("--server", help="the address of a Redis server, redis:// or unix://")
    parser.add_argument("--server-pid", type=int)
    chosen = parser.parse_args(arguments)
    kind, _, more = chosen.variant.partition("-")
    chosen.feed = Feed(kind, 0.5 if more == "rehearsal" else 0.0)
    return chosen


class Producer(programs.Worker):
    """A process that produces samples; it gets the number of used samples, and ends with the block."""

    def __init__(self, options: argparse.Namespace) -> None:
        new = options.images + (options.warmup + SETTLING) * options.batch_size
        words = [sys.executable, HERE / "producer.py", options.data, options.scratch, new + 4 * LEAD]
        words += ["--lead", LEAD]
        if options.rate:
            words += ["--rate", options.rate]
        if options.feed.kind == "redis":
            words += ["--server", options.server]
        super().__init__(words)

    def __enter__(self) -> Producer:
        """Wait until the process is ready, so that its preparation is not measured."""
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"the producer ended with {self.process.wait()}")
        return self

    def begin(self) -> None:
        """Make it produce the first samples."""
        self.used(0)

    def used(self, count: int) -> None:
        """Report how many samples were used so far."""
        self.send(str(count))


def cpu_of_all(producer: Producer, server: int | None) -> np.ndarray:
    """Return the CPU seconds of this program without the producer, of the producer, and of the server."""
    producing = process_cpu_seconds(producer.process.pid)
    serving = process_cpu_seconds(server) if server else 0.0
    return np.array([tree_cpu_seconds() - producing, producing, serving])


def timed(batches: Iterator[tuple[np.ndarray, int]], producer: Producer, options: argparse.Namespace) -> dict:
    """Take batches, pairs (images, number of new ones), and return their costs and a description."""
    new = 0

    def told(count: int) -> Iterator[np.ndarray]:
        nonlocal new
        for _ in range(count):
            images, fresh = next(batches)
            new += fresh
            producer.used(new)
            yield images

    pixels = measure.Pixels()
    for images in told(options.warmup):
        expected = (3, options.image_size, options.image_size)
        if images.shape[1:] != expected:
            sys.exit(f"images of shape {images.shape[1:]}, expected {expected}")
        pixels.add(images)
    for images in told(SETTLING):
        measure.touch(images)
    steps = max(1, options.images // options.batch_size)
    taken, fresh_before = 0, new
    before, began = cpu_of_all(producer, options.server_pid), time.perf_counter()
    for images in told(steps):
        measure.touch(images)
        taken += len(images)
    seconds = time.perf_counter() - began
    own, producing, serving = (cpu_of_all(producer, options.server_pid) - before).tolist()
    return {
        "images": taken,
        "new": new - fresh_before,
        "seconds": seconds,
        "cpu_seconds": own,
        "producer_cpu_seconds": producing,
        "server_cpu_seconds": serving,
        **pixels.described(),
    }
