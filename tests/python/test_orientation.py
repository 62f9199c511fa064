"""Images whose metadata asks for a rotation: reported, or turned upright as Pillow turns them."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
import shards
from foreload import fields
from foreload import transforms as T
from PIL import ExifTags, Image, ImageOps, PngImagePlugin, features

XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="{}"/></x:xmpmeta>'


def _exif(orientation: int) -> dict[str, Any]:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return {"exif": exif}


def _xmp(orientation: int) -> dict[str, Any]:
    return {"xmp": XMP.format(orientation).encode()}


def _text(orientation: int) -> dict[str, Any]:
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", XMP.format(orientation))
    return {"pnginfo": texts}


WEBP = pytest.mark.skipif(not features.check("webp"), reason="this Pillow has no WebP")
KINDS = [
    ("jpeg", _exif),
    ("jpeg", _xmp),
    ("png", _exif),
    ("png", _text),
    pytest.param("webp", _exif, marks=WEBP),
    pytest.param("webp", _xmp, marks=WEBP),
]
EVALUATION: dict[str, Any] = dict(train=False, device="cpu", memory_format="nhwc")


def _noise(width: int, height: int, *, seed: int = 0) -> Image.Image:
    """Make an image with large and small structures, so that every kind of compression leaves differences."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (5, 7, 3), np.uint8)).resize((width, height))
    levels = np.asarray(coarse, np.int16) + random.integers(-20, 20, (height, width, 3))
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(("kind", "metadata"), KINDS)
def test_turned_images_are_reported_once(tmp_path: Path, kind: str, metadata: Any) -> None:
    (tmp_path / "class").mkdir()
    image = _noise(40, 24)
    for number, orientation in enumerate([None, 1, 6, 3]):
        path = tmp_path / "class" / f"{number}.{kind}"
        image.save(path, kind, **(metadata(orientation) if orientation else {}))
        with Image.open(path) as stored:
            assert stored.getexif().get(ExifTags.Base.Orientation) == orientation
    settings = dict(batch_size=1, image_size=(24, 40), resize=24, dtype="uint8", **EVALUATION)
    # Warnings are errors in these tests.
    silent = foreload.ImageLoader(tmp_path, **settings, orientation="ignore")
    ignored = [np.from_dlpack(batch.images).copy() for batch in silent]
    assert len(ignored) == 4
    loader = foreload.ImageLoader(tmp_path, **settings, threads=1)
    match = r"stored rotated or mirrored.* sample 2 .*2\.\w+\), with orientation 6: set orientation=\"apply\""
    with pytest.warns(foreload.Warning, match=match) as said:
        reported = [np.from_dlpack(batch.images).copy() for batch in loader]
    assert len(said) == 1
    for one, other in zip(ignored, reported, strict=True):
        assert (one == other).all()


def _with_rows_halved(image: Image.Image, path: Path, how: dict[str, Any]) -> None:
    """Write a JPEG in 4:4:0, which Pillow does not write: in 4:2:2 it has as many blocks, in the same order."""
    file = io.BytesIO()
    image.resize((63, 40)).save(file, "jpeg", **how)
    header = (b"\xff\xc2" if how["progressive"] else b"\xff\xc0") + b"\x00\x11\x08"
    before, after = file.getvalue().split(header)
    assert after[6] == 0x21
    path.write_bytes(before + header + bytes([0, 79, 0, 31]) + after[4:6] + b"\x12" + after[7:])


def _files(directory: Path) -> list[Path]:
    """Write an image in all orientations, formats, samplings and codings."""
    directory.mkdir()
    image = _noise(53, 37)
    saved: list[tuple[str, str, Image.Image, dict[str, Any]]] = [("png", "png", image, {})]
    if features.check("webp"):
        saved += [("webp", "webp", image, dict(lossless=True)), ("lossy", "webp", image, dict(quality=70))]
    for progressive in (False, True):
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            how = dict(subsampling=sampling, progressive=progressive, quality=85)
            saved.append((f"{sampling.replace(':', '')}-{progressive}", "jpeg", image, how))
        saved.append((f"grey-{progressive}", "jpeg", image.convert("L"), dict(progressive=progressive)))
    for name, kind, picture, how in saved:
        for orientation in range(1, 9):
            path = directory / f"{name}-{orientation}.{kind}"
            picture.save(path, kind, **how, **_exif(orientation))
            if name.startswith("422"):
                _with_rows_halved(picture, directory / f"440{path.name[3:]}", how | _exif(orientation))
    return sorted(directory.iterdir())


def _upright(path: Path) -> Image.Image:
    with Image.open(path) as stored:
        return ImageOps.exif_transpose(stored).convert("RGB")


def test_every_orientation_is_that_of_pillow(tmp_path: Path) -> None:
    paths = _files(tmp_path / "data")
    assert len(paths) >= 88
    loader = foreload.ImageLoader(
        tmp_path / "data",
        batch_size=1,
        orientation="apply",
        decode="exact",
        transforms=[T.ToDtype("uint8")],
        **EVALUATION,
    )
    for path, batch in zip(paths, loader, strict=True):
        (image,) = batch["image"]
        expected = np.asarray(_upright(path))
        assert np.array_equal(np.from_dlpack(image), expected), path.name


CROP = [T.RandomResizedCrop(24), T.RandomHorizontalFlip()]
PADDED = [T.RandomZoomOut(fill=9), T.Resize([20, 31])]


@pytest.mark.parametrize("decode", ["fast", "exact"])
@pytest.mark.parametrize("augment", [CROP, PADDED], ids=["crop", "padded"])
def test_turned_images_are_drawn_as_upright_copies(tmp_path: Path, decode: str, augment: Any) -> None:
    paths = _files(tmp_path / "stored")
    (tmp_path / "upright").mkdir()
    for path in paths:
        _upright(path).save(tmp_path / "upright" / f"{path.stem}.png")

    def images(name: str, orientation: str) -> np.ndarray:
        loader = foreload.ImageLoader(
            tmp_path / name,
            batch_size=len(paths),
            shuffle=False,
            device="cpu",
            transforms=augment,
            decode=decode,
            orientation=orientation,
            last_batch="partial",
        )
        (batch,) = loader
        return np.from_dlpack(batch.images).astype(np.int16)

    turned, upright = images("stored", "apply"), images("upright", "ignore")
    if decode == "exact":
        assert np.array_equal(turned, upright)
        return
    # `fast` converts colours after the resize, and chroma samples are resized as they are stored.
    off = np.abs(turned - upright)
    assert off.mean() < 0.6
    assert np.quantile(off, 0.99) <= 6


def _draws(directory: Path, **settings: Any) -> list[np.ndarray]:
    loader = foreload.ImageLoader(
        directory,
        batch_size=8,
        device="cpu",
        transforms=CROP,
        last_batch="partial",
        seed=3,
        orientation="apply",
        **settings,
    )
    epochs = [[np.from_dlpack(batch.images).copy() for batch in loader] for _ in range(2)]
    return [images for epoch in epochs for images in epoch]


def test_packed_and_cached_images_are_turned(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for number in range(24):
        # Large images, of which packed shards and caches are read in parts.
        picture = _noise(400, 300, seed=number)
        picture.save(
            source / f"{number:02}.jpeg", quality=90, progressive=number % 3 == 0, **_exif(1 + number % 8)
        )
    expected = _draws(source)
    command = [sys.executable, "-m", "foreload", "pack", str(source), str(tmp_path / "packed")]
    subprocess.run(command, check=True, capture_output=True)
    ram = dict(cache=foreload.Ram("64MiB"))
    directory = dict(cache=foreload.Directory(tmp_path / "cache", "64MiB"))
    for place, settings in (
        (tmp_path / "packed", {}),
        (source, ram),
        (source, directory),
        (source, directory),
    ):
        for one, other in zip(expected, _draws(place, **settings), strict=True):
            assert np.array_equal(one, other), (place, settings)


def test_masks_boxes_and_views_are_those_of_the_upright_image(tmp_path: Path) -> None:
    picture = _noise(37, 53)
    values = Image.fromarray(np.random.default_rng(1).integers(0, 21, (53, 37), np.uint8))
    boxes = shards.npy(np.array([[3, 5, 20, 17], [0, 0, 37, 53]], np.float32))
    # What Pillow does to an upright image to store it with each orientation.
    stored_by = dict(enumerate([None, 0, 3, 1, 5, 2, 6, 4], 1))

    def sample(orientation: int, *, is_turned: bool) -> tuple[str, shards.Members]:
        def stored(image: Image.Image, *, turned: bool) -> bytes:
            how = stored_by[orientation] if turned else None
            changed = image if how is None else image.transpose(Image.Transpose(how))
            return shards.saved(changed, "png", **(_exif(orientation) if turned else {}))

        # A mask may be turned by its own metadata, or be upright.
        mask = stored(values, turned=is_turned and orientation in (2, 5, 8))
        members = {"png": stored(picture, turned=is_turned), "mask.png": mask, "npy": boxes}
        return f"{orientation}", members

    def seen(*, is_turned: bool) -> list[Any]:
        root = tmp_path / f"{is_turned}"
        shards.write(root / "0.tar", (sample(orientation, is_turned=is_turned) for orientation in stored_by))
        loader = foreload.ImageLoader(
            root,
            batch_size=8,
            shuffle=False,
            device="cpu",
            orientation="apply",
            decode="exact",
            fields=[fields.Image("png"), fields.Mask("mask.png"), fields.Boxes("npy")],
            transforms=[T.RandomIoUCrop(), T.Resize([24, 31]), T.RandomHorizontalFlip()],
        )
        (batch,) = loader
        values = [np.from_dlpack(batch[name]).copy() for name in ("png", "mask.png")]
        views = [loader.view(number) for number in range(8)]
        assert [view.pop("orientation") for view in views] == (list(stored_by) if is_turned else [1] * 8)
        return [*values, *map(np.from_dlpack, batch["npy"]), views]

    for one, other in zip(seen(is_turned=True), seen(is_turned=False), strict=True):
        assert np.array_equal(one, other)
