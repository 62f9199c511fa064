"""Datasets of WebDataset, Streaming and Hugging Face's `datasets` that `ImageDataset` takes over, with the real ones.

What is taken over gives the samples that the other library gives, and what cannot be is refused by its name. A test
runs where the library that it needs is installed: `make test-frameworks` has all but Streaming.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch", reason="torch is not installed")

import foreload
import torch
from foreload.torch import ImageDataset

# Theirs leave files open, and use what others call deprecated.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("ResourceWarning", "FutureWarning", "pytest.PytestUnraisableExceptionWarning")
]

SAMPLES = 40
CLASSES = ["cat", "dog", "fish"]
IN_ORDER = {"last_batch": "partial", "image_size": 16}


def jpeg(number: int) -> bytes:
    """Return an image of noise, which no other number has."""
    noise = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "jpeg")
    return file.getvalue()


def required(name: str) -> Any:
    """Import a library that `make test-frameworks` has; the test is skipped without it, or fails under that."""
    if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed; make test-frameworks has it")


def refused(make: Callable[[], Any], *words: str) -> None:
    """Check that something is refused with these words."""
    with pytest.raises(foreload.ConfigError) as error:
        make()
    for word in words:
        assert word in str(error.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dataset in three files, whose rows say which they are."""
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


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three shards, by a name with braces."""
    webdataset = required("webdataset")
    required("torchvision")
    root = tmp_path_factory.mktemp("shards")
    with webdataset.ShardWriter(str(root / "x-%06d.tar"), maxcount=14, verbose=0) as writer:
        for number in range(SAMPLES):
            writer.write(
                {"__key__": f"{number:06}", "jpg": jpeg(number), "cls": number % 3, "txt": f"no. {number}"}
            )
    return str(root / "x-{000000..000002}.tar")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two splits, in several shards, written by Streaming itself."""
    streaming = pytest.importorskip(
        "streaming", reason="streaming is not installed; `python benches/compare/environments.py streaming`"
    )
    root = tmp_path_factory.mktemp("mds")
    for split, numbers in {"train": range(SAMPLES), "val": range(9)}.items():
        columns = {"image": "bytes", "label": "int"}
        with streaming.MDSWriter(out=str(root / split), columns=columns, size_limit=9000) as writer:
            for number in numbers:
                writer.write({"image": jpeg(number), "label": number % 3})
    return root


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

    refused(take(datasets.Dataset.from_dict({"row": [1]})), "lies in memory", "save_to_disk")
    refused(take(saved.add_column("other", list(range(SAMPLES)))), "lies in memory", "save_to_disk")
    refused(take(saved.rename_column("label", "kind")), "rename columns", "save_to_disk")
    refused(take(saved.cast_column("image", datasets.Image(decode=False))), "cast", "save_to_disk")
    refused(take(saved.map(lambda row: {"row": row["row"] + 1})), "was computed", "save_to_disk")
    refused(take(saved.select([1, 1, 2])), "rows several times")
    refused(take(saved.with_transform(lambda rows: rows)), "transform", "leave with_transform out")
    refused(take(datasets.DatasetDict(train=saved)), "give one, such as dataset['train']")
    refused(take(saved.to_iterable_dataset()), "without streaming=True")
    refused(take(saved.select(range(9)), indices=[1]), "indices", "by the dataset")
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
        refused(take(chosen, fields=fields), "fields", "'more'", "dropped", "leave it out")
    refused(take(chosen, fields=["image", "label"]), "'label'", "dropped")
    refused(take(saved.remove_columns("label"), with_labels=True), "'label'", "dropped", "save_to_disk")
    batch = next(iter(ImageDataset.from_huggingface(chosen, batch_size=4, fields=["image", "row"])))
    assert set(batch) == {"image", "row"}
    assert torch.is_tensor(next(iter(ImageDataset.from_huggingface(chosen, batch_size=4))))
    # What goes by the names `image` and `label` in the files is not what is left.
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
    refused(take(two.remove_columns("image")), "'image'", "dropped", "say fields=[...]")
    refused(take(two.remove_columns("label")), "'label'", "dropped", "say fields=[...]")
    named = take(two.select_columns(["photo"]), fields=["photo"], last_batch="partial")()
    assert set(next(iter(named))) == {"photo"}


def test_hugging_face_images_that_it_turns_are_reported(saved: Any, tmp_path: Path) -> None:
    import datasets

    exif, file = Image.Exif(), io.BytesIO()
    exif[0x112] = 6
    Image.new("RGB", (24, 20)).save(file, "jpeg", exif=exif)
    rows = {"image": [{"bytes": of, "path": None} for of in (jpeg(1), file.getvalue())], "label": [0, 1]}
    types = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    datasets.Dataset.from_dict(rows, features=types).save_to_disk(str(tmp_path / "turned"))
    turned = datasets.load_from_disk(str(tmp_path / "turned"))
    assert [of["image"].size for of in turned] == [(24, 20), (20, 24)]
    with pytest.warns(foreload.Warning, match='`datasets` would turn .*"image" of sample 1 .*exif_transpose'):
        list(ImageDataset.from_huggingface(turned, batch_size=2, **IN_ORDER))
    list(ImageDataset.from_huggingface(turned, batch_size=2, orientation="ignore", **IN_ORDER))
    list(ImageDataset.from_huggingface(saved, batch_size=4, **IN_ORDER))


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
    refused(lambda: ImageDataset.from_huggingface(loaded, batch_size=4), "was replaced", "load it anew")
    anew = datasets.load_from_disk(str(one))
    settings = {"shuffle": False, "fields": ["image", "row"], "rebuild_index": True}
    ours = ImageDataset.from_huggingface(anew, batch_size=20, **settings)
    assert next(iter(ours))["row"].tolist() == list(range(20, 40))


def transform(*, training: bool = False) -> Any:
    """Torchvision's transform for training or evaluation."""
    from torchvision import transforms as T

    shape = (
        [T.RandomResizedCrop(16), T.RandomHorizontalFlip()] if training else [T.Resize(20), T.CenterCrop(16)]
    )
    return T.Compose([*shape, T.ToTensor(), T.Normalize((0.5,) * 3, (0.25,) * 3)])


def test_webdataset_batches_are_theirs(shards: str) -> None:
    import webdataset

    theirs = (
        webdataset.WebDataset(shards, shardshuffle=False)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(transform(), int)
        .batched(16)
    )
    ours = ImageDataset.from_webdataset(theirs, decode="exact")
    for (images, labels), (own, numbers) in zip(theirs, ours, strict=True):
        assert labels.tolist() == numbers.tolist()
        # torchvision resizes PIL images by Pillow, whose rounding `exact` has.
        assert float((torch.as_tensor(np.asarray(images)) - own).abs().max()) < 1e-5


def test_webdataset_what_pipelines_say_is_taken_over(shards: str) -> None:
    import webdataset as wds

    def pipeline(**more: Any) -> Any:
        return wds.WebDataset(shards, **{"shardshuffle": False, **more}).decode("pil")

    training = pipeline(shardshuffle=3).to_tuple("jpg;png", "cls").map_tuple(transform(training=True), int)
    ours = ImageDataset.from_webdataset(training.shuffle(100).batched(8, partial=False), seed=3)
    for said in (
        "shuffle=True",
        "last_batch='drop'",
        "train=True",
        "RandomResizedCrop",
        "seed=3",
        "batch_size=8",
    ):
        assert said in repr(ours)
    assert len(ours) == SAMPLES // 8
    renamed = pipeline().rename(picture="jpg;png", caption="txt").map_dict(picture=transform())
    ours = ImageDataset.from_webdataset(renamed.to_tuple("picture", "caption").batched(8))
    assert next(iter(ours))["txt"] == [f"no. {number}" for number in range(8)]
    loader = wds.WebLoader(
        pipeline(handler=wds.warn_and_continue).to_tuple("jpg").map_tuple(transform()).batched(8),
        batch_size=None,
    )
    ours = ImageDataset.from_webdataset(loader.unbatched().batched(5))
    assert next(iter(ours)).shape == (5, 3, 16, 16)
    assert "on_error='skip'" in repr(ours)
    stages = [
        wds.SimpleShardList(shards),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode("pil"),
    ]
    stages += [wds.to_tuple("jpg", "cls"), wds.map_tuple(transform()), wds.batched(8)]
    assert "shuffle=False" in repr(ImageDataset.from_webdataset(wds.DataPipeline(*stages)))


def test_webdataset_urls(shards: str) -> None:
    ours = ImageDataset.from_webdataset(shards, batch_size=8, image_size=16)
    assert ours.loader.samples == SAMPLES
    names = sorted(str(path) for path in Path(shards).parent.glob("*.tar"))
    listed = ImageDataset.from_webdataset([f"file:{name}" for name in names], batch_size=8, image_size=16)
    assert "x-{000000..000002}.tar" in repr(listed)
    assert listed.loader.fingerprint == ours.loader.fingerprint
    some = ImageDataset.from_webdataset(names[::2], batch_size=8, image_size=16)
    assert some.loader.samples == 14 + SAMPLES - 28


def test_webdataset_what_cannot_be_taken_over_is_refused(shards: str) -> None:
    import webdataset as wds

    dataset = wds.WebDataset(shards, shardshuffle=False)
    pairs = dataset.decode("pil").to_tuple("jpg", "cls")
    done = pairs.map_tuple(transform()).batched(8)

    def take(pipeline: Any, **settings: Any) -> Callable[[], Any]:
        return lambda: ImageDataset.from_webdataset(pipeline, **settings)

    refused(take(dataset.decode("pil").map(dict).to_tuple("jpg", "cls")), "stage map of builtins.dict")
    refused(take(pairs.map_tuple(lambda image: image).batched(8)), "<lambda>")
    refused(take(pairs.map_tuple(transform(), float).batched(8)), "'cls' to builtins.float")
    refused(take(dataset.select(bool).decode("pil")), "stage select of builtins.bool", "indices=")
    refused(take(dataset.to_tuple("jpg", "cls").batched(8)), 'add .decode("pil")')
    refused(take(dataset.decode("l").to_tuple("jpg", "cls").batched(8)), "images are RGB here")
    refused(take(dataset.decode("torchrgb").to_tuple("jpg").map_tuple(transform())), 'use .decode("pil")')
    refused(take(pairs.batched(8)), "give transforms= or image_size=")
    refused(take(pairs.map_tuple(transform())), "batch_size")
    refused(take(done, batch_size=4), "by the dataset")
    refused(take(done.batched(4)), "batches of batches")
    refused(take(pairs.map_tuple(transform()).batched(8, collation_fn=None)), "collation_fn")
    refused(take(dataset.decode("pil").batched(8)), "to_tuple")
    refused(take(dataset.decode("pil").to_tuple("jpg", "__key__").batched(8)), "with_ids=True")
    refused(
        take(wds.WebDataset(shards, resampled=True, shardshuffle=False).decode("pil")), "with replacement"
    )
    refused(
        take(wds.WebDataset(shards, select_files=bool, shardshuffle=False)),
        "select_files",
        "builtins.bool",
    )
    refused(take("pipe:cat x.tar", batch_size=4), "no program is run")
    refused(take(3), "is a builtins.int")
    with pytest.warns(foreload.Warning, match="with_epoch"):
        take(done.with_epoch(3))()


def test_streaming_samples_are_theirs(root: Path) -> None:
    import streaming

    theirs = streaming.StreamingDataset(local=str(root), split="train", batch_size=8, shuffle_seed=5)
    ours = ImageDataset.from_streaming(theirs, **IN_ORDER)
    assert f"{root}/train" in repr(ours)
    assert "shuffle=False" in repr(ours)
    assert "seed=5" in repr(ours)
    labels = torch.cat([labels for _, labels in ours]).tolist()
    assert labels == [theirs[number]["label"] for number in range(SAMPLES)]


def test_streaming_streams_and_places(root: Path, tmp_path: Path) -> None:
    import streaming

    streams = [
        streaming.Stream(local=str(root), split="train", proportion=0.25),
        streaming.Stream(local=str(root), split="val", proportion=0.75),
    ]
    theirs = streaming.StreamingDataset(streams=streams, batch_size=4, epoch_size=80, shuffle=True)
    ours = ImageDataset.from_streaming(theirs, **IN_ORDER)
    assert "ratios=[0.25, 0.75]" in repr(ours)
    assert sum(len(labels) for _, labels in ours) == 80
    remote = streaming.StreamingDataset(remote=str(root / "val"), local=str(tmp_path / "copy"), batch_size=3)
    with pytest.warns(foreload.Warning, match=r"foreload\.Directory"):
        ours = ImageDataset.from_streaming(remote, **IN_ORDER)
    assert f"'{root}/val'" in repr(ours)


def test_streaming_what_cannot_be_taken_over_is_refused(root: Path) -> None:
    import streaming

    class Derived(streaming.StreamingDataset):
        pass

    def take(kind: Any = streaming.StreamingDataset, settings: Any = None, **more: Any) -> Callable[[], Any]:
        dataset = kind(**{"local": str(root), "split": "train", "batch_size": 4, **more})
        return lambda: ImageDataset.from_streaming(dataset, **(settings or {}))

    refused(take(Derived), "whose __getitem__", "transforms=")
    assert len(take(Derived, {"image_size": 16})()) == SAMPLES // 4
    refused(take(epoch_size=8), "epoch_size", "leave it out")
    refused(take(batching_method="per_stream"), "batching_method")
    refused(take(settings={"batch_size": 2}), "by the dataset")
    refused(take(batch_size=None), "batch_size")
    refused(lambda: ImageDataset.from_streaming(root), "must be a streaming.StreamingDataset")
