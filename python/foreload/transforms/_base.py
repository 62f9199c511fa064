"""What all transforms have in common, the list of them, and how it reaches Foreload's core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from foreload._errors import config_error, json_of
from foreload.transforms._checks import shown, whole
from foreload.transforms._elsewhere import ANYTHING, answer
from foreload.transforms._mixing import Mix


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
                message = f"is {shown(given)}, must be {error}"
                raise config_error("transforms", f"{name}: {parameter.name}: {message}") from None
            object.__setattr__(self, parameter.name, usual)

    def _as_json(self) -> dict[str, Any]:
        parameters = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return {type(self).__name__: parameters}


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
            object.__setattr__(self, "n", whole(self.n))
        except ValueError as error:
            raise config_error("transforms", f"Views: n: is {shown(self.n)}, must be {error}") from None
        object.__setattr__(self, "transforms", tuple(list_of(self.transforms)))

    def _as_json(self) -> dict[str, Any]:
        steps = [step._as_json() for step in self.transforms]
        return {"Views": {"n": self.n, "transforms": steps}}


Transforms: TypeAlias = Sequence[Transform] | Views | Sequence[Views]
"""The transforms of the images of one field."""


def list_of(given: Any, may_hold: tuple[type, ...] = (Transform,), within: str = "") -> list[Any]:
    """Return a list of what it may hold, and of nothing else; errors say what it is `within`."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        kinds = "a list of foreload.transforms" + ("" if within else ", or Views")
        raise config_error("transforms", f"{within}is {shown(given)}, must be {kinds}")
    steps = list(given)
    for number, step in enumerate(steps, start=1):
        is_for_batches = getattr(step, "_of_batches", False) and Mix not in may_hold
        if isinstance(step, may_hold) and not is_for_batches:
            continue
        what = f"is no transform of foreload.transforms: {ANYTHING}"
        if type(step).__module__.startswith("torchvision.transforms"):
            what = f"is torchvision's: {_instead_of(type(step).__name__)}"
        elif isinstance(step, type) and issubclass(step, may_hold):
            what = f"is a class: make one, {step.__name__}(...)"
        elif is_for_batches:
            what = "works on batches of finished images: give it by mix=[...]"
        raise config_error("transforms", f"{within}step {number} of {len(steps)}, {shown(step)}: {what}")
    return steps


def _instead_of(name: str) -> str:
    """Return what to write instead of a transform of torchvision's."""
    from foreload import transforms

    same = f"use foreload.transforms.{name}, which has the same parameters"
    return same if name in transforms.__all__ else answer(name, transforms.__all__)


def to_json(transforms: Transforms | Mapping[str, Transforms]) -> str:
    """Return the JSON that Foreload's core reads: each transform is an object of its name and its parameters.

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
    # The core refuses Views beside other transforms.
    return [step._as_json() for step in list_of(transforms, (Transform, Views))]
