"""Batches of encoded files, and epochs that begin in the middle."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import foreload
import numpy as np
import pytest
from conftest import paths

SETTINGS = {"batch_size": 8, "image_size": 32, "seed": 3, "last_batch": "partial"}


def test_files_are_handed_over_where_they_were_read_to(dataset: Path) -> None:
    files = [path.read_bytes() for path in paths(dataset)]
    loader = foreload.ImageLoader(dataset, decoded=False, keep=8, **SETTINGS)
    kept = []
    for batch in loader:
        assert len(batch.files) == len(batch)
        assert not hasattr(batch, "images")
        assert "files" in repr(batch)
        for tensor, sample in zip(batch.files, np.from_dlpack(batch.sample_ids), strict=True):
            array = np.from_dlpack(tensor)
            assert array.dtype == np.uint8
            assert array.shape == tensor.shape == (len(files[sample]),)
            # The memory is the same each time: nothing was copied.
            assert array.ctypes.data == np.from_dlpack(tensor).ctypes.data
            kept.append((array, sample))
    del loader, batch, tensor
    gc.collect()
    assert sorted(sample for _, sample in kept) == list(range(60))
    assert all(array.tobytes() == files[sample] for array, sample in kept)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("io", ["auto", "pread"])
@pytest.mark.parametrize("direct", ["on", "off"])
def test_a_forked_child_reads_what_its_parent_holds(dataset: Path, io: str, direct: str) -> None:
    files = [path.read_bytes() for path in paths(dataset)]
    loader = foreload.ImageLoader(dataset, decoded=False, keep=8, io=io, direct=direct, **SETTINGS)
    images = foreload.ImageLoader(dataset, **SETTINGS)
    for epoch in range(3):
        batches = iter(loader)
        held = [next(batches) for _ in range(4)]
        arrays = [[np.from_dlpack(file) for file in batch.files] for batch in held[:2]]
        decoded = next(iter(images))
        pixels = np.from_dlpack(decoded.images).copy()
        # The child is forked while the next batches are being read.
        child = os.fork()
        if child == 0:
            right = False
            try:
                ids = [np.from_dlpack(batch.sample_ids).tolist() for batch in held]
                seen = [*arrays, *([np.from_dlpack(file) for file in batch.files] for batch in held[2:])]
                right = all(
                    array.tobytes() == files[sample]
                    for batch, numbers in zip(seen, ids, strict=True)
                    for array, sample in zip(batch, numbers, strict=True)
                ) and np.array_equal(np.from_dlpack(decoded.images), pixels)
                # The child's drops must not free memory of its parent.
                del held, arrays, seen, batches, decoded
                gc.collect()
            finally:
                os._exit(0 if right else 1)
        rest = list(batches)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # The parent gets all of its own reads.
        for batch in [*held, *rest]:
            for file, sample in zip(batch.files, np.from_dlpack(batch.sample_ids), strict=True):
                assert np.from_dlpack(file).tobytes() == files[sample]
        assert sum(map(len, [*held, *rest])) == 60
        del held, arrays, batches, rest, batch, file
        assert loader.epoch == epoch + 1


def test_images_are_no_files(dataset: Path) -> None:
    batch = next(iter(foreload.ImageLoader(dataset, **SETTINGS)))
    with pytest.raises(AttributeError, match="decoded=False"):
        _ = batch.files


def test_an_epoch_from_the_middle(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    whole = [np.from_dlpack(batch.images).copy() for batch in loader.batches(epoch=4)]
    assert len(whole) == 8
    for first in (0, 3, 7, 8, 100):
        rest = loader.batches(4, first_step=first)
        assert len(rest) == 8
        steps = [(batch.step, np.from_dlpack(batch.images)) for batch in rest]
        assert [step for step, _ in steps] == list(range(min(first, 8), 8))
        assert all(np.array_equal(images, whole[step]) for step, images in steps)
    loader.set_epoch(4)
    assert np.array_equal(np.from_dlpack(next(loader.batches(first_step=5)).images), whole[5])


def test_keeping_too_many_batches_is_reported(tmp_path: Path) -> None:
    for number in range(1500):
        path = tmp_path / f"class_{number % 2}" / f"{number:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff" + bytes(9000))
    settings = {"batch_size": 50, "decoded": False, "memory": "8MB", "queue_depth": 4}
    kept = []
    with pytest.raises(foreload.ConfigError, match=r"config: memory: .* raise keep"):
        kept.extend(foreload.ImageLoader(tmp_path, **settings))
    assert len(list(foreload.ImageLoader(tmp_path, **{**settings, "memory": None, "keep": 30}))) == 30
