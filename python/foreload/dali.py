"""Foreload for DALI: a source for `fn.external_source`, of finished images or of encoded files.

    from foreload.dali import ImageSource

    source = ImageSource("data/train", batch_size=256, decoded=False)

    @pipeline_def(batch_size=256, num_threads=8, device_id=0)
    def train():
        files, labels = source.data_nodes()
        images = fn.decoders.image_random_crop(files, device="mixed")
        ...

With `decoded=False`, Foreload only reads, and DALI decodes and augments. With `decoded=True`, the images are cropped,
resized and normalised. `StreamSource` gives samples that arrive while training runs.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from foreload._core import Batch, Batches, ImageLoader, UnavailableError
from foreload._dali_source import DaliSource, checked_depth, kept_batches
from foreload._docs import hands_on_settings
from foreload._errors import config_error
from foreload._stream_loader import StreamLoader
from foreload.streams import Source

if TYPE_CHECKING:
    from foreload._types import LoaderState, StreamState


@hands_on_settings(ImageLoader)
class ImageSource(DaliSource):
    """A callable for `fn.external_source`: DALI's `BatchInfo` in, a tuple (images, labels) out.

    Its outputs depend on (`epoch_idx`, `iteration`) alone. So a pipeline that is restored from a checkpoint of DALI
    resumes where it was, also in the middle of an epoch. Without DALI's checkpoints, use `state_dict` and
    `load_state_dict`, which also allow another number of ranks. Do not use both. Consecutive steps come from one pass
    over the dataset.

    Pass it to DALI with `data_nodes()`, or yourself with all of `fn.external_source(source=source, num_outputs=2,
    batch=True, batch_info=True, no_copy=True, device=...)`.

    Args:
        path: The dataset: a directory of class directories, or of tar shards; or a list of several.
        decoded: Whether the first output has decoded images. True: images, [n, 3, height, width] (`nchw`) or [n,
            height, width, 3] (`nhwc`), on the GPU if the loader decodes there. False: the n image files, uint8 [bytes]
            each, in the memory they were read into, for `fn.decoders`. The settings of images then have no effect.
        with_labels: Whether labels are the second output; False for a dataset without labels. It has no effect with
            `fields`: the outputs are then the fields, a tensor for each view of images and masks. They must have the
            same size for all samples, so texts, JSON, bytes and arrays are not possible.
        with_present: Whether each field with `optional=True` has an output after those of all fields, in their order:
            which samples have it, 0 or 1. Without this output, absent values cannot be distinguished from zeros.
        with_mask: Whether there is a last output, which is 0 for padding (see `last_batch`) and failed samples
            (`on_error="zero"`), else 1.
        prefetch_queue_depth: The value of the pipeline, or its cpu_size * gpu_size if they differ. The source keeps two
            batches more than that, because DALI reads them without a copy.
        dtype: The type of the images: `float32`, `float16` or `uint8`. None: float32, or the type that `transforms`
            sets.
        settings: All other settings of `foreload.ImageLoader`: `batch_size` (the pipeline's must be at least that),
            `image_size`, `seed`, `memory_format`, ...

    Labels are int64. The mask and the outputs of `with_present` are uint8, 0 or 1. All of them are a scalar for each
    sample. Labels that `mix=` mixes are float32, [num_classes] for each sample.

    Raises:
        ConfigError: The same as for `ImageLoader`; or `with_labels` is True and the dataset has no labels; or DALI
            cannot take the outputs: bfloat16, or empty files, that is `decoded=False` with `on_error="zero"`.
    """

    _batch_info = True
    loader: ImageLoader

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        decoded: bool = True,
        with_labels: bool = True,
        with_present: bool = False,
        with_mask: bool = False,
        prefetch_queue_depth: int = 2,
        dtype: Literal["float32", "float16", "uint8"] | None = None,
        **settings: Any,
    ) -> None:
        depth = checked_depth(prefetch_queue_depth, settings)
        # This comes first, because it checks the settings.
        loader = ImageLoader(
            path,
            decoded=decoded,
            **({} if dtype is None else {"dtype": dtype}),
            keep=kept_batches(depth),
            **settings,
        )
        super().__init__(
            loader,
            loader,
            depth,
            decoded=decoded,
            fields=bool(settings.get("fields")),
            with_labels=with_labels,
            with_present=with_present,
            with_mask=with_mask,
        )
        if not decoded and settings.get("on_error") == "zero":
            message = "is zero, but DALI's decoders refuse empty files: use skip or raise"
            raise config_error("on_error", message)
        # The batches that DALI may still read, by (epoch, step).
        self._kept: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        self._pass: Batches | None = None
        self._next = (-1, 0)
        # DALI's first step, the step after the last one that DALI was given, and whether a loaded state is still to be
        # used.
        self._begin = self._end = (0, 0)
        self._goes_on = False
        # The latest pass of each epoch whose state may still be requested.
        self._passes: dict[int, Batches] = {}
        self._lock = threading.Lock()
        if with_labels and not settings.get("fields"):
            self.loader._check_labeled()

    def __len__(self) -> int:
        """Return the number of batches of this rank in one epoch."""
        return len(self.loader)

    @property
    def epoch(self) -> int:
        """The epoch in which DALI begins: 0, or that of the loaded state."""
        return self._begin[0]

    def first_step(self, epoch: int) -> int:
        """Return the step at which DALI begins `epoch`: 0, or in the epoch of a loaded state the step after it."""
        return self._begin[1] if epoch == self._begin[0] else 0

    def state_dict(self, *, epoch: int, at_step: int) -> LoaderState:
        """Return the state for a checkpoint. It can be written as JSON, and only `errors` differs between ranks.

        DALI reads ahead, and begins the next epoch ahead of time. So the training loop must pass its own position:

            for epoch in range(source.epoch, epochs):
                for step, (batch,) in enumerate(batches, source.first_step(epoch)):
                    ...
                    state = source.state_dict(epoch=epoch, at_step=step + 1)

        Args:
            epoch: The epoch of the training loop.
            at_step: The number of steps of that epoch that are done, including those of earlier runs.

        Raises:
            ConfigError: DALI was not given all steps up to this one.
        """
        steps = len(self.loader)
        # Steps are compared as numbers, because the end of an epoch is the beginning of the next.
        first = max(self._begin, (self._end[0] - self._keep + 1, 0))
        begin, here, end = (e * steps + step for e, step in (first, (epoch, at_step), self._end))
        if not (0 <= at_step <= steps and begin <= here <= end):
            given = "from step {1} of epoch {0}".format(*first) + " to step {1} of epoch {0}".format(
                *self._end
            )
            raise config_error(
                "at_step", f"is {at_step} of epoch {epoch}, but DALI was given the steps {given}"
            )
        if at_step > 0 and epoch in self._passes:
            return self._passes[epoch].state_dict(at_step=at_step)
        state = self.loader.state_dict()
        if self._goes_on:
            return state
        return {**state, "epoch": epoch, "position": 0, "errors": 0}

    def load_state_dict(self, state: LoaderState) -> None:
        """Resume where `state` was saved, before a pipeline is built: DALI's first batch is the one after it.

        A state at the end of an epoch is the beginning of the next.

        Raises:
            ConfigError: The same as for `ImageLoader.load_state_dict`.
        """
        with self._lock:
            self.loader.load_state_dict(state)
            # The loader continues with the next epoch if the epoch of the state is complete.
            self._goes_on = self.loader.epoch == state["epoch"]
            step = state["position"] // state["global_batch"] if self._goes_on else 0
            self._begin = self._end = (self.loader.epoch, step)
            self._pass = None
            self._passes = {}

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """Return the batch of step `info.iteration` in epoch `info.epoch_idx`, where `info` is DALI's `BatchInfo`.

        After `load_state_dict` both count from where the state was saved.

        Raises:
            StopIteration: The epoch has no such step, at each call.
            TypeError: `info` is not a `BatchInfo`.
            UnavailableError: It is called in a process of `parallel=True`.
            Error: The same as for iterating over an `ImageLoader`.
        """
        self._check_process()
        if not (hasattr(info, "epoch_idx") and hasattr(info, "iteration")) or hasattr(info, "idx_in_batch"):
            message = f"ImageSource takes a BatchInfo, not {info!r}"
            raise TypeError(f"{message}: use external_source(batch=True, batch_info=True)")
        with self._lock:
            epoch = self._begin[0] + info.epoch_idx
            batch = self._batch(epoch, self.first_step(epoch) + info.iteration)
        return self._outputs(batch)

    def _batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of a step: one that is kept, the next of the current pass, or the first of a new pass."""
        if (epoch, step) in self._kept:
            return self._kept[epoch, step]
        if self._pass is None or self._next != (epoch, step):
            self._pass = self._from(epoch, step)
            # DALI is at most as many epochs ahead as batches.
            known = {e: batches for e, batches in self._passes.items() if abs(epoch - e) < self._keep}
            self._passes = known | {epoch: self._pass}
            self._goes_on = False
            self._next = epoch, step
        # The oldest batch is dropped before the wait for the next one, which may need its memory.
        while len(self._kept) >= self._keep:
            self._kept.popitem(last=False)
        try:
            batch = next(self._pass)
        except StopIteration:
            raise
        except BaseException:
            # The pass is over, but the step is not done: a second call for it must raise the error again.
            self._pass = None
            raise
        self._kept[epoch, step] = batch
        self._next = epoch, step + 1
        self._end = max(self._end, self._next)
        return batch

    def _from(self, epoch: int, step: int) -> Batches:
        """Begin a new pass over the dataset at a step."""
        if self._goes_on and (epoch, step) == self._begin:
            # The loader has more of a state than its step: whether the ranks fit it, and the number of errors.
            return iter(self.loader)
        if step >= len(self.loader):
            raise StopIteration
        return self.loader.batches(epoch, step)


@hands_on_settings(StreamLoader)
class StreamSource(DaliSource):
    """A callable for `fn.external_source` that gives the batches of a `foreload.StreamLoader`, (images, labels).

    Pass it to DALI with `data_nodes()`. It gives each batch once, in order, to one pipeline, which ends with the
    stream. Batches that a pipeline has read ahead when it is dropped are given again only after a state is loaded.
    DALI's own checkpoints do not have the position of the stream, as DALI warns: save a state of this source with them.

    DALI takes batches ahead: the first output comes when `prefetch_queue_depth` batches are ready. If a stream may be
    dry, use `when_dry="short"` or `"rehearse"`, so that outputs do not wait for samples of later batches.

    Args:
        source: A source of `foreload.streams`, or a list of several.
        states_every: The number of steps between two checkpoints of the training. After each such batch, the source
            keeps the loader's state, and `state_dict` returns it when training has reached that step. (The loader's own
            state includes batches that DALI has read ahead.) None: there are no states.
        with_labels: Whether labels are the second output; False also takes samples that have no class. It has no effect
            with `fields`, as for `ImageSource`.
        with_present: Whether each field with `optional=True` has an output, as for `ImageSource`.
        with_mask: Whether there is a last output, which is 0 for samples that failed (`on_error="zero"`), else 1.
        prefetch_queue_depth: The value of the pipeline, as for `ImageSource`.
        dtype: The type of the images, as for `ImageSource`.
        settings: All other settings of `foreload.StreamLoader`, which are explained below, and those settings of
            `foreload.ImageLoader` that need no dataset: `image_size`, `transforms`, `threads`, ...

    Raises:
        ConfigError: The same as for `foreload.StreamLoader`; or DALI cannot take the outputs.
    """

    _batch_info = False
    loader: StreamLoader

    def __init__(
        self,
        source: Source | Sequence[Source],
        *,
        states_every: int | None = None,
        with_labels: bool = True,
        with_present: bool = False,
        with_mask: bool = False,
        prefetch_queue_depth: int = 2,
        dtype: Literal["float32", "float16", "uint8"] | None = None,
        **settings: Any,
    ) -> None:
        depth = checked_depth(prefetch_queue_depth, settings)
        if states_every is not None and (
            isinstance(states_every, bool) or not isinstance(states_every, int) or states_every < 1
        ):
            raise config_error(
                "states_every", f"is {states_every!r}, must be a whole number of at least 1, or None"
            )
        has_fields = bool(settings.get("fields"))
        if not has_fields:
            settings["fields"] = ["image", "label"] if with_labels else ["image"]
        if dtype is not None:
            settings["dtype"] = dtype
        loader = StreamLoader(source, keep=kept_batches(depth), **settings)
        super().__init__(
            loader._engine,
            loader,
            depth,
            fields=has_fields,
            with_labels=with_labels,
            with_present=with_present,
            with_mask=with_mask,
        )
        self._every = states_every
        self._kept: deque[Batch] = deque()
        self._pass: Iterator[Batch] | None = None
        # The steps that DALI was given, including those of earlier runs, and the states that may still be requested.
        self._step = self._first = 0
        self._states: dict[int, StreamState] = {0: loader.state_dict()}
        self._lock = threading.Lock()

    @property
    def first_step(self) -> int:
        """The number of steps of earlier runs: 0, or that of the loaded state."""
        return self._first

    def state_dict(self, *, at_step: int) -> StreamState:
        """Return the state for a checkpoint, for the step of the training loop, because DALI reads ahead:

            source = StreamSource(..., states_every=100)
            for step, (batch,) in enumerate(batches, source.first_step + 1):
                ...
                if step % 100 == 0:
                    state = source.state_dict(at_step=step)
                    ...  # Write the checkpoint; when it is safe:
                    source.acknowledge(state)

        Args:
            at_step: The number of steps that are done, including those of earlier runs: a multiple of `states_every`.

        Raises:
            ConfigError: There is no state of that step; the message names the steps that have one.
        """
        with self._lock:
            if at_step in self._states:
                return self._states[at_step]
            if self._every is None:
                message = (
                    "is None, so no states are kept, and the loader's own includes batches that DALI has read ahead: "
                    "pass the number of steps from one checkpoint to the next, such as 100"
                )
                raise config_error("states_every", message)
            there = ", ".join(map(str, sorted(self._states))) or "no"
            message = f"is {at_step}, but with states_every={self._every} there are states of {there} steps"
            raise config_error("at_step", f"{message}, and DALI was given {self._step}")

    def load_state_dict(self, state: StreamState | Sequence[StreamState]) -> None:
        """Resume where `state` was saved, before a pipeline is built: DALI's first batch is the one after it.

        With a list of the states of all ranks, the number of ranks may change.

        Raises:
            ConfigError: The same as for `foreload.StreamLoader.load_state_dict`.
        """
        with self._lock:
            self.loader.load_state_dict(state)
            first = state if isinstance(state, Mapping) else state[0]
            self._step = self._first = first["step"]
            # States of other ranks are not used: this rank has no state before its first batch.
            self._states = {self._step: state} if isinstance(state, Mapping) else {}

    def acknowledge(self, state: StreamState) -> None:
        """Acknowledge a state that is safely written; see `foreload.StreamLoader.acknowledge`."""
        self.loader.acknowledge(state)

    def __call__(self) -> tuple[Any, ...]:
        """Return the next batch.

        Raises:
            StopIteration: The stream has ended, at each call.
            UnavailableError: It is called in a process of `parallel=True`. Or `Rehearsal(keep_states=)` allows no more
                states that are not acknowledged. Or a batch is empty, because the stream of this rank has ended and
                that of others has not.
            Error: The same as for iterating over a `foreload.StreamLoader`.
        """
        self._check_process()
        with self._lock:
            # The oldest batch is dropped before the wait for the next one, which may need its memory.
            while len(self._kept) >= self._keep:
                self._kept.popleft()
            if self._pass is None:
                self._pass = iter(self.loader)
            try:
                batch = next(self._pass)
            except StopIteration:
                raise
            except BaseException:
                # The pass is over, but the stream is not: a second call continues.
                self._pass = None
                raise
            if len(batch) == 0:
                # A rank whose stream has ended gets empty batches until the others' have ended.
                message = f"step {self._step} has no sample for this rank, but DALI takes no empty batch"
                raise UnavailableError(
                    f'{message}: use when_dry="rehearse", which fills it with earlier samples'
                )
            self._kept.append(batch)
            self._step += 1
            if self._every is not None and self._step % self._every == 0:
                # Training is at most as many batches behind as are kept.
                oldest = self._step - self._keep - self._every
                self._states = {step: state for step, state in self._states.items() if step > oldest}
                self._states[self._step] = self.loader.state_dict()
        return self._outputs(batch)
