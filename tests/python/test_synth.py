"""The files of `foreload synth` resemble the photographs that its profiles imitate: sizes, bits per pixel, codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ONLY_ALL
from PIL import ExifTags, Image

RANKS = (5, 25, 50, 75, 95)
"""The percentiles of the values in the tables below and in the summary of the program."""
REAL = {
    "yuv444": (
        0.761,
        (30_223, 87_431, 121_364, 154_916, 212_366),
        (1.95, 4.02, 5.32, 6.82, 9.01),
    ),
    "yuv420": (
        0.203,
        (4_565, 21_277, 34_186, 60_543, 160_179),
        (0.86, 1.25, 1.77, 2.41, 3.90),
    ),
}
"""ImageNet's files by coding: their share, bytes, and bits per pixel (1 000 files, one of each class)."""
SEED_OF_A_TURNED_IMAGE = 2


def synth(folder: Path, *options: object) -> dict:
    """Make a dataset; return the summary of the program."""
    command = [sys.executable, "-m", "foreload", "synth", folder, "--json", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@ONLY_ALL
def test_imagenet_is_like_real_files(tmp_path: Path) -> None:
    made = synth(tmp_path / "made", "--images", 400)
    for coding, (share, sizes, rates) in REAL.items():
        of = made["codings"][coding]
        assert of["images"] == pytest.approx(400 * share, abs=3)
        # For the extreme percentiles of 81 files with 4:2:0, the draw itself varies by a quarter.
        ranks = range(5) if coding == "yuv444" else range(1, 4)
        for at in ranks:
            assert of["bits_per_pixel"][at] == pytest.approx(rates[at], rel=0.2), (coding, RANKS[at])
            assert of["bytes"][at] == pytest.approx(sizes[at], rel=0.3), (coding, RANKS[at])
    assert made["bytes_mean"] == pytest.approx(109_576, rel=0.1)
    codes = made["codes"]
    assert codes["bits_per_code"] == pytest.approx(5.7, abs=0.3)
    assert codes["non_zero_per_block"] == pytest.approx(16.5, abs=2)
    assert codes["end_of_block"] == pytest.approx(27.3, abs=3)
    assert codes["dc_only_blocks"] == pytest.approx(0.091, abs=0.04)


@ONLY_ALL
def test_a_telephones_image_is_turned_by_exif(tmp_path: Path) -> None:
    synth(tmp_path / "made", "--images", 1, "--profile", "phone", "--seed", SEED_OF_A_TURNED_IMAGE)
    (path,) = (tmp_path / "made").rglob("*.jpg")
    with Image.open(path) as image:
        assert image.size == (4032, 3024)
        exif = image.getexif()
    assert exif[0x0112] == 6
    preview = exif.get_ifd(ExifTags.IFD.IFD1)
    assert preview[0x0103] == 6
    start = path.read_bytes().index(b"MM\0*") + preview[0x0201]
    with Image.open(io.BytesIO(path.read_bytes()[start : start + preview[0x0202]])) as small:
        small.load()
        assert max(small.size) <= 160
