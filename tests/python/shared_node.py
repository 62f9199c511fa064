"""A node of `test_nodes.py`: a process that trains epochs with a shared cache, and reports its samples.

`shared_node.py SETTINGS`, where SETTINGS is a JSON object with the fields of `Settings`. It prints `ready`. For each
input line it runs an epoch and prints a line of JSON with the fields of `Epoch`. In the first epoch it prints `met`
when the nodes have met. It ends when its input ends.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

import foreload
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "nodes"))
import node

SEED = 3


@dataclass(frozen=True)
class Settings(node.Settings):
    """The settings of a node: those of the benchmark (its assignments, images and epoch sizes are not used here), and
    these.
    """

    memory_bytes: int = 0
    """The size of a tier in memory before the cache; 0 for none."""
    tls: bool = False


@dataclass
class Epoch:
    """The results of a node for an epoch."""

    samples: list[tuple[int, int]] = field(default_factory=list)
    """The number and the version of each sample, read from its bytes."""
    wrong: list[str] = field(default_factory=list)
    """Descriptions of bytes that belong to no version of their sample."""
    longest: float = 0.0
    """The longest wait for a batch, in seconds."""
    cache: dict = field(default_factory=dict)
    peers: dict = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    """The error that ended the epoch."""


def contents(sample: int, version: int, length: int) -> bytes:
    """Return the bytes of a version of a sample. They begin with the sample's number and version."""
    head = b"%d %d\n" % (sample, version)
    return head + hashlib.shake_128(head).digest(length - len(head))


def verify(sample: int, data: bytes, epoch: Epoch) -> None:
    """Record which version of a sample these bytes are."""
    try:
        number, version = map(int, data[: data.index(b"\n")].split())
        right = number == sample and data == contents(sample, version, len(data))
    except ValueError:
        right = False
    if right:
        epoch.samples.append((sample, version))
    else:
        epoch.wrong.append(f"sample {sample}: {len(data)} bytes, {data[:24]!r}")


def train(loader: foreload.FileLoader, settings: Settings, first: bool) -> Epoch:
    """Run an epoch. In the first epoch, report when the nodes have met, which is at its beginning."""
    epoch = Epoch()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            asked = time.monotonic()
            batches = iter(loader)
            if first:
                print("met", flush=True)
            for batch in batches:
                epoch.longest = max(epoch.longest, time.monotonic() - asked)
                for number, file in zip(np.from_dlpack(batch.sample_ids), batch.files, strict=True):
                    verify(int(number), np.from_dlpack(file).tobytes(), epoch)
                time.sleep(settings.step_seconds)
                asked = time.monotonic()
            epoch.longest = max(epoch.longest, time.monotonic() - asked)
            stats = batches.stats()
            epoch.cache, epoch.peers = stats["cache"], stats["peers"]
        except Exception:
            epoch.error = traceback.format_exc()
    epoch.warnings = [str(one.message) for one in told]
    return epoch


def main() -> None:
    """Train an epoch for each line of input."""
    settings = Settings(**json.loads(sys.argv[1]))
    meeting = node.SharedFolder(Path(settings.meeting), settings.rank, settings.world_size)
    tiers: list[foreload.Ram | foreload.Directory] = [
        foreload.Directory(settings.cache, settings.cache_bytes, fill="use")
    ]
    if settings.memory_bytes:
        tiers.insert(0, foreload.Ram(settings.memory_bytes))
    loader = foreload.FileLoader(
        settings.data,
        batch_size=settings.batch_size,
        seed=SEED,
        rank=settings.rank,
        world_size=settings.world_size,
        local_world_size=1,
        cache=tiers,
        peers={"listen": settings.listen, "allgather": meeting, "tls": settings.tls},
        index_dir=settings.index,
        progress=False,
    )
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        print(json.dumps(asdict(train(loader, settings, number == 0))), flush=True)


if __name__ == "__main__":
    main()
