"""Advice for transforms that Foreload does not have, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection

ANYTHING = "remove it here and apply it to the batches"
"""The advice for any function of images."""
TORCHVISION = (
    "remove it here and apply torchvision.transforms.v2.{name} to the batches (they may be on the GPU). It draws once "
    "for each call: to draw more often, call it for each image, or for parts of a batch"
)
"""The advice for transforms of torchvision that are not in `WHAT_TO_DO`."""
WHAT_TO_DO = {
    "RandomSizedCrop": "use RandomResizedCrop, its current name",
    "FiveCrop": "evaluate with Resize and CenterCrop",
    "TenCrop": "evaluate with Resize and CenterCrop",
    "Scale": "use Resize, its current name",
}

_TENSORS = 'not needed: images are tensors from the beginning, and ToDtype("float32") scales them to 0..1'
_NOTHING = "not needed: images are RGB in plain tensors"
_ANSWERS = {
    **WHAT_TO_DO,
    **dict.fromkeys(("Compose", "Sequential"), "pass a list: transforms=[RandomResizedCrop(224), ...]"),
    **dict.fromkeys(("ToTensor", "ToTensorV2", "PILToTensor", "ToImage", "ToPILImage"), _TENSORS),
    **dict.fromkeys(("Identity", "RGB", "ToPureTensor"), _NOTHING),
    "ConvertImageDtype": 'use ToDtype("float32")',
    "InterpolationMode": 'pass the name of an interpolation as a text, such as "bicubic"',
    "JPEG": 'end the list with ToDtype("uint8"), and apply torchvision.transforms.v2.JPEG to the batches',
    "Lambda": f"{ANYTHING}: no Python runs for single images",
    **dict.fromkeys(
        ("functional", "v2"), "foreload.transforms has only classes, for a list that a loader compiles"
    ),
}
_OF_BATCHES = ("ElasticTransform", "GaussianNoise", "LinearTransformation", "RandomPerspective")
"""Other transforms of torchvision that are often used with images."""


def answer(name: str, known: Collection[str]) -> str:
    """Return the advice for the transform `name`, which is not one of those that are `known`."""
    if name in _ANSWERS:
        return _ANSWERS[name]
    if name in _OF_BATCHES:
        return TORCHVISION.format(name=name)
    lower = {of.lower(): of for of in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(sorted(known))}"
