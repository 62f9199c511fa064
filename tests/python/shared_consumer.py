"""A training that shares its batches: it reports each batch as a line, and follows commands between batches."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from typing import Any

import foreload
import numpy as np


def digest(batch: foreload.Batch) -> str:
    """Return the SHA-256 of all data in a batch."""
    sha = hashlib.sha256()
    for name in ("images", "labels", "sample_ids", "mask"):
        if getattr(batch, name, None) is not None:
            sha.update(np.from_dlpack(getattr(batch, name)).tobytes())
    for name, value in batch.items():
        sha.update(name.encode())
        for item in value if isinstance(value, list) else [value]:
            sha.update(np.from_dlpack(item).tobytes() if hasattr(item, "__dlpack__") else repr(item).encode())
    return sha.hexdigest()


def tell(**what: Any) -> None:
    """Write a line."""
    print(json.dumps(what), flush=True)


def main(order: dict[str, Any]) -> None:
    """Train as the order says: settings, epochs, seconds of a step, a state to resume from."""
    heard = []
    warnings.showwarning = lambda message, *_, **__: heard.append(str(message))
    loader = foreload.ImageLoader(order["dataset"], **order["settings"])
    if order.get("state"):
        loader.load_state_dict(order["state"])
    if "first_epoch" in order:
        loader.set_epoch(order["first_epoch"])
    # The loader's epoch is the next one, even if the state was saved at the end of an epoch.
    while loader.epoch < order["epochs"]:
        epoch = loader.epoch
        batches = iter(loader)
        for batch in batches:
            state = batches.state_dict()
            if order.get("writes"):
                # Writes to a batch must not reach other consumers.
                images = np.from_dlpack(batch.images)
                sha = digest(batch)
                images[...] = np.frombuffer(
                    np.random.default_rng().bytes(images.nbytes), images.dtype
                ).reshape(images.shape)
            else:
                sha = digest(batch)
            tell(epoch=epoch, sha=sha, state=state, stats=batches.stats().get("shared"), heard=heard)
            if order.get("pause"):
                time.sleep(order["pause"])
            if order.get("lockstep"):
                sys.stdin.readline()
    tell(end=True, heard=heard)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
