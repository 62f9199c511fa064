"""Small datasets with every kind of file that affects the choice of a backend. Sample i is the i-th path in sorted
order.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

BASELINE = {"s444": 0, "s422": 1, "s420": 2}
"""Baseline JPEGs by chroma subsampling. The hardware engine is made for these."""
OTHERS = ("gray", "progressive", "restart", "cmyk", "png", "rgb", "tiny")
KINDS = (*BASELINE, *OTHERS)
HOST_ONLY = ("cmyk", "png")
"""Files that nvJPEG does not decode to planes of Y, Cb and Cr. The CPU decodes these."""
ANY_BACKEND = ("rgb", "tiny")
"""Planes of red, green and blue, and images smaller than a block: the library may accept or reject them."""


def photograph(rng: np.random.Generator, low: int = 60, high: int = 160) -> Image.Image:
    """Return smooth colours with some noise, of a random size."""
    height, width = (int(side) for side in rng.integers(low, high, size=2))
    coarse = Image.fromarray(rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = smooth + rng.integers(-12, 13, size=smooth.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def mask(rng: np.random.Generator, size: tuple[int, int]) -> bytes:
    """Return a PNG of this width and height with class numbers in blocks."""
    blocks = rng.integers(0, 21, (20, 20), dtype=np.uint8)
    return encode(Image.fromarray(np.kron(blocks, np.ones((9, 9), np.uint8))).crop((0, 0, *size)), "png")


def write_shard(path: Path, samples: Iterable[dict[str, bytes]]) -> None:
    """Write a tar shard of samples. Each sample maps its keys to the bytes of its members."""
    with tarfile.open(path, "w") as tar:
        for number, members in enumerate(samples):
            for key, data in members.items():
                header = tarfile.TarInfo(f"{number:04}.{key}")
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))


def encode(image: Image.Image, kind: str) -> bytes:
    """Return the bytes of a file of this kind."""
    out = io.BytesIO()
    if kind == "png":
        image.save(out, "PNG")
    elif kind in BASELINE:
        image.save(out, "JPEG", quality=90, subsampling=BASELINE[kind])
    elif kind == "gray":
        image.convert("L").save(out, "JPEG", quality=90)
    elif kind == "cmyk":
        image.convert("CMYK").save(out, "JPEG", quality=90)
    elif kind == "progressive":
        image.save(out, "JPEG", quality=90, subsampling=2, progressive=True)
    elif kind == "rgb":
        image.save(out, "JPEG", quality=90, keep_rgb=True)
    elif kind == "tiny":
        image.crop((0, 0, 5, 3)).save(out, "JPEG", quality=90, subsampling=2)
    elif kind == "restart":
        image.save(out, "JPEG", quality=90, subsampling=2, restart_marker_rows=1)
    else:
        raise ValueError(kind)
    return out.getvalue()


def make(root: Path, kinds: tuple[str, ...] = tuple(BASELINE), samples: int = 60, seed: int = 0) -> Path:
    """Write `samples` files in three classes, kinds in turn."""
    rng = np.random.default_rng(seed)
    for number in range(samples):
        kind = kinds[number % len(kinds)]
        suffix = "png" if kind == "png" else "jpg"
        path = root / f"class_{3 * number // samples}" / f"{number:05}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photograph(rng), kind))
    return root


def count(samples: int, kinds: tuple[str, ...]) -> int:
    """Return how many of `samples` files of all kinds are of these kinds."""
    return sum(KINDS[number % len(KINDS)] in kinds for number in range(samples))


def paths(root: Path) -> list[Path]:
    """Return the files by sample id."""
    return sorted(root.glob("*/*.*"))


def damage(path: Path) -> None:
    """Keep the header and the length of a file, and destroy the picture."""
    whole = path.read_bytes()
    path.write_bytes(whole[:300].ljust(len(whole), b"\0"))
