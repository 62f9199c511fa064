"""The transforms that are compared with torchvision's functions, and the allowed differences for each kind of
arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foreload import transforms as T

FILL = (124, 116, 104)


@dataclass(frozen=True)
class Allowed:
    """The allowed difference of levels from torchvision's, given the same input levels."""

    title: str
    largest: float
    """The largest difference, in 8-bit levels."""
    share: float
    """The largest share of values that may differ at all; of pixels if `of_pixels` is set."""
    of_pixels: bool = False
    beyond: float = 0
    """The largest share of values that may differ by more than one level."""


EXACT = Allowed("same numbers", 0, 0)
BLUR = Allowed("blur", 1, 0.003)
"""torch adds products of floats; here weights are integers."""
WARP = Allowed("warp of several pixels", 1, 0.05)
"""If weights are one half, as in each 15th row of a shear by 1/15, half of the sums are between two levels, and the
rounding errors of torch's sums decide.
"""
RESAMPLED = Allowed("resize", 2, 0.01, beyond=2e-6)
"""Columns are resized and rounded, then rows. Weights are integers here and in torch, but not the same, so both
roundings may differ.
"""
NEAREST = Allowed("nearest pixel", 255, 1e-4, of_pixels=True, beyond=1e-4)
"""If two pixels are equally near, either may be used."""
FLOATS = Allowed("floats", 1e-3, 1)
"""Finished values: torch divides by 255, subtracts and divides; here it is one product and one sum."""


def allowed(drawn: dict[str, Any]) -> Allowed:
    """Return the allowed difference of an operation on pixels in the format of `view`."""
    if drawn["op"] in ("affine", "rotate"):
        return NEAREST if drawn["interpolation"] == "nearest" else WARP
    return BLUR if drawn["op"] == "gaussian_blur" else EXACT


PIXELS: dict[str, T.Transform] = {
    "Grayscale": T.Grayscale(3),
    "RandomGrayscale": T.RandomGrayscale(0.5),
    "ColorJitter brightness": T.ColorJitter(brightness=0.8),
    "ColorJitter contrast": T.ColorJitter(contrast=0.8),
    "ColorJitter contrast 1.7": T.ColorJitter(contrast=(1.7, 1.7)),
    "ColorJitter saturation": T.ColorJitter(saturation=0.8),
    "ColorJitter hue": T.ColorJitter(hue=0.5),
    "ColorJitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "RandomPhotometricDistort": T.RandomPhotometricDistort(),
    "RandomChannelPermutation": T.RandomChannelPermutation(),
    "RandomInvert": T.RandomInvert(1.0),
    "RandomPosterize": T.RandomPosterize(3, 1.0),
    "RandomSolarize": T.RandomSolarize(100.5, 1.0),
    "RandomAutocontrast": T.RandomAutocontrast(1.0),
    "RandomEqualize": T.RandomEqualize(1.0),
    "RandomAdjustSharpness 1.9": T.RandomAdjustSharpness(1.9, 1.0),
    "RandomAdjustSharpness 0.2": T.RandomAdjustSharpness(0.2, 1.0),
    "RandomErasing": T.RandomErasing(1.0, value=(9.0, 99.0, 199.0)),
    "GaussianBlur 23": T.GaussianBlur(23, (0.1, 2.0)),
    "GaussianBlur (9, 5)": T.GaussianBlur((9, 5), (1.0, 4.0)),
    "RandomRotation": T.RandomRotation(180, fill=7),
    "RandomRotation bilinear": T.RandomRotation(180, "bilinear"),
    "RandomRotation bilinear, fill": T.RandomRotation(45, "bilinear", fill=FILL, center=(10, 20)),
    "RandomAffine": T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), (-20, 20, -20, 20), fill=(1, 2, 3)),
    "RandomAffine bilinear": T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), 20, "bilinear", fill=None),
    "RandomAffine shear": T.RandomAffine(0, shear=(-30, 30)),
    "RandomAffine shear bilinear": T.RandomAffine(0, shear=(-30, 30), interpolation="bilinear", fill=127),
    "RandomAffine translate": T.RandomAffine(0, (0.3, 0.3)),
    "RandomAffine translate bilinear": T.RandomAffine(0, (0.3, 0.3), interpolation="bilinear"),
    "AutoAugment imagenet": T.AutoAugment(),
    "AutoAugment cifar10 bilinear": T.AutoAugment("cifar10", interpolation="bilinear"),
    "AutoAugment svhn bilinear": T.AutoAugment("svhn", interpolation="bilinear"),
    "RandAugment(3, 20)": T.RandAugment(3, 20),
    "RandAugment bilinear": T.RandAugment(2, 9, interpolation="bilinear", fill=FILL),
    "TimmRandAugment bilinear": T.RandAugment.timm("rand-m9-mstd0.5-inc1", interpolation="bilinear"),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "TrivialAugmentWide bilinear": T.TrivialAugmentWide(interpolation="bilinear"),
    "AugMix": T.AugMix(),
    "RandomApply, RandomChoice, RandomOrder": T.RandomOrder(
        [
            T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            T.RandomChoice([T.RandomSolarize(128, p=1.0), T.Grayscale(), T.RandomEqualize(1.0)]),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(),
        ]
    ),
}
"""Operations on pixels after the geometry, with extreme parameters."""


@dataclass(frozen=True)
class Placement:
    """A list of geometric transforms."""

    transforms: tuple[T.Transform, ...]
    interpolation: str = "bilinear"
    allowed: Allowed = EXACT
    padding: dict[str, Any] = field(default_factory=dict)
    """The arguments of torchvision's `pad`."""


def placements(size: int) -> dict[str, Placement]:
    """Return lists of geometric transforms whose outputs have about this many pixels per side."""
    grey = {"fill": list(FILL)}
    crop = T.RandomCrop(size, pad_if_needed=True, fill=FILL)
    resized = {
        f"RandomResizedCrop {how}": Placement((T.RandomResizedCrop(size, interpolation=how),), how, rule)
        for how, rule in (
            ("bilinear", RESAMPLED),
            ("bicubic", RESAMPLED),
            ("lanczos", RESAMPLED),
            ("nearest", EXACT),
            ("nearest-exact", EXACT),
        )
    }
    padded = {
        f"RandomCrop, padding {mode}": Placement(
            (T.RandomCrop(size, size // 8, True, padding_mode=mode),), padding={"padding_mode": mode}
        )
        for mode in ("constant", "edge", "reflect", "symmetric")
    }
    return {
        **resized,
        "Resize, CenterCrop": Placement((T.Resize(size * 8 // 7), T.CenterCrop(size)), allowed=RESAMPLED),
        "ResizeToCover, CenterCrop": Placement(
            (T.ResizeToCover((size, size + 9)), T.CenterCrop((size, size + 9))), allowed=RESAMPLED
        ),
        "RandomResize, RandomCrop": Placement(
            (T.RandomResize(size // 2, size * 2), crop), allowed=RESAMPLED, padding=grey
        ),
        "RandomShortestSize": Placement(
            (T.RandomShortestSize((size, size + 9), 2 * size),), allowed=RESAMPLED
        ),
        "ScaleJitter, RandomCrop": Placement(
            (T.ScaleJitter((size, size)), crop), allowed=RESAMPLED, padding=grey
        ),
        "Resize, RandomZoomOut": Placement(
            (T.Resize((size, size)), T.RandomZoomOut(FILL, (1, 2), p=1)), allowed=RESAMPLED, padding=grey
        ),
        "RandomHorizontalFlip, RandomVerticalFlip": Placement(
            (T.CenterCrop(size), T.RandomHorizontalFlip(), T.RandomVerticalFlip())
        ),
        "Pad": Placement((T.Pad((1, 2, 3, 4), FILL),), padding=grey),
        **padded,
    }
