"""Crops that depend on a sample's boxes: which boxes are used, and the result without any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from foreload import ConfigError, ImageLoader, SampleError, fields
from foreload import transforms as T

SAMPLES = 12
CROP = [T.RandomZoomOut(fill=7), T.RandomIoUCrop(sampler_options=(0.05,)), T.Resize((24, 32))]
# Invalid numbers, sides in the wrong order, a point, and a box far outside.
HOSTILE = [[np.nan] * 4, [np.inf, 0, -np.inf, 9], [30, 30, 10, 10], [9, 9, 9, 9], [1e30] * 4]


def sample(number: int) -> shards.Members:
    """Return a picture twice, and boxes: of every three samples, one has no boxes, and one has only invalid ones."""
    rng = np.random.default_rng(number)
    picture = shards.jpeg(rng, 60, 50)
    members: shards.Members = {"left.jpg": picture, "right.jpg": picture}
    boxes = [[5, 5, 40, 30], [35, 25, 55, 48]] if number % 3 == 1 else HOSTILE
    if number % 3:
        members["boxes.npy"] = shards.npy(np.array(boxes, np.float32))
        members["other.npy"] = shards.npy(np.zeros((1, 4), np.float32))
    return members


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make(tmp_path_factory.mktemp("boxes"), SAMPLES, 1, sample)


def made(root: Path, *asked: Any, transforms: Any = CROP, **settings: Any) -> ImageLoader:
    return ImageLoader(
        root, batch_size=SAMPLES, seed=5, fields=list(asked), transforms=transforms, device="cpu", **settings
    )


def test_samples_without_boxes_that_count_are_not_cut(root: Path) -> None:
    boxes = fields.Boxes("boxes.npy", optional=True, shares=True)
    loader = made(root, "left.jpg", "right.jpg", boxes)
    for epoch in range(5):
        cut = 0
        for number in range(SAMPLES):
            view = loader.view(number, epoch)
            left, top, right, bottom = view["padding"]
            whole = left + view["width"] + right, top + view["height"] + bottom
            if number % 3 == 1:
                cut += whole[0] / whole[1] != 60 / 50
            else:
                # Both sides are truncated products with the same factor.
                assert abs(whole[0] - whole[1] * 60 / 50) <= 1.2
        assert cut > 0
    batch = next(iter(loader))
    (left, right), ids = (np.from_dlpack(batch[name]) for name in ("left.jpg", "right.jpg")), batch.sample_ids
    # The second image has the crop of the first, from the same boxes.
    assert np.array_equal(left, right)
    values, offsets = (np.from_dlpack(part) for part in batch["boxes.npy"])
    for place, number in enumerate(np.from_dlpack(ids)):
        rows = values[offsets[place] : offsets[place + 1]]
        assert len(rows) == (0, 2, len(HOSTILE))[number % 3]
        if number % 3 == 1:
            is_dropped = (rows == 0).all(axis=1)
            assert not is_dropped.all()
            assert (rows[~is_dropped, 4] > 0).all()


def test_exactly_one_field_of_boxes_must_follow_the_image(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no boxes that follow .left.jpg., but RandomIoUCrop"):
        made(root, "left.jpg")
    boxes = [fields.Boxes(name, optional=True) for name in ("boxes.npy", "other.npy")]
    with pytest.raises(
        ConfigError, match=r'has several boxes .*"boxes.npy", "other.npy"\), but RandomIoUCrop'
    ):
        made(root, "left.jpg", *boxes)
    # Boxes do not affect an image with its own transforms.
    lists = {"left.jpg": CROP, "right.jpg": [T.Resize((9, 9))]}
    follows = fields.Boxes("boxes.npy", optional=True, follows="right.jpg")
    with pytest.raises(ConfigError, match=r"has no boxes that follow .left.jpg."):
        made(root, "left.jpg", "right.jpg", follows, transforms=lists)
    of_right = fields.Boxes("other.npy", optional=True, follows="right.jpg")
    both = made(root, "left.jpg", "right.jpg", boxes[0], of_right, transforms=lists)
    assert both.view(1)["output_width"] == 32


def test_boxes_of_a_bad_file_are_named(tmp_path: Path) -> None:
    def bad(number: int) -> shards.Members:
        return {**sample(number), "boxes.npy": shards.npy(np.zeros((2, 3), np.float32))}

    loader = made(shards.make(tmp_path / "bad", SAMPLES, 1, bad), "left.jpg", fields.Boxes("boxes.npy"))
    for broken in (lambda: loader.view(0), lambda: next(iter(loader))):
        with pytest.raises(SampleError, match=r"boxes\.npy.*must have shape \[boxes, 4\]"):
            broken()
