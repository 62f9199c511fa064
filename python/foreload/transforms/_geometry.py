"""Transforms that choose which part of an image is shown, and how large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload._core import INTERPOLATIONS, PADDING_MODES
from foreload.transforms import _checks as check
from foreload.transforms._base import Transform


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crops a part of random area and shape at a random place, and resizes it.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
        scale: The bounds of the crop's share of the image's area, which is uniform between them.
        ratio: The bounds of the crop's width / height, which is log-uniform between them.
        interpolation: `bilinear`, `bicubic`, `lanczos` (all antialiased, as torchvision's `antialias=True`), `nearest`
            or `nearest-exact`; or torchvision's `InterpolationMode`.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"

    _checks: ClassVar[Mapping[str, Any]] = {
        "size": check.sides,
        "scale": check.numbers_of(2, "two numbers, the least and the largest share of the area"),
        "ratio": check.numbers_of(2, "two numbers, the least and the largest width / height"),
        "interpolation": check.one_of(INTERPOLATIONS),
    }


@dataclass(frozen=True)
class Resize(Transform):
    """Resizes the whole image.

    Args:
        size: The length of the shorter side in pixels, which keeps the shape; or (height, width). None with `max_size`:
            the longer side becomes that long.
        interpolation: The same as for `RandomResizedCrop`.
        max_size: The most pixels of the longer side, where `size` is the length of the shorter side.
    """

    size: int | Sequence[int] | None
    interpolation: Any = "bilinear"
    max_size: int | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "size": check.resize_sides,
        "interpolation": check.one_of(INTERPOLATIONS),
        "max_size": check.optional(check.whole),
    }


@dataclass(frozen=True)
class RandomResize(Transform):
    """Resizes the whole image so that its shorter side has a random length.

    Args:
        min_size: The least length in pixels.
        max_size: The first length that is too long: the longest is one less, as in torchvision.
        interpolation: The same as for `RandomResizedCrop`.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"

    _checks: ClassVar[Mapping[str, Any]] = {
        "min_size": check.whole,
        "max_size": check.whole,
        "interpolation": check.one_of(INTERPOLATIONS),
    }


@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """Resizes the whole image so that its shorter side has one of several lengths.

    Args:
        min_size: The lengths in pixels, each as likely as any other; or the only one.
        max_size: The most pixels of the longer side, to which an image is shrunk where it would be longer.
        interpolation: The same as for `RandomResizedCrop`.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"

    _checks: ClassVar[Mapping[str, Any]] = {
        "min_size": check.lengths,
        "max_size": check.optional(check.whole),
        "interpolation": check.one_of(INTERPOLATIONS),
    }


@dataclass(frozen=True)
class ScaleJitter(Transform):
    """Resizes the whole image to a random multiple of the largest size that fits into a rectangle.

    Args:
        target_size: The rectangle's (width, height) in pixels: in this order, as torchvision computes it.
        scale_range: The bounds of the multiple, which is uniform between them.
        interpolation: The same as for `RandomResizedCrop`.
    """

    target_size: Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"

    _checks: ClassVar[Mapping[str, Any]] = {
        "target_size": check.rectangle,
        "scale_range": check.numbers_of(2, "two numbers, the least and the largest multiple"),
        "interpolation": check.one_of(INTERPOLATIONS),
    }


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the middle of an image; a smaller image is padded with black.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
    """

    size: int | Sequence[int]

    _checks: ClassVar[Mapping[str, Any]] = {"size": check.sides}


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Pads an image, and crops a part of it at a random place.

    The sample of an image that is smaller than the crop fails, unless `pad_if_needed` is set.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
        padding: The pixels added before the crop: on all sides; or (left and right, top and bottom); or (left, top,
            right, bottom).
        pad_if_needed: Whether a smaller image is padded on both sides by what it lacks.
        fill: The grey level of added pixels, or the levels of R, G and B; for `constant`.
        padding_mode: `constant`; `edge`, the nearest pixel; `reflect`, mirrored without repeating the outermost pixel;
            `symmetric`, mirrored with it.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

    _checks: ClassVar[Mapping[str, Any]] = {
        "size": check.sides,
        "padding": check.optional(check.margins),
        "pad_if_needed": check.truth,
        "fill": check.fill,
        "padding_mode": check.one_of(PADDING_MODES),
    }


@dataclass(frozen=True)
class Pad(Transform):
    """Adds pixels around the image.

    Args:
        padding: The pixels added: on all sides; or (left and right, top and bottom); or (left, top, right, bottom).
        fill: The same as for `RandomCrop`.
        padding_mode: The same as for `RandomCrop`.
    """

    padding: int | Sequence[int]
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

    _checks: ClassVar[Mapping[str, Any]] = {
        "padding": check.margins,
        "fill": check.fill,
        "padding_mode": check.one_of(PADDING_MODES),
    }


@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """Puts the image at a random place of a larger canvas at random.

    Args:
        fill: The same as for `RandomCrop`.
        side_range: The bounds of the canvas' sides as multiples of the image's, at least 1.
        p: The probability that an image gets a canvas.
    """

    fill: int | Sequence[int] = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {
        "fill": check.fill,
        "side_range": check.numbers_of(2, "two numbers, the least and the largest multiple"),
        "p": check.number,
    }


@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """Crops a part that shares enough of its area with one of the sample's boxes, as SSD does.

    The boxes are the one field of `fields.Boxes` that follows the image. Those whose centre is outside of the crop
    become zeros and keep their rows. An image without a box whose centre is inside of it stays whole.

    Args:
        min_scale: The least share of the image's width, and of its height.
        max_scale: The largest share, at most 1.
        min_aspect_ratio: The least width / height of the crop.
        max_aspect_ratio: The largest width / height of the crop.
        sampler_options: The overlaps, of which one is drawn that crop and box must have: the area that they share, by
            that which they cover together. From 1 on it leaves the image whole. None means 0, 0.1, 0.3, 0.5, 0.7, 0.9
            and 1.
        trials: The crops that are tried before another overlap is drawn, at most 1000. After 100 overlaps the image
            stays whole.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    _checks: ClassVar[Mapping[str, Any]] = {
        "min_scale": check.number,
        "max_scale": check.number,
        "min_aspect_ratio": check.number,
        "max_aspect_ratio": check.number,
        "sampler_options": check.optional(check.overlaps),
        "trials": check.whole,
    }


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}


@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Mirrors top and bottom at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": check.number}
