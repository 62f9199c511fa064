"""The common part of the sources of `foreload.dali`: the outputs of a batch, and how DALI gets them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from foreload._core import Batch, Tensor, UnavailableError
from foreload._errors import config_error

if TYPE_CHECKING:
    from foreload._core import ImageLoader
    from foreload._stream_loader import StreamLoader


class Made(Protocol):
    """An object that makes the batches and describes them."""

    @property
    def memory_format(self) -> str:
        """The order of the images' dimensions."""

    @property
    def _optional(self) -> list[str]: ...

    @property
    def _mixes_hard_labels(self) -> bool: ...

    def _dense(self) -> list[tuple[str, str, int]]: ...


def checked_depth(prefetch_queue_depth: Any, settings: dict[str, Any]) -> int:
    """Return the depth of a pipeline's queue.

    Raises:
        ConfigError: It is not a depth, or `settings` has `keep`.
    """
    is_number = isinstance(prefetch_queue_depth, int | np.integer) and not isinstance(
        prefetch_queue_depth, bool
    )
    if not is_number or prefetch_queue_depth < 1:
        message = f"is {prefetch_queue_depth!r}, must be a whole number of at least 1"
        raise config_error("prefetch_queue_depth", message)
    if "keep" in settings:
        message = "is set by this source: pass prefetch_queue_depth, that of the pipeline"
        raise config_error("keep", message)
    return int(prefetch_queue_depth)


class DaliSource:
    """A source for `fn.external_source`.

    Args:
        made: The object that makes the batches.
        loader: The loader.
        depth: The depth of the pipeline's queue.
        decoded: Whether the first output has images and not files.
        fields: Whether the outputs are fields.
        with_labels: Whether there are labels, without fields.
        with_present: Whether there are outputs that say which samples have a field.
        with_mask: Whether there is a mask.

    Raises:
        ConfigError: DALI cannot take the outputs.
    """

    _batch_info: bool
    """Whether DALI passes the number of the batch that it wants."""

    def __init__(
        self,
        made: Made,
        loader: ImageLoader | StreamLoader,
        depth: int,
        *,
        decoded: bool = True,
        fields: bool,
        with_labels: bool,
        with_present: bool,
        with_mask: bool,
    ) -> None:
        self.loader = loader
        # The field of each output; the output of encoded files has none.
        self._tensors = made._dense() if decoded else [("", "uint8", 1), ("label", "int64", 0)]
        if not fields:
            self._tensors = [tensor for tensor in self._tensors if with_labels or tensor[0] != "label"]
        if any(tensor[1] == "bfloat16" for tensor in self._tensors):
            raise config_error("dtype", "is bfloat16, which DALI does not support; use float16 or float32")
        if decoded and made._mixes_hard_labels:
            message = "has no num_classes, so labels would not be mixed: pass num_classes to MixUp and CutMix"
            raise config_error("mix", message)
        # The fields with an output that says which samples have them.
        self._present: list[str] = made._optional if with_present else []
        self._with_mask = with_mask
        self.num_outputs = len(self._tensors) + len(self._present) + bool(with_mask)
        self._decoded = decoded
        self._layout = "HWC" if made.memory_format == "nhwc" else "CHW"
        self._depth = depth
        # The batches that DALI may still read: as many as its queue is deep, the one whose outputs are being used, and
        # the one that is being fed.
        self._keep = kept_batches(depth)
        self._process = os.getpid()

    def data_nodes(self, device: Literal["cpu", "gpu"] | None = None) -> tuple[Any, ...]:
        """Return DALI's data nodes of the outputs, for use inside of a pipeline definition.

        It is `fn.external_source` with all arguments that belong to this source: types, dimensions, layout (`CHW` or
        `HWC`), and no copy if the memory is on `device` already.

        Args:
            device: `cpu` or `gpu`, for all outputs. None: the device of the loader's images.

        Raises:
            ConfigError: The pipeline's queue is deeper than this source was made for, its batch size is smaller, or
                encoded files are requested on the GPU.
        """
        from nvidia.dali.pipeline import Pipeline, do_not_convert

        self._check(Pipeline.current())
        # A pipeline with enable_conditionals rewrites the functions that its definition calls, but not this one.
        return do_not_convert(self._data_nodes)(device)

    def __getstate__(self) -> dict[str, Any]:
        """Raise an error: the source cannot be sent to another process."""
        raise self._one_process()

    @property
    def _on_gpu(self) -> bool:
        return self._decoded and self.loader.device.startswith("cuda")

    def _check_process(self) -> None:
        """Raise an error in a process of `parallel=True`."""
        if os.getpid() != self._process:
            raise self._one_process()

    def _one_process(self) -> UnavailableError:
        return UnavailableError(
            f"{type(self).__name__} works in the pipeline's own process, with its own threads, not in DALI's worker "
            "processes: use parallel=False"
        )

    def _outputs(self, batch: Batch) -> tuple[Any, ...]:
        """Return the outputs of a batch for DALI."""
        outputs: list[Tensor | list[Tensor]] = []
        for field in dict.fromkeys(tensor[0] for tensor in self._tensors):
            output = batch.files if field == "" else batch.labels if not self._decoded else batch[field]
            outputs += output if isinstance(output, tuple) else [output]
        # Truth values are passed as bytes: DALI reads bool of the array interface as int8.
        outputs += [batch._present_bytes(name) for name in self._present]
        if self._with_mask:
            outputs.append(batch._mask_bytes)
        return tuple(self._for_dali(output) for output in outputs)

    def _for_dali(self, output: Tensor | list[Tensor]) -> Any:
        """Convert to objects that DALI takes without a copy and keeps alive: NumPy arrays, or CUDA array interfaces."""
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
            no_copy=device in (None, here),
            dtype=dtype,
            ndim=ndim,
            layout=layout,
            **({"batch_info": True} if self._batch_info else {}),
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
            message = f"is {self.loader.batch_size}, but the pipeline's is {pipeline.max_batch_size}: raise that one"
            raise config_error("batch_size", message)


def kept_batches(depth: int) -> int:
    """Return how many batches a source keeps for a pipeline with a queue of this depth."""
    return depth + 2
