"""What loaders yield: a part of `_core.pyi`, for type checkers alone; at run time `foreload._core` has it."""

from collections.abc import Iterator
from typing import Any, final

from foreload._types import LoaderState

@final
class Tensor:
    """A tensor that any DLPack consumer takes without a copy: `np.from_dlpack`, `torch.from_dlpack`.

    `np.asarray` takes tensors in CPU memory without a copy, too. NumPy has no bfloat16: `np.from_dlpack` refuses it,
    and `np.asarray` needs the package `ml_dtypes` for it; torch and JAX take it by DLPack.

    Its memory is not reused while it, or anything made from it, exists. On a GPU the batch may be handed over before it
    is finished: the consumer's stream waits for it, and the memory is not reused before that stream has passed what it
    had queued when the consumer dropped the tensor. The stream must live as long as the tensor (keep CuPy's `Stream`
    object; torch's streams always live), and as long as the loader if it captures a CUDA graph when the tensor is
    dropped. If another stream reads the tensor too, call `Batch.used_by`, or let the first stream wait for it before
    the tensor is dropped; torch's `record_stream` does nothing here.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
    @property
    def dtype(self) -> str:
        """`uint8`, `int8` and so on to `uint64` and `int64`, `float16`, `bfloat16`, `float32`, `float64` or `bool`."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule: `dltensor_versioned` when `max_version` allows 1.0, else `dltensor`.

        On a GPU, `stream` is the consumer's: None or 1 for the legacy default stream, 2 for the calling thread's, a
        larger number for a stream's handle; -1 leaves the order to the consumer. For CPU memory it must be None (or
        -1). `dl_device` must be None or the tensor's device, or (1, 0) for CPU memory: a tensor on a GPU is then copied
        before the call returns. `copy=True` copies a tensor in CPU memory.

        Raises:
            ValueError: `stream` is something else for CPU memory.
            ConfigError: `stream` is 0, which could mean either default stream, or below -1; or it captures a CUDA
                graph, of which no batch can be part.
            BufferError: `dl_device` is something else, or `copy` cannot be honoured.
            GpuError: The GPU's driver failed.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (1, 0) for CPU memory, (2, n) for memory of GPU n."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3, of a tensor on a GPU; its stream is the legacy default stream.

        Raises:
            AttributeError: The tensor is in CPU memory, or bfloat16, for which the interface has no name.
        """
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a NumPy array of the same memory; a copy where `dtype` or `copy` asks for one.

        Raises:
            TypeError: The tensor is on a GPU; or it is bfloat16, and the package `ml_dtypes` is not installed.
            ValueError: `copy` is False, and the array cannot have this `dtype` without a copy.
        """
    def tobytes(self) -> bytes:
        """Return a copy of the elements' bytes, row-major: of a file its content, as `bytes(file)` does."""
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...

@final
class Batch:
    """One step's samples. It may be kept for as long as you like: a buffer in use is never overwritten.

    `for images, labels in loader` unpacks a batch of images and labels alone, and one of files with class numbers as
    (files, labels). Other batches are not iterated over: a TypeError says what to write.

    Fields are found by name, as in a dict: `batch["image"]` and `batch["label"]`, or those that `fields=` names;
    `batch["images"]` and `batch["labels"]` are the attributes. `keys()` has the names, and `dict(batch)` makes a dict.
    The length of a batch is the number of samples. The classes of `foreload.fields` say what each kind of field is in a
    batch.
    """

    def keys(self) -> list[str]:
        """The names of the fields, in the order in which they were asked for."""
    def __iter__(self) -> Iterator[Any]:
        """Iterate over images and labels, so that `images, labels = batch`.

        Raises:
            TypeError: The batch has something else; the message says what to write.
        """
    def __contains__(self, name: object, /) -> bool: ...
    def values(self) -> list[Any]:
        """The fields, in the order of `keys()`."""
    def items(self) -> list[tuple[str, Any]]:
        """Pairs of name and field, in the order of `keys()`."""
    def get(self, name: str, default: Any = None) -> Any:
        """Return a field by its name, or `default` if the batch does not have it."""
    def __getitem__(self, name: str, /) -> Any:
        """A field: a tensor, a list of texts, of JSON documents or of bytes, or for ragged arrays (values, offsets).

        Raises:
            KeyError: The batch has no such field; the message names those it has.
            SampleError: A JSON document is sound, but more than Python takes: too deep, or a number of thousands of
                digits.
        """
    def present(self, name: str) -> Tensor:
        """Return which samples have an optional field, bool [n]: False for failed samples replaced by zeros.

        Raises:
            KeyError: The batch has no such field.
            AttributeError: The field is not optional: all samples have it.
        """
    def _present_bytes(self, name: str) -> Tensor: ...
    @property
    def images(self) -> Tensor:
        """The first image field, of several views the first: RGB, [n, 3, height, width] or [n, height, width, 3].

        Raises:
            AttributeError: The batch has `files`, or `fields=` names no image, or images have sizes of their own.
        """
    @property
    def files(self) -> list[Tensor]:
        """The samples' bytes, uint8 [bytes] each, in the memory they were read into; of files, or with `decoded=False`.

        `bytes(file)` copies them, as `io.BytesIO(bytes(file))` needs them. A failed sample (`on_error="zero"`) has no
        bytes.

        Raises:
            AttributeError: The batch has `images`.
        """
    @property
    def labels(self) -> Tensor:
        """Class numbers, int64 [n]; with `labels=` its column `label`: int64, float32 or uint8, [n] or [n, length].

        With `mix=` and `num_classes` they are mixed: float32 [n, num_classes]; so are vectors: float32 [n, length].

        Raises:
            AttributeError: The dataset has no labels (`loader.labeled`), and the message says how samples get theirs;
                or the labels are texts, which `batch["label"]` has.
        """
    @property
    def mixed(self) -> tuple[Tensor, Tensor, Tensor]:
        """With `mix=`: class numbers, the partners' class numbers, and λ; int64, int64 and float32, all [n].

        λ is the share of each image that is its own, for a loss λ·loss(labels) + (1 - λ)·loss(partners). An image that
        is not mixed is its own partner, with a λ of 1.

        Raises:
            AttributeError: The images are not mixed; or the labels are vectors, which `labels` has mixed.
        """
    @property
    def sample_ids(self) -> Tensor:
        """Numbers of the samples in the index, int64 [n]; with `on_error="skip"` those of the substitutes."""
    @property
    def occurrences(self) -> Tensor:
        """Which of its sample's draws of the epoch each place holds, int64 [n]: what `ImageLoader.view` takes.

        0 where the epoch draws each sample once. Where it draws samples several times (`weights=`, `epoch_size=`,
        `ratios=`) their draws are numbered from 0, and come in any order. With `on_error="skip"` 0 for substitutes.
        """
    @property
    def mask(self) -> Tensor:
        """Bool [n]: False for padding (see `last_batch`) and for failed samples (`on_error="zero"`)."""
    @property
    def _mask_bytes(self) -> Tensor: ...
    def used_by(self, stream: int) -> None:
        """Let another CUDA stream read the batch, beside those to which its tensors were handed over.

        That stream waits for the batch, and the memory is not written again before the stream has passed what is queued
        on it when the last tensor of the batch is gone. torch's `record_stream` cannot do that: it knows only memory of
        torch itself. The call does nothing for a batch in CPU memory.

        Args:
            stream: A stream as in `Tensor.__dlpack__`: 1, 2 or a handle (torch: `stream.cuda_stream`, CuPy:
                `stream.ptr`); 0, which those give for their default stream, is the legacy one. It must live as long as
                the batch.

        Raises:
            ConfigError: `stream` is no stream, or captures a CUDA graph.
            GpuError: The GPU's driver failed.
        """
    @property
    def step(self) -> int:
        """The number of the batch in the epoch."""
    def __len__(self) -> int: ...

@final
class Batches(Iterator[Batch]):
    """One iteration over an epoch. Dropping it stops the epoch."""

    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int: ...
    def state_dict(self, *, at_step: int | None = None) -> LoaderState:
        """Return the state of this iteration like `Loader.state_dict`, also when the loader has begun another."""
    def stats(self) -> dict[str, Any]:
        """Return seconds of each stage, summed over its threads, and counters of this epoch so far.

        Among them are `source_bytes` (read from the dataset's storage), `source_bytes_skipped` (bytes of packed images
        that no view needs, and that were not read), `source_reads` (reads asked of the system or of a server),
        `source_requests` (requests to servers; among them `source_retries` that were made again after a failure, and
        `source_hedges` that were made beside one that took long), `blocks_unpacked` and `blocks_unpacked_bytes`
        (compressed blocks that samples lie in, each as often as it was unpacked, and their bytes then),
        `decoded_region` (images that Foreload's own decoder for JPEG decoded), one such number for each other decoder
        of the CPU, as `decoded_png`, `rows_known` (images of `decoded_region` of which decoding them before had shown
        where rows begin, so that less of the file is read), `concealed` (damaged JPEGs that were decoded all the same),
        `rebuilt` (files that were rebuilt from packed images, because their bytes were asked for) and `errors` (samples
        skipped or replaced by zeros).

        On a GPU there is also the dict `gpu`: `decoders` (what each of the GPU's decoders can do, and why not more:
        texts by name), `decoded_cuda_packed`, `decoded_cuda_indexed`, `decoded_hardware`, `decoded_cuda_batched`,
        `decoded_cuda` and `decoded_cpu` (images by backend), `decoded_again` (images that a decoder reported as decoded
        and may not have written, and packed and indexed ones with damage), `h2d_bytes` (files, planes and
        rows given to it), `copy_seconds`, `decode_seconds` (in which packed and indexed images are read, too),
        `augment_seconds` (all summed over batches that are under way side by side) and `idle_seconds` (in which nothing
        was queued on it).

        With a cache there is also the dict `cache` for this epoch: `source_reads`, `source_bytes` (samples from the
        dataset's storage, as they were needed), `looks` (files that were asked whether they changed), `staged_bytes`,
        `staged_requests` (to servers, of `source_requests`), `staged_samples`, `staged_units` of `units` (filled
        ahead); `last_error`, a text, or None; and `tiers`, a dict
        for each tier by its name (`ram`, `nvme`, `peers`), from the fastest to the slowest: `hits`, `bytes` (samples
        that it gave, and what was read of them), `fallbacks` (it had them and could not give them), `stale`,
        `mismatched` (copies of what has changed), `admitted_samples`, `admitted_bytes` (written), `converted_samples`,
        `unconvertible_samples` (brought to the form that copies are kept in; that stay as they are), `dropped_busy`,
        `dropped_full`, `dropped_off`, `dropped_changed` (not kept: writing was behind; the tier is full, a slower one
        may have taken them; a write had failed; the file changed), `write_errors`, `damaged`, `evicted_bytes`;
        `held_samples`, `held_bytes` and `quota` as they are now.

        With `peers=` there is also the dict `peers`, since the loader's first epoch: `nodes`, for each node of the job
        by its name a dict of what was asked of it and what became of that, and `served`, what this process did for
        other nodes, or None where another process of its node serves them.
        """
