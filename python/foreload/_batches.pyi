"""What loaders yield: a part of `_core.pyi`, for type checkers alone; at run time `foreload._core` has it."""

from collections.abc import Iterator
from typing import Any, final

from foreload._types import LoaderState

@final
class Tensor:
    """A tensor that any DLPack consumer takes without a copy: `np.from_dlpack`, `torch.from_dlpack`.

    Its memory is not reused while it, or anything made from it, exists. On a GPU the batch may still be in the making
    when it is handed over: the consumer's stream waits for it, and the memory is not reused before that stream has
    passed what it had queued when the consumer dropped the tensor. The stream must live as long as the tensor (keep
    CuPy's `Stream` object; torch's streams always live), and as long as the loader if it captures a CUDA graph when the
    tensor is dropped. Work on yet other streams is known by `Batch.used_by`, or
    by that stream's waiting for them before the tensor is dropped; torch's `record_stream` does nothing here.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
    @property
    def dtype(self) -> str:
        """`float32`, `float16`, `bfloat16`, `uint8`, `int64` or `bool`."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule: `dltensor_versioned` when `max_version` allows 1.0, else `dltensor`.

        On a GPU, `stream` is the consumer's: None or 1 the legacy default stream, 2 the calling thread's, more a
        stream's handle; -1 leaves the order to the consumer. For CPU memory it must be None (or -1). `dl_device` must
        be None, where the tensor is, or (1, 0), CPU memory: a tensor on a GPU is then copied, and has arrived on
        return, as one in CPU memory is with `copy=True`.

        Raises:
            ValueError: `stream` is something else for CPU memory.
            ConfigError: `stream` is 0, which could mean either default stream, or below -1; or it captures a CUDA
                graph, of which no batch can be a part.
            BufferError: `dl_device` is something else, or `copy` cannot be honoured.
            GpuError: The GPU's driver failed.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): CPU memory; (2, n): memory of GPU n."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3, of a tensor on a GPU; its stream is the legacy default stream.

        Raises:
            AttributeError: The tensor is in CPU memory, or bfloat16, for which the interface has no name.
        """
    def __len__(self) -> int: ...

@final
class Batch:
    """One step's samples. It may be kept for as long as you like: a buffer in use is never overwritten.

    Its fields are found by name, as in a dict: `batch["image"]` and `batch["label"]`, or those that `fields=` names.
    Other than a dict's its length is the number of samples, not of fields; `dict(batch)` is one. What each kind of
    field gives is said by the classes of `foreload.fields`.
    """

    def keys(self) -> list[str]:
        """The names of the fields, in the order in which they were asked for."""
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, name: object, /) -> bool: ...
    def values(self) -> list[Any]:
        """The fields, in the order of `keys()`."""
    def items(self) -> list[tuple[str, Any]]:
        """Pairs of name and field, in the order of `keys()`."""
    def get(self, name: str, default: Any = None) -> Any:
        """A field by its name, or `default` where the batch has none of it."""
    def __getitem__(self, name: str, /) -> Any:
        """A field: a tensor, a list of texts, of JSON documents or of bytes, or for ragged arrays (values, offsets).

        Raises:
            KeyError: The batch has no such field; the message names those it has.
            SampleError: A JSON document is sound, but more than Python takes: too deep, or a number of thousands of
                digits.
        """
    def present(self, name: str) -> Tensor:
        """Which samples have an optional field: bool [n]. False for a failed sample that is replaced by zeros.

        Raises:
            KeyError: The batch has no such field.
            AttributeError: The field is not optional: all samples have it.
        """

    @property
    def images(self) -> Tensor:
        """The first image field, of several views the first: RGB, [n, 3, height, width] or [n, height, width, 3].

        Raises:
            AttributeError: The batch has `files`, or `fields=` names no image, or images have sizes of their own.
        """
    @property
    def files(self) -> list[Tensor]:
        """The samples' bytes, uint8 [bytes] each, where they were read to: of a `FileLoader`, or with `decoded=False`.

        Of a failed sample (`on_error="zero"`) no bytes.

        Raises:
            AttributeError: The batch has `images`.
        """
    @property
    def labels(self) -> Tensor:
        """Class numbers, int64 [n].

        Raises:
            AttributeError: The dataset has no labels (`loader.labeled`); the message says how samples get theirs.
        """
    @property
    def sample_ids(self) -> Tensor:
        """Numbers of the samples in the index, int64 [n]; with `on_error="skip"` those of the substitutes."""
    @property
    def mask(self) -> Tensor:
        """Bool [n]: False for padding (`last_batch="pad"`) and for failed samples (`on_error="zero"`)."""
    @property
    def _mask_bytes(self) -> Tensor: ...
    def used_by(self, stream: int) -> None:
        """Let another CUDA stream read the batch, beside those its tensors were handed over to.

        That stream waits for the batch, and the memory is not written again before it has passed what is queued there
        when the last tensor of the batch is gone. torch's `record_stream` cannot do that: it knows only memory of
        torch's own. Nothing for a batch in CPU memory.

        Args:
            stream: As `Tensor.__dlpack__` takes it: 1, 2 or a handle (torch: `stream.cuda_stream`, CuPy: `stream.ptr`);
                0, which those give for their default stream, is the legacy one. It must live as long as the batch.

        Raises:
            ConfigError: `stream` is none, or captures a CUDA graph.
            GpuError: The GPU's driver failed.
        """
    @property
    def step(self) -> int:
        """Its number in the epoch."""
    def __len__(self) -> int: ...

@final
class Batches(Iterator[Batch]):
    """One iteration over an epoch. Dropping it stops the epoch."""

    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int: ...
    def state_dict(self, *, at_step: int | None = None) -> LoaderState:
        """As `Loader.state_dict`, of this iteration, also when the loader has begun another."""
    def stats(self) -> dict[str, Any]:
        """Seconds of each stage, summed over its threads, and counters, of this epoch so far.

        Among them `decoded_region` (images that Foreload's own decoder for JPEG decoded), one such number for each
        other decoder of the CPU, as `decoded_png`, `concealed` (damaged JPEGs that were decoded all the same) and
        `errors` (samples skipped or replaced by zeros).

        On a GPU also `gpu`, a dict: `decoders` (what each of the GPU's decoders can do, and why not more: texts by
        name), `decoded_hardware`, `decoded_cuda_batched`, `decoded_cuda` and `decoded_cpu` (images by backend),
        `decoded_again` (images that a decoder reported as decoded and had not surely written), `h2d_bytes` (files and
        planes given to it), `copy_seconds`, `decode_seconds`, `augment_seconds` (summed over batches that are under way
        side by side) and `idle_seconds` (in which nothing was queued on it).

        With a cache also `cache`, a dict of this epoch's: `nvme_hits`, `nvme_bytes` (samples from the cache),
        `source_reads`, `source_bytes` (from the dataset's storage, as they were needed), `fallbacks` (the cache had
        them and could not give them), `staged_bytes`, `staged_samples`, `staged_units` of `units` (filled ahead),
        `admitted_samples`, `admitted_bytes` (written), `dropped_busy`, `dropped_full`, `dropped_off` (not kept:
        writing was behind; the cache is full; a write had failed), `write_errors`, `damaged`, `evicted_bytes`;
        `held_samples`, `held_bytes` and `quota` as they are now; `last_error`, a text, or None.
        """
