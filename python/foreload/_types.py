"""Types of what loaders take and return, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypedDict


class Array(Protocol):
    """An array or tensor of any library; its values are read by `tolist`."""

    def tolist(self) -> Any:
        """Return its numbers as Python lists."""


class WithClasses(Protocol):
    """A loader, or a dataset such as torchvision's ImageFolder, that knows the names of its classes."""

    @property
    def classes(self) -> Sequence[str]:
        """The names in the order of the class numbers."""


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


class StreamPosition(TypedDict):
    """How far the samples of a source are settled: up to `after`, where it has an order, and those of `settled`.

    `divisions` says of other numbers of ranks, which divided the stream before, how far each rank had come.
    """

    after: str | None
    settled: list[str]
    divisions: list[list[str | None]]


class StreamSourceState(TypedDict):
    """How far a source has come. `position` is None where the snapshot has it."""

    position: StreamPosition | None
    unsettled: int


class StreamIdentity(TypedDict):
    """What a stream is made of. A run that goes on must have the same."""

    streams: list[str]
    seed: int
    batch_size: int
    rank: int
    world_size: int
    rehearsal: str | None


class StreamSnapshot(TypedDict):
    """A file of the rehearsal buffer's directory, which has what is large."""

    number: int
    bytes: int
    crc: int


class StreamAccount(TypedDict):
    """What became of all samples: received = delivered + queued + spilled + dropped + failed + withdrawn + lost.

    `rehearsed` counts uses of earlier samples, `repeated` samples that came once more while the first was waiting, and
    `missing` numbers that never arrived, where a source has numbers.
    """

    received: int
    delivered: int
    queued: int
    spilled: int
    dropped: int
    failed: int
    withdrawn: int
    lost: int
    rehearsed: int
    repeated: int
    missing: int


class StreamState(TypedDict):
    """The state of a `foreload.StreamLoader` in a checkpoint: JSON-able."""

    stream_state: int
    identity: StreamIdentity
    step: int
    used: int
    taken: int
    account: StreamAccount
    sources: list[StreamSourceState]
    withdrawn: list[int]
    errors: int
    snapshot: StreamSnapshot | None
    journal: int | None
    lineage: list[int]


class StreamStats(StreamAccount):
    """What `stats()["stream"]` has: the account, what is kept for rehearsal, and how long samples wait.

    The latencies are those from a sample's arrival to its batch.
    """

    kept: int
    kept_bytes: int
    latency_p50_seconds: float
    latency_p99_seconds: float
