"""A real torchvision, given the draws of a sample, moves an image, its mask and its boxes to the same places as the
batch.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from conftest import need
from foreload import ImageLoader, fields
from foreload import transforms as T
from PIL import Image

with need("torchvision"):
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as F

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches" / "transforms"))
import replay

SAMPLES = 40
NAMES = ("png", "seg.png", "boxes.npy")
MOVING = ("horizontal_flip", "vertical_flip", "rotate", "affine")

# The fill of images; masks are padded with 0.
FILL = [9, 99, 199]

# The largest mean difference of images, in 8-bit levels; masks may differ if two pixels are equally near.
IMAGE_MEAN = 0.25
MASK_SHARE = 1e-4


def sample(number: int) -> shards.Members:
    """Return a picture, a mask of noise in which neighbouring pixels differ, and boxes."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(40, 120, size=2))
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    corners = np.sort(rng.uniform(0, 1, (number % 4, 2, 2)), axis=1) * (width, height)
    return {
        "png": shards.saved(coarse.resize((width, height), Image.Resampling.BICUBIC), "png"),
        "seg.png": shards.mask(rng.integers(1, 250, (height, width))),
        "boxes.npy": shards.npy(corners.reshape(-1, 4).astype(np.float32)),
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make(tmp_path_factory.mktemp("geometry"), SAMPLES, 1, sample)


def inputs(number: int) -> list[Any]:
    """Return the values that torchvision transforms together."""
    members = sample(number)
    picture, mask = (Image.open(io.BytesIO(members[name])) for name in NAMES[:2])
    boxes = torch.from_numpy(np.load(io.BytesIO(members["boxes.npy"])))
    size = picture.size[::-1]
    return [
        tv_tensors.Image(picture),
        tv_tensors.Mask(torch.from_numpy(np.asarray(mask).copy())),
        tv_tensors.BoundingBoxes(boxes.reshape(-1, 4), format="XYXY", canvas_size=size),
    ]


def as_drawn(what: Any, view: dict[str, Any], flips_first: bool = False) -> Any:
    """Return the result of torchvision's functions; with `flips_first`, flips come before the resize."""
    fill = FILL if isinstance(what, tv_tensors.Image) else 0
    what = replay.placed(what, view, flips_first=flips_first, fill=fill)
    for op in view["ops"]:
        what = moved(what, **op)
    return what


def moved(what: Any, op: str, **how: Any) -> Any:
    """Return the result of an operation that moves pixels."""
    if op not in MOVING:
        return what
    if "interpolation" in how:
        how["interpolation"] = InterpolationMode(how["interpolation"])
        # A mask is 0 outside of the image; boxes have no fill.
        how["fill"] = how["fill"] if isinstance(what, tv_tensors.Image) else 0
    return getattr(F, op)(what, **how)


def kept(boxes: Any, view: dict[str, Any]) -> Any:
    """Return whether the centre of each box is inside of the part that is resized."""
    left, top, right, bottom = view["padding"]
    x, y = view["x"] - left, view["y"] - top
    width, height = left + view["width"] + right, top + view["height"] + bottom
    corners = boxes.as_subclass(torch.Tensor).reshape(-1, 2, 2)
    centres = corners.mean(dim=1) - torch.tensor([x, y])
    return ((centres > 0) & (centres < torch.tensor([width, height]))).all(dim=1)


LISTS: dict[str, list[T.Transform]] = {
    "segmentation": [
        T.RandomResize(30, 150),
        T.RandomCrop((64, 80), pad_if_needed=True, fill=FILL),
        T.RandomHorizontalFlip(),
    ],
    "detection": [
        T.RandomShortestSize((30, 40, 50), max_size=70),
        T.RandomHorizontalFlip(),
        T.RandomCrop(60, pad_if_needed=True, fill=FILL),
    ],
    "flips": [
        *(T.Resize((50, 45)), T.RandomVerticalFlip(), T.Pad((1, 2, 3, 4), fill=FILL)),
        *(T.RandomCrop((52, 44)), T.RandomHorizontalFlip()),
    ],
    "zoomed out": [
        *(T.Resize((40, 50)), T.RandomZoomOut(FILL, (1, 2), p=0.7)),
        T.RandomCrop(60, pad_if_needed=True, fill=FILL),
    ],
    "rotated": [
        *(T.RandomResizedCrop((64, 52)), T.RandomRotation(70, "bilinear", fill=FILL)),
        *(T.RandomHorizontalFlip(), T.RandomVerticalFlip()),
    ],
    "warped": [
        T.Resize((50, 60)),
        T.RandomAffine(30, (0.2, 0.1), (0.6, 1.4), (-20, 20, -10, 10), center=(20, 30), fill=FILL),
    ],
    "policy": [
        T.RandomResizedCrop(56),
        T.RandAugment(3, 12),
        T.RandomErasing(0.5, value=9),
        T.RandomVerticalFlip(),
    ],
    "zoomed out, then resized": [T.RandomZoomOut(FILL), T.Resize((48, 56)), T.RandomHorizontalFlip()],
    "padded, cut, resized, padded": [
        *(T.RandomVerticalFlip(), T.RandomCrop((50, 60), (0, 3, 9, 1), pad_if_needed=True, fill=FILL)),
        *(T.RandomResizedCrop(64, (0.5, 1)), T.Pad(3, fill=FILL)),
    ],
    "SSD": [T.RandomZoomOut(FILL), T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.Resize((60, 52))],
    "cut by boxes": [T.RandomHorizontalFlip(), T.RandomIoUCrop(0.1, 0.9), T.Resize((40, 40))],
    "jitter": [T.ScaleJitter((64, 64), (0.4, 2)), T.RandomCrop(64, pad_if_needed=True, fill=FILL)],
}

# Other tests compare the colours of these.
COLOURED = ("policy",)

# These mirror before they resize; the later transforms are symmetric.
FLIPPED_FIRST = ("padded, cut, resized, padded", "SSD", "cut by boxes")

# These drop boxes whose centre is outside of the crop.
CUT_BY_BOXES = ("SSD", "cut by boxes")


@pytest.mark.parametrize("name", LISTS)
def test_image_mask_and_boxes_are_where_torchvision_has_them(root: Path, name: str) -> None:
    loader = ImageLoader(
        root,
        batch_size=10,
        seed=6,
        fields=["png", "seg.png", fields.Boxes("boxes.npy")],
        transforms=LISTS[name],
        decode="exact",
        device="cpu",
    )
    differences, other, values, dropped = [], 0, 0, 0
    for batch in loader:
        images, masks = (torch.from_dlpack(batch[name]) for name in NAMES[:2])
        boxes, offsets = (torch.from_dlpack(part) for part in batch["boxes.npy"])
        for place, number in enumerate(torch.from_dlpack(batch.sample_ids).tolist()):
            view = loader.view(number)
            flips_first = name in FLIPPED_FIRST
            expected, mask, placed = (as_drawn(what, view, flips_first) for what in inputs(number))
            assert images[place].shape == expected.shape
            if name not in COLOURED:
                differences.append((images[place].float() - expected.float()).abs().mean())
            other += int((masks[place] != mask).sum())
            values += mask.numel()
            ours = boxes[offsets[place] : offsets[place + 1]]
            placed = F.clamp_bounding_boxes(placed).as_subclass(torch.Tensor)
            if name in CUT_BY_BOXES:
                outside = ~kept(inputs(number)[2], view)
                placed[outside] = 0
                dropped += int(outside.sum())
            assert torch.allclose(ours, placed, atol=1e-3)
    assert values > 0
    assert other <= MASK_SHARE * values
    assert (dropped > 5) == (name in CUT_BY_BOXES)
    if name not in COLOURED:
        assert len(differences) == SAMPLES
        assert torch.stack(differences).mean() <= IMAGE_MEAN


def test_jpegs_are_padded_before_they_are_resized(tmp_path: Path) -> None:
    """The fill's colour does not bleed into a JPEG's own, although its chroma has half as many samples as pixels."""

    def photograph(number: int) -> shards.Members:
        rng = np.random.default_rng(number)
        return {"jpg": shards.jpeg(rng, *(int(side) for side in rng.integers(60, 140, size=2)))}

    root = shards.make(tmp_path / "photographs", SAMPLES, 1, photograph)
    # Colours that are far from the pictures' own.
    transforms = [T.RandomZoomOut(FILL, p=0.9), T.RandomResizedCrop((90, 80), (0.5, 1))]
    how = {"transforms": transforms, "decode": "exact", "device": "cpu", "seed": 3, "batch_size": 1}
    loader = ImageLoader(root, fields=["jpg"], **how)
    padded, worst = 0, 0.0
    for batch in loader:
        number = int(torch.from_dlpack(batch.sample_ids)[0])
        view = loader.view(number)
        picture = tv_tensors.Image(Image.open(io.BytesIO(photograph(number)["jpg"])))
        difference = torch.from_dlpack(batch["jpg"])[0].float() - as_drawn(picture, view).float()
        worst = max(worst, float(difference.abs().max()))
        padded += any(view["padding"])
    assert padded > SAMPLES / 2
    assert worst <= 2
