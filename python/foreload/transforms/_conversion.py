"""Transforms of the element type and its scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload.transforms import _checks as check
from foreload.transforms._base import Transform


@dataclass(frozen=True)
class ToDtype(Transform):
    """Converts the images' element type.

    Args:
        dtype: `float32`, `float16`, `bfloat16` or `uint8`, as a text or as NumPy's or torch's type.
        scale: True: floats have values of 0..1, unlike torchvision's default. False: they have values of 0..255, also
            for `Normalize`.
    """

    dtype: Any
    scale: bool = True

    _checks: ClassVar[Mapping[str, Any]] = {"dtype": check.dtype, "scale": check.truth}


@dataclass(frozen=True)
class Normalize(Transform):
    """Subtracts the mean of each channel and divides by the standard deviation.

    Args:
        mean: The means of R, G and B, on the scale of the values, which is 0..1 after `ToDtype(dtype)`.
        std: The standard deviations of R, G and B, on the same scale.
    """

    mean: Sequence[float]
    std: Sequence[float]

    _checks: ClassVar[Mapping[str, Any]] = {
        "mean": check.numbers_of(3, "three numbers, for R, G and B"),
        "std": check.numbers_of(3, "three numbers, for R, G and B"),
    }
