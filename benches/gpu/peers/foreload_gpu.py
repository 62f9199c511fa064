"""Foreload itself. Variant "cuda": everything on the device. Variant "packed": the same with a packed copy of the
files, without nvJPEG. Variant "indexed": the same with indexed copies of the files in memory. Variant "cpu": decoded
and augmented on the CPU, then copied.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import foreload
import serve
import torch
from harness.measure import list_images
from serve import Batch, Feed, Options

CACHE = "16 GB"
"""The size of the cache for indexed copies, larger than all files of this comparison."""
STILL = 2.0
"""If no other copy is indexed within this many seconds, indexing has finished."""
PATIENCE = 40.0
"""The time limit of indexing in seconds."""


class ForeloadFeed(Feed):
    """The epochs of one loader, as a training script would run them."""

    def __init__(self, options: Options) -> None:
        self.on_device = options.variant != "cpu"
        self.folder = tempfile.TemporaryDirectory() if options.variant == "packed" else None
        data = packed(options.data, Path(self.folder.name) / "packed") if self.folder else options.data
        self.loader = foreload.ImageLoader(
            str(data),
            batch_size=options.batch_size,
            image_size=options.image_size,
            seed=options.seed,
            threads=options.threads,
            device="cuda" if self.on_device else "cpu",
            dtype=str(options.torch_dtype).removeprefix("torch."),
            last_batch="drop",
            epoch_size=serve.EPOCHS * len(list_images(options.data)[0]),
            decoder="own" if options.variant in ("packed", "indexed") else "auto",
            cache=[foreload.Ram(CACHE, form="indexed")] if options.variant == "indexed" else None,
            **({"cpu_decode": options.cpu_decode} if self.on_device else {}),
        )
        self.is_indexed = options.variant == "indexed"
        self.ready = 8
        self.past: dict[str, float] = {}
        self.running: foreload.Batches | None = None

    def batches(self) -> Iterator[Batch]:
        epoch = self.index() if self.is_indexed else 0
        while True:
            self.loader.set_epoch(epoch)
            self.running = iter(self.loader)
            for batch in self.running:
                images, labels = torch.from_dlpack(batch.images), torch.from_dlpack(batch.labels)
                yield (images, labels) if self.on_device else (images.cuda(), labels.cuda())
            self.past, self.running = self.counters(), None
            epoch += 1

    def index(self) -> int:
        """Wait until the cache has indexed the files, which it does during an epoch and after it. Return the next
        epoch.
        """
        for _ in self.loader:
            pass
        self.loader.set_epoch(1)
        running = iter(self.loader)
        indexed, changed, begun = 0, time.monotonic(), time.monotonic()
        while time.monotonic() - changed < STILL and time.monotonic() - begun < PATIENCE:
            time.sleep(0.1)
            now = running.stats()["cache"]["tiers"]["ram"]["converted_samples"]
            if now != indexed:
                indexed, changed = now, time.monotonic()
        return 2

    def counters(self) -> dict[str, float]:
        """Return seconds and counts of all epochs; those of the GPU have the prefix `gpu_`."""
        counted = dict(self.past)
        if self.running:
            stats = self.running.stats()
            on_gpu = stats.pop("gpu", None) or {}
            for name, value in {**stats, **{f"gpu_{name}": value for name, value in on_gpu.items()}}.items():
                if isinstance(value, (int, float)):
                    counted[name] = counted.get(name, 0) + value
        return counted

    def facts(self) -> dict[str, object]:
        """Return the abilities of each of the GPU's decoders, as Foreload has probed them."""
        on_gpu = (self.running.stats().get("gpu") if self.running else None) or {}
        return {"decoders": on_gpu["decoders"]} if "decoders" in on_gpu else {}

    def close(self) -> None:
        self.running = None
        del self.loader
        if self.folder:
            self.folder.cleanup()


def packed(data: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "foreload", "pack", str(data), str(into)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return into


if __name__ == "__main__":
    serve.serve(lambda options, _: ForeloadFeed(options))
