"""Policies: transforms that draw operations out of a table, and how strong these are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreload._errors import config_error
from foreload.transforms import _checks as check
from foreload.transforms._base import Transform
from foreload.transforms._warps import INTERPOLATIONS

POLICIES = ("imagenet", "cifar10", "svhn")
"""The datasets for which AutoAugment's policies were found."""


@dataclass(frozen=True)
class AutoAugment(Transform):
    """Applies one of 25 pairs of operations that were found by search (Cubuk et al., 2018).

    Args:
        policy: The dataset for which they were found: `imagenet`, `cifar10` or `svhn`; or torchvision's
            `AutoAugmentPolicy`.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "policy": check.one_of(POLICIES),
        "interpolation": check.one_of(INTERPOLATIONS),
        "fill": check.optional(check.fill_values),
    }


@dataclass(frozen=True)
class RandAugment(Transform):
    """Applies some of 14 operations, all of one strength (Cubuk et al., 2019).

    `RandAugment.timm` makes timm's, which has another distribution.

    Args:
        num_ops: The number of operations; one may be drawn several times.
        magnitude: The number of the strength, from 0.
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "num_ops": check.whole,
        "magnitude": check.whole,
        "num_magnitude_bins": check.whole,
        "interpolation": check.one_of(INTERPOLATIONS),
        "fill": check.optional(check.fill_values),
    }

    @classmethod
    def timm(
        cls, spec: str, *, interpolation: Any = "random", fill: float | Sequence[float] = 128
    ) -> TimmRandAugment:
        """Make timm's RandAugment of what `rand_augment_transform` and `create_transform(auto_augment=)` take.

        Args:
            spec: `rand`, then sections after dashes: `m9`, the magnitude; `n2`, the number of operations; `p0.5`, their
                probability; `mstd0.5`, the standard deviation of magnitudes; `mmax10`, the largest (0 is 10, too);
                `inc1`, operations that become stronger with their magnitude. As `rand-m9-mstd0.5-inc1`.
            interpolation: The same as for `TimmRandAugment`; `create_transform` gives the crop's.
            fill: The same as for `TimmRandAugment`; `create_transform` gives 255 times the mean of `Normalize`.

        Raises:
            ConfigError: The spec is none of timm's, or names a set of operations (`t...`).
        """
        kind, *sections = spec.split("-") if isinstance(spec, str) else [""]
        if kind != "rand":
            raise _refused(spec, "must be as rand-m9-mstd0.5-inc1")
        parameters: dict[str, Any] = {}
        for section in sections:
            if section.startswith("t"):
                what = "names a set of operations: foreload has the usual one; 3-Augment is RandomChoice([Grayscale(), "
                raise _refused(spec, f"{section!r} {what}RandomSolarize(128, p=1), GaussianBlur(...)])")
            key, value = re.fullmatch(r"([a-z]*)(.*)", section).groups()  # type: ignore[union-attr]
            if key not in _SECTIONS:
                raise _refused(
                    spec, f"{section!r} is no section, must be one of {', '.join(_SECTIONS)} and a number"
                )
            parameter, convert = _SECTIONS[key]
            try:
                parameters[parameter] = convert(value)
            except ValueError:
                number = "a whole number" if convert is not float else "a number"
                raise _refused(spec, f"{section!r} must have {number} after {key}") from None
        return TimmRandAugment(**parameters, interpolation=interpolation, fill=fill)


_SECTIONS: dict[str, tuple[str, Any]] = {
    "m": ("magnitude", int),
    "n": ("num_ops", int),
    "p": ("p", float),
    "mstd": ("magnitude_std", float),
    # 0 is the usual one, as in timm.
    "mmax": ("magnitude_max", lambda value: int(value) or TimmRandAugment.magnitude_max),
    "inc": ("increasing", lambda value: bool(int(value))),
}
"""The sections of a spec of timm's, with the parameter that each gives and what its value is."""


def _refused(spec: Any, problem: str) -> Exception:
    return config_error("transforms", f"RandAugment.timm: {check.shown(spec)}: {problem}")


@dataclass(frozen=True)
class TimmRandAugment(Transform):
    """Applies some of 15 operations, as timm's `rand_augment_transform` does; `RandAugment.timm` makes it of a spec.

    Each operation that is drawn is applied with a probability, and has a magnitude of its own from a normal
    distribution. What operations do is what torchvision's do to tensors; images move by fractions of pixels as timm's
    do, by at most 45 % of their size.

    Args:
        num_ops: The number of operations that are drawn; one may be drawn several times.
        magnitude: The mean of magnitudes; 10 is the full strength.
        magnitude_std: The standard deviation of magnitudes. Above 100 they are uniform from 0 to `magnitude`.
        magnitude_max: The largest magnitude.
        increasing: Whether posterising, solarising and the factors of colours, too, become stronger with the magnitude.
        p: The probability of each operation that is drawn.
        interpolation: The same as for `RandomRotation`; or `random`, bilinear or bicubic, each time at random.
        fill: What warps show outside of the image: one value of 0..255, or three for R, G and B.
    """

    num_ops: int = 2
    magnitude: float = 10.0
    magnitude_std: float = 0.0
    magnitude_max: float = 10.0
    increasing: bool = False
    p: float = 0.5
    interpolation: Any = "random"
    fill: float | Sequence[float] = 128

    _checks: ClassVar[Mapping[str, Any]] = {
        "num_ops": check.whole,
        "magnitude": check.number,
        "magnitude_std": check.number,
        "magnitude_max": check.number,
        "increasing": check.truth,
        "p": check.number,
        "interpolation": check.one_of((*INTERPOLATIONS, "random")),
        "fill": check.fill_values,
    }


@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Applies one of 14 operations, of random strength (Müller and Hutter, 2021).

    Args:
        num_magnitude_bins: The number of strengths, at least 2.
        interpolation: The same as for `RandomRotation`.
        fill: The same as for `RandomRotation`; here None by default.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "num_magnitude_bins": check.whole,
        "interpolation": check.one_of(INTERPOLATIONS),
        "fill": check.optional(check.fill_values),
    }


@dataclass(frozen=True)
class AugMix(Transform):
    """Mixes an image with what several chains of operations make of it (Hendrycks et al., 2019).

    Args:
        severity: How many of ten strengths are drawn from, the weakest first.
        mixture_width: The number of chains, at most 16.
        chain_depth: The number of operations of a chain, at most 16. Where it is not above 0: 1 to 3, at random.
        alpha: The parameter of the distributions of weights, Beta for the image and Dirichlet for the chains.
        all_ops: Whether brightness, colour, contrast and sharpness are among the operations.
        interpolation: The same as for `RandomRotation`; here `bilinear` by default.
        fill: The same as for `RandomRotation`; here None by default.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Any = "bilinear"
    fill: float | Sequence[float] | None = None

    _checks: ClassVar[Mapping[str, Any]] = {
        "severity": check.whole,
        "mixture_width": check.whole,
        "chain_depth": check.integer,
        "alpha": check.number,
        "all_ops": check.truth,
        "interpolation": check.one_of(INTERPOLATIONS),
        "fill": check.optional(check.fill_values),
    }
