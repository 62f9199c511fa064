"""Fills a rehearsal buffer in a directory and saves a state; or resumes from it and prints the time.

The time is that from making the loader to the first batch, in a new process, without Python's imports.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from endurance import Numbered
from foreload import Rehearsal, StreamLoader, fields, streams

BATCH = 256
STATE = "state.json"


def loader_of(folder: Path, capacity: int, share: float) -> StreamLoader:
    """Return a loader whose buffer holds `capacity` samples."""
    rehearsal = Rehearsal(capacity, share=share, directory=folder / "kept", directory_size="2GB")
    return StreamLoader(
        streams.Iterator(Numbered(lambda number: {"bin": b"%0100d" % number}), name="small"),
        batch_size=BATCH,
        fields=[fields.Bytes("bin")],
        rehearsal=rehearsal,
        device="cpu",
        threads=1,
    )


def fill(folder: Path, capacity: int) -> dict:
    folder.mkdir(parents=True)
    began, new = time.perf_counter(), 0
    loader = loader_of(folder, capacity, 0.5)
    for batch in loader:
        new += int((np.from_dlpack(batch.occurrences) == 0).sum())
        if new >= capacity:
            break
    filled = time.perf_counter()
    state = loader.state_dict()
    saved = time.perf_counter()
    loader.acknowledge(state)
    (folder / STATE).write_text(json.dumps(state))
    kept = loader.stats()["stream"]["kept"]
    return {"kept": kept, "filling_seconds": filled - began, "saving_seconds": saved - filled}


def restore(folder: Path, capacity: int) -> dict:
    """Resume from the state; a batch with earlier samples proves that the buffer was restored."""
    state = json.loads((folder / STATE).read_text())
    began = time.perf_counter()
    loader = loader_of(folder, capacity, 0.5)
    loader.load_state_dict(state)
    batch = next(iter(loader))
    seconds = time.perf_counter() - began
    rehearsed = int((np.from_dlpack(batch.occurrences) > 0).sum())
    return {"seconds": seconds, "rehearsed": rehearsed, "kept": loader.stats()["stream"]["kept"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("fill", "restore"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("capacity", type=int, help="samples")
    chosen = parser.parse_args()
    print(json.dumps((fill if chosen.task == "fill" else restore)(chosen.folder, chosen.capacity)))


if __name__ == "__main__":
    main()
