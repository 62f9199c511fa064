"""Transforms of images, with torchvision v2's names, parameters and defaults.

    from foreload import transforms as T

    loader = foreload.ImageLoader("data/train", transforms=[
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16"),
        T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ])

A list is checked and compiled once, when a loader is made, and then runs in one pass over the pixels. Images are RGB,
and `uint8` until `ToDtype`. The order is: geometry, transforms that change pixels, `ToDtype`, `Normalize`.
`RandomHorizontalFlip` and `RandomVerticalFlip` may be anywhere except before a resize with nearest pixels.
`RandomErasing` may be anywhere after the geometry. A list in another order, or one that would resize twice, raises an
error with the name of the transform. `docs/transforms.md` says which lists can run in one pass, and how random numbers
are drawn.

If samples have several images, the other images follow the geometry of the first. A dict gives each image field its own
transforms: `transforms={"left.jpg": [...], "right.jpg": [...]}`.

Each transform is a frozen dataclass, equal to another with the same parameters. Parameters that are tuples may also be
lists.
"""

from __future__ import annotations

import sys

# `typing.get_type_hints` looks up the names in types of parameters here.
from collections.abc import Sequence as Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from foreload.transforms import _made
from foreload.transforms._base import Mix, Transform, Views
from foreload.transforms._base import Transforms as Transforms
from foreload.transforms._base import mix_to_json as mix_to_json
from foreload.transforms._base import to_json as to_json
from foreload.transforms._elsewhere import answer as _answer
from foreload.transforms._made import *  # noqa: F403
from foreload.transforms._made import RandomChoice

Mixing: TypeAlias = Mix | RandomChoice
"""A transform that mixes finished images."""

__all__ = ["Transform", "Views"]
__all__ += _made.__all__

# Pickles name the modules of classes at the time when they were written.
for _former in ("_containers", "_conversion", "_geometry", "_mixing", "_pixels", "_policies", "_warps"):
    sys.modules[f"{__name__}.{_former}"] = sys.modules[__name__]

if not TYPE_CHECKING:  # Type checkers would accept every name.

    def __getattr__(name: str) -> Any:
        """Raise an error that says what to use instead of a transform that does not exist here."""
        what = f": {_answer(name, __all__)}" if not name.startswith("_") else ""
        raise AttributeError(f"foreload.transforms has no {name}{what}")
