"""Transforms that apply some of others, in some order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload.transforms import _checks as check
from foreload.transforms._base import Transform, list_of


@dataclass(frozen=True)
class _Container(Transform):
    """A transform with others within it, which change pixels or mirror."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        within = list_of(self.transforms, within=f"{name}: transforms: ")
        object.__setattr__(self, "transforms", tuple(within))
        super().__post_init__()

    def _as_json(self) -> dict[str, Any]:
        document = super()._as_json()
        (parameters,) = document.values()
        parameters["transforms"] = [step._as_json() for step in parameters["transforms"]]
        return document


def _any(given: Any) -> Any:
    """Return what was checked already."""
    return given


@dataclass(frozen=True)
class RandomApply(_Container):
    """Applies all transforms of a list, or none of them, at random.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
        p: The probability that they are applied.
    """

    transforms: Sequence[Transform]
    p: float = 0.5

    _checks: ClassVar[Mapping[str, Any]] = {"transforms": _any, "p": check.number}


@dataclass(frozen=True)
class RandomChoice(_Container):
    """Applies one transform of a list.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
        p: The weight of each, which need not add up to 1. None: all are equally likely.
    """

    transforms: Sequence[Transform]
    p: Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {"transforms": _any, "p": check.optional(check.weights)}


@dataclass(frozen=True)
class RandomOrder(_Container):
    """Applies all transforms of a list in random order.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
    """

    transforms: Sequence[Transform]

    _checks: ClassVar[Mapping[str, Any]] = {"transforms": _any}
