"""What is done to an image: transforms with torchvision v2's names, parameters and defaults.

    from foreload import transforms as T

    loader = foreload.ImageLoader("data/train", transforms=[
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16"),
        T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ])

A list is checked and compiled once, when a loader is made, and then runs in one pass over the pixels. Images are RGB,
and `uint8` until `ToDtype`. Geometry comes first, then what changes pixels, then `ToDtype` and `Normalize`;
`RandomHorizontalFlip` may stand anywhere but before a resize by nearest pixels, and `RandomErasing` anywhere behind the
geometry. A list in another order, or one that would resample twice, is refused with the name of the transform.
`docs/transforms.md` says which lists can run in one pass, and how random numbers are drawn.

Where samples have several images, the other images follow the geometry of the first. A dict gives each image field
transforms of its own: `transforms={"left.jpg": [...], "right.jpg": [...]}`.

Each transform is a frozen dataclass, equal to another with the same parameters. Lists are taken wherever tuples are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from foreload.transforms._base import Transform, Views
from foreload.transforms._base import Transforms as Transforms
from foreload.transforms._base import to_json as to_json
from foreload.transforms._containers import (
    RandomApply,
    RandomChoice,
    RandomOrder,
)
from foreload.transforms._conversion import (
    Normalize,
    ToDtype,
)
from foreload.transforms._elsewhere import answer as _answer
from foreload.transforms._geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomIoUCrop,
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
)
from foreload.transforms._mixing import CutMix, Mix, MixUp
from foreload.transforms._pixels import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from foreload.transforms._policies import (
    AugMix,
    AutoAugment,
    RandAugment,
    TimmRandAugment,
    TrivialAugmentWide,
)
from foreload.transforms._warps import RandomAffine, RandomRotation

Mixing: TypeAlias = Mix | RandomChoice
"""What mixes finished images."""

__all__ = [
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "ColorJitter",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "MixUp",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ScaleJitter",
    "TimmRandAugment",
    "ToDtype",
    "Transform",
    "TrivialAugmentWide",
    "Views",
]

if not TYPE_CHECKING:  # Type checkers would take every name for one that is here.

    def __getattr__(name: str) -> Any:
        """Say what to do instead of a transform that is not here."""
        what = f": {_answer(name, __all__)}" if not name.startswith("_") else ""
        raise AttributeError(f"foreload.transforms has no {name}{what}")
