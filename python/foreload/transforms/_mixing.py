"""Transforms that mix finished images, for `mix=` of a loader; `foreload.transforms` offers them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from foreload._errors import config_error, json_of
from foreload.transforms import _checks as check


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The base of what mixes images. Make a `MixUp` or a `CutMix`."""

    alpha: float = 1.0
    num_classes: int | None = None

    _of_batches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the parameters' types; what their values may be is checked where they are used.

        Raises:
            ConfigError: A parameter has a wrong type; the message names the transform and the parameter.
        """
        name = type(self).__name__
        if type(self) is Mix:
            raise config_error("mix", "Mix: make one of its kinds, as MixUp")
        alpha, classes = self.alpha, self.num_classes
        if not check.is_number(alpha):
            raise config_error("mix", f"{name}: alpha: is {check.shown(alpha)}, must be a number above 0")
        if classes is not None and (not isinstance(classes, numbers.Integral) or isinstance(classes, bool)):
            raise config_error(
                "mix", f"{name}: num_classes: is {check.shown(classes)}, must be a whole number, or None"
            )
        object.__setattr__(self, "alpha", float(alpha))
        object.__setattr__(self, "num_classes", None if classes is None else int(classes))

    def _as_json(self) -> dict[str, Any]:
        parameters = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return {type(self).__name__: parameters}


@dataclass(frozen=True, kw_only=True)
class MixUp(Mix):
    """Blends each image with its partner: λ·image + (1 - λ)·partner, and their labels alike.

    λ is drawn for each global batch from Beta(alpha, alpha), as in Zhang et al., "mixup: Beyond Empirical Risk
    Minimization".

    Args:
        alpha: Both parameters of the Beta distribution, above 0.
        num_classes: The length of the soft labels, float32 [n, num_classes]. None: class numbers are not mixed, and
            `Batch.mixed` has those of the partners, and λ.
    """


@dataclass(frozen=True, kw_only=True)
class CutMix(Mix):
    """Pastes a rectangle of the partner into each image, and mixes their labels by the areas.

    λ and the rectangle are drawn for each global batch, λ from Beta(alpha, alpha). The sides of the rectangle are
    √(1 - λ) of the image's, its centre is any pixel, and λ becomes the share of the image that is left; as in
    torchvision, and in Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features".

    Args:
        alpha: Both parameters of the Beta distribution, above 0.
        num_classes: The length of the soft labels, as of `MixUp`.
    """


def mix_to_json(mix: Any) -> str:
    """Return the JSON that Foreload's core reads: a list of objects of a name and parameters.

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
            message = "is torchvision's; foreload.transforms has it by the same name"
            raise config_error("mix", f"{type(torchvision[0]).__name__}: {message}")
    must = "must be a list of one of foreload.transforms.MixUp, CutMix, or RandomChoice of these"
    raise config_error("mix", f"is {check.shown(mix)}, {must}")
