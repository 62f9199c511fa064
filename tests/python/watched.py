"""Runs a program and notes each batch that Foreload gives it, until the moment at which it shall die.

    python watched.py NOTES RANK:COUNT PROGRAM ARGUMENTS...

NOTES is a folder, for one file a rank: a line of JSON a batch. That rank dies by SIGKILL when it has got COUNT batches;
`-` lets all live.
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
    """An `ImageLoader` that is watched."""

    got = 0

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._loader = ImageLoader(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        """All else is the loader's."""
        return getattr(self._loader, name)

    def __len__(self) -> int:
        """Batches of this rank in one epoch."""
        return len(self._loader)

    def __iter__(self) -> WatchedBatches:
        """One epoch."""
        return WatchedBatches(self._loader.epoch, iter(self._loader))

    def batches(self, epoch: int, first_step: int) -> WatchedBatches:
        """As the loader's."""
        return WatchedBatches(epoch, self._loader.batches(epoch, first_step))


class WatchedBatches:
    """Its batches of an epoch."""

    def __init__(self, epoch: int, batches: foreload._core.Batches) -> None:
        self._epoch, self._batches = epoch, batches
        self._rank, _ = _ranks.resolve(None, None)

    def __getattr__(self, name: str) -> Any:
        """All else is the batches' own."""
        return getattr(self._batches, name)

    def __iter__(self) -> WatchedBatches:
        """Itself."""
        return self

    def __next__(self) -> foreload.Batch:
        """The next batch, which is noted, or the last that this process gets."""
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
    """SHA-256 of images and labels."""
    try:
        images = [batch.images]
    except AttributeError:
        images = batch.files
    sha = hashlib.sha256()
    for tensor in (*images, batch.labels):
        sha.update(np.ascontiguousarray(np.from_dlpack(tensor)).tobytes())
    return sha.hexdigest()


# Before foreload.torch or foreload.dali take it from there.
foreload.ImageLoader = foreload._core.ImageLoader = Watched
sys.argv = sys.argv[3:]
runpy.run_path(PROGRAM, run_name="__main__")
