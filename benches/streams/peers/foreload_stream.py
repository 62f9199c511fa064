"""Foreload's StreamLoader over a growing directory or a Redis stream; with `--rate`, the latency of samples.

The variant is the source, `folder` or `redis`, with the suffix `-rehearsal` for batches of which half is rehearsed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator

import feeding
import numpy as np
import producer
from foreload import Rehearsal, StreamLoader, fields, streams
from harness import measure

STARTING = 0.5
"""The time for a loader to start its threads, in seconds."""


def loader_of(options: argparse.Namespace) -> StreamLoader:
    """Return the loader with the same settings as the epoch pipeline's."""
    share = options.feed.share
    if options.feed.kind == "redis":
        source = streams.Redis(options.server, producer.STREAM)
        when = fields.Text("sent")
    else:
        classes = sorted(path.name for path in options.data.iterdir() if path.is_dir())
        source = streams.Folder(options.scratch / producer.INCOMING, classes=classes)
        when = fields.Text("__key__")
    return StreamLoader(
        source,
        batch_size=options.batch_size,
        image_size=options.image_size,
        threads=options.threads,
        device="cpu",
        rehearsal=Rehearsal(options.capacity, share=share) if share else None,
        fields=["image", "label", when] if options.rate else ["image", "label"],
    )


def paced(loader: StreamLoader, feeder: feeding.Producer, options: argparse.Namespace) -> dict:
    """Take batches of samples that arrive at a pace; return their latency as the loader and as clocks measure it."""
    key = "sent" if options.feed.kind == "redis" else "__key__"
    taken, seen = 0, []
    batches = iter(loader)
    # The loader measures from the first sample on, when all threads must be running.
    time.sleep(STARTING)
    feeder.begin()
    for batch in batches:
        now = time.monotonic_ns()
        seen += [(now - int(re.search(r"\d+(?=\.jpg$|$)", text)[0])) / 1e9 for text in batch[key]]
        measure.touch(np.from_dlpack(batch.images))
        taken += len(batch)
        if taken >= options.images:
            break
    stats = loader.stats()["stream"]
    if stats["missing"] or stats["dropped"]:
        sys.exit(f"samples were lost on the way: {stats}")
    said = {name: stats[name] for name in ("latency_p50_seconds", "latency_p99_seconds")}
    clocked = {f"clocked_p{percent}_seconds": float(np.percentile(seen, percent)) for percent in (50, 99)}
    return {"images": taken, "rate": options.rate, **said, **clocked}


def main() -> None:
    options = feeding.parse_options()
    with feeding.Producer(options) as feeder:
        loader = loader_of(options)
        if options.rate:
            measure.tell(paced(loader, feeder, options))
            return
        feeder.begin()

        def batches() -> Iterator[tuple[np.ndarray, int]]:
            for batch in loader:
                new = int((np.from_dlpack(batch.occurrences) == 0).sum())
                yield np.from_dlpack(batch.images), new

        measure.tell(feeding.timed(batches(), feeder, options))


if __name__ == "__main__":
    main()
