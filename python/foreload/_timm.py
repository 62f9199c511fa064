"""Translates the classes that timm's `create_transform` adds to torchvision's; timm is never imported."""

from __future__ import annotations

import math
from typing import Any

from foreload import transforms

_INTERPOLATIONS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of interpolations."""

_PLAIN = (
    *(
        "AutoContrast",
        "Equalize",
        "Invert",
        "Rotate",
        "Posterize",
        "Solarize",
        "SolarizeAdd",
        "Color",
        "Contrast",
    ),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_INCREASING = tuple(
    f"{name}Increasing"
    if name in ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
    else name
    for name in _PLAIN
)
"""The operations of timm's RandAugment: by default, and with `inc1`."""

_THREE = [[("Solarize", 5)], [("Desaturate", 10)], [("GaussianBlurRand", 10)]]
"""The policy of DeiT III's 3-Augment."""

Translated = tuple[transforms.Transform, str] | tuple[None, str]
"""A transform, or None with the reason and what to do."""


def translated(name: str, step: Any) -> Translated:
    """Return Foreload's transform for one of timm's classes, by its name."""
    return _TRANSLATIONS[name](step)


def _crop(step: Any) -> Translated:
    if isinstance(step.interpolation, list | tuple):
        return None, 'draws the interpolation: set one, create_transform(interpolation="bicubic")'
    return transforms.RandomResizedCrop(step.size, step.scale, step.ratio, step.interpolation), ""


def _erasing(step: Any) -> Translated:
    if step.max_count > 1:
        return None, "may erase several rectangles, must erase one: leave re_count at 1"
    if step.num_splits > 1:
        return None, "does not change a part of the batch: leave re_num_splits at 0"
    value = "random" if step.per_pixel else "color" if step.rand_color else 0.0
    narrow, wide = step.log_aspect_ratio
    scale, ratio = (step.min_area, step.max_area), (math.exp(narrow), math.exp(wide))
    return transforms.RandomErasing(step.probability, scale, ratio, value), ""


def _rand_augment(step: Any) -> Translated:
    names, first = tuple(op.name for op in step.ops), step.ops[0]
    if names not in (_PLAIN, _INCREASING) or step.choice_weights is not None:
        return None, "has its own set of operations: remove t... from its spec"
    if first.hparams.get("translate_pct", 0.45) != 0.45:
        return None, "moves images by another fraction than 0.45: remove translate_pct"
    drawn = ("prob", "magnitude", "magnitude_std", "magnitude_max")
    if len({tuple(getattr(op, name) for name in drawn) for op in step.ops}) > 1:
        return None, "has operations of different probabilities or magnitudes, must have the same for all"
    resample = first.kwargs["resample"]
    how = (
        "random" if isinstance(resample, list | tuple) else _INTERPOLATIONS.get(int(resample), str(resample))
    )
    fill = first.kwargs["fillcolor"]
    made = transforms.TimmRandAugment(
        num_ops=step.num_layers,
        magnitude=first.magnitude,
        # Above 100, magnitudes are uniform, which timm keeps as infinity.
        magnitude_std=min(first.magnitude_std, 101.0),
        magnitude_max=first.magnitude_max or transforms.TimmRandAugment.magnitude_max,
        increasing=names == _INCREASING,
        p=first.prob,
        interpolation=how,
        fill=fill,
    )
    return made, ""


def _auto_augment(step: Any) -> Translated:
    policy = [[(op.name, op.magnitude) for op in ops] for ops in step.policy]
    if policy == _THREE and any(op.magnitude_std for ops in step.policy for op in ops):
        return None, "draws the magnitudes of 3a: remove mstd from its spec"
    if policy == _THREE:
        choice = [
            transforms.RandomSolarize(128, p=1.0),
            transforms.Grayscale(),
            # A filter of this size has all relevant weights of a deviation of 2 pixels.
            transforms.GaussianBlur(15, sigma=(0.1, 2.0)),
        ]
        return transforms.RandomChoice(choice), ""
    return None, "is a policy that only timm has: use rand-m9-mstd0.5-inc1, or torchvision's AutoAugment"


_TRANSLATIONS = {
    "RandomResizedCropAndInterpolation": _crop,
    "RandomErasing": _erasing,
    "RandAugment": _rand_augment,
    "AutoAugment": _auto_augment,
}
