"""WebP files are decoded like Pillow's `Image.open(...).convert("RGB")`: whole images, without a resize."""

from __future__ import annotations

from pathlib import Path

import foreload
import numpy as np
import pytest
from PIL import Image, features

pytestmark = pytest.mark.skipif(not features.check("webp"), reason="this Pillow has no WebP")

WIDTH, HEIGHT = 61, 47
"""The sizes are odd, so that chroma samples do not fit evenly."""


def picture(seed: int, mode: str) -> Image.Image:
    """Return smooth colours with edges and some noise; alpha goes from transparent to opaque."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, size=(5, 7, 4), dtype=np.uint8)
    image = np.asarray(
        Image.fromarray(coarse, "RGBA").resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    ).copy()
    image[10:20, 5:30, :3] = rng.integers(0, 256, size=3)
    image[25:40, 30:, :3] = np.clip(image[25:40, 30:, :3] + rng.integers(-20, 20, size=(15, 31, 3)), 0, 255)
    image[:8, :, 3] = 0
    return Image.fromarray(image, "RGBA").convert(mode)


KINDS = {
    **{f"lossy {quality}": ("RGB", dict(quality=quality)) for quality in (1, 20, 50, 80, 95, 100)},
    **{f"lossy, method {method}": ("RGB", dict(quality=60, method=method)) for method in (0, 3, 6)},
    "lossy with alpha": ("RGBA", dict(quality=70)),
    "lossy with lossy alpha": ("RGBA", dict(quality=70, alpha_quality=30)),
    "lossless": ("RGB", dict(lossless=True)),
    "lossless, quick": ("RGB", dict(lossless=True, quality=0, method=0)),
    "lossless with alpha": ("RGBA", dict(lossless=True, exact=True)),
    "lossless with alpha, colours behind it lost": ("RGBA", dict(lossless=True)),
    "lossless gray": ("L", dict(lossless=True)),
    "lossless, few colours": ("P", dict(lossless=True)),
    "with texts": (
        "RGB",
        dict(quality=50, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0", icc_profile=b"profile", xmp=b"<x/>"),
    ),
}
ANIMATED = {
    "animation": ("RGB", dict(quality=60)),
    "animation with alpha": ("RGBA", dict(quality=60)),
    "lossless animation": ("RGBA", dict(lossless=True, exact=True)),
}


def write(root: Path, kinds: dict[str, tuple[str, dict[str, object]]]) -> list[Path]:
    """Write a file of each kind; sample i is the i-th."""
    written = []
    for number, (mode, settings) in enumerate(kinds.values()):
        path = root / "class" / f"{number:03}.webp"
        path.parent.mkdir(parents=True, exist_ok=True)
        more = {}
        if kinds is ANIMATED:
            more = dict(save_all=True, append_images=[picture(1000 + number, mode)], duration=100)
        picture(number, mode).save(path, **settings, **more)
        written.append(path)
    return written


def loaded(root: Path) -> np.ndarray:
    """Return all images as decoded, uint8 [n, height, width, 3]."""
    size = {"image_size": (HEIGHT, WIDTH), "resize": min(HEIGHT, WIDTH)}
    loader = foreload.ImageLoader(
        root,
        batch_size=64,
        train=False,
        decode="exact",
        dtype="uint8",
        memory_format="nhwc",
        device="cpu",
        **size,
    )
    (batch,) = loader
    return np.from_dlpack(batch.images)


@pytest.mark.parametrize("kinds", [KINDS, ANIMATED], ids=["still", "animated"])
def test_pixels_are_pillows(tmp_path: Path, kinds: dict[str, tuple[str, dict[str, object]]]) -> None:
    paths = write(tmp_path, kinds)
    images = loaded(tmp_path)
    for name, path, image in zip(kinds, paths, images, strict=True):
        with Image.open(path) as file:
            assert file.format == "WEBP"
            expected = np.asarray(file.convert("RGB"))
        difference = np.abs(image.astype(int) - expected)
        assert difference.max() <= (0 if "lossless" in name else 1), f"{name}: {difference.max()}"


def test_they_are_counted(tmp_path: Path) -> None:
    write(tmp_path, KINDS)
    batches = iter(foreload.ImageLoader(tmp_path, batch_size=len(KINDS), image_size=16, device="cpu"))
    next(batches)
    stats = batches.stats()
    assert (stats["decoded_webp"], stats["decoded_png"], stats["errors"]) == (len(KINDS), 0, 0)


def test_what_pillow_refuses_is_an_error(tmp_path: Path) -> None:
    (path, *_) = write(tmp_path, {"one": KINDS["lossy 80"]})
    whole = path.read_bytes()
    for length in (13, 29, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:length])
        with pytest.raises(OSError, match=r"."), Image.open(path) as file:
            file.load()
        loader = foreload.ImageLoader(tmp_path, batch_size=1, image_size=16, device="cpu", rebuild_index=True)
        with pytest.raises(foreload.SampleError, match="WebP"):
            list(loader)
