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

import sys

# `typing.get_type_hints` looks up here what the types of parameters name.
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
"""What mixes finished images."""

__all__ = ["Transform", "Views"]
__all__ += _made.__all__

# Pickles name the modules that classes were in when they were written.
for _former in ("_containers", "_conversion", "_geometry", "_mixing", "_pixels", "_policies", "_warps"):
    sys.modules[f"{__name__}.{_former}"] = sys.modules[__name__]

if not TYPE_CHECKING:  # Type checkers would take every name for one that is here.

    def __getattr__(name: str) -> Any:
        """Say what to do instead of a transform that is not here."""
        what = f": {_answer(name, __all__)}" if not name.startswith("_") else ""
        raise AttributeError(f"foreload.transforms has no {name}{what}")
