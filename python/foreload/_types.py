"""Types of what loaders take and return, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypedDict


class Array(Protocol):
    """An array or tensor of any library; its values are read by `tolist`."""

    def tolist(self) -> Any:
        """Return its numbers as Python lists."""


Numbers: TypeAlias = Sequence[float] | Array


class LoaderState(TypedDict):
    """The state of a loader in a checkpoint: JSON-able, and the same on every rank but for `errors`."""

    version: int
    fingerprint: str
    seed: int
    epoch: int
    position: int
    global_batch: int
    epoch_size: int
    shuffle: bool
    blocks: str | None
    shuffle_ranks: int | None
    last_batch: str
    selection: str | None
    repeats: int
    mix: str | None
    errors: int


class View(TypedDict):
    """How an image of a sample is cropped, resized, padded and flipped in an epoch, in pixels; and what follows."""

    x: int
    y: int
    width: int
    height: int
    padding: list[int]
    resized_width: int
    resized_height: int
    left: int
    top: int
    flip: bool
    vertical_flip: bool
    output_width: int
    output_height: int
    ops: list[dict[str, Any]]
    erasures: list[dict[str, Any]]


class BatchMix(TypedDict):
    """How the images of a batch are mixed. `transform` is `MixUp` or `CutMix`, which has a `box`."""

    transform: str
    lam: float
    box: tuple[int, int, int, int] | None


class SampleFailure(TypedDict):
    """A sample that was skipped or replaced by zeros."""

    step: int
    sample_id: int
    path: os.PathLike[str]
    offset: int
    message: str


class ConcealedSample(TypedDict):
    """A damaged image that was decoded all the same. `message` says what is damaged, and where in its file."""

    sample_id: int
    path: os.PathLike[str]
    offset: int
    message: str
