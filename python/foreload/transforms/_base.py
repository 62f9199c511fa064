"""The base classes of transforms, and the conversion of lists to JSON for Foreload's core."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from foreload._errors import config_error, json_of
from foreload.transforms._checks import shown, whole
from foreload.transforms._elsewhere import ANYTHING, answer

if TYPE_CHECKING:
    from foreload.transforms import TimmRandAugment


class _Checked:
    """A dataclass with checked parameters. The core reads it as a JSON object of its name and parameters."""

    _checks: ClassVar[Mapping[str, Any]] = {}
    """Functions that convert each parameter to its usual form, or raise `ValueError` with what it must be."""
    _setting: ClassVar[str] = "transforms"
    _kind: ClassVar[str] = ""
    """For a class that is only a base: the name of a class to make instead."""

    def __post_init__(self) -> None:
        """Check the types of the parameters; their values are checked where they are used.

        Raises:
            ConfigError: A parameter has a wrong type; the message names the transform and the parameter.
        """
        name = type(self).__name__
        if "_kind" in vars(type(self)):
            raise config_error(self._setting, f"{name}: is only a base: use a subclass, such as {self._kind}")
        for parameter in fields(self):  # type: ignore[arg-type]
            given = getattr(self, parameter.name)
            try:
                usual = self._checks[parameter.name](given)
            except ValueError as error:
                message = f"is {shown(given)}, must be {error}"
                raise config_error(self._setting, f"{name}: {parameter.name}: {message}") from None
            object.__setattr__(self, parameter.name, usual)

    def _as_json(self) -> dict[str, Any]:
        names = [parameter.name for parameter in fields(self)]  # type: ignore[arg-type]
        parameters = {name: getattr(self, name) for name in names}
        if "transforms" in parameters:
            parameters["transforms"] = [step._as_json() for step in parameters["transforms"]]
        return {type(self).__name__: parameters}


@dataclass(frozen=True)
class Transform(_Checked):
    """The base of all transforms. Use one of its subclasses."""

    _kind = "RandomResizedCrop"


@dataclass(frozen=True)
class Mix(_Checked):
    """The base of transforms that mix images. Use `MixUp` or `CutMix`."""

    _setting = "mix"
    _kind = "MixUp"
    _of_batches: ClassVar[bool] = True


@dataclass(frozen=True)
class Container(Transform):
    """A transform that contains others, which change pixels or mirror."""

    transforms: Sequence[Any]

    _may_hold: ClassVar[tuple[type, ...]] = (Transform,)

    def __post_init__(self) -> None:
        """Check the transforms, then the other parameters' types."""
        within = list_of(self.transforms, self._may_hold, within=f"{type(self).__name__}: transforms: ")
        object.__setattr__(self, "transforms", tuple(within))
        super().__post_init__()


@dataclass(frozen=True)
class Choice(Container):
    """A container of transforms of one image, or of transforms of batches."""

    _may_hold: ClassVar[tuple[type, ...]] = (Transform, Mix)

    def __post_init__(self) -> None:
        """Check the types, and that transforms of an image are not mixed with those of batches."""
        super().__post_init__()
        if len({isinstance(step, Mix) for step in self.transforms}) > 1:
            message = (
                "has MixUp or CutMix, which work on batches, and transforms of one image: make two lists"
            )
            raise config_error("transforms", f"RandomChoice: transforms: {message}")

    @property
    def _of_batches(self) -> bool:
        return any(isinstance(step, Mix) for step in self.transforms)


@dataclass(frozen=True)
class TimmSpecs(Transform):
    """The class method that `RandAugment` has in addition to its parameters."""

    @classmethod
    def timm(
        cls, spec: str, *, interpolation: Any = "random", fill: float | Sequence[float] = 128
    ) -> TimmRandAugment:
        """Make timm's RandAugment from a spec of `rand_augment_transform` or `create_transform(auto_augment=)`.

        Args:
            spec: `rand`, then sections after dashes, as in `rand-m9-mstd0.5-inc1`. `m9` is the magnitude, `n2` the
                number of operations, `p0.5` their probability. `mstd0.5` is the standard deviation of magnitudes,
                `mmax10` the largest one (0 also means 10). `inc1` means that operations become stronger with their
                magnitude.
            interpolation: The same as for `TimmRandAugment`; `create_transform` passes that of the crop.
            fill: The same as for `TimmRandAugment`; `create_transform` passes 255 times the mean of `Normalize`.

        Raises:
            ConfigError: The spec is not one of timm, or names a set of operations (`t...`).
        """
        from foreload.transforms import TimmRandAugment

        kind, *sections = spec.split("-") if isinstance(spec, str) else [""]
        if kind != "rand":
            raise _refused(spec, "must be like rand-m9-mstd0.5-inc1")
        parameters: dict[str, Any] = {}
        for section in sections:
            if section.startswith("t"):
                what = "names a set of operations: foreload has the usual one; 3-Augment is RandomChoice([Grayscale(), "
                raise _refused(spec, f"{section!r} {what}RandomSolarize(128, p=1), GaussianBlur(...)])")
            key, value = re.fullmatch(r"([a-z]*)(.*)", section).groups()  # type: ignore[union-attr]
            if key not in _SECTIONS:
                raise _refused(
                    spec, f"{section!r} is not a section, must be one of {', '.join(_SECTIONS)} and a number"
                )
            parameter, convert = _SECTIONS[key]
            try:
                parameters[parameter] = convert(value)
            except ValueError:
                number = "a whole number" if convert is not float else "a number"
                raise _refused(spec, f"{section!r} must have {number} after {key}") from None
        if parameters.get("magnitude_max") == 0:
            # 0 means the default, as in timm.
            del parameters["magnitude_max"]
        return TimmRandAugment(**parameters, interpolation=interpolation, fill=fill)


_SECTIONS: dict[str, tuple[str, Any]] = {
    "m": ("magnitude", int),
    "n": ("num_ops", int),
    "p": ("p", float),
    "mstd": ("magnitude_std", float),
    "mmax": ("magnitude_max", int),
    "inc": ("increasing", lambda value: bool(int(value))),
}
"""The sections of a spec of timm, with the parameter of each and the conversion of its value."""


def _refused(spec: Any, problem: str) -> Exception:
    return config_error("transforms", f"RandAugment.timm: {shown(spec)}: {problem}")


@dataclass(frozen=True)
class Views(_Checked):
    """Several views of each image, each with its own random draws of the same list.

    Use it as `transforms=Views(2, [...])`, or several of them with lists of their own:
    `transforms=[Views(2, [...]), Views(8, [...])]`. An image is decoded once for all its views.

    Args:
        n: The number of views.
        transforms: The list of transforms for each view.
    """

    n: int
    transforms: Sequence[Transform]

    _checks: ClassVar[Mapping[str, Any]] = {"n": whole, "transforms": lambda given: tuple(list_of(given))}


Transforms: TypeAlias = Sequence[Transform] | Views | Sequence[Views]
"""The transforms of the images of one field."""


def list_of(given: Any, may_hold: tuple[type, ...] = (Transform,), within: str = "") -> list[Any]:
    """Return a list, checked to have only objects of the types `may_hold`; errors begin with `within`."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        kinds = "a list of foreload.transforms" + ("" if within else ", or Views")
        raise config_error("transforms", f"{within}is {shown(given)}, must be {kinds}")
    steps = list(given)
    for number, step in enumerate(steps, start=1):
        is_for_batches = getattr(step, "_of_batches", False) and Mix not in may_hold
        if isinstance(step, may_hold) and not is_for_batches:
            continue
        what = f"is not a transform of foreload.transforms: {ANYTHING}"
        if type(step).__module__.startswith("torchvision.transforms"):
            what = f"is torchvision's: {_instead_of(type(step).__name__)}"
        elif isinstance(step, type) and issubclass(step, may_hold):
            what = f"is a class: make one, {step.__name__}(...)"
        elif is_for_batches:
            what = "works on batches of finished images: pass it as mix=[...]"
        raise config_error("transforms", f"{within}step {number} of {len(steps)}, {shown(step)}: {what}")
    return steps


def _instead_of(name: str) -> str:
    """Return what to use instead of a transform of torchvision."""
    from foreload import transforms

    same = f"use foreload.transforms.{name}, which has the same parameters"
    return same if name in transforms.__all__ else answer(name, transforms.__all__)


def to_json(transforms: Transforms | Mapping[str, Transforms]) -> str:
    """Return the transforms as JSON for Foreload's core: each one is an object of its name and its parameters.

    Raises:
        ConfigError: `transforms` is neither a list of transforms, nor Views, nor a list of Views, nor a dict of these
            by the names of image fields.
    """
    if not isinstance(transforms, Mapping):
        return json_of("transforms", lambda: _document(transforms))
    for field in transforms:
        if not isinstance(field, str):
            raise config_error("transforms", f"has the key {shown(field)}, must be names of image fields")
    return json_of("transforms", lambda: {field: _document(of) for field, of in transforms.items()})


def _document(transforms: Transforms) -> Any:
    """Return the transforms of one image as a JSON value."""
    if isinstance(transforms, Views):
        return transforms._as_json()
    # The core refuses Views together with other transforms.
    return [step._as_json() for step in list_of(transforms, (Transform, Views))]


def mix_to_json(mix: Any) -> str:
    """Return the JSON for Foreload's core: a list of objects of a name and parameters.

    Raises:
        ConfigError: `mix` is neither a `MixUp`, a `CutMix` nor a `RandomChoice` of these, nor a list of one.
    """
    steps = [mix] if hasattr(mix, "_as_json") else mix
    if isinstance(steps, Iterable) and not isinstance(steps, str):
        steps = list(steps)
        if all(hasattr(step, "_as_json") and not isinstance(step, type) for step in steps):
            return json_of("mix", lambda: [step._as_json() for step in steps])
        torchvision = [s for s in steps if type(s).__module__.startswith("torchvision.transforms")]
        if torchvision:
            message = "is torchvision's: use the class of foreload.transforms with the same name"
            raise config_error("mix", f"{type(torchvision[0]).__name__}: {message}")
    must = "must be a list of one of foreload.transforms.MixUp, CutMix, or RandomChoice of these"
    raise config_error("mix", f"is {shown(mix)}, {must}")
