"""Transforms that change the pixels of an image after its geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload.transforms import _checks as check
from foreload.transforms._base import Transform


@dataclass(frozen=True)
class Grayscale(Transform):
    """Converts to grey: .2989 R + .587 G + .114 B, truncated, as torchvision does with uint8 tensors.

    It comes after the geometry and before `ToDtype`.

    Args:
        num_output_channels: 3, unlike torchvision's default of 1: images keep R, G and B, which become equal.
    """

    num_output_channels: int = 3

    _checks: ClassVar[Mapping[str, Any]] = {"num_output_channels": check.whole}


@dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Converts to grey at random, as `Grayscale` does.

    Args:
        p: The probability of grey.
    """

    p: float = 0.1

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in an order that is random, too.

    What is None does not change. A factor with equal bounds is fixed: `ColorJitter(brightness=(1.5, 1.5))`.

    Args:
        brightness: How far the factor may go from 1, but not below 0; or its bounds, from 0 on.
        contrast: The same, of contrast.
        saturation: The same, of saturation.
        hue: How far the hue may turn, as a share of a full turn from 0 to 0.5; or its bounds, from -0.5 to 0.5.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "brightness": check.optional(check.spread),
        "contrast": check.optional(check.spread),
        "saturation": check.optional(check.spread),
        "hue": check.optional(check.spread),
    }


@dataclass(frozen=True)
class RandomPhotometricDistort(Transform):
    """Distorts colours as SSD does: brightness, contrast, saturation and hue, and the order of the channels.

    Contrast changes before saturation and hue, or after them, each with probability 1/2.

    Args:
        brightness: The bounds of the factor of brightness, from 0 on.
        contrast: The bounds of the factor of contrast.
        saturation: The bounds of the factor of saturation.
        hue: The bounds of the turn of the hue, as a share of a full turn, from -0.5 to 0.5.
        p: The probability of each change.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {
        "brightness": check.numbers_of(2, "two numbers, the least and the largest factor"),
        "contrast": check.numbers_of(2, "two numbers, the least and the largest factor"),
        "saturation": check.numbers_of(2, "two numbers, the least and the largest factor"),
        "hue": check.numbers_of(2, "two numbers, the least and the largest turn"),
        "p": check.number,
    }


@dataclass(frozen=True)
class RandomChannelPermutation(Transform):
    """Puts the channels into random order."""


@dataclass(frozen=True)
class RandomInvert(Transform):
    """Makes the negative at random: level x becomes 255 - x.

    Args:
        p: The probability of the negative.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}


@dataclass(frozen=True)
class RandomPosterize(Transform):
    """Keeps the highest bits of each level, at random.

    Args:
        bits: The number of bits that are kept, 0 to 8.
        p: The probability that only these are kept.
    """

    bits: int
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"bits": check.whole, "p": check.number}


@dataclass(frozen=True)
class RandomSolarize(Transform):
    """Inverts levels from a threshold on, at random.

    Args:
        threshold: The first level that is inverted, 0 to 255.
        p: The probability of inverting.
    """

    threshold: float
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"threshold": check.number, "p": check.number}


@dataclass(frozen=True)
class RandomAutocontrast(Transform):
    """Stretches the levels of each channel to 0..255, at random.

    Args:
        p: The probability of stretching.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}


@dataclass(frozen=True)
class RandomEqualize(Transform):
    """Makes the histogram of each channel even, at random.

    Args:
        p: The probability of an even histogram.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}


@dataclass(frozen=True)
class RandomAdjustSharpness(Transform):
    """Sharpens or smooths at random.

    Args:
        sharpness_factor: From 0 on: 0 smooths, 1 changes nothing, 2 sharpens.
        p: The probability of a change.
    """

    sharpness_factor: float
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"sharpness_factor": check.number, "p": check.number}


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs by a Gaussian filter of random width. Beyond its borders the image is mirrored.

    Args:
        kernel_size: The number of pixels along x and y that the filter covers, odd; or (along x, along y). An image
            must be larger than half of it.
        sigma: The standard deviation in pixels; or its bounds, between which it is uniform.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    _checks: ClassVar[Mapping[str, Any]] = {"kernel_size": check.kernel_size, "sigma": check.spread}


@dataclass(frozen=True)
class RandomErasing(Transform):
    """Overwrites a random rectangle, at random. An image gets none if ten attempts do not fit into it.

    It may stand anywhere after the geometry, and `value` is on the scale of the values there: grey levels before
    `ToDtype`, floats after it, normalised ones after `Normalize`.

    Args:
        p: The probability of a rectangle.
        scale: The bounds of its share of the image's area, which is uniform between them.
        ratio: The bounds of its height / width, which is log-uniform between them.
        value: What is written: a number; three, for R, G and B; `random`, a standard normal number for each value,
            which timm calls `pixel` (either is taken); or `color`, one for each channel of the rectangle, timm's
            `rand`. Normal numbers are for floats.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0

    _checks: ClassVar[Mapping[str, Any]] = {
        "p": check.number,
        "scale": check.numbers_of(2, "two numbers, the least and the largest share of the area"),
        "ratio": check.numbers_of(2, "two numbers, the least and the largest height / width"),
        "value": check.erasing_value,
    }
