"""If a field's name has several keys, the first one that a sample has counts, as in WebDataset."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields
from numpy import from_dlpack as array
from PIL import Image


def load(root: Path, asked: list[Any] | None, **more: Any) -> foreload.ImageLoader:
    usual = {"batch_size": 4, "image_size": 8, "shuffle": False, "last_batch": "partial"}
    return foreload.ImageLoader(root, fields=asked, **{**usual, **more})


def of_several_kinds(number: int) -> shards.Members:
    """Return a sample with an image of one of three kinds, or of two kinds."""
    rng = np.random.default_rng(number)
    jpg, png = (
        shards.jpeg(np.random.default_rng(number), 32, 24),
        shards.saved(Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)), "png"),
    )
    kinds: list[shards.Members] = [
        {"jpg": jpg},
        {"png": png},
        {
            "webp": shards.saved(
                Image.fromarray(np.full((24, 32, 3), number, np.uint8)), "webp", lossless=True
            )
        },
        {"jpg": jpg, "png": png},
    ]
    caption = (
        {"txt": f"text {number}".encode()} if number % 2 else {"caption.txt": f"caption {number}".encode()}
    )
    return {**kinds[number % 4], **caption, "cls": str(number).encode()}


@pytest.mark.parametrize("key", ["jpg;png;webp", "webp;png;jpg", "png;jpg;jpeg;webp"])
def test_of_several_keys_the_first_that_a_sample_has_counts(tmp_path: Path, key: str) -> None:
    root = shards.make(tmp_path / "mixed", 16, 2, of_several_kinds)
    members = [of_several_kinds(number) for number in range(16)]
    wanted = [next(sample[name] for name in key.split(";") if name in sample) for sample in members]
    for more in ({}, {"shuffle": True, "seed": 3}):
        for batch in load(root, [fields.Bytes(key), "txt;caption.txt", "cls"], **more):
            numbers = array(batch.sample_ids).tolist()
            assert batch[key] == [wanted[number] for number in numbers]
            texts = [members[number].get("txt", members[number].get("caption.txt")) for number in numbers]
            assert batch["txt;caption.txt"] == [text.decode() for text in texts if text]
            assert array(batch["cls"]).tolist() == numbers
    # As images they equal those of shards without other kinds.
    alone = shards.make(tmp_path / "alone", 16, 2, lambda number: {"png": wanted[number], "cls": b"1"})
    for decoded, expected in zip(load(root, [key]), load(alone, ["image"]), strict=True):
        assert decoded.keys() == [key]
        assert np.array_equal(array(decoded[key]), array(expected["image"]))


def test_a_sample_without_any_of_several_keys(tmp_path: Path) -> None:
    root = shards.make(tmp_path, 8, 1, of_several_kinds)
    loader = load(root, [fields.Image("jpg;png", optional=True), "cls"])
    present = [flag for batch in loader for flag in array(batch.present("jpg;png")).tolist()]
    assert present == [number % 4 != 2 for number in range(8)]
    with pytest.raises(foreload.SampleError, match=r'sample 2, key "000002" .*"jpg;png"'):
        list(load(root, ["jpg;png"]))
    for asked, why in (
        (["jpg;"], "an empty key"),
        (["jpg;txt"], '"txt" implies another kind'),
        (["image;png"], "not member keys"),
        (["gif;bmp"], "which no sample of"),
    ):
        with pytest.raises(foreload.ConfigError, match=re.escape(why)):
            load(root, asked)


def test_samples_whose_images_are_of_several_kinds_are_one_dataset(tmp_path: Path) -> None:
    def one_image(number: int) -> shards.Members:
        members = of_several_kinds(number)
        return {key: value for key, value in members.items() if key != "png" or number % 4 == 1}

    root = shards.make(tmp_path, 8, 1, one_image)
    for usual, chosen in zip(load(root, None), load(root, ["jpg;png;webp", "label"]), strict=True):
        assert np.array_equal(array(usual["image"]), array(chosen["jpg;png;webp"]))
        assert np.array_equal(array(usual["label"]), array(chosen["label"]))
