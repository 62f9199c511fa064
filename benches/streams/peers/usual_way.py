"""The usual way: an IterableDataset over the directory or the stream, a reservoir in Python, torchvision in workers.

Each worker reads the files that are assigned to it by name and removes them, or is a consumer of a group of the
stream's. It keeps encoded samples in its own reservoir (algorithm R) and yields one of them after each new one. Images
are sent to this process as uint8 and normalised here by batch, which costs less than sending floats.
"""

from __future__ import annotations

import argparse
import os
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import feeding
import numpy as np
import producer
import torch
from harness import measure
from harness.torch_peers import crop_and_flip, decoded, normalised
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PAUSE = 0.002
"""The time until a directory without new files is listed again, in seconds."""
AT_ONCE = 32
"""The number of stream entries that are read at once."""
Sample = tuple[bytes, int]


class Stream(IterableDataset):
    """Samples that arrive, each decoded and transformed, and an earlier sample after each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.transform = crop_and_flip(options.image_size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        torch.set_num_threads(1)
        chance = random.Random(worker.id)
        room = self.options.capacity // worker.num_workers
        kept: list[Sample] = []
        of_kind = self.redis if self.options.feed.kind == "redis" else self.folder
        for number, sample in enumerate(of_kind(worker.id, worker.num_workers)):
            yield self.finished(sample)
            if self.options.feed.share and kept:
                yield self.finished(kept[chance.randrange(len(kept))])
            if len(kept) < room:
                kept.append(sample)
            elif (place := chance.randrange(number + 1)) < room:
                kept[place] = sample

    def finished(self, sample: Sample) -> tuple[torch.Tensor, int]:
        return self.transform(decoded(sample[0])), sample[1]

    def folder(self, worker: int, workers: int) -> Iterator[Sample]:
        """Yield the files of this worker in the order of their names."""
        incoming = self.options.scratch / producer.INCOMING
        classes = sorted(path.name for path in incoming.iterdir())
        while True:
            found = [
                (name, label)
                for label, folder in enumerate(classes)
                for name in os.listdir(incoming / folder)
                if not name.startswith(".") and zlib.crc32(name.encode()) % workers == worker
            ]
            for name, label in sorted(found):
                path = Path(incoming, classes[label], name)
                yield path.read_bytes(), label
                path.unlink()
            if not found:
                time.sleep(PAUSE)

    def redis(self, worker: int, workers: int) -> Iterator[Sample]:
        """Yield the entries that the server assigns to this worker."""
        import redis

        client = redis.Redis.from_url(self.options.server)
        try:
            client.xgroup_create(producer.STREAM, "usual", id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        wanted = {producer.STREAM: ">"}
        while True:
            answer = client.xreadgroup("usual", str(worker), wanted, count=AT_ONCE, block=1000, noack=True)
            for _, entries in answer or ():
                for _, entry in entries:
                    yield entry[b"jpg"], int(entry[b"cls"])


def main() -> None:
    options = feeding.parse_options()
    torch.set_num_threads(1)
    with feeding.Producer(options) as feeder:
        loader = DataLoader(Stream(options), batch_size=options.batch_size, num_workers=options.threads)
        new_of_each = 1 - options.feed.share

        def batches() -> Iterator[tuple[np.ndarray, int]]:
            for images, _labels in loader:
                yield normalised(images).numpy(), int(len(images) * new_of_each)

        feeder.begin()
        measure.tell(feeding.timed(batches(), feeder, options))


if __name__ == "__main__":
    main()
