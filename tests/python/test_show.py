"""`foreload show --recipe` and `loader.show()`: the input of a network, as a picture."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import recipes
from foreload import transforms as T
from PIL import Image

PNG = b"\x89PNG\r\n\x1a\n"


def shown(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `foreload show`."""
    command = [sys.executable, "-m", "foreload", "show", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_recipe_is_shown_by_name(dataset: Path, tmp_path: Path) -> None:
    sheets = []
    for words in (["--recipe", "mae"], ["--recipe=mae"], ["--recipe", "clip"], ["--recipe", "deit"]):
        out = tmp_path / "sheet.png"
        done = shown(dataset, *words, "--out", out, "--rows", "2")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(out)
        sheets.append(out.read_bytes())
    assert sheets[0].startswith(PNG)
    assert sheets[0] == sheets[1] != sheets[2]
    # DeiT's images are mixed, as in a loader with its settings.
    deit = {**recipes.deit(num_classes=3), "batch_size": 64, "device": "cpu"}
    assert foreload.ImageLoader(dataset, **deit).show(rows=2).png == sheets[3]


def test_an_unknown_recipe_is_refused_with_those_there_are(dataset: Path) -> None:
    for words in (["--recipe", "resnet"], ["--recipe"]):
        done = shown(dataset, *words)
        assert done.returncode == 2
        assert "must be one of byol, cifar, clip" in done.stderr


def test_a_loader_shows_what_it_draws(dataset: Path, tmp_path: Path) -> None:
    transforms = [T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.Grayscale()]
    loader = foreload.ImageLoader(dataset, batch_size=4, transforms=transforms, seed=3)
    sheet = loader.show([1, 5], epochs=2)
    assert sheet._repr_png_() == sheet.png
    assert sheet.png.startswith(PNG)
    assert sheet.save(tmp_path / "sheet.png").read_bytes() == sheet.png
    # It does not affect an iteration, and uses the loader's epoch.
    batches = iter(loader)
    first = next(batches)
    assert (
        loader.show([1, 5], epoch=0, epochs=2).png == sheet.png != loader.show([1, 5], epoch=1, epochs=2).png
    )
    assert len(first) + sum(len(batch) for batch in batches) == loader.samples // 4 * 4


def levels(images: Any) -> np.ndarray:
    """Return the grey levels (n, height, width, 3) of a batch of normalised images."""
    values = np.from_dlpack(images).transpose(0, 2, 3, 1).astype(np.float64)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return np.clip(np.round((values * std + mean) * 255), 0, 255).astype(np.uint8)


def page_of(sheet: Any) -> np.ndarray:
    """Return the grey levels of a sheet."""
    return np.asarray(Image.open(io.BytesIO(sheet.png))).astype(np.int16)


def is_on(page: np.ndarray, image: np.ndarray) -> bool:
    """Whether a page shows this image somewhere, up to rounding."""
    image = image.astype(np.int16)
    height, width = image.shape[:2]
    last = page[height - 1 :, width - 1 :]
    first = page[: last.shape[0], : last.shape[1]]
    corners = np.maximum(np.abs(first - image[0, 0]), np.abs(last - image[-1, -1])).max(axis=2) <= 1
    return any(
        np.abs(page[y : y + height, x : x + width] - image).max() <= 1 for y, x in np.argwhere(corners)
    )


@pytest.mark.parametrize("repeats", [1, 3])
def test_mixed_images_are_shown_mixed(dataset: Path, repeats: int) -> None:
    usual: dict[str, Any] = {
        "batch_size": 12,
        "image_size": 48,
        "seed": 3,
        "device": "cpu",
        "repeats": repeats,
    }
    mix = T.RandomChoice([T.MixUp(alpha=30.0), T.CutMix(alpha=30.0)])
    mixed, plain = foreload.ImageLoader(dataset, mix=mix, **usual), foreload.ImageLoader(dataset, **usual)
    batch = next(iter(mixed.batches(1)))
    page, unmixed = (page_of(loader.show(rows=6, epoch=1)) for loader in (mixed, plain))
    changed = 0
    for position, image in enumerate(levels(batch.images)[:6]):
        assert is_on(page, image)
        drawn = mixed.mix(position, 1)
        if drawn is not None and 0.1 < drawn["lam"] < 0.9:
            assert not is_on(unmixed, image)
            changed += 1
    assert changed >= 2
    # A selected sample is mixed with its partner of the epoch.
    ids = np.from_dlpack(batch.sample_ids).tolist()
    assert is_on(page_of(mixed.show([ids[2]], epoch=1)), levels(batch.images)[2])


def test_a_sample_that_an_epoch_does_not_draw_is_shown_alone(dataset: Path) -> None:
    usual: dict[str, Any] = {"batch_size": 12, "image_size": 48, "device": "cpu", "repeats": 3}
    loader = foreload.ImageLoader(dataset, mix=T.MixUp(), **usual)
    shown = {sample for batch in loader.batches(0) for sample in np.from_dlpack(batch.sample_ids).tolist()}
    left = next(sample for sample in range(60) if sample not in shown)
    assert (
        loader.show([left], epoch=0).png != foreload.ImageLoader(dataset, **usual).show([left], epoch=0).png
    )


def test_what_cannot_be_shown_is_refused(dataset: Path, tmp_path: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    with pytest.raises(
        foreload.ConfigError, match=r"path: is .*a\.jpg, but a sheet is a PNG: name it .*a\.png"
    ):
        loader.show(rows=1).save(tmp_path / "a.jpg")
    assert loader.show(rows=1).save(tmp_path / "A.PNG").exists()
    with pytest.raises(foreload.ConfigError, match="sample_id: is 10000"):
        loader.show([10_000])
    with pytest.raises(foreload.ConfigError, match="rows: is 0"):
        loader.show(rows=0)
    with pytest.raises(foreload.ConfigError, match="epochs"):
        loader.show(epochs="two")
    with pytest.raises(foreload.ConfigError, match=r"rows: asks for 8 .* a sheet has at most 2000"):
        loader.show(epochs=2**64 - 1)
