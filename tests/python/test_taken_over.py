"""Datasets of WebDataset and Streaming that `ImageDataset` takes over, with the real libraries.

They give the same samples as in the other library. If a dataset cannot be taken over, the error names the cause. A test
runs if its library is installed: `make test-frameworks` installs all except Streaming.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import foreload
import torch
from foreload.torch import ImageDataset
from taken_over import IN_ORDER, LENIENT, SAMPLES, jpeg, refused, required

pytestmark = LENIENT


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three shards, named with braces."""
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
        "streaming", reason="streaming is not installed; `python benches/harness/environments.py streaming`"
    )
    root = tmp_path_factory.mktemp("mds")
    for split, numbers in {"train": range(SAMPLES), "val": range(9)}.items():
        columns = {"image": "bytes", "label": "int"}
        with streaming.MDSWriter(out=str(root / split), columns=columns, size_limit=9000) as writer:
            for number in numbers:
                writer.write({"image": jpeg(number), "label": number % 3})
    return root


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
        # torchvision resizes PIL images with Pillow, whose rounding `exact` imitates.
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
    refused(take(pairs.batched(8)), "pass transforms= or image_size=")
    refused(take(pairs.map_tuple(transform())), "batch_size")
    refused(take(done, batch_size=4), "in the dataset")
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
    refused(take("pipe:cat x.tar", batch_size=4), "runs no program")
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
    refused(take(epoch_size=8), "epoch_size", "remove it")
    refused(take(batching_method="per_stream"), "batching_method")
    refused(take(settings={"batch_size": 2}), "in the dataset")
    refused(take(batch_size=None), "batch_size")
    refused(lambda: ImageDataset.from_streaming(root), "must be a streaming.StreamingDataset")
