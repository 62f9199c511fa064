"""Encoded bytes of packed datasets: consumers get the original files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import foreload
import numpy as np
import pytest
import shards
from conftest import paths
from foreload import fields
from foreload.dali import ImageSource

SETTINGS = {"batch_size": 8, "seed": 3, "last_batch": "partial"}


def pack(source: Path, into: Path, *arguments: str) -> Path:
    """Pack a dataset."""
    command = [sys.executable, "-m", "foreload", "pack", str(source), str(into), *arguments]
    subprocess.run(command, check=True, capture_output=True)
    return into


@pytest.fixture(scope="module")
def packed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed shards of the 60 images of `dataset`."""
    return pack(dataset, tmp_path_factory.mktemp("packed") / "shards")


def read(loader: foreload.ImageLoader | foreload.FileLoader) -> tuple[dict[int, bytes], int]:
    """Return the files of an epoch by sample id, and the number of rebuilt files."""
    batches, files = iter(loader), {}
    for batch in batches:
        for sample, file in zip(np.from_dlpack(batch.sample_ids).tolist(), batch.files, strict=True):
            files[sample] = np.from_dlpack(file).tobytes()
    return files, batches.stats()["rebuilt"]


def test_files_of_images_are_the_originals(dataset: Path, packed: Path) -> None:
    files = {number: path.read_bytes() for number, path in enumerate(paths(dataset))}
    assert read(foreload.ImageLoader(dataset, decoded=False, **SETTINGS)) == (files, 0)
    assert read(foreload.ImageLoader(packed, decoded=False, **SETTINGS)) == (files, 60)
    decoded = iter(foreload.ImageLoader(packed, image_size=32, **SETTINGS))
    assert sum(len(batch) for batch in decoded) == 60
    assert decoded.stats()["rebuilt"] == 0


def test_a_decoder_of_dali_is_given_the_originals(dataset: Path, packed: Path) -> None:
    before, after = (ImageSource(root, decoded=False, **SETTINGS) for root in (dataset, packed))
    for step in range(len(before)):
        info = SimpleNamespace(epoch_idx=0, iteration=step)
        (files, labels), (rebuilt, same) = before(info), after(info)
        assert [file.tobytes() for file in rebuilt] == [file.tobytes() for file in files]
        assert np.array_equal(labels, same)


def test_files_of_any_kind_are_the_originals(dataset: Path, tmp_path: Path) -> None:
    root = tmp_path / "files"
    for number, path in enumerate(paths(dataset)[:20]):
        (root / "pictures").mkdir(parents=True, exist_ok=True)
        (root / "pictures" / path.name).write_bytes(path.read_bytes())
        (root / f"{number}.npy").write_bytes(shards.npy(np.arange(number)))
    files, rebuilt = read(foreload.FileLoader(root, **SETTINGS))
    assert (len(files), rebuilt) == (40, 0)
    assert read(foreload.FileLoader(pack(root, tmp_path / "packed", "--files"), **SETTINGS)) == (files, 20)


def test_fields_of_bytes_are_the_originals_beside_decoded_images(tmp_path: Path) -> None:
    root = shards.make(tmp_path / "tar", made=shards.pair)
    packed = pack(root, tmp_path / "packed")
    asked = ["left.jpg", fields.Bytes("right.jpg"), fields.Bytes("depth.png"), "seg.png"]
    before, after = (
        iter(foreload.ImageLoader(folder, fields=asked, image_size=32, **SETTINGS))
        for folder in (root, packed)
    )
    for expected, batch in zip(before, after, strict=True):
        assert batch["right.jpg"] == expected["right.jpg"]
        assert batch["depth.png"] == expected["depth.png"]
        for name in ("left.jpg", "seg.png"):
            assert np.array_equal(np.from_dlpack(batch[name]), np.from_dlpack(expected[name]))
    assert (before.stats()["rebuilt"], after.stats()["rebuilt"]) == (0, 48)


def test_a_mask_that_is_a_jpeg_is_refused_as_before(tmp_path: Path) -> None:
    root = shards.make(tmp_path / "tar", made=shards.pair)
    packed = pack(root, tmp_path / "packed")
    messages = []
    for folder in (root, packed):
        loader = foreload.ImageLoader(folder, fields=["left.jpg", fields.Mask("right.jpg")], **SETTINGS)
        with pytest.raises(foreload.Error, match="a mask must be a PNG") as raised:
            next(iter(loader))
        messages.append(str(raised.value).split("right.jpg", 1)[1])
    assert messages[0] == messages[1]
