"""What is done to an image: transforms with torchvision v2's names, parameters and defaults.

    from foreload import transforms as T

    loader = foreload.ImageLoader("data/train", transforms=[
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16"),
        T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ])

A list is checked and compiled once, when a loader is made, and then runs in one pass over the pixels. Images are RGB,
and `uint8` until `ToDtype`. Geometry comes first, then `Grayscale`, `ToDtype` and `Normalize`; Flips may
stand anywhere. A list in another order, or one that would resample twice, is refused with the name of the
transform. `docs/transforms.md` says which lists can run in one pass, and how random numbers are drawn.

Where samples have several images, the other images follow the geometry of the first. A dict gives each image field
transforms of its own: `transforms={"left.jpg": [...], "right.jpg": [...]}`.

Each transform is a frozen dataclass, equal to another with the same parameters. Lists are taken wherever tuples are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from foreload import _parameters as check
from foreload._core import INTERPOLATIONS, PADDING_MODES
from foreload._errors import config_error
from foreload._mixing import CutMix, Mix, MixUp, RandomChoice

__all__ = [
    "CenterCrop",
    "CutMix",
    "Grayscale",
    "MixUp",
    "Normalize",
    "Pad",
    "RandomChoice",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResize",
    "RandomResizedCrop",
    "RandomShortestSize",
    "RandomVerticalFlip",
    "Resize",
    "ScaleJitter",
    "ToDtype",
    "Transform",
    "Views",
]


@dataclass(frozen=True)
class Transform:
    """The base of all transforms. Make one of the others."""

    _checks: ClassVar[Mapping[str, Any]] = {}
    """Functions that bring each parameter into its usual form, or raise `ValueError` with what it must be."""

    def __post_init__(self) -> None:
        """Check the parameters' types; what their values may be is checked where they are used.

        Raises:
            ConfigError: A parameter has a wrong type; the message names the transform and the parameter.
        """
        name = type(self).__name__
        if type(self) is Transform:
            raise config_error("transforms", "Transform: make one of its kinds, as RandomResizedCrop")
        for parameter in fields(self):
            given = getattr(self, parameter.name)
            try:
                usual = self._checks[parameter.name](given)
            except ValueError as error:
                message = f"is {check.shown(given)}, must be {error}"
                raise config_error("transforms", f"{name}: {parameter.name}: {message}") from None
            object.__setattr__(self, parameter.name, usual)

    def _as_json(self) -> dict[str, Any]:
        parameters = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return {type(self).__name__: parameters}


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
        "scale": check.numbers(2, "two numbers, the least and the largest share of the area"),
        "ratio": check.numbers(2, "two numbers, the least and the largest width / height"),
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
        "scale_range": check.numbers(2, "two numbers, the least and the largest multiple"),
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
        "mean": check.numbers(3, "three numbers, for R, G and B"),
        "std": check.numbers(3, "three numbers, for R, G and B"),
    }


@dataclass(frozen=True)
class Views:
    """Makes several views of each image, each an independent draw of the same list.

    Use it as `transforms=Views(2, [...])`, or several of them with lists of their own:
    `transforms=[Views(2, [...]), Views(8, [...])]`. An image is decoded once for all its views.

    Args:
        n: The number of views.
        transforms: The list of transforms for each view.
    """

    n: int
    transforms: Sequence[Transform]

    def __post_init__(self) -> None:
        """Check the types.

        Raises:
            ConfigError: `n` or `transforms` has a wrong type.
        """
        try:
            object.__setattr__(self, "n", check.whole(self.n))
        except ValueError as error:
            raise config_error("transforms", f"Views: n: is {check.shown(self.n)}, must be {error}") from None
        object.__setattr__(self, "transforms", tuple(_list(self.transforms)))

    def _as_json(self) -> dict[str, Any]:
        steps = [step._as_json() for step in self.transforms]
        return {"Views": {"n": self.n, "transforms": steps}}


Mixing: TypeAlias = Mix | RandomChoice
"""What is done to pairs of finished images."""

Transforms: TypeAlias = Sequence[Transform] | Views | Sequence[Views]
"""The transforms of the images of one field."""


def _list(given: Any, may_hold: tuple[type, ...] = (Transform,)) -> list[Any]:
    """Return a list of what it may hold, and of nothing else."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise config_error(
            "transforms", f"is {check.shown(given)}, must be a list of foreload.transforms, or Views"
        )
    steps = list(given)
    for number, step in enumerate(steps, start=1):
        if isinstance(step, may_hold):
            continue
        what = "is no transform of foreload.transforms"
        if type(step).__module__.startswith("torchvision.transforms"):
            what = "is torchvision's; foreload.transforms has those of the same names that Foreload knows"
        elif isinstance(step, type) and issubclass(step, may_hold):
            what = f"is a class: make one, {step.__name__}(...)"
        elif isinstance(step, Mix | RandomChoice):
            what = "works on pairs of finished images: give it by mix=[...]"
        raise config_error("transforms", f"step {number} of {len(steps)}, {check.shown(step)}: {what}")
    return steps


def to_json(transforms: Transforms | Mapping[str, Transforms]) -> str:
    """Return the JSON that Foreload's core reads: each transform is an object of its name and its parameters.

    Raises:
        ConfigError: `transforms` is neither a list of transforms, nor Views, nor a list of Views, nor a dict of these
            by the names of image fields.
    """
    if not isinstance(transforms, Mapping):
        return json.dumps(_document(transforms))
    documents = {}
    for field, of_field in transforms.items():
        if not isinstance(field, str):
            raise config_error(
                "transforms", f"has the key {check.shown(field)}, must be names of image fields"
            )
        documents[field] = _document(of_field)
    return json.dumps(documents)


def _document(transforms: Transforms) -> Any:
    """Return the transforms of one image as a JSON value."""
    if isinstance(transforms, Views):
        return transforms._as_json()
    # The core refuses Views beside other transforms.
    return [step._as_json() for step in _list(transforms, (Transform, Views))]
