"""Damaged JPEGs are decoded like Pillow decodes them, and refused where Pillow refuses them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import foreload
import numpy as np
import pytest
from PIL import Image

SIZE = (72, 104)
"""The height and width of the images, which are not of whole blocks."""


def _damaged(rng: np.random.Generator, mode: str) -> bytes:
    """Return a file of any kind with one to three wrong places in the coded data of its scans."""
    coarse = rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((SIZE[1], SIZE[0]), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth, dtype=np.int16) + rng.integers(-12, 13, size=(*SIZE, 3))
    image = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).convert(mode)
    restarts = {"restart_marker_blocks": int(rng.integers(1, 20))} if rng.integers(2) else {}
    file = io.BytesIO()
    image.save(
        file,
        "JPEG",
        quality=int(rng.integers(20, 98)),
        subsampling=int(rng.integers(3)),
        progressive=bool(rng.integers(3) == 0),
        **restarts,
    )
    data = bytearray(file.getvalue())
    places = _coded(data)
    # Places are changed from the end on, so that those before them stay where they are.
    for at in sorted((int(rng.choice(places)) for _ in range(rng.integers(1, 4))), reverse=True):
        match rng.integers(4):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = int(rng.integers(256))
            case 2:
                data.insert(at, int(rng.integers(256)))
            case _:
                del data[at]
    return bytes(data)


def _coded(data: bytes) -> list[int]:
    """Return where the coded data of a whole file's scans lies, byte by byte."""
    places: list[int] = []
    at = 2
    while data[at + 1] != 0xD9:
        marker = data[at + 1]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        while marker == 0xDA and not (data[at] == 0xFF and data[at + 1] not in (0, *range(0xD0, 0xD8))):
            places.append(at)
            at += 1
    return places


def _by_pillow(data: bytes, mode: str) -> np.ndarray | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    except (OSError, SyntaxError):
        return None


def _complete(data: bytes, mode: str) -> bool:
    """Whether all scans are there: libjpeg smooths a progressive file without them, and Foreload does not."""
    return b"\xff\xc2" not in data[:700] or data.count(b"\xff\xda") == {"L": 6, "RGB": 10}[mode]


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_damaged_images_are_pillows(tmp_path: Path, mode: str) -> None:
    files: list[bytes] = []
    directory = tmp_path / "data" / "class"
    directory.mkdir(parents=True)
    for seed in range(300):
        data = _damaged(np.random.default_rng(seed), mode)
        (directory / f"{seed:03}.jpg").write_bytes(data)
        files.append(data)
    loader = foreload.ImageLoader(
        tmp_path / "data",
        batch_size=1,
        train=False,
        image_size=SIZE,
        resize=min(SIZE),
        dtype="uint8",
        memory_format="nhwc",
        decode="exact",
        on_error="zero",
        max_errors=1000,
        device="cpu",
    )
    compared = 0
    batches = iter(loader)
    for seed, batch in enumerate(batches):
        expected = _by_pillow(files[seed], mode)
        ours = np.from_dlpack(batch.images)[0]
        decoded = bool(np.from_dlpack(batch.mask)[0])
        # One thing is not imitated: libjpeg looks twice at fill bytes inside the data.
        if b"\xff\xff\x00" in files[seed]:
            continue
        assert decoded == (expected is not None), f"seed {seed}: {loader.errors[-1:]}"
        if expected is None or not _complete(files[seed], mode):
            continue
        compared += 1
        if mode == "L":
            assert (ours == expected[..., None]).all(), f"seed {seed}"
        else:
            difference = np.abs(ours.astype(int) - expected)
            assert difference.max() <= 1, f"seed {seed}: {difference.max()}"
    assert compared > 150
    assert batches.stats()["concealed"] == len(loader.concealed) > 100
    for sample in loader.concealed:
        assert sample["path"] == directory / f"{sample['sample_id']:03}.jpg"
        assert sample["offset"] == 0
        assert sample["message"].startswith("concealed damage: ")


def test_damage_is_reported_once(tmp_path: Path) -> None:
    directory = tmp_path / "class"
    directory.mkdir()
    for number in range(3):
        (directory / f"{number}.jpg").write_bytes(_damaged(np.random.default_rng(3), "RGB"))
    loader = foreload.ImageLoader(tmp_path, batch_size=1, image_size=16, train=False, max_errors=0)
    with pytest.warns(foreload.Warning, match='concealed damage: .*damaged="refuse"') as said:
        list(loader)
    assert len(said) == 1
    assert [sample["sample_id"] for sample in loader.concealed] == [0, 1, 2]
    # Warnings are errors in these tests.
    list(loader)
    assert len(loader.concealed) == 3


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_damage_is_refused_where_that_is_asked_for(tmp_path: Path) -> None:
    directory = tmp_path / "class"
    directory.mkdir()
    for seed in range(10):
        (directory / f"{seed}.jpg").write_bytes(_damaged(np.random.default_rng(seed), "RGB"))
    settings = dict(batch_size=1, image_size=16, train=False, on_error="zero", damaged="refuse")
    loader = foreload.ImageLoader(tmp_path, **settings)
    batches = iter(loader)
    assert len(list(batches)) == 10
    assert loader.concealed == []
    assert batches.stats()["concealed"] == 0
    assert len(loader.errors) >= 5
    with pytest.raises(foreload.ConfigError, match="damaged"):
        foreload.ImageLoader(tmp_path, damaged="ignore")
