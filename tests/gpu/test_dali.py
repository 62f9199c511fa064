"""ImageSource in pipelines of a real DALI on a GPU: device memory is passed on, DALI decodes files there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import driver
import foreload
import numpy as np
import pytest
from foreload.dali import ImageSource
from nvidia.dali import fn, pipeline_def, types

pytestmark = [
    pytest.mark.usefixtures("gpu"),
    pytest.mark.skipif(
        os.environ.get("FORELOAD_REQUIRE_GPU") == "stand-in", reason="DALI needs a real CUDA runtime"
    ),
]

SETTINGS = {"batch_size": 16, "image_size": 32, "seed": 3, "last_batch": "partial"}
GPU = {"batch_size": 16, "num_threads": 2, "device_id": 0}


@pipeline_def(**GPU)
def finished(source: ImageSource) -> tuple[Any, ...]:
    """A pipeline in which Foreload does everything on the GPU."""
    return source.data_nodes()


@pipeline_def(**GPU)
def by_hand(source: ImageSource) -> tuple[Any, ...]:
    """The same pipeline without `data_nodes`."""
    images, labels = fn.external_source(
        source=source,
        num_outputs=2,
        device="gpu",
        batch=True,
        batch_info=True,
        no_copy=True,
        dtype=[types.FLOAT, types.INT64],
        ndim=[3, 0],
        layout=["CHW", ""],
    )
    return images, labels


@pipeline_def(**GPU)
def encoded(source: ImageSource) -> tuple[Any, ...]:
    """A pipeline in which Foreload reads, and DALI decodes and augments on the GPU."""
    files, labels = source.data_nodes()
    images = fn.decoders.image_random_crop(files, device="mixed", random_area=[0.08, 1.0], seed=5)
    images = fn.resize(images, size=[32, 32], antialias=True)
    images = fn.crop_mirror_normalize(images, mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4])
    return images, labels, files


def epoch(pipeline: Any) -> Iterator[list[np.ndarray]]:
    """Yield the batches in host memory until the end of the epoch, then reset the pipeline for the next epoch."""
    while True:
        try:
            outputs = pipeline.run()
        except StopIteration:
            break
        on_host = [output.as_cpu() if hasattr(output, "as_cpu") else output for output in outputs]
        yield [[np.array(output[i]) for i in range(len(output))] for output in on_host]
    with pytest.raises(StopIteration):
        pipeline.run()
    pipeline.reset()


def expected(loader: foreload.ImageLoader, number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images and labels of an epoch, read through the driver. The pixels are the same each time, so that a batch
    can be compared with another loader's.
    """
    for batch in loader.batches(number):
        yield driver.to_host(batch.images), driver.to_host(batch.labels)


@pytest.mark.parametrize("make", [finished, by_hand])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_images_on_the_gpu(dataset: Path, backend: Callable[[str], None], make: Callable, depth: int) -> None:
    backend(
        "cpu"
    )  # The pixels are the same each time, so that a batch can be compared with another loader's.
    source = ImageSource(dataset, device="cuda:0", prefetch_queue_depth=depth, **SETTINGS)
    loader = foreload.ImageLoader(dataset, device="cuda:0", **SETTINGS)
    pipeline = make(source, prefetch_queue_depth=depth)
    for number in range(3):
        count = 0
        for (images, labels), (wanted, numbers) in zip(
            epoch(pipeline), expected(loader, number), strict=True
        ):
            assert np.array_equal(np.stack(images), wanted)
            assert [int(label) for label in labels] == numbers.tolist()
            count += len(labels)
        assert count == 60


def test_images_of_the_cpu_go_to_the_gpu(dataset: Path) -> None:
    @pipeline_def(**GPU)
    def copied(source: ImageSource) -> tuple[Any, ...]:
        return source.data_nodes(device="gpu")

    source = ImageSource(dataset, device="cpu", with_mask=True, **SETTINGS)
    loader = foreload.ImageLoader(dataset, device="cpu", **SETTINGS)
    for (images, labels, mask), (wanted, numbers) in zip(
        epoch(copied(source)), expected(loader, 0), strict=True
    ):
        assert np.array_equal(np.stack(images), wanted)
        assert [int(label) for label in labels] == numbers.tolist()
        assert all(mask)


def test_the_mask_on_the_gpu(dataset: Path) -> None:
    settings = {**SETTINGS, "last_batch": "pad"}
    source = ImageSource(dataset, device="cuda:0", with_mask=True, **settings)
    masks = [int(valid) for _, _, mask in epoch(finished(source)) for valid in mask]
    assert masks == [1] * 60 + [0] * 4


def test_files_for_the_gpu(dataset: Path) -> None:
    paths = sorted(path for path in dataset.rglob("*") if path.is_file())
    samples = {hashlib.sha256(path.read_bytes()).digest(): i for i, path in enumerate(paths)}
    pipeline = encoded(ImageSource(dataset, decoded=False, **SETTINGS))
    for _ in range(2):
        seen = []
        for images, labels, files in epoch(pipeline):
            ids = [samples[hashlib.sha256(file.tobytes()).digest()] for file in files]
            assert [int(label) for label in labels] == [sample // 20 for sample in ids]
            assert np.stack(images).shape == (len(ids), 3, 32, 32)
            seen += ids
        assert sorted(seen) == list(range(60))


@pytest.mark.parametrize("decoded", [True, False])
def test_checkpoints(dataset: Path, backend: Callable[[str], None], decoded: bool) -> None:
    backend("cpu")

    def pipeline(**more: Any) -> Any:
        place = {"device": "cuda:0"} if decoded else {}
        source = ImageSource(dataset, decoded=decoded, **place, **SETTINGS)
        return (finished if decoded else encoded)(source, enable_checkpointing=True, **more)

    first = pipeline()
    list(epoch(first))
    first.run()
    checkpoint = first.checkpoint()
    for left, right in zip(epoch(first), epoch(pipeline(checkpoint=checkpoint)), strict=True):
        for one, two in zip(left, right, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
