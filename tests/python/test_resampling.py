"""The pass compared with Pillow's `resize`, torch's `interpolate` and NumPy's `pad`, on the crops that were drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import transforms as T
from PIL import Image

# The height and width of images and of outputs.
SIZES = [(1, 1), (2, 3), (1, 50), (37, 1), (17, 16), (40, 61), (97, 64), (160, 211), (300, 90), (33, 400)]
TARGETS = [(1, 1), (5, 4), (16, 16), (31, 57), (96, 64), (224, 224)]


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return images stored without loss: smooth ones, noise, and text in black on white."""
    folder = tmp_path_factory.mktemp("resampled") / "pixels"
    random = np.random.default_rng(5)
    for number, (height, width) in enumerate(SIZES):
        y, x = np.mgrid[:height, :width]
        waves = np.stack([np.sin(x / (3 + c) + c) + np.cos(y / (5 - c)) for c in range(3)], axis=-1)
        kinds = {
            "smooth": 127.5 + 63 * waves,
            "noise": random.integers(0, 256, (height, width, 3)),
            "text": 255.0 * np.repeat(random.integers(0, 2, (height, width, 1)), 3, axis=-1),
        }
        for name, kind in kinds.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(kind.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


def drawn(
    folder: Path, steps: list[T.Transform], decode: str = "exact"
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Yield for each image the result of the pass, the source pixels, and the view."""
    loader = foreload.ImageLoader(
        folder,
        batch_size=len(SIZES),
        seed=7,
        transforms=steps,
        decode=decode,
        memory_format="nhwc",
        device="cpu",
        index_dir=folder.parent,
    )
    for batch in loader:
        for image, sample in zip(np.from_dlpack(batch.images), np.from_dlpack(batch.sample_ids), strict=True):
            with Image.open(loader.locate(int(sample))[0]) as source:
                yield image, np.asarray(source.convert("RGB")), loader.view(int(sample))


def cropped(source: np.ndarray, view: dict[str, Any]) -> np.ndarray:
    """Return the source pixels of a crop that is resized as a whole."""
    y, x = view["y"], view["x"]
    return source[y : y + view["height"], x : x + view["width"]]


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_exact_is_pillow(pixels: Path, filter_name: str) -> None:
    of_pillow = Image.Resampling[filter_name.upper()]
    differences, elsewhere = [], []
    for target in TARGETS:
        for image, source, view in drawn(
            pixels, [T.RandomResizedCrop(target, scale=(0.2, 1), interpolation=filter_name)]
        ):
            crop = cropped(source, view)
            # Columns are resized first, then rows: with two calls, all versions of Pillow do the same.
            wide = Image.fromarray(crop).resize((target[1], crop.shape[0]), of_pillow)
            expected = np.asarray(wide.resize((target[1], target[0]), of_pillow))
            difference = np.abs(image.astype(int) - expected)
            assert difference.max() <= 2, (target, view)
            differences.append(difference.ravel())
            at_once = np.asarray(Image.fromarray(crop).resize((target[1], target[0]), of_pillow))
            elsewhere.append(np.abs(image.astype(int) - at_once).ravel())
    assert np.concatenate(differences).mean() <= 0.005
    assert np.concatenate(elsewhere).mean() <= 0.04


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_fast_stays_close(pixels: Path, filter_name: str) -> None:
    # A PNG has no colours to convert: the only differences are the roundings between the passes of `exact`.
    differences = []
    for target in TARGETS:
        steps = [T.RandomResizedCrop(target, scale=(0.2, 1), interpolation=filter_name)]
        for (fast, _, view), (exact, _, same) in zip(
            drawn(pixels, steps, "fast"), drawn(pixels, steps), strict=True
        ):
            assert view == same
            differences.append(np.abs(fast.astype(int) - exact).ravel())
    assert np.concatenate(differences).mean() <= 0.2
    assert np.concatenate(differences).max() <= 2


@pytest.mark.parametrize("decode", ["exact", "fast"])
@pytest.mark.parametrize("filter_name", ["nearest", "nearest-exact"])
def test_nearest_pixels_are_those_of_torch(pixels: Path, filter_name: str, decode: str) -> None:
    torch = pytest.importorskip("torch")
    for target in TARGETS:
        steps = [T.RandomResizedCrop(target, scale=(0.2, 1), interpolation=filter_name)]
        for image, source, view in drawn(pixels, steps, decode):
            # The crop goes through DLPack: a distribution's torch may be built for another NumPy version.
            crop = torch.from_dlpack(cropped(source, view).transpose(2, 0, 1).copy())[None]
            expected = torch.nn.functional.interpolate(crop, size=target, mode=filter_name)
            assert np.array_equal(image, np.from_dlpack(expected[0].permute(1, 2, 0))), (target, view)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_what_is_padded_is_what_was_resized(pixels: Path, filter_name: str, mode: str) -> None:
    # The padding is as wide as the image minus one pixel, which is the most that torchvision reflects.
    for size, pad in itertools.product([(20, 17), (60, 40)], [(3, 5), (16, 11)]):
        fill = (10, 20, 30) if mode == "constant" else 0
        padded = T.Pad((*pad, *reversed(pad)), fill, mode)
        plain = drawn(pixels, [T.Resize(size, filter_name)])
        for (image, _, _), (inner, _, _) in zip(
            drawn(pixels, [T.Resize(size, filter_name), padded]), plain, strict=True
        ):
            left, top = pad
            widths = ((top, left), (left, top))
            if mode == "constant":
                expected = np.full((size[0] + left + top, size[1] + left + top, 3), fill, np.uint8)
                expected[top : top + size[0], left : left + size[1]] = inner
            else:
                expected = np.pad(inner, (*widths, (0, 0)), mode)
            assert np.array_equal(image, expected), (size, pad)
