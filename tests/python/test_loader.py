"""ImageLoader from Python: its batches, compared with PIL; its failures; its end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import foreload
import kills
import numpy as np
import pytest
from conftest import paths
from PIL import Image
from waiting import settled

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def reference(path: Path, view: dict, size: int) -> np.ndarray:
    """Return the view of an image as PIL computes it: uint8 [size, size, 3]."""
    with Image.open(path) as image:
        image = image.convert("RGB")
        x, y, width, height = view["x"], view["y"], view["width"], view["height"]
        crop = image.crop((x, y, x + width, y + height))
        resized = crop.resize((view["resized_width"], view["resized_height"]), Image.Resampling.BILINEAR)
    left, top = view["left"], view["top"]
    window = np.asarray(resized)[top : top + size, left : left + size]
    return window[:, ::-1] if view["flip"] else window


@pytest.mark.parametrize(("decode", "mean_limit"), [("exact", 0.25), ("fast", 1.0)])
@pytest.mark.parametrize("train", [True, False])
def test_pixels_are_those_of_pil(dataset: Path, decode: str, mean_limit: float, train: bool) -> None:
    loader = foreload.ImageLoader(
        dataset, batch_size=10, image_size=48, decode=decode, dtype="uint8", memory_format="nhwc", train=train
    )
    differences = []
    for batch in loader:
        images = np.from_dlpack(batch.images)
        assert images.dtype == np.uint8
        assert images.shape == (10, 48, 48, 3)
        for image, sample in zip(images, np.from_dlpack(batch.sample_ids), strict=True):
            expected = reference(paths(dataset)[sample], loader.view(int(sample)), 48)
            differences.append(np.abs(image.astype(int) - expected).mean())
    assert len(differences) == 60
    assert np.mean(differences) <= mean_limit


def test_float_batches_are_normalised(dataset: Path) -> None:
    settings = dict(batch_size=15, image_size=40, seed=3, decode="exact")
    levels = foreload.ImageLoader(dataset, dtype="uint8", **settings)
    for dtype, bound in [("float32", 1e-5), ("float16", 2e-3)]:
        normalised = foreload.ImageLoader(dataset, dtype=dtype, **settings)
        for raw, batch in zip(levels.batches(0), normalised, strict=True):
            images = np.from_dlpack(batch.images)
            assert images.dtype == dtype
            expected = (np.from_dlpack(raw.images).transpose(0, 2, 3, 1) / np.float32(255) - MEAN) / STD
            assert np.abs(images.transpose(0, 2, 3, 1).astype(np.float32) - expected).max() < bound


def test_what_was_left_open_can_be_asked_for(dataset: Path) -> None:
    training, evaluation = foreload.ImageLoader(dataset), foreload.ImageLoader(dataset, train=False)
    assert (training.batch_size, training.last_batch, training.memory_format) == (64, "drop", "nchw")
    assert evaluation.last_batch == "partial"
    chosen = foreload.ImageLoader(dataset, batch_size=3, last_batch="pad", memory_format="nhwc")
    assert (chosen.batch_size, chosen.last_batch, chosen.memory_format) == (3, "pad", "nhwc")


def test_labels_are_the_directories(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=7, image_size=16, last_batch="partial")
    assert loader.classes == ["class_0", "class_1", "class_2"]
    assert loader.samples == 60
    assert len(loader) == 9
    seen = []
    for batch in loader:
        labels, ids = np.from_dlpack(batch.labels), np.from_dlpack(batch.sample_ids)
        assert labels.dtype == ids.dtype == np.int64
        assert np.array_equal(labels, ids // 20)
        assert np.from_dlpack(batch.mask).all()
        seen.extend(ids.tolist())
    assert sorted(seen) == list(range(60))
    assert loader.locate(3)[0] == paths(dataset)[3]


def test_epochs_differ_and_repeat(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=20, image_size=16)
    again = foreload.ImageLoader(dataset, batch_size=20, image_size=16, threads=1, io="pread")

    def order(a: foreload.ImageLoader, epoch: int) -> list[int]:
        a.set_epoch(epoch)
        return [int(i) for batch in a for i in np.from_dlpack(batch.sample_ids)]

    assert order(loader, 0) == order(again, 0) == order(loader, 0)
    assert order(loader, 1) != order(loader, 0)
    in_order = foreload.ImageLoader(dataset, batch_size=20, image_size=16, train=False)
    assert order(in_order, 0) == list(range(60))


def test_a_kept_batch_stays_as_it_was(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    kept = []
    for batch in loader:
        images = np.from_dlpack(batch.images)
        kept.append((images, images.copy()))
    del loader, batch
    gc.collect()
    assert all(np.array_equal(images, copy) for images, copy in kept)


def test_the_same_memory_not_a_copy(dataset: Path) -> None:
    batch = next(iter(foreload.ImageLoader(dataset, batch_size=4, image_size=32)))
    one, two = np.from_dlpack(batch.images), np.from_dlpack(batch.images)
    assert one.ctypes.data == two.ctypes.data
    assert one.ctypes.data % 64 == 0
    copy = np.from_dlpack(batch.images, copy=True)
    assert copy.ctypes.data != one.ctypes.data
    assert np.array_equal(copy, one)


def test_the_threads_outlive_the_loader_while_it_is_iterated(dataset: Path) -> None:
    assert sum(len(batch) for batch in foreload.ImageLoader(dataset, batch_size=6, image_size=16)) == 60


def test_a_second_iteration_ends_the_first(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    first = iter(loader)
    next(first)
    settled("the first iteration reads nothing more", lambda: first.stats()["source_reads"], 0.3)
    assert sum(len(batch) for batch in loader) == 60
    with pytest.raises(foreload.UnavailableError, match="one epoch at a time"):
        next(first)


def test_a_dropped_iteration_stops(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    for _ in range(50):
        next(iter(loader))
    assert sum(len(batch) for batch in loader) == 60


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_on_error(own_dataset: Path) -> None:
    bad = paths(own_dataset)[33]
    bad.write_bytes(bad.read_bytes()[:300].ljust(bad.stat().st_size, b"\0"))
    with pytest.raises(foreload.SampleError, match=r"sample 33 .*033\.jpg") as raised:
        list(foreload.ImageLoader(own_dataset, batch_size=10, image_size=16))
    assert raised.value.sample_id == 33
    assert raised.value.path == bad
    assert isinstance(raised.value.__cause__, foreload.DecodeError)

    skipping = foreload.ImageLoader(own_dataset, batch_size=10, image_size=16, on_error="skip")
    ids = np.concatenate([np.from_dlpack(batch.sample_ids) for batch in skipping])
    assert len(ids) == 60
    assert 33 not in ids
    assert [failure["sample_id"] for failure in skipping.errors] == [33]
    with pytest.raises(foreload.TooManyErrorsError):
        list(foreload.ImageLoader(own_dataset, batch_size=10, image_size=16, on_error="zero", max_errors=0))

    # Each of 120 draws fails, which is more than the default allows; None means no limit.
    failing = {"indices": [33], "epoch_size": 120, "batch_size": 10, "image_size": 16, "on_error": "zero"}
    with pytest.raises(foreload.TooManyErrorsError, match="101 samples failed, max_errors is 100"):
        list(foreload.ImageLoader(own_dataset, **failing))
    unlimited = foreload.ImageLoader(own_dataset, **failing, max_errors=None)
    assert sum(len(batch) for batch in unlimited) == 120


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 0),
        ("image_size", 0),
        ("dtype", "float64"),
        ("decode", "slow"),
        ("io", "aio"),
        ("std", (1.0, 0.0, 1.0)),
        ("scale", (0.5, 0.1)),
        ("flip", 2.0),
        ("threads", 0),
        ("memory", "3 bananas"),
        ("memory", 1),
        ("device", "tpu"),
        ("last_batch", "keep"),
        ("batch_size", 61),
    ],
)
def test_bad_settings_are_named(dataset: Path, setting: str, value: object) -> None:
    settings = {"batch_size": 4, "image_size": 16, setting: value}
    with pytest.raises(foreload.ConfigError, match=f"config: {setting}: "):
        iter(foreload.ImageLoader(dataset, **settings))


def test_bad_places(tmp_path: Path) -> None:
    with pytest.raises(foreload.Error, match="nowhere"):
        foreload.ImageLoader(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(foreload.DatasetError, match="empty"):
        foreload.ImageLoader(tmp_path / "empty")
    with pytest.raises(foreload.Error, match="cuda"):
        foreload.ImageLoader(tmp_path, device="cuda")


def test_ranks(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [
        np.from_dlpack(b.sample_ids).tolist()
        for b in foreload.ImageLoader(dataset, batch_size=20, image_size=16)
    ]
    halves = []
    for rank in range(2):
        loader = foreload.ImageLoader(dataset, batch_size=10, image_size=16, rank=rank, world_size=2)
        assert len(loader) == 3
        halves.append([np.from_dlpack(b.sample_ids).tolist() for b in loader])
    assert [a + b for a, b in zip(*halves, strict=True)] == whole
    late = foreload.ImageLoader(dataset, batch_size=10, image_size=16)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [np.from_dlpack(b.sample_ids).tolist() for b in late] == halves[1]
    with pytest.raises(foreload.ConfigError, match="world_size"):
        iter(foreload.ImageLoader(dataset, rank=0))


def test_other_python_threads_run_while_one_waits(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=20, image_size=16)
    counted, done = 0, threading.Event()

    def iterate() -> None:
        for epoch in range(20):
            loader.set_epoch(epoch)
            for _ in loader:
                pass
        done.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    while not done.is_set():
        counted += 1
        time.sleep(0)
    thread.join()
    assert counted > 10


def test_a_forked_child_is_told(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=20, image_size=16)
    next(iter(loader))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            iter(loader)
        except foreload.UnavailableError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as told:
        assert "forked" in told.read()


INTERRUPTED = """
import itertools, signal, sys, foreload
# As in a terminal: tests that run in the background may have SIGINT ignored, which children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
loader = foreload.ImageLoader(sys.argv[1], batch_size=20, image_size=64)
for epoch in itertools.count():
    loader.set_epoch(epoch)
    for batch in loader:
        pass
    if epoch == 1:
        print("between epochs", flush=True)
"""


def test_ctrl_c_ends_it(dataset: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = kills.begin(sys.executable, "-c", INTERRUPTED, dataset, **pipes)
    assert process.stdout.readline() == b"between epochs\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0
