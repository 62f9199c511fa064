"""Images whose metadata asks for a rotation are reported on demand, and decoded as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from PIL import ExifTags, Image, PngImagePlugin, features

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


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("jpeg", _exif),
        ("jpeg", _xmp),
        ("png", _exif),
        ("png", _text),
        pytest.param("webp", _exif, marks=WEBP),
        pytest.param("webp", _xmp, marks=WEBP),
    ],
)
def test_turned_images_are_reported_once(tmp_path: Path, kind: str, metadata: Any) -> None:
    (tmp_path / "class").mkdir()
    image = Image.fromarray(np.arange(24 * 40 * 3, dtype=np.uint32).reshape(24, 40, 3).astype(np.uint8))
    for number, orientation in enumerate([None, 1, 6, 3]):
        path = tmp_path / "class" / f"{number}.{kind}"
        image.save(path, kind, **(metadata(orientation) if orientation else {}))
        with Image.open(path) as stored:
            assert stored.getexif().get(ExifTags.Base.Orientation) == orientation
    settings = dict(batch_size=1, train=False, image_size=(24, 40), resize=24, device="cpu", dtype="uint8")
    # Warnings are errors in these tests.
    ignored = [np.from_dlpack(batch.images).copy() for batch in foreload.ImageLoader(tmp_path, **settings)]
    assert len(ignored) == 4
    loader = foreload.ImageLoader(tmp_path, **settings, orientation="warn", threads=1)
    with pytest.warns(
        foreload.Warning, match=r"rotates or mirrors.* sample 2 .*2\.\w+\), with orientation 6"
    ) as said:
        reported = [np.from_dlpack(batch.images).copy() for batch in loader]
    assert len(said) == 1
    assert "exif_transpose" in str(said[0].message)
    for one, other in zip(ignored, reported, strict=True):
        assert (one == other).all()
