"""Batches of samples that arrive while training runs: `foreload.StreamLoader`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from foreload import _ranks
from foreload._agree import Agreement
from foreload._core import Batch, Batches, StreamEngine
from foreload._errors import config_error
from foreload.streams import Source
from foreload.transforms._checks import is_number, number, numbers_of

if TYPE_CHECKING:
    from foreload._types import StreamState, StreamStats


def _checked(setting: str, check: Callable[[Any], Any], value: Any) -> Any:
    """Return a value in the form that a check of parameters gives it."""
    try:
        return check(value)
    except ValueError as must:
        raise config_error(setting, f"is {value!r}, must be {must}") from None


class Rehearsal:
    """A buffer of earlier samples, which fill a share of each batch.

    Which samples stay depends only on the seed and the samples, not on the order in which they arrive. Each sample has
    a random number, drawn from (seed, stream, sample). The samples with the smallest numbers stay, as many as fit. Once
    the buffer has enough, every batch has exactly `share` of its places, rounded to whole samples, for samples of the
    buffer, all different. The buffer keeps encoded files, not pixels, so each use is augmented again.

    Args:
        capacity: The size of the buffer: bytes as a text such as `"20GB"`, or a number of samples.
        share: The share of each batch. A pair (lowest, highest) adapts it: the fewer new samples wait, the more are
            rehearsed. So training stays busy when the stream slows down.
        by: How likely a sample stays. `uniform`: all samples equally. `class`: each class has an equal part of the
            buffer, also one that appears late, and all samples of a class are equally likely. `recency`: the weight of
            a sample is twice that of one that arrived `half_life` samples earlier. A function is called with each
            sample, a dict of its members as bytes with `__key__` and `__stream__`, and returns its weight, a positive
            number.
        half_life: For `by="recency"`: the number of samples after which a weight halves.
        directory: A directory on local NVMe with the bytes of all kept samples. Then the buffer may be larger than
            memory, and a state restores it, because the state names its files. Only one loader of one process may use
            it at a time. None: the samples are in memory, and are lost when the process exits.
        directory_size: The bytes that the directory may take, such as `"30GB"`. None: 1.5 times a capacity in bytes,
            plus 256 MiB. With a capacity in samples, it must be given.
        memory: The bytes of kept samples that are also in memory, if there is a directory.
        keep_states: The number of states that may wait for `StreamLoader.acknowledge`. Until then, the data that they
            need is kept.
    """

    def __init__(
        self,
        capacity: int | str,
        share: float | tuple[float, float] = 0.5,
        *,
        by: Literal["uniform", "class", "recency"] | Callable[[dict[str, Any]], float] = "uniform",
        half_life: float | None = None,
        directory: str | os.PathLike[str] | None = None,
        directory_size: int | str | None = None,
        memory: int | str = "1GB",
        keep_states: int = 2,
    ) -> None:
        are_samples = isinstance(capacity, int) and not isinstance(capacity, bool) and 0 <= capacity < 1 << 60
        if not isinstance(capacity, str) and not are_samples:
            raise config_error(
                "rehearsal.capacity", f'is {capacity!r}, must be a number of samples or a text such as "20GB"'
            )
        if not isinstance(by, str) and not callable(by):
            raise config_error("rehearsal.by", f"is {by!r}, must be a name or a function")
        if (
            isinstance(keep_states, bool)
            or not isinstance(keep_states, int)
            or not 0 <= keep_states < 1 << 30
        ):
            raise config_error("rehearsal.keep_states", f"is {keep_states!r}, must be a number of at least 1")
        self.capacity = capacity
        pair = (share, share) if is_number(share) else share
        self.share = _checked("rehearsal.share", numbers_of(2, "a number or a pair of numbers"), pair)
        self.by = by
        self.half_life = None if half_life is None else _checked("rehearsal.half_life", number, half_life)
        self.directory = None if directory is None else os.fspath(directory)
        self.directory_size = None if directory_size is None else str(directory_size)
        self.memory = str(memory)
        self.keep_states = keep_states

    def _described(self) -> dict[str, Any]:
        by = "score" if callable(self.by) else self.by
        names = ("capacity", "share", "half_life", "directory", "directory_size", "memory", "keep_states")
        return {**{name: getattr(self, name) for name in names}, "by": by}

    def __repr__(self) -> str:
        share = self.share[0] if self.share[0] == self.share[1] else self.share
        return f"foreload.Rehearsal({self.capacity!r}, share={share!r}, by={self.by!r})"


class StreamLoader:
    """Batches of samples that arrive while training runs, mixed with earlier ones.

        from foreload import Rehearsal, StreamLoader, streams

        loader = StreamLoader(streams.Folder("incoming"), batch_size=64, rehearsal=Rehearsal("20GB", share=0.5))
        for batch in loader:  # for ever, or until the stream ends
            ...

    Batches are those of `foreload.ImageLoader`, with the same fields, transforms and devices. The augmentation of a
    sample depends on (seed, stream, key, number of earlier uses) alone. `sample_ids` are 63 bits of the hash of stream
    and key. The field `foreload.fields.Text("__key__")` has the keys, and `__stream__` the streams.

    Args:
        source: A source of `foreload.streams`, or a list of several.
        batch_size: The number of samples of a batch.
        seed: Seed of augmentation, of rehearsal, and of random drops.
        policy: What happens when samples arrive faster than they are used. `block`: sources wait. `drop_oldest`: the
            samples that have waited longest are dropped. `drop_random`: samples are dropped at random, so a uniform
            choice of those that arrived and wait stays. `spill`: samples that do not fit into memory wait in
            `spill_directory`; when it is full, sources wait.
        rehearsal: A `foreload.Rehearsal`. None: no samples are rehearsed.
        samples_per_insert: The lowest and the highest number of uses for each sample that arrives, on average, to
            within one batch.
        when_dry: What happens when too few new samples wait for a batch. `wait`: the batch waits. `short`: it is
            smaller, with the same share of rehearsed samples. `rehearse`: rehearsed samples fill it.
        dry_after: The seconds that a batch waits before the stream counts as dry, until the samples of a whole batch
            wait again.
        queue_size: The bytes of samples that may wait in memory, such as `"256MB"`. Two batches may always wait.
        spill_directory: For `policy="spill"`: a directory on local NVMe, for one loader at a time. Files of an earlier
            run are removed.
        spill_size: The bytes that `spill_directory` may take.
        max_bytes: The bytes of the largest sample. A larger sample counts as failed.
        classes: The names of the classes by number. None: classes have only numbers.
        journal: A new file, in which the samples of each step are recorded, so that the run can be replayed.
        replay: The journal of a run. Its steps are repeated, byte for byte, from sources that can give samples again by
            their keys. The stream ends with the journal. A run that began with a state is replayed with this state.
        meeting: How the ranks meet, if there are several: a dict with `allgather`, `directory` or `timeout`.
            `allgather` is a function that gives this rank's bytes to all ranks and returns a list of those of all. All
            ranks share the `directory`. `timeout` is in seconds. None: by the cluster's engine, as for `peers=` of
            `foreload.ImageLoader`.
        settings: All settings of `foreload.ImageLoader` that need no dataset: `fields`, `image_size`, `transforms`,
            `device`, `threads`, `memory`, `on_error` and others. With `on_error="skip"`, another sample of the same
            batch takes the place of one that fails.

    Every received sample is counted; `stats()` has the counters. An iteration resumes after the batch that was yielded
    last, also if another one was begun before.

    Raises:
        ConfigError: A setting has an invalid value, or no setting has this name.
        UnavailableError: The device does not exist or cannot be used.
    """

    def __init__(
        self,
        source: Source | Sequence[Source],
        *,
        batch_size: int = 64,
        seed: int = 0,
        policy: Literal["block", "drop_oldest", "drop_random", "spill"] = "block",
        rehearsal: Rehearsal | None = None,
        samples_per_insert: tuple[float, float] | None = None,
        when_dry: Literal["wait", "short", "rehearse"] = "wait",
        dry_after: float = 1.0,
        queue_size: int | str = "256MB",
        spill_directory: str | os.PathLike[str] | None = None,
        spill_size: int | str | None = None,
        max_bytes: int | str = "16MB",
        classes: Sequence[str] | None = None,
        journal: str | os.PathLike[str] | None = None,
        replay: str | os.PathLike[str] | None = None,
        meeting: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        sources = [source] if isinstance(source, Source) else source
        must = "must be a source of foreload.streams, or a list of several"
        if not isinstance(sources, Sequence):
            raise config_error("source", f"is a {type(source).__name__}, {must}: Iterator takes any iterable")
        for each in sources:
            if not isinstance(each, Source):
                raise config_error("source", f"has a {type(each).__name__}, {must}")
        if not isinstance(rehearsal, Rehearsal | None):
            raise config_error("rehearsal", f"is {rehearsal!r}, must be a foreload.Rehearsal or None")
        for setting, name in (("policy", policy), ("when_dry", when_dry)):
            if not isinstance(name, str):
                raise config_error(setting, f"is {name!r}, must be a name")
        spec = {
            "policy": policy,
            "rehearsal": rehearsal and rehearsal._described(),
            "samples_per_insert": None
            if samples_per_insert is None
            else _checked("samples_per_insert", numbers_of(2, "a pair of numbers"), samples_per_insert),
            "when_dry": when_dry,
            "dry_after": f"{_checked('dry_after', number, dry_after):.9f}s",
            "queue_size": str(queue_size),
            "spill_directory": None if spill_directory is None else os.fspath(spill_directory),
            "spill_size": None if spill_size is None else str(spill_size),
            "max_bytes": str(max_bytes),
            "journal": None if journal is None else os.fspath(journal),
            "replay": None if replay is None else os.fspath(replay),
            "classes": [str(each) for each in classes or ()],
        }
        score = rehearsal.by if rehearsal is not None and callable(rehearsal.by) else None
        described = [each._described() for each in sources]
        settings |= {"batch_size": batch_size, "seed": seed}
        place = _ranks.resolve(settings.pop("rank", None), settings.pop("world_size", None))
        votes = None
        if place[1] > 1:
            # Paths that only one rank uses may differ. Ranks find the buffer's directories of other ranks by name.
            alike = {key: spec[key] for key in spec.keys() - {"journal", "replay", "spill_directory"}}
            alike |= {"streams": [each.name for each in sources], "batch_size": batch_size, "seed": seed}
            what = json.dumps(alike, sort_keys=True).encode()
            votes = Agreement(what, rank=place[0], world_size=place[1], **(meeting or {})).gather
        self._engine = StreamEngine(described, json.dumps(spec), score, place, votes, **settings)
        self._batches: Batches | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Resume after the batch that was yielded last."""
        self._batches = iter(self._engine)
        return self._batches

    def state_dict(self) -> StreamState:
        """Return the state after the batch that was yielded last, for a checkpoint.

        Call `acknowledge` with it when the checkpoint is safely written.
        """
        return json.loads(self._engine.state())

    def load_state_dict(self, state: StreamState | Sequence[StreamState]) -> None:
        """Resume where a state was saved. Call it before the first iteration.

        Args:
            state: The state of this rank. Or a list of the states that all ranks saved after the same step, in any
                order, which each rank loads. With a list, the number of ranks and `batch_size` may change.

        Raises:
            ConfigError: The state is of another stream, or batches were already taken; or states of ranks are missing,
                or are of different steps.
        """
        self._engine.load(json.dumps(state))

    def acknowledge(self, state: StreamState) -> None:
        """Acknowledge a state that is safely written. Sources may then forget the samples that were used up to it.

        Brokers get their acknowledgements, and files of a `streams.Folder` are handled as its `after` says.
        """
        self._engine.acknowledge(json.dumps(state))

    def withdraw(self, keys: Iterable[str | tuple[str, str]]) -> int:
        """Withdraw samples, by their keys or, if there are several streams, by pairs (stream, key).

        No batch that begins later has any of them, whether they wait, are in the rehearsal buffer, or arrive later.

        Returns:
            The number of them that waited or were in the buffer.
        """
        streams = self._engine.streams
        pairs = []
        for key in [keys] if isinstance(keys, str) else keys:
            if isinstance(key, str):
                if len(streams) > 1:
                    message = f"has {key!r}, which may be of any of {streams}: pass pairs (stream, key)"
                    raise config_error("keys", message)
                key = (streams[0], key)
            pairs.append((str(key[0]), str(key[1])))
        return self._engine.withdraw(pairs)

    def stats(self) -> Mapping[str, Any]:
        """Return the counters of the latest iteration, and under `stream` those of all samples.

        received = delivered + queued + spilled + dropped + failed + withdrawn + lost, at every instant.
        """
        stats: dict[str, Any] = {} if self._batches is None else dict(self._batches.stats())
        stream: StreamStats = self._engine.stream_stats()
        return {**stats, "stream": stream}

    @property
    def batch_size(self) -> int:
        """The number of samples of a batch."""
        return self._engine.batch_size

    @property
    def device(self) -> str:
        """The device of the batches: `cpu` or `cuda:N`."""
        return self._engine.device

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the batches by name, with what each holds."""
        return self._engine.fields

    @property
    def classes(self) -> list[str]:
        """The class names by number; empty if there are only numbers."""
        return self._engine.classes

    @property
    def io(self) -> str:
        """A description of how samples are read; empty before the first iteration."""
        return self._engine.io

    def __repr__(self) -> str:
        return f"foreload.StreamLoader({self._engine.streams}, batch_size={self.batch_size})"
