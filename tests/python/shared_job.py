"""A rank of a job whose nodes share their caches, started by any launcher: it trains epochs and records its samples.

    shared_job.py FRAMEWORK SETTINGS

FRAMEWORK is initialised first: `none`, `torch`, `mpi`, or `jax=COORDINATOR,PROCESSES,PROCESS`. With `ray=ADDRESS`, this
program is not a rank: a cluster of Ray starts one rank on each node. SETTINGS is a JSON object with the fields of
`Settings`. The result is a JSON file with the fields of `Note`, named after the rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import foreload
import numpy as np
from foreload import _ranks
from waiting import until

EPOCHS = 3
GLOBAL_BATCH = 12
STEP = 0.1
"""Seconds of a training step."""
IMAGES: dict[str, Any] = {"image_size": 32, "seed": 4, "progress": False, "device": "cpu"}
"""The settings of images, also for the reference."""
PATIENCE = 60.0
"""The longest wait of a rank for the others at the end of an epoch, in seconds."""


@dataclass(frozen=True)
class Settings:
    """The settings of a rank."""

    data: str
    notes: str
    caches: str
    """The directory in which each node has its cache, named after the host."""
    cache_bytes: int
    peers: str | dict[str, str] = "auto"
    dies: bool = False
    """Whether rank 1 of the first attempt dies by SIGKILL in the second epoch."""


@dataclass
class Note:
    """The results of a rank."""

    host: str
    local_world_size: int | None
    images: list[dict[int, str]] = field(default_factory=list)
    """For each epoch, the SHA-256 of the images by sample id."""
    source_reads: list[int] = field(default_factory=list)
    """For each epoch, the number of samples that were read from the dataset's storage."""
    peers: dict[str, Any] = field(default_factory=dict)
    """The statistics of the nodes, after the last epoch."""
    warnings: list[str] = field(default_factory=list)


def hashes(batch: foreload.Batch) -> dict[int, str]:
    """Return the SHA-256 of each image of a batch, by sample id."""
    pairs = zip(np.from_dlpack(batch.sample_ids), np.from_dlpack(batch.images), strict=True)
    return {int(number): hashlib.sha256(image.tobytes()).hexdigest() for number, image in pairs}


def train(settings: Settings) -> None:
    """Train the epochs and write the note."""
    rank, world_size = _ranks.resolve(None, None)
    died = Path(settings.notes) / "died"
    again = died.exists()
    note = Note(socket.gethostname(), _ranks.local_world_size(None))
    cache = foreload.Directory(Path(settings.caches) / note.host, settings.cache_bytes)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", foreload.Warning)
        loader = foreload.ImageLoader(
            settings.data,
            batch_size=GLOBAL_BATCH // world_size,
            cache=cache,
            peers=settings.peers,
            **IMAGES,
        )
        for epoch in range(EPOCHS):
            batches, images = iter(loader), {}
            for batch in batches:
                images |= hashes(batch)
                time.sleep(STEP)
                if settings.dies and not again and (rank, epoch) == (1, 1):
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            note.images.append(images)
            stats = batches.stats()
            note.source_reads.append(stats["cache"]["source_reads"])
            note.peers = stats["peers"]
            wait_for_all(Path(settings.notes) / f"epoch-{epoch}{'-again' * again}", rank, world_size)
    note.warnings = [str(one.message) for one in told]
    path = Path(settings.notes) / f"{rank}.json"
    path.write_text(json.dumps(asdict(note)))


def wait_for_all(folder: Path, rank: int, world_size: int) -> None:
    """Wait until all ranks have finished the folder's epoch, as ranks that average gradients do."""
    folder.mkdir(exist_ok=True)
    (folder / f"{rank}").touch()
    all_ranks = set(map(str, range(world_size)))
    until(f"all ranks come to {folder}", lambda: set(os.listdir(folder)), all_ranks.__le__, PATIENCE)


def train_by_ray(address: str, settings: Settings) -> None:
    """Start two ranks through Ray Train, each on its own node."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(address=address)
    DataParallelTrainer(
        lambda: train(settings),
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=f"{settings.notes}/ray"),
    ).fit()


def main(framework: str, text: str) -> None:
    """Initialise the framework, and act as a rank."""
    settings = Settings(**json.loads(text))
    if framework.startswith("ray="):
        train_by_ray(framework.removeprefix("ray="), settings)
        return
    if framework == "torch":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
    elif framework == "mpi":
        from mpi4py import MPI

        assert MPI.Is_initialized()
    elif framework.startswith("jax="):
        import jax

        coordinator, processes, process = framework.removeprefix("jax=").split(",")
        jax.distributed.initialize(coordinator, int(processes), int(process))
    train(settings)
    if framework == "torch":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
