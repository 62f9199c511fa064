"""Shared batches, which another process makes, end on a device, with the bytes that the CPU makes alone."""

from __future__ import annotations

import warnings
from pathlib import Path

import driver
import foreload
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("gpu", "runtime")

SETTINGS = {"batch_size": 4, "image_size": 32, "last_batch": "partial"}
OTHER = {"image_size": (48, 24), "dtype": "float16", "flip": 0.0}


def held(batch: foreload.Batch) -> list[np.ndarray]:
    """Return the arrays of a batch, wherever they are stored."""
    return [driver.to_host(value) for value in (batch.images, batch.labels, batch.sample_ids, batch.mask)]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Whether two batches hold the same bytes."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_they_are_the_batches_of_the_cpu(dataset: Path) -> None:
    expected = {
        size: [
            [
                held(batch)
                for batch in foreload.ImageLoader(dataset, **(SETTINGS | of), device="cpu").batches(epoch)
            ]
            for epoch in range(2)
        ]
        for size, of in (("usual", {}), ("other", OTHER))
    }
    sharing = {"shared": True, "shared_consumers": 2}
    on_device = foreload.ImageLoader(dataset, **SETTINGS, device="cuda", **sharing)
    other = foreload.ImageLoader(dataset, **(SETTINGS | OTHER), device="cuda", shared=True)
    on_host = foreload.ImageLoader(dataset, **SETTINGS, device="cpu", **sharing)
    for epoch in range(2):
        kept: list[foreload.Batch] = []
        iterators = [iter(loader) for loader in (on_device, other, on_host)]
        for step, batches in enumerate(zip(*iterators, strict=True)):
            assert batches[0].images.__dlpack_device__()[0] == 2
            for batch, size in zip(batches, ("usual", "other", "usual"), strict=True):
                assert same(held(batch), expected[size][epoch][step]), (epoch, step, size)
            kept = [*kept[-1:], batches[0]]
        # A batch that is kept does not change, although the shared memory that it was copied from was used again.
        assert same(held(kept[0]), expected["usual"][epoch][-2])
        assert step == len(expected["usual"][epoch]) - 1
        shared = iterators[0].stats()["shared"]
        assert (shared["consumers"], shared["producers"]) == (2, 1)
        pids = [one.stats()["shared"]["producer_pid"] for one in iterators]
        assert pids[0] == pids[2] != pids[1]
        assert iterators[0].stats()["gpu"]["h2d_bytes"] > 0


def test_what_the_cpu_cannot_do_here_is_said(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match="decodes on the CPU"):
        foreload.ImageLoader(dataset, **SETTINGS, device="cuda", shared=True, cpu_decode="never")


def test_a_gpu_that_is_there_is_taken(dataset: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS, shared=True)))
    assert batch.images.__dlpack_device__()[0] == 2
