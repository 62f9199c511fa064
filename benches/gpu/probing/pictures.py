"""JPEGs with known planes: drawn here for the tests of pixels, read from a folder for the tests of speed.

The expected planes come from Pillow's libjpeg, which returns upscaled chroma. So the chroma of drawn pictures rises
evenly: upscaling and averaging do not change it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

STEPS = {"444": (1, 1), "422": (2, 1), "420": (2, 2), "gray": None}
"""The pixels per chroma sample, across and down; only those of nvJPEG's samplings that Pillow can write."""
PILLOW = {"444": 0, "422": 1, "420": 2}
SIZES = {"even": (200, 152), "odd": (203, 157)}
LUMA_TOLERANCE, CHROMA_TOLERANCE = 2, 4
"""The levels by which decoders may differ in rounding; for chroma this includes the error of scaling up and down."""
Region = tuple[int, int, int, int]
"""A rectangle: x, y, width, height."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A file and its planes."""

    file: bytes
    size: tuple[int, int]
    """The width and height."""
    steps: tuple[int, int] | None
    """The chroma sampling; None for gray."""
    planes: tuple[np.ndarray, ...]
    """The rows of samples: Y alone, or Y, Cb, Cr."""

    def shapes(self, form: str, region: Region | None) -> list[tuple[int, int]]:
        """Return width and height of each plane that a decoder writes."""
        width, height = (region or (0, 0, *self.size))[2:]
        if form == "Y" or self.steps is None:
            return [(width, height)]
        across, down = self.steps
        return [(width, height), *[(-(-width // across), -(-height // down))] * 2]

    def expected(self, form: str, region: Region | None) -> list[np.ndarray]:
        """Return the expected planes."""
        x, y, _, _ = region or (0, 0, *self.size)
        parts = []
        for index, (width, height) in enumerate(self.shapes(form, region)[: len(self.planes)]):
            across, down = self.steps if index and self.steps else (1, 1)
            parts.append(self.planes[index][y // down :, x // across :][:height, :width])
        return parts


@cache
def drawn(kind: str, size: tuple[int, int], seed: int, **options: object) -> Picture:
    """Return a picture of smooth luma with noise; all pictures differ."""
    rng = np.random.default_rng(seed)
    width, height = size
    coarse = Image.fromarray(rng.integers(30, 226, size=(5, 7), dtype=np.uint8))
    luma = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
    luma = np.clip(luma + rng.integers(-10, 11, size=luma.shape), 0, 255).astype(np.uint8)
    bands = [Image.fromarray(luma)]
    if kind == "gray":
        return encoded(bands[0], kind, **options)
    down, across = np.mgrid[:height, :width]
    for _ in range(2):
        slope = rng.uniform(-0.2, 0.2, size=2)
        bands.append(Image.fromarray(np.rint(128 + slope[0] * across + slope[1] * down).astype(np.uint8)))
    return encoded(Image.merge("YCbCr", bands), kind, **options)


def encoded(image: Image.Image, kind: str, **options: object) -> Picture:
    out = io.BytesIO()
    sampling = {} if kind == "gray" else {"subsampling": PILLOW[kind]}
    image.save(out, "JPEG", **{"quality": 95, **sampling, **options})
    return described(out.getvalue(), STEPS[kind])


def described(file: bytes, steps: tuple[int, int] | None, only_luma: bool = False) -> Picture:
    image = Image.open(io.BytesIO(file))
    size = image.size
    if image.mode != "L":
        image.draft("L" if only_luma else "YCbCr", size)
    samples = np.asarray(image)
    if samples.ndim == 2:
        return Picture(file, size, steps, (samples,))
    chroma = tuple(averaged(samples[:, :, band], *steps) for band in (1, 2))
    return Picture(file, size, steps, (np.ascontiguousarray(samples[:, :, 0]), *chroma))


def averaged(plane: np.ndarray, across: int, down: int) -> np.ndarray:
    """Return the means of blocks; those at the edges are smaller."""
    for axis, step in ((1, across), (0, down)):
        starts = np.arange(0, plane.shape[axis], step)
        sums = np.add.reduceat(plane.astype(np.float64), starts, axis=axis)
        counts = np.diff(np.append(starts, plane.shape[axis]))
        plane = sums / (counts if axis == 1 else counts[:, None])
    return np.rint(plane).astype(np.uint8)


def regions(size: tuple[int, int]) -> list[Region]:
    """Return regions that begin at whole MCUs: inside, and at the right and lower edges."""
    width, height = size
    return [(48, 32, 64, 48), (128, 96, width - 128, height - 96)]


@cache
def photographs(folder: Path | None, count: int, short: bool) -> list[Picture]:
    """Return pictures with only their luma: files of the folder in turn, or drawn ones if there is no folder."""
    paths = sorted(folder.rglob("*.jpg"))[:count] if folder else []
    files = [path.read_bytes() for path in paths]
    found = [described(file, (2, 2), only_luma=True) for file in files if is_plain(file)]
    if not found:
        size = (96, 80) if short else (500, 375)
        found = [drawn("420", size, seed) for seed in range(8 if short else 64)]
    return [found[index % len(found)] for index in range(count)]


def is_plain(file: bytes) -> bool:
    """Whether it is a baseline file of 4:2:0 with one scan: the kind that most datasets hold."""
    at = 2
    while at + 4 < len(file) and file[at] == 0xFF:
        if file[at + 1] == 0xC0:
            factors = [file[at + 11 + 3 * index] for index in range(file[at + 9])]
            return factors == [0x22, 0x11, 0x11]
        if 0xC1 <= file[at + 1] <= 0xCF and file[at + 1] not in (0xC4, 0xC8, 0xCC):
            return False
        at += 2 + int.from_bytes(file[at + 2 : at + 4], "big")
    return False


def damaged(file: bytes) -> dict[str, bytes]:
    scan = file.rindex(b"\xff\xda")
    return {
        "half of the scan is lost": file[: scan + (len(file) - scan) // 2],
        "half of the scan, with an end marker": file[: scan + (len(file) - scan) // 2] + b"\xff\xd9",
        "no end marker": file[:-2],
        "the scan is zeros": file[: scan + 20] + bytes(len(file) - scan - 22) + b"\xff\xd9",
        "no header": file[:2] + bytes(len(file) - 4) + b"\xff\xd9",
    }
