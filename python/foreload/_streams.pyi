"""What streams are made of: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has it."""

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Self, disjoint_base

from foreload._batches import Batches
from foreload._types import StreamStats

@disjoint_base
class StreamEngine:
    """What `foreload.StreamLoader` is made of; use that.

    `sources` are pairs of a source in JSON and an object of Python's or None, `spec` the stream in JSON, `score` the
    function that says how likely a sample is kept. `place` is the rank and the number of ranks, which agree by calls of
    `votes`: it gives a rank's bytes to all, and returns those of all.

    Raises:
        ConfigError: A setting cannot work, or there is none of that name.
        UnavailableError: The device is not there or cannot serve.
    """

    def __new__(
        cls,
        sources: Sequence[tuple[str, Any]],
        spec: str,
        score: Callable[[dict[str, Any]], float] | None,
        place: tuple[int, int],
        votes: Callable[[bytes], list[bytes]] | None,
        **settings: Any,
    ) -> Self: ...
    def __iter__(self) -> Batches: ...
    def state(self) -> str:
        """Return the state after the batch that was yielded last, as JSON."""
    def load(self, states: str) -> None:
        """Go on where a state was saved, or those of all ranks, given as JSON."""
    def acknowledge(self, state: str) -> None:
        """Let sources forget what a state has, given as JSON."""
    def withdraw(self, samples: Sequence[tuple[str, str]]) -> int:
        """Withdraw samples by their streams and keys, and return how many waited or were kept."""
    def stream_stats(self) -> StreamStats:
        """Return what became of all samples, and how long they took."""
    @property
    def streams(self) -> list[str]:
        """The names of the streams."""
    @property
    def batch_size(self) -> int:
        """The number of samples of a batch."""
    @property
    def device(self) -> str:
        """The device of the batches: `cpu` or `cuda:N`."""
    @property
    def fields(self) -> dict[str, str]:
        """The fields of the batches by name, with what each holds."""
    @property
    def memory_format(self) -> str:
        """The order of the images' dimensions: `nchw` or `nhwc`."""
    @property
    def classes(self) -> list[str]:
        """The class names by number; empty where there are only numbers."""
    @property
    def io(self) -> str:
        """How samples are read, in words; empty before the first iteration."""
    @property
    def _optional(self) -> list[str]: ...
    @property
    def _mixes_hard_labels(self) -> bool: ...
    def _dense(self) -> list[tuple[str, str, int]]: ...
