"""A real torchvision, given the numbers that were drawn for a sample, makes the pixels of the batch."""

from __future__ import annotations

import functools
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from conftest import need
from foreload import ImageLoader
from foreload import transforms as T
from PIL import Image

with need("torchvision"):
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import InterpolationMode, v2

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches" / "transforms"))
import replay

# The largest mean difference, in 8-bit levels, over all images; `make fidelity` measures 0.033 over 500 photographs.
EXACT_MEAN = 0.25


@pytest.mark.parametrize("how", ["bilinear", "bicubic", "nearest", "nearest-exact"])
@pytest.mark.parametrize("mode", [None, "constant", "edge", "reflect", "symmetric"])
def test_what_is_drawn_gives_torchvisions_pixels(dataset: Path, how: str, mode: str | None) -> None:
    padding = {"padding_mode": mode or "constant", "fill": [9, 99, 199] if mode == "constant" else 0}
    steps = {
        None: [T.RandomHorizontalFlip(), T.RandomResizedCrop((44, 52), interpolation=how)],
        "constant": [T.RandomResizedCrop(40, interpolation=how), T.Pad((1, 2, 3, 4), **padding)],
        "edge": [T.Resize(50, how), T.RandomCrop((48, 56), padding=(8, 6), pad_if_needed=True, **padding)],
    }.get(mode, [T.Resize((40, 44), how), T.RandomCrop(40, padding=9, **padding)])
    if how.startswith("nearest"):
        steps = sorted(steps, key=lambda step: isinstance(step, T.RandomHorizontalFlip))
    else:
        steps = [*steps, T.RandomHorizontalFlip()]
    loader = ImageLoader(dataset, batch_size=20, seed=4, transforms=steps, decode="exact", device="cpu")
    differences = []
    for batch in loader:
        for image, sample in zip(
            torch.from_dlpack(batch.images), torch.from_dlpack(batch.sample_ids), strict=True
        ):
            with Image.open(loader.locate(int(sample))[0]) as source:
                pixels = v2.functional.pil_to_tensor(source.convert("RGB"))
            resize = functools.partial(v2.functional.resize, interpolation=InterpolationMode(how))
            expected = replay.placed(pixels, loader.view(int(sample)), resize, **padding)
            assert image.shape == expected.shape
            differences.append((image.float() - expected.float()).abs().mean())
    assert len(differences) == 60
    assert torch.stack(differences).mean() <= EXACT_MEAN


def test_two_images_and_a_mask_are_what_one_call_of_torchvision_gives(tmp_path: Path) -> None:
    """v2 applies the same draws to all images of a call; here a secondary image gets the draws of the first image."""

    class Drawn(v2.RandomResizedCrop):
        """Crop with the numbers that Foreload drew, instead of torchvision's own."""

        def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
            return {"top": view["y"], "left": view["x"], "height": view["height"], "width": view["width"]}

        _get_params = make_params

    def sample(number: int) -> shards.Members:
        rng = np.random.default_rng(number)
        width, height = (int(side) for side in rng.integers(60, 120, size=2))
        smooth = [Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)) for _ in range(2)]
        left, right = (shards.saved(coarse.resize((width, height)), "png") for coarse in smooth)
        return {
            "left.png": left,
            "right.png": right,
            "seg.png": shards.mask(rng.integers(0, 9, (height, width))),
        }

    shards.make(tmp_path, 24, 1, sample)
    asked = ["left.png", "right.png", "seg.png"]
    steps = [T.RandomResizedCrop((40, 44)), T.RandomHorizontalFlip()]
    loader = ImageLoader(
        tmp_path, batch_size=12, seed=2, fields=asked, transforms=steps, decode="exact", device="cpu"
    )
    values = other = 0
    for batch in loader:
        found = [torch.from_dlpack(batch[name]) for name in asked]
        for place, number in enumerate(torch.from_dlpack(batch.sample_ids).tolist()):
            view, members = loader.view(number), sample(number)
            pictures = [Image.open(io.BytesIO(members[name])) for name in asked]
            left, right = (tv_tensors.Image(picture) for picture in pictures[:2])
            mask = tv_tensors.Mask(torch.from_numpy(np.asarray(pictures[2]).copy()))
            call = v2.Compose([Drawn((40, 44), antialias=True), v2.RandomHorizontalFlip(float(view["flip"]))])
            for field, expected in zip(found, call(left, right, mask), strict=True):
                difference = (field[place].int() - expected.int()).abs()
                if isinstance(expected, tv_tensors.Mask):
                    other += int((difference > 0).sum())
                    values += difference.numel()
                else:
                    assert difference.float().mean() <= EXACT_MEAN
                    assert difference.max() <= 2
    assert other <= 1e-4 * values
