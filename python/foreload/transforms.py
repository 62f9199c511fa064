"""What is done to an image: transforms with torchvision v2's names, parameters and defaults.

    from foreload import transforms as T

    loader = foreload.ImageLoader("data/train", transforms=[
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16"),
        T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ])

A list is checked and compiled once, when a loader is made, and then runs in one pass over the pixels. Images are RGB,
and `uint8` until `ToDtype`. Geometry comes first, then `Grayscale`, `ToDtype` and `Normalize`; `RandomHorizontalFlip`
may stand anywhere. A list in another order, or one that would resample twice, is refused with the name of the
transform. `docs/transforms.md` says which lists can run in one pass, and how random numbers are drawn.

Where samples have several images, the other images follow the geometry of the first. A dict gives each image field
transforms of its own: `transforms={"left.jpg": [...], "right.jpg": [...]}`.

Each transform is a frozen dataclass, equal to another with the same parameters. Lists are taken wherever tuples are.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from foreload._core import DTYPES, INTERPOLATIONS, PADDING_MODES
from foreload._errors import config_error
from foreload._mixing import CutMix, Mix, MixUp, mix_to_json

__all__ = [
    "CenterCrop",
    "CutMix",
    "Grayscale",
    "Mix",
    "MixUp",
    "Normalize",
    "Pad",
    "RandomChoice",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "Transform",
    "Views",
    "mix_to_json",
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
                message = f"is {_shown(given)}, must be {error}"
                raise config_error("transforms", f"{name}: {parameter.name}: {message}") from None
            object.__setattr__(self, parameter.name, usual)

    def _as_json(self) -> dict[str, Any]:
        parameters = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return {type(self).__name__: parameters}


def _shown(given: Any) -> str:
    """Return the `repr` of an object, which may fail."""
    try:
        return repr(given)
    except Exception:
        return f"a {type(given).__name__}"


def _whole(given: Any) -> int:
    """Return a whole number of pixels, given as any type of number."""
    if not _is_number(given) or int(given) != given or not 0 <= given < 2**32:
        raise ValueError("a whole number from 0 on")
    return int(given)


def _is_number(given: Any) -> bool:
    is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
    return is_number and math.isfinite(given)


def _listed(given: Any) -> list[Any] | None:
    """Return the items of a sequence, an array or a tensor; None for anything else."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return list(given) if is_list else None


def _number(given: Any) -> float:
    if not _is_number(given):
        raise ValueError("a number")
    return float(given)


def _numbers(count: int, what: str) -> Any:
    """Return a check for a sequence of `count` numbers."""

    def check(given: Any) -> tuple[float, ...]:
        listed = _listed(given)
        if listed is None or len(listed) != count or not all(map(_is_number, listed)):
            raise ValueError(what)
        return tuple(map(float, listed))

    return check


def _sides(given: Any) -> tuple[int, int]:
    """Return height and width; one number is a square."""
    try:
        listed = [_whole(given)] if (items := _listed(given)) is None else list(map(_whole, items))
    except ValueError:
        listed = []
    if len(listed) not in (1, 2):
        raise ValueError("a number of pixels, or a height and a width")
    return listed[0], listed[-1]


def _resize_sides(given: Any) -> int | tuple[int, int] | None:
    """Return a size for `Resize`; one number is the shorter side's, also in a list."""
    if given is None:
        return None
    items = _listed(given)
    height, width = _sides(given)
    return height if items is None or len(items) == 1 else (height, width)


def _margins(given: Any) -> int | tuple[int, int] | tuple[int, int, int, int]:
    """Return pixels around an image, from torchvision's sequences of one, two or four numbers."""
    items = _listed(given)
    try:
        listed = [_whole(given)] if items is None else list(map(_whole, items))
    except ValueError:
        listed = []
    if len(listed) == 1:
        return listed[0]
    if len(listed) not in (2, 4):
        raise ValueError(
            "a whole number of pixels, or two (left and right, top and bottom), or four (left, top, right, bottom)"
        )
    return tuple(listed)  # type: ignore[return-value]


def _fill(given: Any) -> int | tuple[int, int, int]:
    """Return grey levels; None is 0, as in torchvision."""
    if given is None:
        return 0
    items = _listed(given)
    try:
        listed = [_whole(given)] if items is None else list(map(_whole, items))
    except ValueError:
        listed = []
    if len(listed) not in (1, 3) or max(listed) > 255:
        raise ValueError("a grey level from 0 to 255, or three of R, G and B")
    return listed[0] if len(listed) == 1 else (listed[0], listed[1], listed[2])


def _truth(given: Any) -> bool:
    if isinstance(given, bool) or type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    raise ValueError("True or False")


def _optional(check: Any) -> Any:
    return lambda given: None if given is None else check(given)


def _one_of(known: Iterable[str]) -> Any:
    """Return a check for a text; an enumeration such as torchvision's InterpolationMode counts by its value."""

    def check(given: Any) -> str:
        value = getattr(given, "value", given)
        if value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return value

    return check


def _dtype(given: Any) -> str:
    """Return the name of an element type, given as a text or as NumPy's or torch's type."""
    name = getattr(given, "__name__", None) or getattr(given, "name", None) or str(given)
    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"one of {', '.join(DTYPES)}, as a text or of NumPy or torch")
    return name


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
        "size": _sides,
        "scale": _numbers(2, "two numbers, the least and the largest share of the area"),
        "ratio": _numbers(2, "two numbers, the least and the largest width / height"),
        "interpolation": _one_of(INTERPOLATIONS),
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
        "size": _resize_sides,
        "interpolation": _one_of(INTERPOLATIONS),
        "max_size": _optional(_whole),
    }


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the middle of an image; a smaller image is padded with black.

    Args:
        size: The output's size in pixels: the side of a square, or (height, width).
    """

    size: int | Sequence[int]

    _checks: ClassVar[Mapping[str, Any]] = {"size": _sides}


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
        "size": _sides,
        "padding": _optional(_margins),
        "pad_if_needed": _truth,
        "fill": _fill,
        "padding_mode": _one_of(PADDING_MODES),
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
        "padding": _margins,
        "fill": _fill,
        "padding_mode": _one_of(PADDING_MODES),
    }


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right at random.

    Args:
        p: The probability that an image is mirrored.
    """

    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"p": _number}


@dataclass(frozen=True)
class Grayscale(Transform):
    """Converts to grey: .2989 R + .587 G + .114 B, truncated, as torchvision does with uint8 tensors.

    It comes after the geometry and before `ToDtype`.

    Args:
        num_output_channels: 3, unlike torchvision's default of 1: images keep R, G and B, which become equal.
    """

    num_output_channels: int = 3

    _checks: ClassVar[Mapping[str, Any]] = {"num_output_channels": _whole}


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

    _checks: ClassVar[Mapping[str, Any]] = {"dtype": _dtype, "scale": _truth}


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
        "mean": _numbers(3, "three numbers, for R, G and B"),
        "std": _numbers(3, "three numbers, for R, G and B"),
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
            object.__setattr__(self, "n", _whole(self.n))
        except ValueError as error:
            raise config_error("transforms", f"Views: n: is {_shown(self.n)}, must be {error}") from None
        object.__setattr__(self, "transforms", tuple(_list(self.transforms)))

    def _as_json(self) -> dict[str, Any]:
        steps = [step._as_json() for step in self.transforms]
        return {"Views": {"n": self.n, "transforms": steps}}


@dataclass(frozen=True)
class RandomChoice:
    """Does one of several transforms, drawn each time: of `MixUp` and `CutMix`, for `mix=` of a loader.

    Args:
        transforms: The transforms to choose from.
        p: How often each is chosen compared with the others. None: all alike.
    """

    transforms: Sequence[Mix]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Check the types.

        Raises:
            ConfigError: `transforms` or `p` has a wrong type.
        """
        if not isinstance(self.transforms, Iterable) or isinstance(self.transforms, str):
            message = f"RandomChoice: transforms: is {_shown(self.transforms)}, must be a list"
            raise config_error("mix", message)
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for step in self.transforms:
            if not isinstance(step, Mix):
                raise config_error("mix", f"RandomChoice: has {_shown(step)}, must have MixUp and CutMix")
        if self.p is not None:
            p = _listed(self.p)
            if p is None or not all(map(_is_number, p)):
                message = (
                    f"RandomChoice: p: is {_shown(self.p)}, must be a number for each transform, or None"
                )
                raise config_error("mix", message)
            object.__setattr__(self, "p", tuple(map(float, p)))

    def _as_json(self) -> dict[str, Any]:
        steps = [step._as_json() for step in self.transforms]
        return {"RandomChoice": {"transforms": steps, "p": self.p}}


Mixing: TypeAlias = Mix | RandomChoice
"""What is done to pairs of finished images."""

Transforms: TypeAlias = Sequence[Transform] | Views | Sequence[Views]
"""The transforms of the images of one field."""


def _list(given: Any, may_hold: tuple[type, ...] = (Transform,)) -> list[Any]:
    """Return a list of what it may hold, and of nothing else."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise config_error(
            "transforms", f"is {_shown(given)}, must be a list of foreload.transforms, or Views"
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
        raise config_error("transforms", f"step {number} of {len(steps)}, {_shown(step)}: {what}")
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
            raise config_error("transforms", f"has the key {_shown(field)}, must be names of image fields")
        documents[field] = _document(of_field)
    return json.dumps(documents)


def _document(transforms: Transforms) -> Any:
    """Return the transforms of one image as a JSON value."""
    if isinstance(transforms, Views):
        return transforms._as_json()
    # The core refuses Views beside other transforms.
    return [step._as_json() for step in _list(transforms, (Transform, Views))]
