"""A node of the benchmark: a process that trains its part of each epoch on request, and reports its samples.

`node.py SETTINGS`, where SETTINGS is a JSON object with the fields of `Settings`. It prints `ready` and waits for a
line; for each line it runs an epoch and prints a line of JSON with the fields of `Epoch`. It ends when its input ends,
and so with the program that started it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import foreload
import numpy as np

PATIENCE = 60.0
"""The longest wait of a rank for the others, in seconds."""


@dataclass(frozen=True)
class Settings:
    """The settings of a node."""

    data: str
    index: str
    rank: int
    world_size: int
    batch_size: int
    cache: str
    cache_bytes: int
    meeting: str
    """A directory that all ranks share."""
    listen: str | None = None
    """The address at which peers read from this node; None: its cache is private."""
    assignment: str = "order"
    image_size: int = 0
    """The side of decoded images; 0: files are delivered encoded."""
    epoch_size: int | None = None
    """The samples of an epoch; None: each once."""
    step_seconds: float = 0.0
    """The duration of a training step."""
    immutable: bool = False
    """Whether copies are used without a check of their files."""
    hashed: bool = True
    """Whether files are hashed, which takes time."""


@dataclass(frozen=True)
class Epoch:
    """The results of a node for an epoch."""

    seconds: float
    opening: float
    """The part of these seconds until the loader had started: in the first epoch its threads start and the nodes
    meet."""
    waited: list[float]
    """The seconds of waiting for each batch."""
    cache: dict
    """The loader's counters of its cache."""
    samples: list[list[tuple[int, str]]]
    """For each step, the numbers of this rank's samples and the SHA-256 of their bytes."""


class SharedFolder:
    """An allgather through files that are published atomically."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self.folder, self.rank, self.world_size, self.calls = folder, rank, world_size, 0

    def __call__(self, mine: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in the order of ranks."""
        self.calls += 1
        place = self.folder / str(self.calls)
        place.mkdir(parents=True, exist_ok=True)
        beside = place / f"{self.rank}.new"
        beside.write_bytes(mine)
        beside.rename(place / str(self.rank))
        deadline = time.monotonic() + PATIENCE
        everyone = [place / str(rank) for rank in range(self.world_size)]
        while missing := [path.name for path in everyone if not path.exists()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"ranks {', '.join(missing)} did not come within {PATIENCE:.0f} s")
            time.sleep(0.005)
        return [path.read_bytes() for path in everyone]


def make(settings: Settings) -> foreload.ImageLoader:
    more = {}
    if settings.listen:
        meeting = SharedFolder(Path(settings.meeting), settings.rank, settings.world_size)
        more["peers"] = {"listen": f"{settings.listen}:0", "allgather": meeting}
    if settings.assignment != "order":
        more["assignment"] = settings.assignment
    if settings.image_size:
        more |= {"image_size": settings.image_size, "threads": 1}
    else:
        more["decoded"] = False
    return foreload.ImageLoader(
        settings.data,
        batch_size=settings.batch_size,
        rank=settings.rank,
        world_size=settings.world_size,
        local_world_size=1,
        index_dir=settings.index,
        immutable=settings.immutable,
        epoch_size=settings.epoch_size,
        cache=[foreload.Directory(settings.cache, settings.cache_bytes, fill="use")],
        progress=False,
        **more,
    )


def hashes(batch: foreload.Batch) -> list[tuple[int, str]]:
    """Return the numbers of a batch's samples and the SHA-256 of their bytes."""
    numbers = np.from_dlpack(batch.sample_ids)
    digests = (hashlib.sha256(np.from_dlpack(file)).hexdigest() for file in batch.files)
    return [(int(number), digest) for number, digest in zip(numbers, digests, strict=True)]


def train(loader: foreload.ImageLoader, settings: Settings) -> Epoch:
    waited, samples = [], []
    started = asked = time.perf_counter()
    batches = iter(loader)
    opening = time.perf_counter() - started
    for batch in batches:
        waited.append(time.perf_counter() - asked)
        if settings.hashed:
            samples.append(hashes(batch))
        if settings.step_seconds:
            time.sleep(settings.step_seconds)
        asked = time.perf_counter()
    return Epoch(time.perf_counter() - started, opening, waited, batches.stats()["cache"], samples)


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    loader = make(settings)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(asdict(train(loader, settings))), flush=True)


if __name__ == "__main__":
    main()
