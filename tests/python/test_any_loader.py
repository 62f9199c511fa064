"""Loader: fields of any kind, under names of their own, without defaults for images."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from fixture_rows import KINDS, agrees, asked_for, rows_of
from foreload import fields
from foreload import transforms as T
from numpy import from_dlpack as array
from PIL import Image
from shared_consumer import digest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
COUNT = 24
ASKED = [
    fields.Array("npy", name="x"),
    fields.Bytes("npy", name="raw"),
    fields.Text("txt", name="caption"),
    fields.Integer("cls", name="y"),
    fields.Json("meta.json", name="about", optional=True),
]
SETTINGS: dict[str, Any] = {"batch_size": 4, "seed": 3, "device": "cpu", "fields": ASKED}


def made(number: int) -> shards.Members:
    """Return a sample without an image."""
    members = {
        "npy": shards.npy(np.arange(6, dtype=np.int16).reshape(2, 3) + number),
        "txt": f"n{number}".encode(),
        "cls": str(number % 5).encode(),
    }
    return members | ({"meta.json": b"[%d]" % number} if number % 3 else {})


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tar shards of samples without images."""
    return shards.make(tmp_path_factory.mktemp("arrays"), COUNT, 3, made)


def check(batch: foreload.Batch) -> list[int]:
    """Check all fields of a batch, and return the samples' numbers."""
    assert batch.keys() == [field.name for field in ASKED]
    numbers = array(batch.sample_ids).tolist()
    x = array(batch["x"])
    assert x.dtype == np.int16
    np.testing.assert_array_equal(x, [np.arange(6).reshape(2, 3) + number for number in numbers])
    assert batch["raw"] == [made(number)["npy"] for number in numbers]
    assert batch["caption"] == [f"n{number}" for number in numbers]
    assert array(batch["y"]).tolist() == [number % 5 for number in numbers]
    assert batch["about"] == [[number] if number % 3 else None for number in numbers]
    assert array(batch.present("about")).tolist() == [number % 3 > 0 for number in numbers]
    return numbers


def test_fields_have_names_of_their_own(arrays: Path) -> None:
    loader = foreload.Loader(arrays, **SETTINGS)
    epochs = [[check(batch) for batch in loader] for _ in range(2)]
    assert all(
        sorted(number for batch in epoch for number in batch) == list(range(COUNT)) for epoch in epochs
    )
    assert epochs[0] != epochs[1]
    assert loader.fields == {"x": "array", "raw": "bytes", "caption": "text", "y": "integer", "about": "json"}
    assert repr(loader).startswith("foreload.Loader(")
    assert "train=True, shuffle=True, last_batch='drop'" in repr(loader)
    # Neither the class of the loader nor the names of fields change the order.
    other = foreload.ImageLoader(arrays, **SETTINGS | {"fields": ["npy", "txt"]})
    assert [array(batch.sample_ids).tolist() for batch in other] == epochs[0]


def test_an_epoch_resumes_and_is_divided_among_ranks(arrays: Path) -> None:
    whole = [check(batch) for batch in foreload.Loader(arrays, **SETTINGS)]
    loader = foreload.Loader(arrays, **SETTINGS)
    batches = iter(loader)
    begun = [check(next(batches)) for _ in range(2)]
    resumed = foreload.Loader(arrays, **SETTINGS)
    resumed.load_state_dict(loader.state_dict())
    assert begun + [check(batch) for batch in resumed] == whole
    ranks = [
        [
            check(batch)
            for batch in foreload.Loader(arrays, **SETTINGS | {"batch_size": 2}, rank=rank, world_size=2)
        ]
        for rank in range(2)
    ]
    assert [one + other for one, other in zip(*ranks, strict=True)] == whole


def test_a_cache_gives_the_same(arrays: Path) -> None:
    loader = foreload.Loader(arrays, cache=foreload.Ram("4MB"), **SETTINGS)
    for _ in range(2):
        batches = iter(loader)
        assert sorted(number for batch in batches for number in check(batch)) == list(range(COUNT))
    assert batches.stats()["cache"]["tiers"]["ram"]["hits"] > 0


@pytest.mark.parametrize(
    "name",
    ["arrow/file", "manifest/jsonl", "mds/zstd", "parquet/bytes", "tfrecord/plain", "webdataset/shards"],
)
def test_columns_and_members_are_what_their_library_reads(name: str) -> None:
    expected = json.loads((FIXTURES / name / "expected.json").read_text(encoding="utf-8"))
    kinds = {key: kind for key, kind in expected["kinds"].items() if kind in KINDS}
    for reading in expected["readings"]:
        asked = [replace(field, name=f"my {field.source}") for field in asked_for(expected, reading, ())]
        loader = foreload.Loader(
            (FIXTURES / name / "files" / reading["path"]).resolve(),
            batch_size=3,
            last_batch="partial",
            split=reading["split"],
            fields=asked,
            device="cpu",
        )
        rows = list(rows_of(loader, {f"my {key}": kind for key, kind in kinds.items()}))
        assert sorted(number for number, _ in rows) == list(range(len(reading["samples"])))
        for number, row in rows:
            for key, kind in kinds.items():
                assert agrees(row[f"my {key}"], reading["samples"][number][key], kind), (number, key)


def test_images_come_as_they_are(tmp_path: Path, dataset: Path) -> None:
    root = shards.make(tmp_path, 8, 1)
    asked = [fields.Image("jpg", name="picture"), fields.Mask("seg.png", name="mask", follows="picture")]
    settings = {"batch_size": 4, "seed": 1, "device": "cpu", "fields": asked}
    whole = foreload.ImageLoader(root, transforms=[], **settings)
    for batch, same in zip(foreload.Loader(root, **settings), whole, strict=True):
        for at, number in enumerate(array(batch.sample_ids).tolist()):
            picture, mask = array(batch["picture"][at]), array(batch["mask"][at])
            size = Image.open(io.BytesIO(shards.sample(number)["jpg"])).size
            assert (picture.dtype, picture.shape) == (np.uint8, (3, *size[::-1]))
            np.testing.assert_array_equal(picture, array(same["picture"][at]))
            values = np.asarray(Image.open(io.BytesIO(shards.sample(number)["seg.png"])))
            np.testing.assert_array_equal(mask, values)
    steps = [T.RandomResizedCrop(24), T.ToDtype("float32", scale=True)]
    loaders = [foreload.Loader, foreload.ImageLoader]
    for batch, same in zip(
        *(of(root, transforms={"picture": steps}, **settings) for of in loaders), strict=True
    ):
        assert array(batch["picture"]).shape == (4, 3, 24, 24)
        np.testing.assert_array_equal(array(batch["picture"]), array(same["picture"]))
    # Images that are not transformed need not be of one size.
    pairs = shards.make(tmp_path / "pairs", 4, 1, shards.pair)
    (batch,) = foreload.Loader(pairs, batch_size=4, fields=["left.jpg", "small.jpg"], device="cpu")
    assert {array(image).shape for image in batch["small.jpg"]} == {(3, 30, 33)}
    assert len({array(image).shape for image in batch["left.jpg"]}) > 1
    # Without fields, there are image and label.
    loader = foreload.Loader(dataset, batch_size=10, device="cpu")
    for batch in loader:
        assert batch.keys() == ["image", "label"]
        labels = loader.targets[array(batch.sample_ids)].tolist()
        assert array(batch.labels).tolist() == labels
        assert all(array(image).dtype == np.uint8 for image in batch["image"])


def test_a_field_may_be_called_label(arrays: Path) -> None:
    asked = [fields.Integer("cls", name="label"), fields.Integer("label", name="class")]
    for batch in foreload.Loader(arrays, **SETTINGS | {"fields": asked}):
        numbers = array(batch.sample_ids) % 5
        assert array(batch.labels).tolist() == array(batch["class"]).tolist() == numbers.tolist()


def test_what_cannot_be_is_refused(arrays: Path, tmp_path: Path) -> None:
    root = shards.make(tmp_path / "images", 4, 1)
    table = tmp_path / "t.csv"
    table.write_text("sample_id,age\n" + "".join(f"{number},{number}\n" for number in range(4)))
    age = [fields.Float("age", name="a"), fields.Integer("age", name="b")]
    for settings, message in [
        (
            {"image_size": 4},
            r"image_size: is a setting that a Loader does not have: remove it, or use ImageLoader",
        ),
        ({"decoded": False}, r"decoded: .*use ImageLoader"),
        ({"fields": ["jpg", fields.Bytes("jpg")]}, r'fields: has "jpg" twice'),
        ({"fields": [fields.Mask("seg.png", name="m")]}, r'fields: has "m" \(of "seg.png"\), but no image'),
        ({"fields": [fields.Text("txt", name="t"), fields.Text("txt", name="t")]}, r'fields: has "t" twice'),
        ({"fields": age, "labels": table}, r'fields: has the column "age" as two kinds'),
        ({"fields": [fields.Array("/climate/data")]}, r'fields: has "/climate/data", which no sample'),
        ({"fields": [{"source": "txt", "name": ""}]}, r'fields: has "txt" without a name'),
        ({"fields": [{"kind": "text"}]}, r"fields: .*missing field `source`"),
    ]:
        with pytest.raises(foreload.ConfigError, match=f"^config: {message}"):
            foreload.Loader(root, **settings)
    with pytest.raises(foreload.ConfigError, match=r"^config: fields: .* use Loader or ImageLoader"):
        foreload.FileLoader(root, fields=["jpg"])
    with pytest.raises(
        foreload.DatasetError, match=r"no .jpg.*fields= names other members|select other members"
    ):
        foreload.Loader(arrays)
    for wrong in (fields.Text, lambda: fields.Text("", name="")):
        with pytest.raises(TypeError, match="Text needs a source"):
            wrong()


def test_errors_name_field_and_source(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 4, 1, lambda number: {"bin": b"\xff", "cls": b"1"})
    loader = foreload.Loader(root, batch_size=4, fields=[fields.Text("bin", name="caption")])
    with pytest.raises(foreload.SampleError, match=r'field "caption \(of bin\)".*fields.Bytes\("bin"\)'):
        list(loader)


def test_a_field_is_its_source_and_its_name() -> None:
    one = fields.Mask("seg.png")
    assert one == fields.Mask(name="seg.png") == fields.Mask(source="seg.png") == replace(one)
    assert (one.source, one.name) == ("seg.png", "seg.png")
    # Arguments by position mean what they meant before fields had names of their own.
    assert fields.Mask("seg.png", True, "int64") == fields.Mask("seg.png", optional=True, dtype="int64")
    other = replace(one, name="mask")
    assert (other.source, other.name) == ("seg.png", "mask")


def test_loaders_share_batches_with_loaders_of_their_class(tmp_path: Path, runtime: Path) -> None:
    root = shards.make(tmp_path / "data", 16, 2)
    asked = [fields.Image("jpg", name="picture"), fields.Text("txt", name="caption"), "cls"]
    settings = {"batch_size": 4, "device": "cpu", "fields": asked}
    producers = []
    for of in (foreload.Loader, foreload.ImageLoader):
        expected = [digest(batch) for batch in of(root, **settings)]
        batches = iter(of(root, shared=True, **settings))
        assert digest(next(batches)) == expected[0]
        producers.append(batches.stats()["shared"]["producer_pid"])
        assert [digest(batch) for batch in batches] == expected[1:]
    assert len(set(producers)) == 2
