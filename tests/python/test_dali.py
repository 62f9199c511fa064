"""ImageSource in pipelines of a real DALI, on the CPU."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from conftest import need, paths
from foreload.dali import ImageSource
from PIL import Image
from waiting import until

with need("nvidia.dali", required_by="DALI"):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.pipeline import Pipeline

SETTINGS = {"batch_size": 16, "image_size": 32, "seed": 3, "last_batch": "partial", "threads": 2}
SIZES = [16, 16, 16, 12]
"""The sizes of the batches of 60 samples."""
CPU = {"batch_size": 16, "num_threads": 2, "device_id": None}


@pipeline_def(**CPU)
def finished(source: ImageSource) -> tuple[Any, ...]:
    """A pipeline in which Foreload does everything."""
    return source.data_nodes()


@pipeline_def(**CPU)
def encoded(source: ImageSource) -> tuple[Any, ...]:
    """A pipeline in which Foreload reads, and DALI decodes and augments."""
    files, labels = source.data_nodes()
    images = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0], seed=5)
    images = fn.resize(images, size=[32, 32], antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(probability=0.5, seed=6),
        mean=[123.7, 116.3, 103.5],
        std=[58.4, 57.1, 57.4],
        output_layout="CHW",
    )
    return images, labels, files


PIPELINES = [pytest.param(finished, True, id="decoded"), pytest.param(encoded, False, id="encoded")]


def epoch(pipeline: Pipeline) -> Iterator[list[Any]]:
    """Yield batches until the end, which must stay the end; then reset the pipeline for the next epoch."""
    while True:
        try:
            outputs = pipeline.run()
        except StopIteration:
            break
        yield list(outputs)
    for _ in range(3):
        with pytest.raises(StopIteration):
            pipeline.run()
    pipeline.reset()


def dense(output: Any) -> np.ndarray:
    return np.array(output.as_tensor())


def digest(outputs: list[Any]) -> str:
    """Return the SHA-256 of everything in a batch."""
    sha = hashlib.sha256()
    for output in outputs:
        for sample in range(len(output)):
            sha.update(np.ascontiguousarray(np.array(output[sample])).tobytes())
    return sha.hexdigest()


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_finished_images(dataset: Path) -> None:
    pipeline = finished(ImageSource(dataset, **SETTINGS))
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    for number in range(2):
        seen = []
        for batch, (images, labels) in zip(loader.batches(number), epoch(pipeline), strict=True):
            assert images.layout() == "CHW"
            assert labels.dtype == types.INT64
            assert np.array_equal(dense(images), np.from_dlpack(batch.images))
            ids = np.from_dlpack(batch.sample_ids)
            assert dense(labels).tolist() == (ids // 20).tolist()
            assert len(labels) == SIZES[batch.step]
            seen += ids.tolist()
        assert sorted(seen) == list(range(60))


def test_encoded_files(dataset: Path) -> None:
    samples = {sha(path.read_bytes()): sample for sample, path in enumerate(paths(dataset))}
    pipeline = encoded(ImageSource(dataset, decoded=False, **SETTINGS))
    orders = []
    for _ in range(2):
        seen, sizes = [], []
        for images, labels, files in epoch(pipeline):
            ids = [samples[sha(np.array(files[i]).tobytes())] for i in range(len(files))]
            assert dense(labels).tolist() == [sample // 20 for sample in ids]
            assert dense(images).shape == (len(ids), 3, 32, 32)
            assert 0.1 < float(dense(images).std()) < 10
            seen += ids
            sizes.append(len(ids))
        assert sizes == SIZES
        assert sorted(seen) == list(range(60))
        orders.append(seen)
    assert orders[0] != orders[1]


def test_dali_decodes_what_it_is_given(dataset: Path) -> None:
    @pipeline_def(**CPU)
    def whole(source: ImageSource) -> tuple[Any, ...]:
        files, labels = source.data_nodes()
        return fn.decoders.image(files, device="cpu"), labels

    settings = {"batch_size": 16, "decoded": False, "train": False}
    for (images, labels), first in zip(
        epoch(whole(ImageSource(dataset, **settings))), (0, 16, 32, 48), strict=True
    ):
        for i in range(len(images)):
            expected = np.asarray(Image.open(paths(dataset)[first + i]), dtype=np.int16)
            # The two JPEG decoders differ a little.
            assert np.abs(np.array(images[i]) - expected).mean() < 1.5
            assert np.array(labels[i]).shape == ()


def test_by_hand(dataset: Path) -> None:
    """A pipeline that does by hand what `data_nodes` does."""

    @pipeline_def(**CPU)
    def by_hand(source: ImageSource) -> tuple[Any, ...]:
        images, labels = fn.external_source(
            source=source,
            num_outputs=2,
            device="cpu",
            batch=True,
            batch_info=True,
            no_copy=True,
            dtype=[types.FLOAT, types.INT64],
            ndim=[3, 0],
            layout=["CHW", ""],
        )
        return images, labels

    one, two = by_hand(ImageSource(dataset, **SETTINGS)), finished(ImageSource(dataset, **SETTINGS))
    for _ in range(2):
        assert [digest(outputs) for outputs in epoch(one)] == [digest(outputs) for outputs in epoch(two)]


@pytest.mark.parametrize(("dtype", "known"), [("float16", types.FLOAT16), ("uint8", types.UINT8)])
def test_types_formats_and_the_mask(dataset: Path, dtype: str, known: Any) -> None:
    settings = {**SETTINGS, "dtype": dtype, "memory_format": "nhwc", "last_batch": "pad"}
    masks = []
    for images, _, mask in epoch(finished(ImageSource(dataset, with_mask=True, **settings))):
        assert images.layout() == "HWC"
        assert images.dtype == known
        assert dense(images).shape == (16, 32, 32, 3)
        masks += dense(mask).tolist()
    assert masks == [1] * 60 + [0] * 4


@pytest.mark.parametrize("step", [0, 1, 3, 4])
@pytest.mark.parametrize(("make", "decoded"), PIPELINES)
def test_checkpoints(dataset: Path, make: Callable, decoded: bool, step: int) -> None:
    def pipeline(**more: Any) -> Pipeline:
        return make(ImageSource(dataset, decoded=decoded, **SETTINGS), enable_checkpointing=True, **more)

    first = pipeline()
    list(epoch(first))
    for _ in range(step):
        first.run()
    checkpoint = first.checkpoint()
    expected = [digest(outputs) for outputs in epoch(first)] + [digest(outputs) for outputs in epoch(first)]
    assert len(set(expected)) == 4 - step + 4

    second = pipeline(checkpoint=checkpoint)
    restored = [digest(outputs) for outputs in epoch(second)] + [digest(outputs) for outputs in epoch(second)]
    assert restored == expected


@pytest.mark.parametrize("step", [0, 1, 3, 4])
@pytest.mark.parametrize(("make", "decoded"), PIPELINES)
def test_states(dataset: Path, make: Callable, decoded: bool, step: int) -> None:
    """DALI's own checkpoints are not used, so only the outputs of the source are compared."""
    given = slice(0, 2) if decoded else slice(1, 3)
    source = ImageSource(dataset, decoded=decoded, **SETTINGS)
    first = make(source)
    list(epoch(first))
    for _ in range(step):
        first.run()
    state = source.state_dict(epoch=1, at_step=step)
    expected = [digest(outputs[given]) for outputs in epoch(first)]
    expected += [digest(outputs[given]) for outputs in epoch(first)]

    source = ImageSource(dataset, decoded=decoded, **SETTINGS)
    source.load_state_dict(state)
    assert source.epoch == (2 if step == 4 else 1)
    second = make(source)
    restored = [digest(outputs[given]) for outputs in epoch(second)]
    if step < 4:
        restored += [digest(outputs[given]) for outputs in epoch(second)]
    assert restored == expected


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(("make", "decoded"), PIPELINES)
def test_any_depth_of_the_queue(dataset: Path, make: Callable, decoded: bool, depth: int) -> None:
    """Outputs do not change while DALI reads ahead without a copy."""
    settings = {**SETTINGS, "batch_size": 4}
    source = ImageSource(dataset, decoded=decoded, prefetch_queue_depth=depth, **settings)
    loader = foreload.ImageLoader(dataset, **settings)
    pipeline = make(source, prefetch_queue_depth=depth)
    files = [path.read_bytes() for path in paths(dataset)]
    for number in range(3):
        for batch, outputs in zip(loader.batches(number), epoch(pipeline), strict=True):
            if decoded:
                assert np.array_equal(dense(outputs[0]), np.from_dlpack(batch.images))
            else:
                given = [np.array(outputs[2][i]).tobytes() for i in range(len(outputs[2]))]
                assert given == [files[sample] for sample in np.from_dlpack(batch.sample_ids)]


def test_an_iterator_of_dali(dataset: Path) -> None:
    """The loop of docs/migrating.md."""
    torch = pytest.importorskip("torch", reason="torch is not installed; make test finds one")
    if not hasattr(torch.device, "__enter__"):
        pytest.skip(f"DALI's iterator needs torch 2.0 or newer, this is {torch.__version__}")
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipeline = finished(ImageSource(dataset, **SETTINGS))
    batches = DALIGenericIterator(pipeline, ["images", "labels"], auto_reset=True)
    loader = foreload.ImageLoader(dataset, **SETTINGS)
    for number in range(3):
        for expected, (batch,) in zip(loader.batches(number), batches, strict=True):
            assert np.array_equal(
                np.array(batch["images"].tolist(), np.float32), np.from_dlpack(expected.images)
            )
            assert batch["labels"].tolist() == np.from_dlpack(expected.labels).tolist()


def test_one_source_for_two_pipelines(dataset: Path) -> None:
    source = ImageSource(dataset, **SETTINGS)
    one, two = finished(source), finished(source)
    for _ in range(2):
        for left, right in zip(epoch(one), epoch(two), strict=True):
            assert digest(left) == digest(right)


def test_a_bad_sample_is_named_and_the_pipeline_ends(own_dataset: Path) -> None:
    paths(own_dataset)[13].write_bytes(b"no image")
    pipeline = finished(ImageSource(own_dataset, rebuild_index=True, **SETTINGS))
    with pytest.raises(Exception, match="sample 13"):
        list(epoch(pipeline))


def test_a_pipeline_that_does_not_fit_is_refused(dataset: Path) -> None:
    with pytest.raises(foreload.ConfigError, match="prefetch_queue_depth: is 2, but the pipeline's is 3"):
        finished(ImageSource(dataset, **SETTINGS), prefetch_queue_depth=3)
    deep = {"prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 2}, "exec_dynamic": False}
    with pytest.raises(foreload.ConfigError, match="prefetch_queue_depth: is 4, but the pipeline's is 6"):
        finished(ImageSource(dataset, prefetch_queue_depth=4, **SETTINGS), **deep)
    with pytest.raises(foreload.ConfigError, match="batch_size: is 16, but the pipeline's is 8"):
        finished(ImageSource(dataset, **SETTINGS), batch_size=8)

    @pipeline_def(**CPU)
    def on_the_gpu(source: ImageSource) -> tuple[Any, ...]:
        return source.data_nodes(device="gpu")

    with pytest.raises(foreload.ConfigError, match="device: is gpu"):
        on_the_gpu(ImageSource(dataset, decoded=False, **SETTINGS))


def test_worker_processes_are_refused(dataset: Path) -> None:
    @pipeline_def(**CPU, py_num_workers=1, py_start_method="spawn")
    def parallel(source: ImageSource) -> tuple[Any, ...]:
        return tuple(
            fn.external_source(source=source, num_outputs=2, batch=True, batch_info=True, parallel=True)
        )

    pipeline = parallel(ImageSource(dataset, **SETTINGS))
    with pytest.raises(foreload.UnavailableError, match="use parallel=False"):
        pipeline.build()


def test_conditional_pipelines(dataset: Path) -> None:
    @pipeline_def(**CPU, enable_conditionals=True)
    def conditional(source: ImageSource) -> tuple[Any, ...]:
        images, labels = source.data_nodes()
        if labels == 0:
            images = images * np.float32(0)
        return images, labels

    for images, labels in epoch(conditional(ImageSource(dataset, **SETTINGS))):
        for i in range(len(labels)):
            assert (np.array(images[i]) == 0).all() == (np.array(labels[i]) == 0)


def ours() -> list[str]:
    """Return the names of the loaders' threads."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name.startswith("foreload-")]


@pytest.mark.parametrize(("make", "decoded"), PIPELINES)
def test_threads_end_with_the_pipeline(dataset: Path, make: Callable, decoded: bool) -> None:
    gc.collect()
    until("threads end", ours, lambda left: not left)
    pipeline = make(ImageSource(dataset, decoded=decoded, **SETTINGS))
    outputs = pipeline.run()
    assert ours()
    del pipeline, outputs
    gc.collect()
    # The thread that answers `foreload top` is allowed to outlive the loader.
    assert set(ours()) <= {"foreload-top"}
    until("threads end", ours, lambda left: not left)


@pipeline_def(batch_size=8, num_threads=1, device_id=None)
def segmented(source: ImageSource) -> tuple[Any, ...]:
    """DALI gets fields unchanged, and knows the layout of a mask."""
    return source.data_nodes()


def test_dali_takes_fields(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 24, 2)
    settings = {"batch_size": 8, "seed": 3, "image_size": 24, "fields": ["jpg", "seg.png", "cls"]}
    pipeline = segmented(ImageSource(root, **settings))
    pipeline.build()
    for outputs, batch in zip(epoch(pipeline), foreload.ImageLoader(root, **settings), strict=True):
        for found, name in zip(outputs, settings["fields"], strict=True):
            np.testing.assert_array_equal(dense(found), np.from_dlpack(batch[name]))
        assert outputs[1].layout() == "HW"
