"""A user's first steps: batches used like NumPy arrays, evaluation, and messages that say what to write."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import transforms as T
from PIL import Image

FIXTURES = Path(__file__).parents[1] / "fixtures"
SMALL: dict[str, Any] = {"batch_size": 8, "image_size": 16, "device": "cpu"}


@pytest.mark.parametrize(
    ("samples", "ranks", "counted"),
    [(25, 3, [1, 0, 0]), (26, 3, [1, 1, 0]), (27, 3, [1, 1, 1]), (28, 3, [2, 1, 1]), (2, 4, [1, 1, 0, 0])],
)
@pytest.mark.parametrize("last_batch", [None, "partial"])
def test_no_rank_evaluates_an_empty_batch(
    dataset: Path, samples: int, ranks: int, counted: list[int], last_batch: str | None
) -> None:
    seen, last = [], []
    for rank in range(ranks):
        given = {"indices": range(samples), "last_batch": last_batch, "rank": rank, "world_size": ranks}
        loader = foreload.ImageLoader(dataset, train=False, **SMALL, **given)
        if counted[-1]:
            batches = list(loader)
        else:
            with pytest.warns(foreload.Warning, match=rf"{sum(counted)} samples? for {ranks} ranks") as said:
                batches = [*loader, *loader][: len(loader)]
            assert len(said) == 1
        for batch in batches:
            mask, ids = np.asarray(batch.mask), np.asarray(batch.sample_ids)
            assert len(batch) > 0
            assert not np.isnan(np.asarray(batch.labels).mean())
            # Padding repeats the images and labels of the epoch's first samples, as with last_batch="pad".
            assert np.array_equal(np.asarray(batch.labels), ids // 20)
            seen += ids[mask].tolist()
        assert len(batches) == len(loader)
        last.append(int(np.asarray(batches[-1].mask).sum()))
        assert np.asarray(batches[-1].sample_ids)[~np.asarray(batches[-1].mask)].tolist() == (
            [] if counted[rank] else [rank - sum(counted)]
        )
    assert (sorted(seen), last) == (list(range(samples)), counted)


def test_a_state_is_continued_by_other_ranks_whose_last_batch_is_padding(dataset: Path) -> None:
    def ranks(world_size: int) -> list[foreload.ImageLoader]:
        given = {**SMALL, "batch_size": 24 // world_size, "train": False, "indices": range(49)}
        return [
            foreload.ImageLoader(dataset, rank=r, world_size=world_size, **given) for r in range(world_size)
        ]

    first = ranks(1)[0]
    next(iter(first))
    seen = []
    for loader in ranks(3):
        loader.load_state_dict(first.state_dict())
        with pytest.warns(foreload.Warning, match="for 3 ranks"):
            batches = list(loader)
        seen += [
            id for batch in batches for id in np.asarray(batch.sample_ids)[np.asarray(batch.mask)].tolist()
        ]
    assert sorted(seen) == list(range(24, 49))


@pytest.mark.parametrize(
    ("split", "given", "shown"),
    [
        ("val", {}, "split='val', train=False, shuffle=False, last_batch='partial'"),
        ("val", {"train": True}, "split='val', train=True, shuffle=True, last_batch='drop'"),
        ("train", {}, "split='train', train=True, shuffle=True, last_batch='drop'"),
        (
            "train",
            {"train": False, "shuffle": "blocks"},
            "train=False, shuffle='blocks', last_batch='partial'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_a_split_says_what_it_is_for(split: str, given: dict[str, Any], shown: str) -> None:
    loader = foreload.ImageLoader(
        FIXTURES / "mds/splits/files", split=split, **{**SMALL, "batch_size": 1}, **given
    )
    assert shown in repr(loader)
    said = loader.view(0)
    centred = not said["flip"] and said == foreload.ImageLoader(
        FIXTURES / "mds/splits/files", split=split, train=False, **SMALL
    ).view(0)
    assert centred == ("train=False" in shown)


def test_batches_unpack_as_images_and_labels(dataset: Path, tmp_path: Path) -> None:
    loader = foreload.ImageLoader(dataset, **SMALL)
    for images, labels in loader:
        assert (np.asarray(images).shape, len(images)) == ((8, 3, 16, 16), 8)
        assert (np.asarray(labels).dtype, np.asarray(labels).shape) == (np.int64, (8,))
    batch = next(iter(loader))
    assert np.array_equal(np.asarray(batch["images"]), np.from_dlpack(batch["image"]))
    assert np.array_equal(np.asarray(batch["labels"]), np.from_dlpack(batch.labels))
    assert list(dict(batch)) == batch.keys() == ["image", "label"]
    mix = [T.MixUp(alpha=0.2)]
    root = shards.make(tmp_path, 8, 1)
    for made, write in [
        (
            foreload.ImageLoader(root, fields=["jpg", "txt"], **SMALL),
            r'batch\["jpg"\], batch\["txt"\], or loop',
        ),
        (foreload.ImageLoader(dataset, mix=mix, **SMALL), r"batch\.images and batch\.mixed"),
        (foreload.FileLoader(root, batch_size=1), r"batch\.files"),
        (foreload.ImageLoader(dataset, fields=["image"], **SMALL), r"batch\.images"),
    ]:
        with pytest.raises(TypeError, match=f"write {write}"):
            _images, _labels = next(iter(made))


def test_bfloat16_needs_a_library_that_has_it(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, rounded = (
        next(iter(foreload.ImageLoader(dataset, dtype=dtype, **SMALL))).images
        for dtype in ("float32", "bfloat16")
    )
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"torch\.from_dlpack.*ml_dtypes.*dtype="):
        np.asarray(rounded)
    # A replacement for the package, which need not be installed: the bits as integers.
    monkeypatch.setitem(sys.modules, "ml_dtypes", SimpleNamespace(bfloat16=np.uint16))
    values = (np.asarray(rounded).astype(np.uint32) << 16).view(np.float32)
    assert np.abs(values - np.asarray(exact)).max() < 0.02


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_arrays_of_tensors(dataset: Path, dtype: str) -> None:
    batch = next(iter(foreload.ImageLoader(dataset, dtype=dtype, **SMALL)))
    array = np.asarray(batch.images)
    assert np.array_equal(array, np.from_dlpack(batch.images))
    assert np.shares_memory(array, np.from_dlpack(batch.images))
    assert not np.shares_memory(np.array(batch.images), array)
    assert np.array_equal(np.asarray(batch.images, dtype=np.float64), array.astype(np.float64))
    assert batch.images.tobytes() == bytes(batch.images) == array.tobytes()
    assert np.asarray(batch.mask).dtype == np.bool_
    kept = np.asarray(next(iter(foreload.ImageLoader(dataset, dtype=dtype, **SMALL))).images)
    assert np.array_equal(kept, array)


def test_files_give_their_bytes(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, decoded=False, shuffle=False, **SMALL)
    for files, labels in loader:
        assert len(files) == len(labels) == 8
        break
    path = loader.locate(0)[0]
    assert bytes(files[0]) == files[0].tobytes() == path.read_bytes()
    with Image.open(io.BytesIO(bytes(files[0]))) as ours, Image.open(path) as theirs:
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("Compose", "pass a list"),
        ("ToTensor", "not needed"),
        ("RandomSizedCrop", "use RandomResizedCrop"),
        ("ElasticTransform", r"torchvision\.transforms\.v2\.ElasticTransform to the batches"),
        ("RandomHorizontalFilp", "did you mean RandomHorizontalFlip"),
        ("randomcrop", "did you mean RandomCrop"),
        ("xyz", "there are AugMix, AutoAugment"),
    ],
)
def test_transforms_that_are_not_here_have_an_answer(name: str, answer: str) -> None:
    with pytest.raises(AttributeError, match=f"foreload.transforms has no {name}: .*{answer}"):
        getattr(T, name)
    assert not hasattr(T, "__wrapped__")


def test_messages_say_what_to_write(dataset: Path) -> None:
    for step in (lambda image: image, len):
        with pytest.raises(foreload.ConfigError, match="apply it to the batches"):
            foreload.ImageLoader(dataset, transforms=[T.RandomResizedCrop(16), step])
    sizes = {"image_size": 16384, "batch_size": 4096}
    with pytest.raises(foreload.ConfigError, match=r"image_size: is \(16384, 16384\), but .* GiB .*dtype="):
        foreload.ImageLoader(dataset, device="cpu", **sizes)
    with pytest.raises(
        foreload.ConfigError, match=r"batch_size: is 1000000000, but .* GiB .* lower image_size"
    ):
        foreload.ImageLoader(dataset, device="cpu", batch_size=1_000_000_000)


def test_a_failed_sample_is_named_by_its_key(tmp_path: Path) -> None:
    def sample(number: int) -> dict[str, bytes]:
        return {"jpg": b"no image" if number == 2 else shards.sample(number)["jpg"]}

    root = shards.make(tmp_path, 4, 1, sample)
    loader = foreload.ImageLoader(root, train=False, **SMALL)
    with pytest.raises(foreload.SampleError, match='sample 2, key "000002"') as raised:
        list(loader)
    assert raised.value.sample_id == 2
    assert raised.value.path == loader.locate(2)[0]
    assert raised.value.key == "000002"
