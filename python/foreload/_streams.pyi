"""The engine of streams: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has it."""

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Self, disjoint_base

from foreload._batches import Batches
from foreload._types import StreamStats

@disjoint_base
class StreamEngine:
    """The engine of `foreload.StreamLoader`; use that class.

    `sources` are pairs of a source as JSON and a Python object or None. `spec` is the stream as JSON, and `score` the
    function that returns the weight of a sample in the buffer. `place` is the rank and the number of ranks. Ranks agree
    by calls of `votes`, which gives a rank's bytes to all ranks and returns those of all.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
        UnavailableError: The device does not exist or cannot be used.
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
        """Resume where a state, or the states of all ranks, were saved, given as JSON."""
    def acknowledge(self, state: str) -> None:
        """Acknowledge a state that is safely written, given as JSON."""
    def withdraw(self, samples: Sequence[tuple[str, str]]) -> int:
        """Withdraw samples by their streams and keys, and return how many waited or were kept."""
    def stream_stats(self) -> StreamStats:
        """Return the counters of all samples, and their waiting times."""
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
        """The class names by number; empty if there are only numbers."""
    @property
    def io(self) -> str:
        """A description of how samples are read; empty before the first iteration."""
    @property
    def _optional(self) -> list[str]: ...
    @property
    def _mixes_hard_labels(self) -> bool: ...
    def _dense(self) -> list[tuple[str, str, int]]: ...
