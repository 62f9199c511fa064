"""Labels are found wherever they are stored in a shard, and a missing label never becomes 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import foreload
import numpy as np
import pytest
from conftest import paths
from foreload.dali import ImageSource
from test_dali_source import info
from world import tar_of

SETTINGS = {"batch_size": 12, "image_size": 32, "threads": 2}


def pack(root: Path, members: list[tuple[str, bytes]]) -> Path:
    """Make a directory with one shard of these members."""
    root.mkdir()
    (root / "shard-0.tar").write_bytes(tar_of(members))
    return root


@pytest.fixture
def shards(dataset: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make a directory with the dataset's images in a shard, with other members, in some order."""

    def make(beside: Callable[[int], tuple[str, bytes]], order: Callable[[str], str] | None = None) -> Path:
        members = []
        for number, path in enumerate(paths(dataset)):
            suffix, data = beside(number)
            members += [(f"{number:03}.jpg", path.read_bytes()), (f"{number:03}.{suffix}", data)]
        if order:
            members.sort(key=lambda member: order(member[0]))
        return pack(tmp_path / "shards", members)

    return make


@pytest.fixture
def captions(shards: Callable[..., Path]) -> Path:
    """Make shards without labels, like image-text datasets."""
    return shards(lambda number: ("txt", b"a photograph"))


def test_labels_that_lie_apart_from_their_images(dataset: Path, shards: Callable[..., Path]) -> None:
    def suffix_first(name: str) -> str:
        return name.split(".")[1]

    apart = shards(lambda number: ("cls", str(number // 20).encode()), order=suffix_first)
    loader = foreload.ImageLoader(apart, **SETTINGS)
    assert loader.labeled
    folder = foreload.ImageLoader(dataset, **SETTINGS)
    assert folder.labeled
    count = 0
    for batch in loader:
        labels, ids = np.from_dlpack(batch.labels), np.from_dlpack(batch.sample_ids)
        assert np.array_equal(labels, ids // 20)
        count += len(batch)
    assert count == 60


def test_a_byte_order_mark_is_no_part_of_a_number(shards: Callable[..., Path]) -> None:
    root = shards(lambda number: ("cls", f"\ufeff{number // 20}\n".encode()))
    for fields in (None, ["image", "label", "cls"]):
        for batch in foreload.ImageLoader(root, fields=fields, **SETTINGS):
            names = ["labels"] if fields is None else ["label", "cls"]
            for name in names:
                found = np.from_dlpack(batch[name] if fields else batch.labels)
                assert np.array_equal(found, np.from_dlpack(batch.sample_ids) // 20)


def test_two_labels_of_one_image_are_refused(tmp_path: Path) -> None:
    root = pack(tmp_path / "s", [("1.cls", b"0"), ("1.jpg", b"x"), ("2.cls", b"1"), ("1.cls", b"2")])
    with pytest.raises(foreload.DatasetError, match=r'"1".*"1.cls" at byte 512 and "1.cls" at byte 3584'):
        foreload.ImageLoader(root)


def test_what_has_no_labels_gives_none(captions: Path) -> None:
    loader = foreload.ImageLoader(captions, **SETTINGS)
    assert not loader.labeled
    assert "60 samples without labels" in repr(loader)
    assert loader.classes == []
    batch = next(iter(loader))
    with pytest.raises(AttributeError, match=r"no labels: .*\.cls"):
        _ = batch.labels
    assert not hasattr(batch, "labels")
    with pytest.raises(AttributeError, match="no labels"):
        _ = loader.targets
    assert np.from_dlpack(batch.images).shape == (12, 3, 32, 32)
    assert len(np.from_dlpack(batch.sample_ids)) == len(np.from_dlpack(batch.mask)) == 12


@pytest.mark.parametrize("setting", [{"weights": "balanced"}, {"weights": {}}, {"classes": [0]}])
def test_classes_that_are_not_there_are_refused(captions: Path, setting: dict[str, object]) -> None:
    with pytest.raises(foreload.ConfigError, match=f"{next(iter(setting))}: needs labels"):
        foreload.ImageLoader(captions, **SETTINGS, **setting)


def test_some_labels_and_some_not_are_refused(dataset: Path, captions: Path) -> None:
    with pytest.raises(foreload.DatasetError, match="no labels"):
        foreload.ImageLoader([dataset, captions], **SETTINGS)


def test_files_have_labels_where_all_lie_in_directories(tmp_path: Path) -> None:
    root = tmp_path / "files"
    for number in range(6):
        path = root / ("a", "b")[number % 2] / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]))
    loader = foreload.FileLoader(root, batch_size=6, shuffle=False)
    assert loader.labeled
    assert np.from_dlpack(next(iter(loader)).labels).tolist() == [0, 0, 0, 1, 1, 1]
    (root / "7").write_bytes(b"7")
    loader = foreload.FileLoader(root, batch_size=7, shuffle=False, rebuild_index=True)
    assert not loader.labeled
    batch = next(iter(loader))
    assert len(batch.files) == 7
    with pytest.raises(AttributeError, match="no labels"):
        _ = batch.labels


def test_a_source_for_dali_without_labels(captions: Path) -> None:
    settings = {**SETTINGS, "last_batch": "partial"}
    with pytest.raises(foreload.ConfigError, match=r"with_labels: needs labels.*with_labels=False"):
        ImageSource(captions, **settings)
    source = ImageSource(captions, with_labels=False, **settings)
    assert source.num_outputs == 1
    (images,) = source(info(0, 0))
    assert images.shape == (12, 3, 32, 32)
    source = ImageSource(captions, with_labels=False, with_mask=True, decoded=False, **settings)
    files, mask = source(info(0, 0))
    assert len(files) == len(mask) == 12
    assert mask.dtype == np.uint8
    assert mask.all()


def test_images_in_shards_and_in_directories_beside_them(own_dataset: Path, tmp_path: Path) -> None:
    pack(tmp_path / "s", [("1.jpg", b"x"), ("1.cls", b"0")])
    (tmp_path / "s" / "shard-0.tar").rename(own_dataset / "shard-0.tar")
    with pytest.raises(foreload.DatasetError, match=r"class_0/.*\.jpg.*1\.jpg in shard-0\.tar.*move"):
        foreload.ImageLoader(own_dataset)
