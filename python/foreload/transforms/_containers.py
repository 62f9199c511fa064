"""Transforms that apply some of others, in some order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload._errors import config_error
from foreload.transforms import _checks as check
from foreload.transforms._base import Transform, list_of
from foreload.transforms._mixing import Mix


@dataclass(frozen=True)
class _Container(Transform):
    """A transform with others within it, which change pixels or mirror."""

    _may_hold: ClassVar[tuple[type, ...]] = (Transform,)

    def __post_init__(self) -> None:
        name = type(self).__name__
        within = list_of(self.transforms, self._may_hold, within=f"{name}: transforms: ")
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
        transforms: Transforms that change pixels, flips, and other lists of such; or for `mix=` of a loader `MixUp` and
            `CutMix`, of which one is drawn for each batch.
        p: The weight of each, which need not add up to 1. None: all are equally likely.
    """

    transforms: Sequence[Transform] | Sequence[Mix]
    p: Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {"transforms": _any, "p": check.optional(check.weights)}
    _may_hold: ClassVar[tuple[type, ...]] = (Transform, Mix)

    def __post_init__(self) -> None:
        """Check the types.

        Raises:
            ConfigError: A parameter has a wrong type, or transforms of an image stand beside those of batches.
        """
        super().__post_init__()
        if len({isinstance(step, Mix) for step in self.transforms}) > 1:
            message = (
                "has MixUp or CutMix, which work on batches, beside transforms of one image: make two lists"
            )
            raise config_error("transforms", f"RandomChoice: transforms: {message}")

    @property
    def _of_batches(self) -> bool:
        return any(isinstance(step, Mix) for step in self.transforms)


@dataclass(frozen=True)
class RandomOrder(_Container):
    """Applies all transforms of a list in random order.

    Args:
        transforms: Transforms that change pixels, flips, and other lists of such.
    """

    transforms: Sequence[Transform]

    _checks: ClassVar[Mapping[str, Any]] = {"transforms": _any}
