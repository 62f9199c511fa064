"""Patchify: images of any size as rows of patches, and batches by the number of patches."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

SIDE = 6
SHAPES = [(20, 31), (6, 6), (13, 40), (37, 12), (25, 25)]
"""(height, width) of the images, in turn."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard of 40 images, each with a mask and its number as the class."""
    root, rng = tmp_path_factory.mktemp("patches"), np.random.default_rng(3)
    with tarfile.open(root / "000.tar", "w") as tar:
        for number in range(40):
            height, width = SHAPES[number % len(SHAPES)]
            out = {"png": io.BytesIO(), "seg.png": io.BytesIO(), "cls": io.BytesIO(str(number).encode())}
            pixels = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(out["png"], "png")
            Image.fromarray(pixels[..., 0]).save(out["seg.png"], "png")
            for ending, data in out.items():
                member = tarfile.TarInfo(f"{number:03}.{ending}")
                member.size = len(data.getvalue())
                data.seek(0)
                tar.addfile(member, data)
    return root


def cropped(image: np.ndarray[Any, Any], side: int = SIDE) -> np.ndarray[Any, Any]:
    """Return the centre of an image, (channels,) rows and columns, that has whole patches."""
    height, width = image.shape[-2:]
    h, w = height // side * side, width // side * side
    top, left = round((height - h) / 2), round((width - w) / 2)
    return image[..., top : top + h, left : left + w]


def expected(images: list[np.ndarray[Any, Any]], order: str) -> list[np.ndarray[Any, Any]]:
    """Return the values, the offsets and the positions of images [3, rows, columns]."""
    values, offsets, positions = [], [0], []
    for image in map(cropped, images):
        rows, columns = image.shape[1] // SIDE, image.shape[2] // SIDE
        cut = image.reshape(3, rows, SIDE, columns, SIDE).transpose(1, 3, 0, 2, 4)
        if order == "nhwc":
            cut = cut.transpose(0, 1, 3, 4, 2)
        values.append(cut.reshape(rows * columns, -1))
        offsets.append(offsets[-1] + rows * columns)
        positions += [(row, column) for row in range(rows) for column in range(columns)]
    return [np.concatenate(values), np.array(offsets, np.int32), np.array(positions, np.int32)]


@pytest.mark.parametrize("order", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "before",
    [
        [],
        [T.Resize(18), T.RandomHorizontalFlip(), T.ToDtype("float32"), T.Normalize([0.5] * 3, [0.2] * 3)],
        [T.Resize((20, 27)), T.CenterCrop((18, 24)), T.ToDtype("float16")],
    ],
    ids=["own sizes", "resized", "one size"],
)
def test_patches_are_those_of_the_images(shards: Path, before: list[Any], order: str) -> None:
    usual: dict[str, Any] = dict(
        batch_size=7, seed=2, memory_format=order, device="cpu", last_batch="partial", decode="exact"
    )
    plain = foreload.ImageLoader(shards, **dict(usual, memory_format="nchw"), transforms=before)
    # Patchify makes the same crop as the CenterCrop.
    without_crop = [step for step in before if not isinstance(step, T.CenterCrop)]
    cut = foreload.ImageLoader(shards, **usual, transforms=[*without_crop, T.Patchify(SIDE)])
    for whole, batch in zip(plain, cut, strict=True):
        assert np.array_equal(np.from_dlpack(whole.sample_ids), np.from_dlpack(batch.sample_ids))
        images = whole["image"]
        found = list(map(np.from_dlpack, batch["image"]))
        each = [*map(np.from_dlpack, images)] if isinstance(images, list) else [*np.from_dlpack(images)]
        for one, other in zip(found, expected(each, order), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        with pytest.raises(AttributeError, match="a tuple of three tensors"):
            _ = batch.images


def test_masks_follow_and_failed_images_have_no_patches(shards: Path) -> None:
    asked = ["png", foreload.fields.Mask("seg.png", name="mask"), "cls"]
    settings: dict[str, Any] = dict(batch_size=8, seed=2, fields=asked, device="cpu", on_error="zero")
    with pytest.warns(foreload.Warning):
        batches = list(foreload.Loader(shards, **settings, transforms=[T.Patchify(13)], keep=9))
    for batch in batches:
        values, offsets, positions = map(np.from_dlpack, batch["png"])
        assert values.shape == (offsets[-1], 3 * 13 * 13)
        assert positions.shape == (offsets[-1], 2)
        for number, cls in enumerate(np.from_dlpack(batch["cls"]).tolist()):
            rows = values[offsets[number] : offsets[number + 1]]
            if min(SHAPES[cls % len(SHAPES)]) < 13:
                assert len(rows) == 0
                assert batch["mask"][number] is None
            elif cls:
                mask = np.from_dlpack(batch["mask"][number])
                height, width = (side // 13 for side in SHAPES[cls % len(SHAPES)])
                red = rows.reshape(height, width, 3, 13, 13)[:, :, 0].transpose(0, 2, 1, 3)
                assert np.array_equal(red.reshape(mask.shape), mask)


@pytest.mark.parametrize("before", [[], [T.Resize(size=None, max_size=48)], [T.Resize((36, 24))]], ids=str)
def test_batches_by_patches_keep_to_the_budget(shards: Path, before: list[Any]) -> None:
    budget = 70
    loader = foreload.ImageLoader(
        shards,
        batch_tokens=budget,
        cost="patches",
        transforms=[*before, T.RandomHorizontalFlip(), T.ToDtype("float16"), T.Patchify(SIDE)],
        seed=4,
        bins=2,
        last_batch="pad",
        device="cpu",
    )
    packing = loader.packing()
    seen, patches, batches = [], 0, 0
    for batch in loader:
        values, offsets, _ = map(np.from_dlpack, batch["image"])
        assert 0 < len(values) == offsets[-1] <= budget
        if np.from_dlpack(batch.mask).all():
            seen += np.from_dlpack(batch.sample_ids).tolist()
            patches, batches = patches + len(values), batches + 1
    assert sorted(seen) == list(range(40))
    assert packing["fullness"] == pytest.approx(patches / batches / budget)
    assert batches == packing["bins"]


def test_a_cost_may_be_patches_and_a_column(shards: Path) -> None:
    loader = foreload.Loader(
        shards, fields=["png", "label"], labels=[5] * 40, cost=["patches", "label"], batch_tokens=60,
        transforms=[T.Patchify(SIDE)], last_batch="partial", device="cpu",
    )  # fmt: skip
    for batch in loader:
        assert np.from_dlpack(batch["png"][1])[-1] + 5 * len(batch) <= 60


def test_torch_has_the_three_tensors(shards: Path) -> None:
    torch = pytest.importorskip("torch")
    from foreload.torch import ImageDataset

    for memory_format in (torch.contiguous_format, torch.channels_last):
        made = ImageDataset(
            shards, batch_size=8, fields=["image"], memory_format=memory_format, device="cpu",
            transforms=[T.ToDtype("float32"), T.Patchify(SIDE)],
        )  # fmt: skip
        for batch in made:
            values, offsets, positions = batch["image"]
            assert offsets.dtype == positions.dtype == torch.int32
            assert values.dtype == torch.float32
            assert values.shape == (offsets[-1], 3 * SIDE * SIDE)
            assert positions.shape == (offsets[-1], 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transforms": [T.Patchify(4), T.ToDtype("float32")]}, "Patchify: must be the last of the list"),
        ({"transforms": [T.CenterCrop(4), T.Patchify(8)]}, "needs images of at least 8"),
        ({"transforms": [T.Patchify(0)]}, "patch"),
        ({"transforms": T.Views(2, [T.Patchify(4)])}, "has Patchify in Views"),
        (
            {"transforms": [T.CenterCrop("bucket"), T.Patchify(4)], "buckets": [(8, 8)]},
            "buckets give each batch",
        ),
        ({"transforms": [T.Resize(8)], "batch_tokens": 9, "cost": "patches"}, "do not end with Patchify"),
        (
            {"transforms": [T.RandomResize(8, 9), T.Patchify(4)], "batch_tokens": 9, "cost": "patches"},
            "RandomResize draws another size",
        ),
    ],
    ids=str,
)
def test_refusals(shards: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(foreload.ConfigError) as refused:
        foreload.ImageLoader(shards, **{"device": "cpu", **settings})
    assert message in str(refused.value)
