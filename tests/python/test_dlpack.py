"""The DLPack protocol: both capsules, their lifetimes, and refused requests."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import foreload
import numpy as np
import pytest

get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


@pytest.fixture
def batch(dataset: Path) -> foreload.Batch:
    return next(iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32)))


def test_both_capsules(batch: foreload.Batch) -> None:
    tensor = batch.images
    assert tensor.__dlpack_device__() == (1, 0)
    assert get_name(tensor.__dlpack__()) == b"dltensor"
    assert get_name(tensor.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert get_name(tensor.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert (
        get_name(tensor.__dlpack__(max_version=(2, 1), stream=None, dl_device=(1, 0)))
        == b"dltensor_versioned"
    )


def test_what_is_refused(batch: foreload.Batch) -> None:
    with pytest.raises(ValueError, match="stream"):
        batch.images.__dlpack__(stream=7)
    with pytest.raises(BufferError, match="CPU memory"):
        batch.images.__dlpack__(dl_device=(2, 0))


def test_shapes_and_types(batch: foreload.Batch) -> None:
    for name, shape, dtype in [
        ("images", (4, 3, 32, 32), "float32"),
        ("labels", (4,), "int64"),
        ("sample_ids", (4,), "int64"),
        ("mask", (4,), "bool"),
    ]:
        tensor = getattr(batch, name)
        array = np.from_dlpack(tensor)
        assert tensor.shape == array.shape == shape
        assert tensor.dtype == array.dtype == dtype
        assert array.flags.c_contiguous


class Legacy:
    """Wraps a producer that only supports the ABI before 1.0."""

    def __init__(self, tensor: foreload.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def test_legacy_consumers_get_the_same_data(batch: foreload.Batch) -> None:
    assert np.array_equal(np.from_dlpack(Legacy(batch.images)), np.from_dlpack(batch.images))


def test_unused_capsules_give_their_buffer_back(dataset: Path) -> None:
    # This is the memory of two batches: if unconsumed capsules kept their buffers, the fourth epoch could not run.
    size = 4 * (3 * 32 * 32 * 4)
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, memory=(8 << 20) + 4 * size)
    for epoch in range(6):
        loader.set_epoch(epoch)
        for batch in loader:
            batch.images.__dlpack__()
            batch.images.__dlpack__(max_version=(1, 0))
    gc.collect()


def test_an_array_outlives_everything_else(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    batches = iter(loader)
    array = np.from_dlpack(next(batches).images)
    before = array.copy()
    del loader, batches
    gc.collect()
    assert np.array_equal(array, before)
    array += 1
    assert np.array_equal(array, before + 1)
