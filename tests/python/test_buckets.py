"""Buckets: each batch has the size of one bucket, for images of different shapes."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

pytestmark = pytest.mark.filterwarnings("ignore:buckets.*do not fill a batch")

AREA = foreload.Buckets(area=64 * 64, step=16, max_ratio=2.0)
SETTINGS: dict[str, Any] = dict(batch_size=2, buckets=AREA, seed=5, device="cpu")
SIZES = [(96, 64), (64, 96), (80, 80), (150, 70), (33, 99), (120, 100)]
"""(width, height) of the images, in turn."""


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 90 images of six shapes in two classes."""
    root, rng = tmp_path_factory.mktemp("shapes"), np.random.default_rng(3)
    for number in range(90):
        width, height = SIZES[number % len(SIZES)]
        path = root / f"class{number % 2}" / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        small = rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(small).resize((width, height)).save(path, quality=90)
    return root


def sizes() -> set[tuple[int, int]]:
    """Return the sizes of the buckets, (height, width), by the rule."""
    found = {}
    for width in range(16, 1024, 16):
        height = 64 * 64 // (width * 16) * 16
        for w, h in ((width, height), (height, width)):
            if min(w, h) > 0 and max(w, h) <= 2 * min(w, h):
                ratio = (w // math.gcd(w, h), h // math.gcd(w, h))
                found[ratio] = max(found.get(ratio, (0, 0)), (h, w))
    return set(found.values())


def taken(loader: foreload.ImageLoader) -> list[Any]:
    """Return the batches of an epoch: shape, pixels, ids and mask of each."""
    arrays = lambda batch: [np.from_dlpack(of) for of in (batch.images, batch.sample_ids, batch.mask)]  # noqa: E731
    return [(batch.bucket, *(array.copy() for array in arrays(batch))) for batch in loader]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a[0] == b[0] and all(np.array_equal(x, y) for x, y in zip(a[1:], b[1:], strict=True))
        for a, b in zip(one, other, strict=True)
    )


def test_each_image_is_in_the_bucket_nearest_to_it(shapes: Path) -> None:
    loader = foreload.ImageLoader(shapes, last_batch="pad", **SETTINGS)
    seen, steps = [], 0
    for batch in loader:
        steps += 1
        assert batch.bucket in sizes()
        height, width = batch.bucket
        images = np.from_dlpack(batch.images)
        assert images.shape == (2, 3, height, width)
        assert images.flags.c_contiguous
        valid = np.from_dlpack(batch.mask)
        seen += np.from_dlpack(batch.sample_ids)[valid].tolist()
        original, crops = np.from_dlpack(batch.original_sizes), np.from_dlpack(batch.crops)
        assert original.dtype == crops.dtype == np.int64
        for (h, w), (top, left) in zip(original.tolist(), crops.tolist(), strict=True):
            assert (w, h) in SIZES
            far = {size: abs(math.log(size[1] / size[0]) - math.log(w / h)) for size in sizes()}
            assert far[batch.bucket] <= min(far.values()) + 1e-9
            scale = max(height / h, width / w)
            assert 0 <= top <= round(h * scale) - height + 1
            assert 0 <= left <= round(w * scale) - width + 1
    assert sorted(seen) == list(range(90))
    assert len(loader) == steps


def test_a_mirrored_image_has_the_place_of_its_crop_in_the_mirrored_image(shapes: Path) -> None:
    crop = [T.ResizeToCover("bucket"), T.RandomCrop("bucket")]
    settings = dict(SETTINGS, transforms=[*crop, T.RandomHorizontalFlip(1.0)])
    mirrored = foreload.ImageLoader(shapes, **settings)
    upright = foreload.ImageLoader(shapes, **dict(SETTINGS, transforms=crop))
    for one, other in zip(mirrored, upright, strict=True):
        height, width = one.bucket
        assert np.array_equal(np.from_dlpack(one.images), np.from_dlpack(other.images)[..., ::-1])
        pairs = zip(*(np.from_dlpack(of) for of in (one.original_sizes, one.crops, other.crops)), strict=True)
        for (h, w), seen, unseen in pairs:
            resized = width if width * h >= height * w else int(w * height / h + 0.5)
            assert seen.tolist() == [unseen[0], max(resized, width) - unseen[1] - width]


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_resumed_at_every_step_the_rest_is_the_same(shapes: Path, last_batch: str) -> None:
    settings = dict(SETTINGS, batch_size=4, last_batch=last_batch)
    loader = foreload.ImageLoader(shapes, **settings)
    whole = taken(loader)
    assert same(taken(foreload.ImageLoader(shapes, **settings)), whole)
    states = [loader.state_dict()]
    first = foreload.ImageLoader(shapes, **settings)
    for number, _ in enumerate(first, 1):
        state = json.loads(json.dumps(first.state_dict()))
        resumed = foreload.ImageLoader(shapes, **settings)
        resumed.load_state_dict(state)
        if number < len(whole):
            assert same(taken(resumed), whole[number:])
        else:
            assert resumed.epoch == 1
    assert states[0]["buckets"]["steps"] == len(whole)
    other = foreload.ImageLoader(shapes, **dict(settings, buckets=[(64, 64), (32, 96)]))
    with pytest.raises(foreload.ConfigError, match=r"buckets was .* and is"):
        other.load_state_dict(state)


def test_an_epoch_continues_on_other_numbers_of_ranks(shapes: Path) -> None:
    def ranks(world: int, state: Any = None, steps: int | None = None) -> tuple[list[Any], Any]:
        """Return the global batches by rank, and the state after them."""
        batches: list[Any] = []
        for rank in range(world):
            place = dict(batch_size=8 // world, rank=rank, world_size=world, last_batch="pad")
            loader = foreload.ImageLoader(shapes, **dict(SETTINGS, **place))
            if state is not None:
                loader.load_state_dict(state)
            for number, batch in enumerate(loader):
                if number == len(batches):
                    batches.append([])
                images, ids = np.from_dlpack(batch.images), np.from_dlpack(batch.sample_ids)
                batches[number] += list(
                    zip([batch.bucket] * len(ids), ids.tolist(), images.copy(), strict=True)
                )
                if number + 1 == steps:
                    break
            saved = loader.state_dict()
        return batches, saved

    def agree(one: list[Any], other: list[Any]) -> bool:
        flat = [[place for batch in batches for place in batch] for batches in (one, other)]
        return len(flat[0]) == len(flat[1]) and all(
            a[:2] == b[:2] and np.array_equal(a[2], b[2]) for a, b in zip(*flat, strict=True)
        )

    whole, _ = ranks(8)
    assert all(len({place[0] for place in batch}) == 1 for batch in whole)
    begun, state = ranks(8, steps=3)
    more, later = ranks(4, state, steps=4)
    rest, _ = ranks(2, later)
    assert agree(begun + more + rest, whole)


def test_torch_dicts_have_the_shapes(shapes: Path) -> None:
    torch = pytest.importorskip("torch")
    from foreload.torch import ImageDataset

    with_fields = ImageDataset(
        shapes, fields=["image", "label"], memory_format=torch.channels_last, **SETTINGS
    )
    for batch in with_fields:
        height, width = batch["bucket"]
        assert batch["image"].shape == (2, 3, height, width)
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert batch["original_sizes"].dtype == batch["crops"].dtype == torch.int64
        assert batch["original_sizes"].shape == batch["crops"].shape == (2, 2)
    shapes_of = {tuple(images.shape) for images, _ in ImageDataset(shapes, **SETTINGS)}
    assert shapes_of == {(2, 3, *size) for size in sizes()}


def test_shared_batches_are_those_of_a_loader_alone(shapes: Path, runtime: Path) -> None:
    alone = taken(foreload.ImageLoader(shapes, **SETTINGS))
    assert same(taken(foreload.ImageLoader(shapes, shared="shapes", **SETTINGS)), alone)
    listed = dict(SETTINGS, buckets=[(64, 64), (48, 80)])
    shared = taken(foreload.ImageLoader(shapes, shared="shapes", **listed))
    assert same(taken(foreload.ImageLoader(shapes, **listed)), shared)
    assert {batch[0] for batch in shared} == {(64, 64), (48, 80)}


def test_files_come_by_buckets_for_decoders_of_your_own(shapes: Path) -> None:
    for batch in foreload.FileLoader(shapes, batch_size=3, buckets=[(64, 64), (48, 96), (96, 48)]):
        assert batch.bucket in ((64, 64), (48, 96), (96, 48))
        for number in np.from_dlpack(batch.sample_ids).tolist():
            names = sorted(shapes.glob("*/*.jpg"))
            with Image.open(names[number]) as image:
                ratio = math.log(image.width / image.height)
            nearest = min(((64, 64), (48, 96), (96, 48)), key=lambda of: abs(math.log(of[1] / of[0]) - ratio))
            assert batch.bucket == nearest


def test_a_view_is_that_of_the_batch(shapes: Path) -> None:
    loader = foreload.ImageLoader(shapes, **SETTINGS)
    batch = next(iter(loader))
    view = loader.view(int(np.from_dlpack(batch.sample_ids)[0]), epoch=0)
    assert (view["output_height"], view["output_width"]) == batch.bucket
    left = view["resized_width"] - view["left"] - view["output_width"] if view["flip"] else view["left"]
    assert np.from_dlpack(batch.crops)[0].tolist() == [view["top"], left]


def test_settings_of_buckets() -> None:
    assert repr(AREA) == "foreload.Buckets(area=4096, step=16, max_ratio=2.0)"
    assert foreload.Buckets(100).step == 64
    for wrong in ({}, {"area": 0}, {"area": 4096, "max_ratio": 0.5}, {"area": 4096, "size": 3}):
        with pytest.raises(foreload.ConfigError):
            foreload.Buckets(**wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 512}, "buckets: is 512, must be a foreload.Buckets"),
        ({"buckets": [512, 512]}, "buckets: is"),
        ({"buckets": foreload.Buckets(100)}, "has no size: raise area"),
        ({"buckets": foreload.Buckets(1 << 20, 8, 16.0)}, "at most 255: raise step"),
        ({"transforms": [T.Resize((32, 32))]}, 'has no size="bucket"'),
        ({"transforms": [T.ResizeToCover("bucket")]}, "of varying size"),
        ({"transforms": [T.RandomCrop("bucket")], "buckets": None}, "buckets is not set"),
        ({"device": "cuda"}, 'use device="cpu"'),
        ({"image_size": 99}, "image_size: cannot be used with buckets"),
        ({"repeats": 2}, "repeats: cannot be used with buckets"),
        ({"shuffle": "blocks"}, 'shuffle: is "blocks"'),
        ({"batch_size": 64}, "no bucket has the 64 samples"),
    ],
    ids=str,
)
def test_refusals(shapes: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(foreload.ConfigError) as refused:
        next(iter(foreload.ImageLoader(shapes, **{**SETTINGS, **settings})))
    assert message in str(refused.value)


def test_samples_that_fill_no_batch_are_reported(shapes: Path) -> None:
    with pytest.warns(foreload.Warning, match=r"of 90 samples .* do not fill a batch of their size"):
        list(foreload.ImageLoader(shapes, **dict(SETTINGS, batch_size=8)))


def test_caches_and_packed_shards_give_the_same_batches(shapes: Path, tmp_path: Path) -> None:
    alone = taken(foreload.ImageLoader(shapes, **SETTINGS))
    cached = foreload.ImageLoader(shapes, cache=foreload.Ram("20MB"), **SETTINGS)
    assert same(taken(cached), alone)
    cached.set_epoch(0)
    assert same(taken(cached), alone)
    words = [sys.executable, "-m", "foreload", "pack", str(shapes), str(tmp_path / "packed")]
    subprocess.run(words, check=True, capture_output=True)
    assert same(taken(foreload.ImageLoader(tmp_path / "packed", **SETTINGS)), alone)


def test_masks_have_the_size_of_the_bucket(shapes: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "000.tar", "w") as tar:
        for number, path in enumerate(sorted(shapes.glob("*/*.jpg"))):
            with Image.open(path) as image:
                mask = io.BytesIO()
                # Columns of the mask have their numbers, so that a crop shows its place.
                columns = np.arange(image.width, dtype=np.uint8)
                Image.fromarray(np.tile(columns, (image.height, 1))).save(mask, "png")
            for ending, data in (("jpg", path.read_bytes()), ("seg.png", mask.getvalue())):
                member = tarfile.TarInfo(f"{number:03}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    crop = [T.ResizeToCover("bucket"), T.RandomCrop("bucket")]
    asked = ["jpg", foreload.fields.Mask("seg.png", name="mask")]
    loader = foreload.Loader(tmp_path, fields=asked, transforms=crop, **SETTINGS)
    seen = set()
    for batch in loader:
        height, width = batch.bucket
        masks = np.from_dlpack(batch["mask"])
        assert masks.shape == (2, height, width)
        assert np.from_dlpack(batch["jpg"]).shape == (2, 3, height, width)
        shapes_of = zip(
            np.from_dlpack(batch.original_sizes).tolist(), np.from_dlpack(batch.crops).tolist(), strict=True
        )
        for mask, ((h, w), (_, left)) in zip(masks, shapes_of, strict=True):
            resized = width if width * h >= height * w else max(width, int(w * height / h + 0.5))
            place = ((np.arange(width) + left + 0.5) * w / resized).astype(int)
            assert np.abs(mask.astype(int) - place).max() <= 1
        seen.add(batch.bucket)
    assert seen == sizes()


STORED = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_90",
    7: "TRANSVERSE",
}
"""By orientation: what makes a stored image of an upright one. 8 is `ROTATE_270`."""


def test_turned_images_are_in_the_bucket_of_what_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    for number in range(32):
        width, height = SIZES[number % len(SIZES)]
        image, orientation = (
            Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)),
            1 + number % 8,
        )
        exif = Image.Exif()
        exif[0x0112] = orientation
        turn = STORED.get(orientation, "ROTATE_270")
        stored = image if orientation == 1 else image.transpose(getattr(Image.Transpose, turn))
        for folder, of in (("upright", image), ("turned", stored)):
            path = tmp_path / folder / "a" / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            of.save(path, exif=exif if folder == "turned" else None)
    command = [
        sys.executable,
        "-m",
        "foreload",
        "pack",
        str(tmp_path / "turned"),
        str(tmp_path / "packed"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    cover = [T.ResizeToCover("bucket"), T.CenterCrop("bucket")]
    settings = {**SETTINGS, "transforms": cover, "decode": "exact", "shuffle": False, "last_batch": "pad"}
    upright = taken(foreload.ImageLoader(tmp_path / "upright", **settings))
    assert {batch[0] for batch in upright} >= {(64, 64), (48, 80)}
    for folder in ("turned", "packed"):
        assert same(taken(foreload.ImageLoader(tmp_path / folder, orientation="apply", **settings)), upright)
