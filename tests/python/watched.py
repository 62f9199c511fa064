"""Runs a program and records each batch that Foreload delivers to it, until the moment at which it is killed.

    python watched.py NOTES RANK:COUNT PROGRAM ARGUMENTS...

NOTES is a folder with one file per rank, with a line of JSON for each batch. Rank RANK dies by SIGKILL when it has got
COUNT batches; with `-` no rank dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
from foreload import _ranks

NOTES, DEATH, PROGRAM = sys.argv[1:4]
ImageLoader = foreload.ImageLoader


class Watched:
    """An `ImageLoader` whose batches are recorded."""

    got = 0

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._loader = ImageLoader(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the loader."""
        return getattr(self._loader, name)

    def __len__(self) -> int:
        """Return the number of batches of this rank in one epoch."""
        return len(self._loader)

    def __iter__(self) -> WatchedBatches:
        """Return a watched iteration over one epoch."""
        return WatchedBatches(self._loader.epoch, iter(self._loader))

    def batches(self, epoch: int, first_step: int) -> WatchedBatches:
        """Return a watched iteration over an epoch, from a step on."""
        return WatchedBatches(epoch, self._loader.batches(epoch, first_step))


class WatchedBatches:
    """The watched batches of an epoch."""

    def __init__(self, epoch: int, batches: foreload._core.Batches) -> None:
        self._epoch, self._batches = epoch, batches
        self._rank, _ = _ranks.resolve(None, None)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the batches."""
        return getattr(self._batches, name)

    def __iter__(self) -> WatchedBatches:
        """Return the iterator itself."""
        return self

    def __next__(self) -> foreload.Batch:
        """Return the next batch after recording it; it may be the last one that this process gets."""
        batch = next(self._batches)
        ids = np.from_dlpack(batch.sample_ids).tolist()
        note = {"epoch": self._epoch, "step": batch.step, "ids": ids, "sha": digest(batch)}
        with (Path(NOTES) / f"{self._rank}").open("a") as notes:
            print(json.dumps(note), file=notes)
        Watched.got += 1
        if f"{self._rank}:{Watched.got}" == DEATH:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch


def digest(batch: foreload.Batch) -> str:
    """Return the SHA-256 of images and labels."""
    try:
        images = [batch.images]
    except AttributeError:
        images = batch.files
    sha = hashlib.sha256()
    for tensor in (*images, batch.labels):
        sha.update(np.ascontiguousarray(np.from_dlpack(tensor)).tobytes())
    return sha.hexdigest()


# The class must be replaced before foreload.torch or foreload.dali import it.
foreload.ImageLoader = foreload._core.ImageLoader = Watched
sys.argv = sys.argv[3:]
runpy.run_path(PROGRAM, run_name="__main__")
if "TORCHELASTIC_RUN_ID" in os.environ:
    # Python's own exit could abort one rank (see killed_training.py): a thread of gloo may still be releasing a tensor.
    sys.stdout.flush()
    os._exit(0)
