"""The situations in which the tuner is measured: where the images lie, what is done to them, and what runs beside."""

from __future__ import annotations

import json
from dataclasses import dataclass

# Half the requests of an object store take about this long within a region.
OBJECT_STORE_DELAY = 0.02
PFS = "open=2ms,read=2ms,bandwidth=400MB,concurrency=256"

LIGHT = ["--image-size", "96"]
AUGMENTED = [
    {"RandomResizedCrop": {"size": 224}},
    {"RandomHorizontalFlip": {}},
    {"AugMix": {}},
    {"GaussianBlur": {"kernel_size": 23, "sigma": [0.1, 2.0]}},
]
"""Much work with each pixel, and few bytes."""
HEAVY = ["--transforms", json.dumps(AUGMENTED), "--decode", "exact"]


@dataclass(frozen=True)
class Situation:
    """One situation: flags of `foreload bench`, and what runs beside it."""

    name: str
    flags: tuple[str, ...]
    ranks: int = 1
    hogs: int = 0
    server: bool = False


def situation(name: str, storage: list[str], recipe: list[str], **more: object) -> Situation:
    """Return a situation with the flags of its storage and its recipe."""
    return Situation(name, (*storage, *recipe), **more)


STORAGES = {
    "warm": ([], False),
    "nvme": (["--direct", "on"], False),
    "pfs": (["--emulate-pfs", PFS], False),
    "objects": ([], True),
}


def every() -> dict[str, Situation]:
    """Return all situations by name."""
    found = []
    for storage, (flags, server) in STORAGES.items():
        for recipe, of_recipe in (("light", LIGHT), ("heavy", HEAVY)):
            found.append(situation(f"{storage}-{recipe}", flags, of_recipe, server=server))
    for storage in ("warm", "pfs"):
        flags = STORAGES[storage][0]
        found.append(situation(f"{storage}-light-two-ranks", flags, LIGHT, ranks=2))
        found.append(situation(f"{storage}-light-hog", flags, LIGHT, hogs=1))
    return {one.name: one for one in found}
