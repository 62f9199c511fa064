"""Images that are stored rotated or mirrored: a GPU makes the CPU's batches of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import driver
import foreload
import images
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

pytestmark = pytest.mark.usefixtures("gpu")

RECIPES = {
    "views": [T.Views(2, [T.RandomResizedCrop((33, 21)), T.RandomHorizontalFlip()])],
    "operations": [T.RandomResizedCrop(24), T.RandAugment(), T.ToDtype("float16"), T.RandomErasing(p=1)],
    "padded": [T.RandomZoomOut(fill=9), T.Resize((20, 31))],
    "nearest": [T.RandomResizedCrop(24, interpolation="nearest")],
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed dataset of every orientation."""
    root = tmp_path_factory.mktemp("turned")
    (root / "files").mkdir()
    rng = np.random.default_rng(5)
    for number in range(32):
        exif = Image.Exif()
        exif[0x112] = 1 + number % 8
        path = root / "files" / f"{number:02}.jpg"
        images.photograph(rng).save(path, "JPEG", quality=90, subsampling=number % 3, exif=exif)
    command = [sys.executable, "-m", "foreload", "pack", str(root / "files"), str(root / "packed")]
    subprocess.run(command, check=True, capture_output=True)
    return root / "packed"


def made(root: Path, device: str, **settings: object) -> list[np.ndarray]:
    loader = foreload.ImageLoader(
        root,
        batch_size=8,
        seed=3,
        device=device,
        orientation="apply",
        **settings,
    )
    batches = []
    for batch in loader:
        views = batch.images if isinstance(batch.images, tuple) else (batch.images,)
        batches += [driver.to_host(view) for view in views]
    return batches


@pytest.mark.parametrize("decode", ["fast", "exact"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_turned_images_are_the_cpus(packed: Path, recipe: str, decode: str) -> None:
    settings = dict(transforms=RECIPES[recipe], decode=decode)
    on_gpu, on_cpu = (made(packed, device, **settings) for device in ("cuda", "cpu"))
    for seen, wanted in zip(on_gpu, on_cpu, strict=True):
        assert np.array_equal(seen, wanted)


def test_without_the_cpu_they_are_refused(packed: Path) -> None:
    with pytest.raises(foreload.SampleError, match=r"orientation=.apply. must turn this image"):
        made(packed, "cuda", transforms=RECIPES["views"], cpu_decode="never")
