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
"""The height and width of the images, which are not multiples of a block."""
SETTINGS = {
    "batch_size": 1,
    "train": False,
    "image_size": SIZE,
    "resize": min(SIZE),
    "device": "cpu",
    "dtype": "uint8",
    "memory_format": "nhwc",
    "decode": "exact",
    "on_error": "zero",
    "max_errors": 1000,
}
"""Settings of loaders that decode every pixel, one image at a time."""


def _damaged(rng: np.random.Generator, mode: str) -> bytes:
    """Return a file of any kind with damage at one to three places in the coded data of its scans."""
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
    _damage(data, rng, _coded(data))
    return bytes(data)


def _damage(data: bytearray, rng: np.random.Generator, places: list[int]) -> None:
    """Change one to three of these places."""
    # Places are changed from the end backwards, so that the offsets of earlier places stay the same.
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


def _of_kind(space: str, factors: list[tuple[int, int]], seed: int, *, damaged: bool) -> bytes:
    """Return a file of this colour space and sampling, which Pillow itself cannot write.

    Its frame header differs from the one with which its data was coded. All components share their tables, so that
    blocks of one component are valid for another, and there are more blocks than needed.
    """
    rng = np.random.default_rng(seed)
    channels = 4 if space in ("CMYK", "YCCK") else 3
    pixels = rng.integers(100, 156, size=(128, 128, 1), dtype=np.uint8).repeat(channels, 2)
    file = io.BytesIO()
    image = Image.fromarray(pixels, "CMYK" if channels == 4 else "RGB")
    image.save(file, "JPEG", quality=85, subsampling=0, **({} if channels == 4 else {"keep_rgb": True}))
    data = bytearray(file.getvalue())
    # The transform, which is the last byte of Adobe's segment, and the frame.
    data[data.index(b"Adobe") + 11] = {"RGB": 0, "YCbCr": 1, "CMYK": 0, "YCCK": 2}[space]
    frame = data.index(b"\xff\xc0") + 4
    data[frame + 1 : frame + 5] = b"".join(side.to_bytes(2, "big") for side in SIZE)
    for component, (across, down) in enumerate(factors[:channels]):
        data[frame + 7 + 3 * component] = across << 4 | down
    if damaged:
        # Only the first blocks are part of the image.
        places = _coded(data)
        _damage(data, rng, places[: len(places) // 4])
    return bytes(data)


def _coded(data: bytes) -> list[int]:
    """Return the offsets of all bytes of coded data in a whole file's scans."""
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
            return np.asarray(Image.open(io.BytesIO(data)).convert("L" if mode == "L" else "RGB"))
    except (OSError, SyntaxError):
        return None


def _complete(data: bytes, mode: str) -> bool:
    """Whether all scans are there: libjpeg smooths a progressive file if scans are missing, and Foreload does not."""
    return b"\xff\xc2" not in data[:700] or data.count(b"\xff\xda") == {"L": 6, "RGB": 10, "CMYK": 18}[mode]


@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_damaged_images_are_pillows(tmp_path: Path, mode: str) -> None:
    files: list[bytes] = []
    directory = tmp_path / "data" / "class"
    directory.mkdir(parents=True)
    for seed in range(300):
        data = _damaged(np.random.default_rng(seed), mode)
        (directory / f"{seed:03}.jpg").write_bytes(data)
        files.append(data)
    loader = foreload.ImageLoader(tmp_path / "data", **SETTINGS)
    compared = 0
    batches = iter(loader)
    for seed, batch in enumerate(batches):
        expected = _by_pillow(files[seed], mode)
        ours = np.from_dlpack(batch.images)[0]
        decoded = bool(np.from_dlpack(batch.mask)[0])
        # One behaviour is not imitated: libjpeg reads fill bytes inside the data twice.
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


KINDS = [
    (space, [(across, down), (1, 1), chroma, (1, 1)])
    for space in ("YCbCr", "RGB", "CMYK", "YCCK")
    for across, down, chroma in [
        (1, 1, (1, 1)),
        (2, 1, (1, 1)),
        (1, 2, (1, 1)),
        (2, 2, (1, 2)),
        (3, 1, (3, 1)),
        (3, 2, (1, 1)),
        (1, 3, (1, 1)),
        (4, 1, (2, 1)),
    ]
]


@pytest.mark.filterwarnings("ignore::foreload.Warning")
def test_every_sampling_and_colour_space_is_pillows(tmp_path: Path) -> None:
    files = [
        (*of, _of_kind(*of, 4 * number + turn, damaged=turn > 0))
        for number, of in enumerate(KINDS)
        for turn in range(4)
    ]
    (tmp_path / "class").mkdir()
    for number, (*_, data) in enumerate(files):
        (tmp_path / "class" / f"{number:03}.jpg").write_bytes(data)
    loader = foreload.ImageLoader(tmp_path, **SETTINGS)
    ours = [(np.from_dlpack(batch.images)[0], bool(np.from_dlpack(batch.mask)[0])) for batch in loader]
    concealed = {of["sample_id"] for of in loader.concealed}
    strict = foreload.ImageLoader(tmp_path, **SETTINGS, damaged="refuse")
    refused = [not np.from_dlpack(batch.mask)[0] for batch in strict]
    for number, (space, factors, data) in enumerate(files):
        what = f"{number}: {space}, {factors}"
        damaged, expected = number % 4 > 0, _by_pillow(data, "RGB")
        image, decoded = ours[number]
        assert decoded == (expected is not None), what
        assert refused[number] == (number in concealed or not decoded), what
        if not damaged:
            assert decoded, what
            assert number not in concealed, what
        if expected is not None:
            difference = np.abs(image.astype(int) - expected).max()
            assert difference <= 1, f"{what}: {difference}"
    assert len(concealed) >= len(files) // 4


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
