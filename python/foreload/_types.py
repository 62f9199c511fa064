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
    """A loader, or a dataset such as torchvision's ImageFolder, that has the names of its classes."""

    @property
    def classes(self) -> Sequence[str]:
        """The names in the order of the class numbers."""


Numbers: TypeAlias = Sequence[float] | Array


class BucketsState(TypedDict, total=False):
    """The additions of a loader with `buckets` (the `digest` of the buckets, and the `steps` of the epoch) or with
    `batch_tokens` (the `digest` of the costs, the bins of a global step, and the `steps` of the epoch)."""

    buckets: dict[str, str | int]
    bins: dict[str, str | int]


class LoaderState(BucketsState):
    """The state of a loader in a checkpoint. It can be written as JSON, and only `errors` differs between ranks."""

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
    """How an image of a sample is cropped, resized, padded and flipped in an epoch, in pixels, and then changed."""

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
    orientation: int
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
    """A damaged image that was decoded anyway. `message` says what is damaged, and where in its file."""

    sample_id: int
    path: os.PathLike[str]
    offset: int
    message: str


class StreamPosition(TypedDict):
    """The settled samples of a source: those up to `after`, if the source has an order, and those of `settled`.

    A settled sample never has to be given again. If other numbers of ranks divided the stream before, `divisions` has
    the position of each of these ranks.
    """

    after: str | None
    settled: list[str]
    divisions: list[list[str | None]]


class StreamSourceState(TypedDict):
    """The progress of a source. `position` is None if the snapshot has it."""

    position: StreamPosition | None
    unsettled: int


class StreamIdentity(TypedDict):
    """The settings that identify a stream. A run that resumes must have the same."""

    streams: list[str]
    seed: int
    batch_size: int
    rank: int
    world_size: int
    rehearsal: str | None


class StreamSnapshot(TypedDict):
    """A file in the rehearsal buffer's directory that has the large part of a state."""

    number: int
    bytes: int
    crc: int


class StreamAccount(TypedDict):
    """Counters of all samples: received = delivered + queued + spilled + dropped + failed + withdrawn + lost.

    `rehearsed` counts uses of earlier samples, and `repeated` samples that arrived again while the first one was
    waiting. `missing` counts numbers that never arrived, if a source has numbers.
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
    """The state of a `foreload.StreamLoader` in a checkpoint. It can be written as JSON."""

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
    """The content of `stats()["stream"]`: counters, the samples that are kept for rehearsal, and waiting times.

    The latencies are those from a sample's arrival to its batch.
    """

    kept: int
    kept_bytes: int
    latency_p50_seconds: float
    latency_p99_seconds: float
