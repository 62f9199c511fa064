"""Makes shards of samples with several fields, member by member, with Python's own tarfile."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image

Members = dict[str, bytes]
"""The members of a sample, by the extensions of their names."""


def jpeg(rng: np.random.Generator, width: int, height: int) -> bytes:
    """Return smooth colours."""
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return saved(coarse.resize((width, height), Image.Resampling.BICUBIC), "jpeg", quality=92)


def mask(values: np.ndarray, mode: str = "P") -> bytes:
    """Return a PNG of class numbers: with a palette (P), gray (L), or of 16 bits (I;16)."""
    image = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.uint8))
    if mode == "P":
        image = image.convert("L")
        image.putpalette(
            [value % 256 for number in range(256) for value in (37 * number, 91 * number, number)]
        )
    return saved(image, "png")


def saved(image: Image.Image, kind: str, **how: object) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Return an array as numpy.save writes it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def sample(number: int) -> Members:
    """Return sample `number` of the usual shards; each of its values depends on the number."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(50, 120, size=2))
    blocks = rng.integers(0, 21, (height // 7 + 1, width // 9 + 1), dtype=np.uint8)
    values = np.kron(blocks, np.ones((7, 9), np.uint8))[:height, :width]
    return {
        "cls": str(number % 5).encode(),
        "jpg": jpeg(rng, width, height),
        "json": json.dumps({"id": number, "tags": ["a", "ü"] * (number % 3)}).encode(),
        "npy": npy(np.full((number % 4 + 1, 2), number, np.float32)),
        "seg.png": mask(values),
        "txt": f"caption {number}, größer".encode(),
    }


def pair(number: int) -> Members:
    """Return sample `number` of pairs: two pictures, the first with depth and mask, the second smaller with mask and
    boxes.
    """
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(40, 90, size=2))
    values = rng.integers(0, 21, (height, width), dtype=np.uint8)
    return {
        "left.jpg": jpeg(rng, width, height),
        "right.jpg": jpeg(rng, width, height),
        "depth.png": saved(Image.fromarray(rng.integers(0, 256, (height, width), dtype=np.uint8)), "png"),
        "small.jpg": jpeg(rng, 33, 30),
        "seg.png": mask(values),
        "small.seg.png": mask(values[:30, :33]),
        "small.npy": npy(np.array([[1, 2, 30, 20]])),
        "cls": str(number % 5).encode(),
    }


def write(path: Path, samples: Iterable[tuple[str, Members]]) -> None:
    """Write a shard in which the members of each sample are adjacent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as shard:
        for stem, members in samples:
            for key, data in members.items():
                header = tarfile.TarInfo(f"{stem}.{key}")
                header.size = len(data)
                shard.addfile(header, io.BytesIO(data))


def make(root: Path, count: int = 48, shards: int = 3, made: Callable[[int], Members] = sample) -> Path:
    """Write a directory of shards whose samples have the same numbers as in the index."""
    each = count // shards
    for shard in range(shards):
        numbers = range(shard * each, (shard + 1) * each)
        write(root / f"{shard:03}.tar", ((f"{number:06}", made(number)) for number in numbers))
    return root
