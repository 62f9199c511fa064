"""Datasets of Hugging Face's `datasets` that `ImageDataset` takes over give the same samples as the original."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch", reason="torch is not installed")

import foreload
import torch
from foreload.torch import ImageDataset
from foreload.transforms import ToDtype
from taken_over import CLASSES, IN_ORDER, LENIENT, SAMPLES, jpeg, refused, required

pytestmark = LENIENT


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dataset in three files. Each row holds its own number."""
    datasets = required("datasets")
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=CLASSES),
        row=datasets.Value("int64"),
        more=datasets.Value("int64"),
    )
    rows = {
        "image": [{"bytes": jpeg(row), "path": f"{row}.jpg"} for row in range(SAMPLES)],
        "label": [row % 3 for row in range(SAMPLES)],
        "row": list(range(SAMPLES)),
        "more": list(range(SAMPLES)),
    }
    path = tmp_path_factory.mktemp("saved") / "train"
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(path), num_shards=3)
    return datasets.load_from_disk(str(path))


CHOSEN = {
    "all": lambda _, of: of,
    "select": lambda _, of: of.select([3, 1, 39, 2]),
    "a stretch": lambda _, of: of.select(range(5, 30)),
    "a stretch of a stretch": lambda _, of: of.select(range(5, 30)).select(range(9, 20)),
    "shuffle": lambda _, of: of.shuffle(seed=1),
    "filter": lambda _, of: of.filter(lambda row: row["row"] % 2 == 0).select(range(3, 9)),
    "shard": lambda _, of: of.shard(2, 1),
    "split": lambda _, of: of.train_test_split(0.2, seed=1)["test"],
    "sort": lambda _, of: of.sort("row", reverse=True),
    "joined": lambda lib, of: lib.concatenate_datasets([of.select(range(20, 40)), of.select(range(5))]),
    "without a column": lambda _, of: of.remove_columns("more"),
}


@pytest.mark.parametrize("choose", CHOSEN.values(), ids=CHOSEN)
def test_hugging_face_rows_are_theirs(saved: Any, choose: Callable[..., Any]) -> None:
    import datasets

    theirs = choose(datasets, saved)
    ours = ImageDataset.from_huggingface(
        theirs, batch_size=7, shuffle=False, fields=["image", "row", "label"], **IN_ORDER
    )
    batches = list(ours)
    rows = torch.cat([batch["row"] for batch in batches]).tolist()
    assert rows == list(theirs["row"])
    assert torch.cat([batch["label"] for batch in batches]).tolist() == [row % 3 for row in rows]


def test_hugging_face_labels_and_classes(saved: Any) -> None:
    ours = ImageDataset.from_huggingface(saved, batch_size=8, **IN_ORDER)
    assert ours.classes == CLASSES
    assert sorted(torch.cat([labels for _, labels in ours]).tolist()) == sorted(saved["label"])
    alone = ImageDataset.from_huggingface(saved.remove_columns("label"), batch_size=8, **IN_ORDER)
    assert next(iter(alone)).shape == (8, 3, 16, 16)


def test_hugging_face_classes_of_another_column_and_by_a_list(saved: Any, tmp_path: Path) -> None:
    import datasets

    def take(**settings: Any) -> Any:
        return ImageDataset.from_huggingface(theirs, batch_size=8, train=False, **IN_ORDER, **settings)

    kinds = ["ox", "pig"]
    rows = {"image": saved[:9]["image"], "label": saved[:9]["label"], "kind": [row % 2 for row in range(9)]}
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=CLASSES),
        kind=datasets.ClassLabel(names=kinds),
    )
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "two"))
    theirs = datasets.load_from_disk(str(tmp_path / "two"))
    ours = take(label="kind")
    assert ours.classes == kinds
    assert torch.cat([labels for _, labels in ours]).tolist() == theirs["kind"]
    names = ["fish", "bird", "dog", "cat"]
    ours = take(class_names=names)
    assert ours.classes == names
    assert [names[of] for _, labels in ours for of in labels] == [CLASSES[of] for of in theirs["label"]]
    ours = take(label="kind", class_names=["pig", "ox"])
    assert torch.cat([labels for _, labels in ours]).tolist() == [1 - of for of in theirs["kind"]]
    refused(lambda: take(class_names=["cat"]), "class_names", '"dog", "fish"')
    refused(lambda: take(label="breed"), "label", "breed")


LABEL_COLUMNS: dict[str, tuple[dict[str, tuple[str, list[Any]]], str | None]] = {
    "labels with names": ({"labels": ("names", [2, 0, 1])}, "labels"),
    "labels without names": ({"labels": ("int64", [2, 0, 1])}, "labels"),
    "class_id": ({"class_id": ("int64", [2, 0, 1])}, "class_id"),
    "a usual name first": ({"cls": ("int64", [2, 0, 1]), "labels": ("names", [0, 0, 0])}, "cls"),
    "whole numbers before texts": (
        {"label": ("string", ["a", "b", "c"]), "cls": ("int64", [2, 0, 1])},
        "cls",
    ),
    "both of the others": ({"labels": ("int64", [2, 0, 1]), "class_id": ("int64", [0, 0, 0])}, None),
    "lists of labels": ({"labels": ("lists", [[2], [0, 1], []])}, None),
}


@pytest.mark.parametrize("case", LABEL_COLUMNS.values(), ids=LABEL_COLUMNS)
def test_hugging_face_label_columns_are_those_of_the_files(case: Any, tmp_path: Path) -> None:
    datasets = required("datasets")
    columns, label = case
    features = {
        "names": datasets.ClassLabel(names=CLASSES),
        "lists": datasets.Features(of=[datasets.Value("int64")])["of"],
    }
    rows: dict[str, Any] = {"image": [{"bytes": jpeg(row), "path": None} for row in range(3)]}
    kinds = {"image": datasets.Image()}
    for name, (kind, values) in columns.items():
        rows[name] = values
        kinds[name] = features.get(kind) or datasets.Value(kind)
    path = str(tmp_path / "saved")
    datasets.Dataset.from_dict(rows, features=datasets.Features(kinds)).save_to_disk(path)
    theirs = datasets.load_from_disk(path)
    ours = ImageDataset.from_huggingface(theirs, batch_size=3, train=False, **IN_ORDER)
    if label is None:
        assert torch.is_tensor(next(iter(ours)))
        refused(lambda: ImageDataset(path, batch_size=3, **IN_ORDER), "with_labels=False")
        if "class_id" in columns:
            clear = theirs.remove_columns("class_id")
            ours = ImageDataset.from_huggingface(clear, batch_size=3, train=False, **IN_ORDER)
            assert [numbers.tolist() for _, numbers in ours] == [[2, 0, 1]]
        return
    by_path = ImageDataset(path, batch_size=3, train=False, **IN_ORDER)
    for loader in (ours, by_path):
        assert [numbers.tolist() for _, numbers in loader] == [[2, 0, 1]]
        assert loader.classes == (CLASSES if columns[label][0] == "names" else [])
    if len(columns) == 1:
        refused(
            lambda: ImageDataset.from_huggingface(
                theirs.remove_columns(label), batch_size=3, with_labels=True
            ),
            f"{label!r}, which was dropped",
        )
    else:
        alone = theirs.remove_columns([name for name in columns if name != label])
        again = ImageDataset.from_huggingface(alone, batch_size=3, train=False, **IN_ORDER)
        assert [numbers.tolist() for _, numbers in again] == [[2, 0, 1]]


def test_hugging_face_classes_whose_column_is_not_clear_are_refused(tmp_path: Path) -> None:
    datasets = required("datasets")
    names = datasets.ClassLabel(names=CLASSES)
    for number, columns in enumerate([["kind"], ["labels", "class_id"]]):
        features = datasets.Features(image=datasets.Image(), **dict.fromkeys(columns, names))
        rows = {"image": [{"bytes": jpeg(1), "path": None}], **{name: [1] for name in columns}}
        path = str(tmp_path / str(number))
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(path)
        theirs = datasets.load_from_disk(path)
        settings = {"batch_size": 1, "train": False}
        refused(
            lambda: ImageDataset.from_huggingface(theirs, **settings),  # noqa: B023
            f"has classes in {columns[0]!r}",
            f"label={columns[0]!r}",
        )
        ours = ImageDataset.from_huggingface(theirs, label=columns[0], **settings)
        assert [numbers.tolist() for _, numbers in ours] == [[1]]


def test_hugging_face_what_load_dataset_returns(saved: Any, tmp_path: Path) -> None:
    import datasets

    saved.to_parquet(str(tmp_path / "validation.parquet"))
    for split in ("validation", "validation[10:20]"):
        files = {"validation": str(tmp_path / "validation.parquet")}
        theirs = datasets.load_dataset(
            "parquet", data_files=files, split=split, cache_dir=str(tmp_path / "cache")
        )
        ours = ImageDataset.from_huggingface(theirs, batch_size=7, **IN_ORDER)
        assert "train=False" in repr(ours)
        assert torch.cat([labels for _, labels in ours]).tolist() == theirs["label"]


def test_hugging_face_what_cannot_be_taken_over_is_refused(saved: Any, tmp_path: Path) -> None:
    import datasets

    def take(dataset: Any, **settings: Any) -> Callable[[], Any]:
        return lambda: ImageDataset.from_huggingface(dataset, **{"batch_size": 4, **settings})

    refused(take(datasets.Dataset.from_dict({"row": [1]})), "is in memory", "save_to_disk")
    refused(take(saved.add_column("other", list(range(SAMPLES)))), "is in memory", "save_to_disk")
    refused(take(saved.rename_column("label", "kind")), "rename columns", "save_to_disk")
    refused(take(saved.cast_column("image", datasets.Image(decode=False))), "cast", "save_to_disk")
    refused(take(saved.map(lambda row: {"row": row["row"] + 1})), "was computed", "save_to_disk")
    refused(take(saved.select([1, 1, 2])), "rows several times")
    refused(take(saved.with_transform(lambda rows: rows)), "transform", "remove with_transform")
    refused(take(datasets.DatasetDict(train=saved)), "pass one, such as dataset['train']")
    refused(take(saved.to_iterable_dataset()), "without streaming=True")
    refused(take(saved.select(range(9)), indices=[1]), "indices", "in the dataset")
    refused(take(saved.remove_columns("image")), "have no Image")
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "0.jpg").write_bytes(jpeg(0))
    (tmp_path / "images" / "dog").mkdir()
    (tmp_path / "images" / "dog" / "1.jpg").write_bytes(jpeg(1))
    cache = str(tmp_path / "cache")
    folder = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "images"), split="train", cache_dir=cache
    )
    refused(take(folder), "0.jpg", "the directory of the images")


def test_hugging_face_columns_that_were_dropped_stay_away(saved: Any, tmp_path: Path) -> None:
    import datasets

    def take(dataset: Any, **settings: Any) -> Callable[[], Any]:
        return lambda: ImageDataset.from_huggingface(dataset, **{"batch_size": 4, **settings})

    chosen = saved.select_columns(["image", "row"])
    for fields in (["image", "more"], ["image", foreload.fields.Float("more")], ["image", "row;more"]):
        refused(take(chosen, fields=fields), "fields", "'more'", "dropped", "remove it")
    refused(take(chosen, fields=["image", "label"]), "'label'", "dropped")
    refused(take(saved.remove_columns("label"), with_labels=True), "'label'", "dropped", "save_to_disk")
    batch = next(iter(ImageDataset.from_huggingface(chosen, batch_size=4, fields=["image", "row"])))
    assert set(batch) == {"image", "row"}
    assert torch.is_tensor(next(iter(ImageDataset.from_huggingface(chosen, batch_size=4))))
    # The columns that are named `image` and `label` in the files are not the remaining columns.
    one = {"bytes": jpeg(1), "path": None}
    rows = {"image": [one], "photo": [one], "label": [1], "cls": [2]}
    features = datasets.Features(
        image=datasets.Image(),
        photo=datasets.Image(),
        label=datasets.Value("int64"),
        cls=datasets.Value("int64"),
    )
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "two"))
    two = datasets.load_from_disk(str(tmp_path / "two"))
    refused(take(two.remove_columns("image")), "'image'", "dropped", "pass fields=[...]")
    refused(take(two.remove_columns("label")), "'label'", "dropped", "pass fields=[...]")
    named = take(two.select_columns(["photo"]), fields=["photo"], last_batch="partial")()
    assert set(next(iter(named))) == {"photo"}


def test_hugging_face_images_are_turned_as_it_turns_them(tmp_path: Path) -> None:
    datasets = required("datasets")
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x112] = 6
    Image.fromarray(np.arange(20 * 24 * 3, dtype=np.uint8).reshape(20, 24, 3)).save(file, "png", exif=exif)
    rows = {"image": [{"bytes": file.getvalue(), "path": None}], "label": [0]}
    types = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    datasets.Dataset.from_dict(rows, features=types).save_to_disk(str(tmp_path / "turned"))
    turned = datasets.load_from_disk(str(tmp_path / "turned"))
    take = partial(ImageDataset.from_huggingface, turned, batch_size=1, transforms=[ToDtype("uint8")])
    ((image,), _labels) = next(iter(take(decode="exact")))
    assert np.array_equal(image.permute(1, 2, 0), np.asarray(turned[0]["image"]))
    with pytest.warns(foreload.Warning, match='"image" of sample 0 .*orientation="apply"'):
        list(take(orientation="warn"))


@pytest.mark.parametrize("how", ["anew", "moved", "in place"])
def test_hugging_face_files_that_were_replaced_are_refused(saved: Any, tmp_path: Path, how: str) -> None:
    import datasets

    for name, rows in (("one", range(20)), ("two", range(20, 40))):
        saved.select(rows).save_to_disk(str(tmp_path / name), num_shards=1)
    one, two = tmp_path / "one", tmp_path / "two"
    loaded = datasets.load_from_disk(str(one))
    ImageDataset.from_huggingface(loaded, batch_size=4)
    if how == "in place":
        for file in two.iterdir():
            (one / file.name).write_bytes(file.read_bytes())
    else:
        one.rename(tmp_path / "before") if how == "moved" else shutil.rmtree(one)
        two.rename(one)
    refused(lambda: ImageDataset.from_huggingface(loaded, batch_size=4), "has been replaced", "load it again")
    anew = datasets.load_from_disk(str(one))
    settings = {"shuffle": False, "fields": ["image", "row"], "rebuild_index": True}
    ours = ImageDataset.from_huggingface(anew, batch_size=20, **settings)
    assert next(iter(ours))["row"].tolist() == list(range(20, 40))
