"""Batches of several fields equal the values that NumPy, Pillow and json read from the same members."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields
from numpy import from_dlpack as array
from PIL import Image
from world import tar_of

FIELDS = ["jpg", "seg.png", "txt", "json", "cls", "npy"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make(tmp_path_factory.mktemp("fields"))


def seen_mask(values: np.ndarray, view: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Return a mask through a view without padding, as torch's `nearest` computes it: in single precision."""
    height, width = size

    def places(start: int, length: int, full: int, window: int, count: int) -> np.ndarray:
        scale = np.float32(length) / np.float32(full)
        places = np.floor((np.arange(count) + window).astype(np.float32) * scale).astype(int)
        return start + np.minimum(places, length - 1)

    rows = places(view["y"], view["height"], view["resized_height"], view["top"], height)
    columns = places(view["x"], view["width"], view["resized_width"], view["left"], width)
    seen = values[rows][:, columns]
    return seen[:, ::-1] if view["flip"] else seen


def check(loader: foreload.ImageLoader, batch: foreload.Batch, epoch: int, size: tuple[int, int]) -> set[int]:
    """Check that every field of a batch belongs to the samples of its ids; return the ids."""
    ids = [int(number) for number in array(batch.sample_ids)]
    members = [shards.sample(number) for number in ids]
    assert batch["txt"] == [of["txt"].decode() for of in members]
    assert batch["json"] == [json.loads(of["json"]) for of in members]
    assert array(batch["cls"]).tolist() == [int(of["cls"]) for of in members]
    assert array(batch["cls"]).tolist() == array(batch.labels).tolist()
    arrays = batch["npy"]
    if isinstance(arrays, tuple):
        values, offsets = map(array, arrays)
        arrays = [values[start:end] for start, end in itertools.pairwise(offsets)]
    for found, of in zip(arrays, members, strict=True):
        np.testing.assert_array_equal(found, np.load(io.BytesIO(of["npy"])))
    for found, of, number in zip(array(batch["seg.png"]), members, ids, strict=True):
        values = np.asarray(Image.open(io.BytesIO(of["seg.png"])))
        np.testing.assert_array_equal(found, seen_mask(values, loader.view(number, epoch), size))
    assert array(batch["jpg"]).shape == (len(ids), 3, *size)
    return set(ids)


def test_all_fields_are_of_their_sample(root: Path) -> None:
    loader = foreload.ImageLoader(
        root, batch_size=7, seed=3, fields=FIELDS, image_size=(40, 32), last_batch="partial"
    )
    assert list(loader.fields.items()) == [
        ("jpg", "image"),
        ("seg.png", "mask"),
        ("txt", "text"),
        ("json", "json"),
        ("cls", "integer"),
        ("npy", "array"),
    ]
    for epoch in range(2):
        seen: set[int] = set()
        for batch in loader:
            assert list(dict(batch)) == batch.keys() == FIELDS
            assert "txt" in batch
            assert "png" not in batch
            seen |= check(loader, batch, epoch, (40, 32))
        assert seen == set(range(48))


def test_images_are_what_they_are_without_other_fields(root: Path) -> None:
    alone = foreload.ImageLoader(root, batch_size=8, seed=3, image_size=32)
    beside = foreload.ImageLoader(root, batch_size=8, seed=3, image_size=32, fields=["txt", "image", "label"])
    assert alone.fingerprint == beside.fingerprint
    assert alone.fields == {"image": "image", "label": "integer"}
    for one, other in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(array(one["image"]), array(other["image"]))
        np.testing.assert_array_equal(array(one.images), array(other.images))
        np.testing.assert_array_equal(array(one["label"]), array(other["label"]))


def test_fields_stay_together_on_ranks_after_resume_and_from_a_cache(root: Path, tmp_path: Path) -> None:
    def loader(rank: int, world_size: int, **more: Any) -> foreload.ImageLoader:
        cache = foreload.Directory(tmp_path / "cache", "100MB")
        ranks = {"rank": rank, "world_size": world_size}
        batch_size = 8 // world_size
        return foreload.ImageLoader(
            root, batch_size=batch_size, seed=5, fields=FIELDS, image_size=24, cache=cache, **ranks, **more
        )

    both = [loader(rank, 2) for rank in range(2)]
    seen: list[int] = []
    for batches in zip(*both, strict=True):
        for own, batch in zip(both, batches, strict=True):
            seen += check(own, batch, 0, (24, 24))
        if len(seen) == 24:
            break
    resumed = loader(0, 1)
    resumed.load_state_dict(both[0].state_dict())
    for batch in resumed:
        seen += check(resumed, batch, 0, (24, 24))
    assert sorted(seen) == list(range(48))
    again = loader(0, 1)
    batches = iter(again)
    for batch in batches:
        check(again, batch, 0, (24, 24))
    assert batches.stats()["cache"]["tiers"]["nvme"]["hits"] > 0


def test_members_far_apart_are_read_all_the_same(tmp_path: Path) -> None:
    """An archive that was written type by type gets one warning, which says what that costs."""
    members = []
    for key in FIELDS:
        members += [(f"{number:06}.{key}", shards.sample(number)[key]) for number in range(12)]
        members.append((f"000000.after-{key}", bytes(200_000)))
    (tmp_path / "0.tar").write_bytes(tar_of(members))
    loader = foreload.ImageLoader(tmp_path, batch_size=4, fields=FIELDS, image_size=24)
    with pytest.warns(foreload.Warning, match="not adjacent.*next to each other") as told:
        seen = [number for batch in loader for number in check(loader, batch, 0, (24, 24))]
    assert sorted(seen) == list(range(12))
    assert len(told) == 1


def without(number: int, key: str) -> shards.Members:
    members = shards.sample(number)
    return {k: data for k, data in members.items() if k != key or number % 2}


@pytest.mark.parametrize("key", ["txt", "json", "npy", "seg.png"])
def test_an_absent_field_fails_its_sample_or_is_marked(tmp_path: Path, key: str) -> None:
    shards.make(tmp_path, 12, 1, lambda number: without(number, key))
    loader = foreload.ImageLoader(tmp_path, batch_size=4, fields=["jpg", key], image_size=24)
    with pytest.raises(foreload.SampleError, match=f'field "{key}".*optional=True'):
        list(loader)
    kinds = {"txt": fields.Text, "json": fields.Json, "npy": fields.Array, "seg.png": fields.Mask}
    loader = foreload.ImageLoader(
        tmp_path, batch_size=12, fields=["jpg", kinds[key](key, optional=True)], image_size=24
    )
    for batch in loader:
        ids = array(batch.sample_ids).tolist()
        there = [bool(number % 2) for number in ids]
        assert array(batch.present(key)).tolist() == there
        if key == "seg.png":
            assert all(here or not mask.any() for here, mask in zip(there, array(batch[key]), strict=True))
        elif key == "npy":
            assert [rows > 0 for rows in np.diff(array(batch[key][1]))] == there
        else:
            assert [found is not None for found in batch[key]] == there
    # Another sample replaces a sample that lacks a field, with all its fields.
    loader = foreload.ImageLoader(
        tmp_path, batch_size=12, fields=["jpg", key, "cls"], image_size=24, on_error="skip"
    )
    with pytest.warns(foreload.Warning):
        batches = list(loader)
    for batch in batches:
        ids = array(batch.sample_ids).tolist()
        assert all(number % 2 for number in ids)
        assert array(batch["cls"]).tolist() == [number % 5 for number in ids]
    loader = foreload.ImageLoader(
        tmp_path, batch_size=12, fields=["jpg", key, "cls"], image_size=24, on_error="zero"
    )
    with pytest.warns(foreload.Warning):
        batches = list(loader)
    for batch in batches:
        ids = array(batch.sample_ids).tolist()
        assert array(batch.mask).tolist() == [bool(number % 2) for number in ids]
        assert array(batch["cls"]).tolist() == [number % 5 if number % 2 else 0 for number in ids]


def test_masks_keep_their_values(tmp_path: Path) -> None:
    values = {number: np.full((30, 40), 300 * number, np.uint16) for number in range(4)}
    rng = np.random.default_rng(0)

    def made(number: int) -> dict[str, bytes]:
        return {"jpg": shards.jpeg(rng, 40, 30), "mask.png": shards.mask(values[number], "I;16")}

    shards.make(tmp_path / "deep", 4, 1, made)
    small = foreload.ImageLoader(tmp_path / "deep", batch_size=4, fields=["jpg", "mask.png"], image_size=8)
    with pytest.raises(foreload.SampleError, match=r'field "mask.png".*does not fit uint8.*dtype="int32"'):
        list(small)
    for dtype in ("int32", "int64"):
        asked = ["jpg", fields.Mask("mask.png", dtype=dtype)]
        for batch in foreload.ImageLoader(tmp_path / "deep", batch_size=4, fields=asked, image_size=8):
            found = array(batch["mask.png"])
            assert found.dtype == dtype
            assert [set(of.ravel().tolist()) for of in found] == [
                {300 * n} for n in array(batch.sample_ids).tolist()
            ]
    other = lambda number: {"jpg": shards.jpeg(rng, 40, 31), "mask.png": shards.mask(values[number] % 7)}  # noqa: E731
    shards.make(tmp_path / "other", 4, 1, other)
    with pytest.raises(foreload.SampleError, match=r"is 40.30 pixels, but its image is 40.31"):
        list(foreload.ImageLoader(tmp_path / "other", batch_size=4, fields=["jpg", "mask.png"], image_size=8))
    with pytest.raises(foreload.ConfigError, match=r'has "mask.png", but no image'):
        foreload.ImageLoader(tmp_path / "other", fields=["mask.png"])


def test_bytes_that_are_not_what_they_should_be_are_named(tmp_path: Path) -> None:
    wrong = {"txt": (b"\xff\xfe", "not UTF-8"), "json": (b"{", "not JSON"), "npy": (b"PK", "not a .npy file")}
    for key, (data, message) in wrong.items():
        shards.make(
            tmp_path / key, 4, 1, lambda number, key=key, data=data: {**shards.sample(number), key: data}
        )
        if key == "json":
            # The index reads it for a label, unless there is a .cls member.
            continue
        loader = foreload.ImageLoader(tmp_path / key, batch_size=4, fields=["jpg", key], image_size=8)
        with pytest.raises(foreload.SampleError, match=f'field "{key}".*{message}'):
            list(loader)
        asked = ["jpg", fields.Bytes(key)]
        for batch in foreload.ImageLoader(tmp_path / key, batch_size=4, fields=asked, image_size=8):
            assert batch[key] == [data] * 4


def test_shards_without_images(tmp_path: Path) -> None:
    made = lambda number: {"npy": shards.npy(np.full(3, number)), "txt": f"{number}".encode()}  # noqa: E731
    shards.make(tmp_path, 8, 2, made)
    with pytest.raises(foreload.DatasetError, match=r"no .jpg.*fields= names other members"):
        foreload.ImageLoader(tmp_path)
    asked = ["txt", fields.Array("npy", ragged=True)]
    loader = foreload.ImageLoader(tmp_path, batch_size=4, fields=asked, shuffle=False)
    for batch in loader:
        values, offsets = map(array, batch["npy"])
        assert values.reshape(4, 3)[:, 0].tolist() == [int(text) for text in batch["txt"]]
        assert offsets.tolist() == [0, 3, 6, 9, 12]
        with pytest.raises(AttributeError, match="the batch has no image"):
            _ = batch.images


def test_a_batch_is_a_mapping_of_its_fields(root: Path) -> None:
    batch = next(iter(foreload.ImageLoader(root, batch_size=4, fields=["txt", "jpg"], image_size=8)))
    assert len(batch) == 4
    assert dict(batch).keys() == {"txt", "jpg"}
    with pytest.raises(KeyError, match="the batch has txt, jpg"):
        batch["json"]
    with pytest.raises(AttributeError, match="not optional"):
        batch.present("jpg")


def test_what_cannot_be_is_refused(root: Path, dataset: Path) -> None:
    for asked, message in [
        (["jpg", "caption"], 'has "caption", which no sample of .* has; there are "cls", "jpg"'),
        ([], "is empty, must be field names"),
        (["jpg", "jpg"], 'has "jpg" twice'),
        ([3], "has 3, which is neither a field's name nor an object of foreload.fields$"),
        ([fields.Mask], "which is neither a field's name nor an object of foreload.fields$"),
        (
            [fields.Mask("seg.png", dtype="float32"), "jpg"],
            'is "float32", must be one of uint8',
        ),
        ([fields.Text("txt", optional=3)], "optional=3, must be True or False$"),
    ]:
        with pytest.raises(foreload.ConfigError, match=f"^config: fields: .*{message}"):
            foreload.ImageLoader(root, fields=asked)
    with pytest.raises(
        foreload.ConfigError, match=r'has "txt", but samples of .* are single files.*tar shards'
    ):
        foreload.ImageLoader(dataset, fields=["image", "txt"])
    for batch in foreload.ImageLoader(dataset, batch_size=10, fields=["label", "image"], image_size=8):
        np.testing.assert_array_equal(array(batch["label"]), array(batch.labels))


def test_boxes_follow_their_image(tmp_path: Path) -> None:
    """Boxes are moved by the view and clipped to it, and their remaining share of the area is reported."""
    boxes = {
        number: np.array([[5, 5, 25, 20]] * (number % 3) + [[0, 0, 40, 30]], np.int64) for number in range(8)
    }
    rng = np.random.default_rng(0)
    made = lambda number: {"jpg": shards.jpeg(rng, 40, 30), "boxes.npy": shards.npy(boxes[number])}  # noqa: E731
    shards.make(tmp_path, 8, 1, made)
    asked = ["jpg", fields.Boxes("boxes.npy", shares=True)]
    loader = foreload.ImageLoader(tmp_path, batch_size=4, fields=asked, image_size=16, seed=2)
    assert loader.fields["boxes.npy"] == "boxes"
    for batch in loader:
        values, offsets = map(array, batch["boxes.npy"])
        for at, number in enumerate(array(batch.sample_ids).tolist()):
            view = loader.view(number, 0)
            found = values[offsets[at] : offsets[at + 1]]
            scale = np.array([16 / view["width"], 16 / view["height"]] * 2)
            moved = (boxes[number] - np.array([view["x"], view["y"]] * 2)) * scale
            seen = moved.clip(0, 16)
            area = lambda of: (of[:, 2] - of[:, 0]) * (of[:, 3] - of[:, 1])  # noqa: E731
            if view["flip"]:
                seen = np.stack([16 - seen[:, 2], seen[:, 1], 16 - seen[:, 0], seen[:, 3]], axis=1)
            np.testing.assert_allclose(found[:, :4], seen, atol=1e-4)
            np.testing.assert_allclose(found[:, 4], area(seen) / area(moved), atol=1e-5)
    wrong = lambda number: {"jpg": shards.jpeg(rng, 40, 30), "boxes.npy": shards.npy(np.zeros(4))}  # noqa: E731
    shards.make(tmp_path / "wrong", 4, 1, wrong)
    with pytest.raises(
        foreload.SampleError,
        match=r'field "boxes.npy": is an array of float64 with shape \[4\], must have shape',
    ):
        list(foreload.ImageLoader(tmp_path / "wrong", batch_size=4, fields=asked, image_size=16))
