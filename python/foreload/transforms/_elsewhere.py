"""What to do instead of the transforms that Foreload does not have, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection

ANYTHING = "leave it out here and apply it to the batches that come"
"""What can be done with any function of images."""
TORCHVISION = (
    "leave it out here and apply torchvision.transforms.v2.{name} to the batches that come (they may be on the GPU); "
    "it draws once a call, so call it for each image, or for parts of a batch, where that is too seldom"
)
"""What can be done with those of torchvision's that are not in `WHAT_TO_DO`."""
WHAT_TO_DO = {
    "RandomSizedCrop": "use RandomResizedCrop, its name today",
    "FiveCrop": "evaluate with Resize and CenterCrop",
    "TenCrop": "evaluate with Resize and CenterCrop",
    "Scale": "use Resize, its name today",
}

_TENSORS = 'not needed: images are tensors from the beginning, and ToDtype("float32") scales them to 0..1'
_NOTHING = "not needed: images are RGB in plain tensors"
_ANSWERS = {
    **WHAT_TO_DO,
    **dict.fromkeys(("Compose", "Sequential"), "give a list: transforms=[RandomResizedCrop(224), ...]"),
    **dict.fromkeys(("ToTensor", "ToTensorV2", "PILToTensor", "ToImage", "ToPILImage"), _TENSORS),
    **dict.fromkeys(("Identity", "RGB", "ToPureTensor"), _NOTHING),
    "ConvertImageDtype": 'use ToDtype("float32")',
    "InterpolationMode": 'give the name of an interpolation as a text, such as "bicubic"',
    "JPEG": 'end the list with ToDtype("uint8"), and apply torchvision.transforms.v2.JPEG to the batches that come',
    "Lambda": f"{ANYTHING}: no Python runs for single images",
    **dict.fromkeys(
        ("functional", "v2"), "foreload.transforms has classes alone, for a list that a loader compiles"
    ),
}
_OF_BATCHES = ("ElasticTransform", "GaussianNoise", "LinearTransformation", "RandomPerspective")
"""The others of torchvision's that people use with images."""


def answer(name: str, known: Collection[str]) -> str:
    """Return what to do instead of the transform `name`, which is none of those that are `known`."""
    if name in _ANSWERS:
        return _ANSWERS[name]
    if name in _OF_BATCHES:
        return TORCHVISION.format(name=name)
    lower = {of.lower(): of for of in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f"is {lower[near[0]]} meant?" if near else f"there are {', '.join(sorted(known))}"
