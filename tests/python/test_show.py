"""`foreload show --recipe` and `loader.show()`: what a network sees, as a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import foreload
import pytest
from foreload import transforms as T

PNG = b"\x89PNG\r\n\x1a\n"


def shown(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `foreload show`."""
    command = [sys.executable, "-m", "foreload", "show", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_recipe_is_shown_by_name(dataset: Path, tmp_path: Path) -> None:
    sheets = []
    for words in (["--recipe", "mae"], ["--recipe=mae"], ["--recipe", "clip"]):
        out = tmp_path / "sheet.png"
        done = shown(dataset, *words, "--out", out, "--rows", "2")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(out)
        sheets.append(out.read_bytes())
    assert sheets[0].startswith(PNG)
    assert sheets[0] == sheets[1] != sheets[2]


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
    # It disturbs no iteration, and follows the epoch.
    batches = iter(loader)
    first = next(batches)
    assert (
        loader.show([1, 5], epoch=0, epochs=2).png == sheet.png != loader.show([1, 5], epoch=1, epochs=2).png
    )
    assert len(first) + sum(len(batch) for batch in batches) == loader.samples // 4 * 4


def test_what_cannot_be_shown_is_refused(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32)
    with pytest.raises(foreload.ConfigError, match="sample_id: is 10000"):
        loader.show([10_000])
    with pytest.raises(foreload.ConfigError, match="rows: is 0"):
        loader.show(rows=0)
    with pytest.raises(foreload.ConfigError, match="epochs"):
        loader.show(epochs="two")
