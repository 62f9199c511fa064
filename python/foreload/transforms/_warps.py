"""Transforms that turn, shear, scale and move an image, at the output's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload.transforms import _checks as check
from foreload.transforms._base import Transform

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
"""How a warp finds pixels."""


@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotates by a random angle. The image keeps its size.

    Args:
        degrees: How far the angle goes from 0, or its bounds; in degrees, counter-clockwise.
        interpolation: `nearest`, `bilinear` or `bicubic`, without antialiasing; or torchvision's `InterpolationMode`.
        expand: False: all images of a batch have one size, which a rotation keeps.
        center: The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
        fill: What is shown outside of the image: one value of 0..255, or three for R, G and B. None: black, which
            `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
    """

    degrees: float | Sequence[float]
    interpolation: Any = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: float | Sequence[float] | None = 0

    _checks: ClassVar[Mapping[str, Any]] = {
        "degrees": check.spread,
        "interpolation": check.one_of(INTERPOLATIONS),
        "expand": check.truth,
        "center": check.optional(check.numbers_of(2, "two numbers of pixels, x and y, or None")),
        "fill": check.optional(check.fill_values),
    }


@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotates, moves, scales and shears by random amounts. The image keeps its size.

    Args:
        degrees: How far the angle goes from 0, or its bounds; in degrees, clockwise.
        translate: How far the image moves along x and y, as shares of its width and height; a whole number of pixels
            is drawn. None: it does not move.
        scale: The bounds of the factor of its size. None: it is not scaled.
        shear: How far it is sheared along x from 0, or the bounds of that; or four numbers, the bounds along x, then
            along y; in degrees. None: it is not sheared.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`.
        center: The same as for `RandomRotation`.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = 0
    center: Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "degrees": check.spread,
        "translate": check.optional(check.numbers_of(2, "two shares, of width and height, or None")),
        "scale": check.optional(
            check.numbers_of(2, "two numbers, the least and the largest factor, or None")
        ),
        "shear": check.optional(check.shear),
        "interpolation": check.one_of(INTERPOLATIONS),
        "fill": check.optional(check.fill_values),
        "center": check.optional(check.numbers_of(2, "two numbers of pixels, x and y, or None")),
    }
