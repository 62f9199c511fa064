"""Foreload for DALI: a source for `fn.external_source`, of finished images or of encoded files.

    from foreload.dali import ImageSource

    source = ImageSource("data/train", batch_size=256, decoded=False)

    @pipeline_def(batch_size=256, num_threads=8, device_id=0)
    def train():
        files, labels = source.data_nodes()
        images = fn.decoders.image_random_crop(files, device="mixed")
        ...

With `decoded=False` Foreload only reads; DALI decodes and augments as ever. With `decoded=True` the
images come cropped, resized and normalised.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from foreload._core import RING, Batch, Batches, ImageLoader, Tensor, UnavailableError
from foreload._docs import hands_on_settings
from foreload._errors import config_error

if TYPE_CHECKING:
    from foreload._types import LoaderState

_ONE_PROCESS = (
    "ImageSource works in the pipeline's own process, with threads of its own, not in DALI's worker processes: "
    "leave parallel=False"
)


@hands_on_settings(ImageLoader)
class ImageSource:
    """A callable for `fn.external_source`: DALI's `BatchInfo` in, a tuple (images, labels) out.

    Its outputs depend on (`epoch_idx`, `iteration`) alone, so a pipeline that is restored from a checkpoint of DALI
    resumes where it was, in the middle of an epoch too. Without DALI's checkpoints use `state_dict` and
    `load_state_dict`, which also allow another number of ranks; use one or the other. Consecutive steps come from one
    pass over the dataset.

    Hand it to DALI with `data_nodes()`, or yourself with all of `fn.external_source(source=source, num_outputs=2,
    batch=True, batch_info=True, no_copy=True, device=...)`.

    Args:
        path: The dataset: a directory of class directories, or of tar shards; or a list of several.
        decoded: True: images, [n, 3, height, width] (`nchw`) or [n, height, width, 3] (`nhwc`), on the GPU where the
            loader decodes there. False: the n image files, uint8 [bytes] each, in the memory they were read
            into, for `fn.decoders`; the settings of images mean nothing then.
        with_labels: Whether labels are the second output; False for a dataset without labels. It means nothing with
            `fields`: the outputs are then the fields, a tensor for each view of images and masks. They must have the
            same size for all samples, unlike texts, JSON, bytes and arrays.
        with_present: Whether each field with `optional=True` has an output after those of all fields, in their order:
            which samples have it, 0 or 1. Without it what is absent is zeros like any others.
        with_mask: Whether there is a last output, which is 0 for padding (`last_batch="pad"`) and failed samples
            (`on_error="zero"`), else 1.
        prefetch_queue_depth: The value of the pipeline, or its cpu_size * gpu_size where they differ. Two batches more
            than that are kept, because DALI reads them without a copy.
        dtype: The type of the images: `float32`, `float16` or `uint8`. None: float32, or what `transforms` says.
        settings: All other settings of `foreload.ImageLoader`: `batch_size`, which the pipeline's must be at least,
            `image_size`, `seed`, `memory_format`, ...

    Labels are int64, the mask and what is present are uint8, 0 or 1; all are a scalar for each sample. Labels that
    `mix=` mixes are float32, [num_classes] for each sample.

    Raises:
        ConfigError: The same as for `ImageLoader`; or `with_labels` is True and the dataset has no labels; or DALI
            cannot take the outputs: bfloat16, or empty files, that is `decoded=False` with `on_error="zero"`.
    """

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
        if isinstance(prefetch_queue_depth, bool) or not isinstance(prefetch_queue_depth, int | np.integer):
            message = f"is {prefetch_queue_depth!r}, must be a whole number from 1 on"
            raise config_error("prefetch_queue_depth", message)
        if prefetch_queue_depth < 1:
            message = f"is {prefetch_queue_depth}, must be a whole number from 1 on"
            raise config_error("prefetch_queue_depth", message)
        if "keep" in settings:
            message = "is this source's own to say: give prefetch_queue_depth, the pipeline's"
            raise config_error("keep", message)
        self._keep = int(prefetch_queue_depth) + 2
        # This comes first, because it checks the settings.
        self.loader = ImageLoader(
            path,
            decoded=decoded,
            **({} if dtype is None else {"dtype": dtype}),
            keep=self._keep,
            **settings,
        )
        # The field of each output; the output of encoded files has none.
        self._tensors = self.loader._dense() if decoded else [("", "uint8", 1), ("label", "int64", 0)]
        if not settings.get("fields"):
            self._tensors = [tensor for tensor in self._tensors if with_labels or tensor[0] != "label"]
        if any(tensor[1] == "bfloat16" for tensor in self._tensors):
            raise config_error("dtype", "is bfloat16, which DALI does not know; use float16 or float32")
        if decoded and self.loader._mixes_hard_labels:
            message = "has no num_classes, so that labels would go unmixed: give MixUp and CutMix num_classes"
            raise config_error("mix", message)
        if not decoded and settings.get("on_error") == "zero":
            message = "is zero, but DALI's decoders refuse empty files; use skip or raise"
            raise config_error("on_error", message)
        # The fields of which an output says which samples have them.
        self._present: list[str] = self.loader._optional if with_present else []
        self._with_mask = with_mask
        self.num_outputs = len(self._tensors) + len(self._present) + bool(with_mask)
        self._decoded = decoded
        self._mixes = settings.get("mix") is not None
        self._layout = "HWC" if self.loader.memory_format == "nhwc" else "CHW"
        # The batches that DALI may still read, by (epoch, step): as many as its queue is deep, the one whose outputs
        # are being used, and the one that is being fed.
        self._kept: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        self._depth = prefetch_queue_depth
        self._pass: Batches | None = None
        self._next = (-1, 0)
        # DALI's first step, the step after the last that DALI was given, and whether a loaded state is yet to be used.
        self._begin = self._end = (0, 0)
        self._goes_on = False
        # The latest pass of each epoch whose state may still be asked for.
        self._passes: dict[int, Batches] = {}
        self._process = os.getpid()
        self._lock = threading.Lock()
        if with_labels and not settings.get("fields"):
            self.loader._check_labeled()

    def __len__(self) -> int:
        """The number of batches of this rank in one epoch."""
        return len(self.loader)

    @property
    def epoch(self) -> int:
        """The epoch in which DALI begins: 0, or that of the loaded state."""
        return self._begin[0]

    def first_step(self, epoch: int) -> int:
        """The step at which DALI begins `epoch`: 0, or in the epoch of a loaded state the step after its last."""
        return self._begin[1] if epoch == self._begin[0] else 0

    def state_dict(self, *, epoch: int, at_step: int) -> LoaderState:
        """Return what a checkpoint keeps: JSON-able, and the same on every rank but for `errors`.

        DALI reads ahead, and begins the next epoch ahead too; so the training loop must say where it is:

            for epoch in range(source.epoch, epochs):
                for step, (batch,) in enumerate(batches, source.first_step(epoch)):
                    ...
                    state = source.state_dict(epoch=epoch, at_step=step + 1)

        Args:
            epoch: The epoch of the training loop.
            at_step: How many steps of that epoch are done, with those of former runs.

        Raises:
            ConfigError: DALI was not given all steps up to this one.
        """
        steps = len(self.loader)
        # Steps are compared as numbers, since the end of an epoch is the beginning of the next.
        first = max(self._begin, (self._end[0] - self._keep + 1, 0))
        begin, here, end = (e * steps + step for e, step in (first, (epoch, at_step), self._end))
        if not (0 <= at_step <= steps and begin <= here <= end):
            given = "from step {1} of epoch {0}".format(*first) + " to step {1} of epoch {0}".format(
                *self._end
            )
            raise config_error("at_step", f"is {at_step} of epoch {epoch}, but DALI was given those {given}")
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
            # The loader goes on with the next epoch where that of the state is over.
            self._goes_on = self.loader.epoch == state["epoch"]
            step = state["position"] // state["global_batch"] if self._goes_on else 0
            self._begin = self._end = (self.loader.epoch, step)
            self._pass = None
            self._passes = {}

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """Return the batch of step `info.iteration` in epoch `info.epoch_idx`, where `info` is DALI's `BatchInfo`.

        After `load_state_dict` both count from where the state was saved.

        Raises:
            StopIteration: The epoch has no such step; however often it is asked for.
            TypeError: `info` is not a `BatchInfo`.
            UnavailableError: It is called in a process of `parallel=True`.
            Error: The same as for iterating over an `ImageLoader`.
        """
        if os.getpid() != self._process:
            raise UnavailableError(_ONE_PROCESS)
        if not (hasattr(info, "epoch_idx") and hasattr(info, "iteration")) or hasattr(info, "idx_in_batch"):
            message = f"ImageSource takes a BatchInfo, not {info!r}"
            raise TypeError(f"{message}: use external_source(batch=True, batch_info=True)")
        with self._lock:
            epoch = self._begin[0] + info.epoch_idx
            batch = self._batch(epoch, self.first_step(epoch) + info.iteration)
        outputs: list[Tensor | list[Tensor]] = []
        for field in dict.fromkeys(tensor[0] for tensor in self._tensors):
            output = batch.files if field == "" else batch.labels if not self._decoded else batch[field]
            outputs += output if isinstance(output, tuple) else [output]
        # Truth values go as bytes: DALI takes the array interface's bool for int8.
        outputs += [batch._present_bytes(name) for name in self._present]
        if self._with_mask:
            outputs.append(batch._mask_bytes)
        return tuple(self._for_dali(output) for output in outputs)

    def data_nodes(self, device: Literal["cpu", "gpu"] | None = None) -> tuple[Any, ...]:
        """Return DALI's data nodes of the outputs, for use inside of a pipeline definition.

        It is `fn.external_source` with all arguments that belong to this source: types, dimensions, layout (`CHW` or
        `HWC`), and no copy where the memory is on `device` already.

        Args:
            device: `cpu` or `gpu`, for all outputs; None: where the loader puts the images.

        Raises:
            ConfigError: The pipeline's queue is deeper than this source was made for, its batch size is smaller, or
                encoded files are asked for on the GPU.
        """
        from nvidia.dali.pipeline import Pipeline, do_not_convert

        self._check(Pipeline.current())
        # A pipeline with enable_conditionals rewrites what is called in its definition, but not this.
        return do_not_convert(self._data_nodes)(device)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be sent to another process, with the reason."""
        raise UnavailableError(_ONE_PROCESS)

    @property
    def _on_gpu(self) -> bool:
        return self._decoded and self.loader.device.startswith("cuda")

    def _batch(self, epoch: int, step: int) -> Batch:
        """The batch of a step: one that is kept, the next of the pass under way, or the first of a new pass."""
        if (epoch, step) in self._kept:
            return self._kept[epoch, step]
        if self._pass is None or self._next != (epoch, step):
            self._check_last_batch()
            self._pass = self._from(epoch, step)
            # DALI is no more epochs ahead than batches.
            known = {e: batches for e, batches in self._passes.items() if abs(epoch - e) < self._keep}
            self._passes = known | {epoch: self._pass}
            self._goes_on = False
            self._next = epoch, step
        # The oldest goes before the next is waited for, which may need its memory.
        while len(self._kept) >= self._keep:
            self._kept.popitem(last=False)
        try:
            batch = next(self._pass)
        except StopIteration:
            raise
        except BaseException:
            # The pass is over, but not the step: a second call for it must get the error again.
            self._pass = None
            raise
        self._kept[epoch, step] = batch
        self._next = epoch, step + 1
        self._end = max(self._end, self._next)
        return batch

    def _from(self, epoch: int, step: int) -> Batches:
        """Begin a new pass over the dataset at a step."""
        if self._goes_on and (epoch, step) == self._begin:
            # The loader knows more of a state than its step: whether the ranks fit it, and the errors spent.
            return iter(self.loader)
        if step >= len(self.loader):
            raise StopIteration
        return self.loader.batches(epoch, step)

    def _for_dali(self, output: Tensor | list[Tensor]) -> Any:
        """Convert to what DALI takes without a copy and keeps alive: NumPy arrays, or CUDA array interfaces."""
        if isinstance(output, list):
            return [np.from_dlpack(tensor) for tensor in output]
        return output if self._on_gpu else np.from_dlpack(output)

    def _data_nodes(self, device: str | None) -> tuple[Any, ...]:
        from nvidia.dali import fn, types

        here = "gpu" if self._on_gpu else "cpu"
        if device == "gpu" and not self._decoded:
            message = 'is gpu, but DALI decodes files from host memory: use cpu, and fn.decoders with "mixed"'
            raise config_error("device", message)
        dtypes = {
            "float32": types.FLOAT,
            "float16": types.FLOAT16,
            "uint8": types.UINT8,
            "int32": types.INT32,
            "int64": types.INT64,
        }
        layouts = {3: self._layout, 2: "HW"} if self._decoded else {}
        outputs = [[dtypes[dtype], ndim, layouts.get(ndim, "")] for _, dtype, ndim in self._tensors]
        outputs += [[types.UINT8, 0, ""]] * (len(self._present) + bool(self._with_mask))
        dtype, ndim, layout = map(list, zip(*outputs, strict=True))
        nodes = fn.external_source(
            source=self,
            num_outputs=self.num_outputs,
            device=device or here,
            batch=True,
            batch_info=True,
            no_copy=device in (None, here),
            dtype=dtype,
            ndim=ndim,
            layout=layout,
        )
        return tuple(nodes)

    def _check(self, pipeline: Any) -> None:
        """Check that a pipeline fits this source."""
        cpu, gpu = pipeline.cpu_queue_size, pipeline.gpu_queue_size
        depth = cpu if cpu == gpu else cpu * gpu
        if depth > self._depth:
            message = f"is {self._depth}, but the pipeline's is {depth}: make the source with {depth} too"
            raise config_error("prefetch_queue_depth", message)
        if pipeline.max_batch_size < self.loader.batch_size:
            message = (
                f"is {self.loader.batch_size}, but the pipeline's is {pipeline.max_batch_size}: raise that"
            )
            raise config_error("batch_size", message)

    def _check_last_batch(self) -> None:
        """Refuse an empty last batch, which DALI cannot take and some ranks get when few samples are left."""
        rank, world_size = self.loader._place_in_world()
        left = self.loader.epoch_size % (self.loader.batch_size * world_size)
        if self._mixes:
            left = -(-left // RING)  # Images that are mixed with each other are never parted.
        if self.loader.last_batch == "partial" and 0 < left <= rank:
            message = f"is partial, which leaves rank {rank} an empty batch at the end, and DALI takes none"
            raise config_error("last_batch", f'{message}: use "pad" (and with_mask=True) or "drop"')
