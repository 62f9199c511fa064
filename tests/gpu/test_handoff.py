"""Batches in device memory as any consumer gets them: capsules, the CUDA array interface, streams, lifetimes.

Nothing here needs torch: capsules are read by ctypes and memory by the driver.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import capsule
import driver
import foreload
import numpy as np
import pytest
from resemblance import compare

pytestmark = pytest.mark.usefixtures("gpu")

SETTINGS = {"batch_size": 4, "image_size": 32, "device": "cuda:0"}


def first(dataset: Path, **settings: object) -> foreload.Batch:
    return next(iter(foreload.ImageLoader(dataset, **{**SETTINGS, **settings})))


def test_capsules_say_what_the_tensor_is(dataset: Path) -> None:
    images = first(dataset).images
    assert images.__dlpack_device__() == (capsule.CUDA, 0)
    legacy = capsule.describe(images.__dlpack__(stream=2))
    versioned = capsule.describe(images.__dlpack__(stream=2, max_version=(1, 0)))
    assert legacy.name == "dltensor"
    assert versioned.name == "dltensor_versioned"
    assert versioned.version == (1, 0)
    assert not versioned.flags & capsule.COPIED
    for described in (legacy, versioned):
        assert described.device == (capsule.CUDA, 0)
        assert described.dtype == "float32"
        assert described.shape == images.shape == (4, 3, 32, 32)
        assert described.strides == capsule.dense(described.shape)
        assert described.address % 256 == 0
    assert legacy.address == versioned.address


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("memory_format", ["nchw", "nhwc"])
def test_types_and_formats(dataset: Path, on_cpu: Callable, dtype: str, memory_format: str) -> None:
    settings = {**SETTINGS, "dtype": dtype, "memory_format": memory_format, "last_batch": "partial"}
    seen = {}
    for batch in foreload.ImageLoader(dataset, **settings):
        assert batch.images.dtype == dtype
        described = capsule.describe(batch.images.__dlpack__(stream=1, max_version=(1, 0)))
        assert described.dtype == dtype
        assert described.strides == capsule.dense(batch.images.shape)
        pixels = driver.to_host(batch.images)
        pixels = pixels.transpose(0, 3, 1, 2) if memory_format == "nhwc" else pixels
        seen |= dict(zip(driver.to_host(batch.sample_ids).tolist(), pixels, strict=True))
    assert len(seen) == 60
    compare(seen, on_cpu(dataset))


def test_labels_ids_and_mask(dataset: Path) -> None:
    for batch in foreload.ImageLoader(dataset, **{**SETTINGS, "batch_size": 16, "last_batch": "pad"}):
        labels, ids, mask = map(driver.to_host, (batch.labels, batch.sample_ids, batch.mask))
        assert labels.dtype == ids.dtype == np.int64
        assert np.array_equal(labels, ids // 20)
        assert mask.dtype == bool
        assert mask.sum() == (16 if batch.step < 3 else 12)


@pytest.mark.parametrize(("dtype", "typestr"), [("float32", "<f4"), ("float16", "<f2"), ("uint8", "|u1")])
def test_the_cuda_array_interface(dataset: Path, dtype: str, typestr: str) -> None:
    images = first(dataset, dtype=dtype).images
    interface = images.__cuda_array_interface__
    described = capsule.describe(images.__dlpack__(stream=1, max_version=(1, 0)))
    assert interface["version"] == 3
    assert interface["typestr"] == typestr
    assert tuple(interface["shape"]) == images.shape
    assert interface["data"][0] == described.address
    # A missing stream or None means that there is nothing to wait for; 0 is ambiguous and forbidden.
    assert interface.get("stream", None) != 0
    strides = interface.get("strides")
    width = described.itemsize
    assert strides is None or tuple(strides) == tuple(width * step for step in described.strides)


def test_bfloat16_has_no_array_interface(dataset: Path) -> None:
    # The interface's type strings are NumPy's, which has no bfloat16.
    assert not hasattr(first(dataset, dtype="bfloat16").images, "__cuda_array_interface__")


def test_streams(dataset: Path) -> None:
    images = first(dataset).images
    for stream in (None, -1, 1, 2):
        assert capsule.describe(images.__dlpack__(stream=stream)).shape == images.shape
    for ambiguous in (0, -7):
        with pytest.raises((foreload.Error, ValueError, BufferError), match="stream"):
            images.__dlpack__(stream=ambiguous)
    with pytest.raises(BufferError):
        images.__dlpack__(dl_device=(capsule.CUDA, 99))


def test_a_copy_in_host_memory(dataset: Path) -> None:
    images = first(dataset).images
    with capsule.consumed(images.__dlpack__(dl_device=(capsule.CPU, 0), max_version=(1, 0))) as described:
        assert described.device == (capsule.CPU, 0)
        assert described.flags & capsule.COPIED
        copied = driver.from_host(described)
    assert np.array_equal(copied, driver.to_host(images))
    with pytest.raises(BufferError):
        images.__dlpack__(dl_device=(capsule.CPU, 0), copy=False)


def test_what_was_written_is_seen_from_the_consumers_stream(dataset: Path, on_cpu: Callable) -> None:
    """Copies are queued on the consumer's stream at once, so only the event that `__dlpack__` waits for orders them."""
    expected = on_cpu(dataset)
    loader = foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8")
    one, two = driver.stream(1), driver.stream(2)
    with driver.context():
        queued = []
        for step, batch in enumerate(loader):
            stream = (one, two)[step % 2]
            with capsule.consumed(batch.images.__dlpack__(stream=stream, max_version=(1, 0))) as described:
                host = driver.Pinned(described.bytes)
                driver.copy_to_host(host.address, described.address, described.bytes, stream)
            # The tensor is released while the copy may still be queued, so its buffer must not be reused before the
            # stream is done.
            queued.append((driver.to_host(batch.sample_ids), host, described))
        driver.synchronize(one)
        driver.synchronize(two)
        for ids, host, described in queued:
            pixels = driver.as_numpy(host.bytes, described)
            compare(dict(zip(ids.tolist(), pixels, strict=True)), expected)
            host.close()


def test_a_second_stream_reads_the_batch_too(dataset: Path, on_cpu: Callable) -> None:
    """The tensor was never handed over to the stream that reads it: only `used_by` names that stream."""
    expected = on_cpu(dataset)
    loader = foreload.ImageLoader(dataset, **SETTINGS, dtype="uint8")
    second = driver.stream(1)
    queued = []
    with driver.context():
        for batch in loader:
            batch.used_by(second)
            described = capsule.describe(batch.images.__dlpack__(stream=-1))
            host = driver.Pinned(described.bytes)
            driver.copy_to_host(host.address, described.address, described.bytes, second)
            queued.append((driver.to_host(batch.sample_ids), host, described))
        driver.synchronize(second)
        for ids, host, described in queued:
            pixels = driver.as_numpy(host.bytes, described)
            compare(dict(zip(ids.tolist(), pixels, strict=True)), expected)
            host.close()
    # torch gives 0 for its default stream.
    batch.used_by(0)
    with pytest.raises(foreload.ConfigError, match="stream"):
        batch.used_by(-1)


def test_graphs_that_other_code_captures_are_left_alone(dataset: Path) -> None:
    """In the mode in which torch captures, every query, wait or allocation of any thread would spoil the capture."""
    stream, graph = ctypes.c_void_p(driver.stream(2)), ctypes.c_void_p()
    every_thread = ctypes.c_uint(0)
    # The first start of nvJPEG is not under test.
    assert sum(1 for _ in foreload.ImageLoader(dataset, **SETTINGS)) == 15
    with driver.context(), ThreadPoolExecutor(1) as threads:
        driver.call("cuStreamBeginCapture_v2", stream, every_thread)
        # During the capture a loader starts, works and ends: one on another thread, one on the thread that captures.
        elsewhere = threads.submit(lambda: sum(1 for _ in foreload.ImageLoader(dataset, **SETTINGS)))
        here = sum(1 for _ in foreload.ImageLoader(dataset, **SETTINGS))
        assert (here, elsewhere.result()) == (15, 15)
        driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        driver.call("cuGraphDestroy", graph)


def test_a_stream_that_captures_takes_no_batch(dataset: Path) -> None:
    images = first(dataset).images
    stream, graph = ctypes.c_void_p(driver.stream(2)), ctypes.c_void_p()
    with driver.context():
        driver.call("cuStreamBeginCapture_v2", stream, ctypes.c_uint(0))
        with pytest.raises(foreload.ConfigError, match="is capturing a CUDA graph"):
            images.__dlpack__(stream=stream.value)
        driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        driver.call("cuGraphDestroy", graph)


def test_what_is_kept_for_the_next_loader_can_be_given_back(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    batch = next(batches := iter(loader))
    known = batches.stats()["gpu"]["decoders"]
    assert set(known) == {"hardware", "cuda_batched", "cuda", "cuda_packed", "cuda_indexed"}
    foreload.release_gpus()
    # Decoders in use are not removed.
    assert batches.stats()["gpu"]["decoders"] == known
    assert sum(1 for _ in loader) == 15
    assert driver.to_host(batch.images).shape == (4, 3, 32, 32)


def test_a_kept_batch_is_never_overwritten(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    kept = next(iter(loader))
    before = driver.to_host(kept.images)
    passed = 0
    for epoch in range(20):
        loader.set_epoch(epoch)
        passed += sum(1 for _ in loader)
    assert passed == 300
    assert np.array_equal(driver.to_host(kept.images), before)


def test_batches_kept_from_the_same_loader(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    kept = []
    for batch in loader:
        kept.append((batch.images, driver.to_host(batch.images)))
    assert len({capsule.describe(images.__dlpack__(stream=1)).address for images, _ in kept}) == 15
    del loader, batch
    gc.collect()
    assert all(np.array_equal(driver.to_host(images), before) for images, before in kept)


def test_unused_capsules_give_their_buffer_back(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    addresses = set()
    for epoch in range(20):
        loader.set_epoch(epoch)
        for batch in loader:
            addresses.add(capsule.describe(batch.images.__dlpack__(stream=1)).address)
            batch.images.__dlpack__(stream=1, max_version=(1, 0))
    # If capsules kept their buffers, each of the 300 batches would need a new one.
    assert len(addresses) <= 16


def test_a_tensor_outlives_everything_else(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    batches = iter(loader)
    images = next(batches).images
    before = driver.to_host(images)
    del loader, batches
    gc.collect()
    assert np.array_equal(driver.to_host(images), before)
