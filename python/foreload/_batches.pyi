"""Batches and tensors: a part of `_core.pyi`, only for type checkers; at run time `foreload._core` has it."""

from collections.abc import Iterator
from typing import Any, final

from foreload._types import LoaderState

@final
class Tensor:
    """A tensor that any DLPack consumer takes without a copy: `np.from_dlpack`, `torch.from_dlpack`.

    `np.asarray` also takes tensors in CPU memory without a copy. NumPy has no bfloat16: `np.from_dlpack` refuses it,
    and `np.asarray` needs the package `ml_dtypes` for it. torch and JAX take it by DLPack.

    Its memory is not reused while it, or anything made from it, exists. On a GPU, the consumer may get a batch before
    it is finished. The consumer's stream then waits for it. The memory is not reused before this stream has completed
    the work that was queued when the consumer dropped the tensor. The stream must exist as long as the tensor (keep
    CuPy's `Stream` object; torch's streams always exist). If it captures a CUDA graph when the tensor is dropped, it
    must exist as long as the loader. If another stream also reads the tensor, call `Batch.used_by`, or let the first
    stream wait for it before the tensor is dropped. torch's `record_stream` has no effect here.
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
        """Return a capsule: `dltensor_versioned` if `max_version` allows 1.0, else `dltensor`.

        On a GPU, `stream` is the consumer's: None or 1 for the legacy default stream, 2 for that of the calling thread,
        a larger number for a stream's handle. With -1, the consumer must order the accesses itself. For CPU memory, it
        must be None (or -1). `dl_device` must be None or the tensor's device, or (1, 0) for CPU memory: a tensor on a
        GPU is then copied before the call returns. `copy=True` copies a tensor in CPU memory.

        Raises:
            ValueError: `stream` is something else for CPU memory.
            ConfigError: `stream` is 0, which could mean either default stream, or below -1. Or it captures a CUDA
                graph, which cannot contain a batch.
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
        """Return a NumPy array of the same memory, or a copy if `dtype` or `copy` requires one.

        Raises:
            TypeError: The tensor is on a GPU; or it is bfloat16, and the package `ml_dtypes` is not installed.
            ValueError: `copy` is False, and the array cannot have this `dtype` without a copy.
        """
    def tobytes(self) -> bytes:
        """Return a copy of the elements' bytes, row-major. For a file, this is its content, as with `bytes(file)`."""
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...

@final
class Batch:
    """The samples of one step. You may keep it for as long as you like: memory in use is never overwritten.

    `for images, labels in loader` unpacks a batch that has only images and labels, and one of files with class numbers
    as (files, labels). Other batches cannot be iterated over: a TypeError says what to write.

    Fields are found by name, as in a dict: `batch["image"]` and `batch["label"]`, or those that `fields=` names.
    `batch["images"]` and `batch["labels"]` are the attributes. `keys()` returns the names, and `dict(batch)` makes a
    dict. The length of a batch is the number of samples. The classes of `foreload.fields` describe the form of each
    kind of field in a batch.
    """

    def keys(self) -> list[str]:
        """Return the names of the fields, in the order in which they were requested."""
    def __iter__(self) -> Iterator[Any]:
        """Iterate over images and labels, so that `images, labels = batch`.

        Raises:
            TypeError: The batch has something else; the message says what to write.
        """
    def __contains__(self, name: object, /) -> bool: ...
    def values(self) -> list[Any]:
        """Return the fields, in the order of `keys()`."""
    def items(self) -> list[tuple[str, Any]]:
        """Return pairs of name and field, in the order of `keys()`."""
    def get(self, name: str, default: Any = None) -> Any:
        """Return a field by its name, or `default` if the batch does not have it."""
    def __getitem__(self, name: str, /) -> Any:
        """Return a field: a tensor, a list of texts, JSON documents or bytes, or for ragged arrays (values, offsets).

        Raises:
            KeyError: The batch has no such field; the message names those it has.
            SampleError: A JSON document is valid, but Python cannot read it: it is too deep, or has a number of
                thousands of digits.
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
        """The first image field, or the first of its views: RGB, [n, 3, height, width] or [n, height, width, 3].

        Raises:
            AttributeError: The batch has `files`, or `fields=` names no image, or images have their own sizes.
        """
    @property
    def files(self) -> list[Tensor]:
        """The samples' bytes, uint8 [bytes] each, in the memory they were read into; of files or with `decoded=False`.

        `bytes(file)` copies them, for example for `io.BytesIO(bytes(file))`. A failed sample (`on_error="zero"`) has no
        bytes.

        Raises:
            AttributeError: The batch has `images`.
        """
    @property
    def labels(self) -> Tensor:
        """Class numbers, int64 [n]; with `labels=` its column `label`: int64, float32 or uint8, [n] or [n, length].

        With `mix=` and `num_classes` they are mixed: float32 [n, num_classes]; so are vectors: float32 [n, length].

        Raises:
            AttributeError: The dataset has no labels (`loader.labeled`), and the message says how to add them; or the
                labels are texts, which `batch["label"]` has.
        """
    @property
    def mixed(self) -> tuple[Tensor, Tensor, Tensor]:
        """With `mix=`: class numbers, the partners' class numbers, and λ; int64, int64 and float32, all [n].

        λ is the weight of each image itself, for a loss λ·loss(labels) + (1 - λ)·loss(partners). An image that is not
        mixed is its own partner, with a λ of 1.

        Raises:
            AttributeError: The images are not mixed; or the labels are vectors, which `labels` has mixed.
        """
    @property
    def sample_ids(self) -> Tensor:
        """The numbers of the samples in the index, int64 [n]; with `on_error="skip"`, those of the substitutes."""
    @property
    def occurrences(self) -> Tensor:
        """The number of the draw of each sample in the epoch, int64 [n], for `ImageLoader.view`.

        It is 0 if the epoch draws each sample once. If it draws samples several times (`weights=`, `epoch_size=`,
        `ratios=`), their draws are numbered from 0, and come in any order. With `on_error="skip"`, it is 0 for
        substitutes.
        """
    @property
    def bucket(self) -> tuple[int, int] | None:
        """The size of the batch's images with `buckets=`, (height, width); None without it.

        With `decoded=False`, it is the size to which you decode the files of the batch.
        """
    @property
    def original_sizes(self) -> Tensor:
        """The size of each first image before it was resized, (height, width), int64 [n, 2], with `buckets=`.

        It is 0 for a failed sample (`on_error="zero"`), and for an optional image that the sample lacks.

        Raises:
            AttributeError: `buckets` is not set, or batches have no images.
        """
    @property
    def crops(self) -> Tensor:
        """The place of each first image's crop in the resized image, (top, left) in pixels, int64 [n, 2].

        For a mirrored image, it is the place in the mirrored image, as the scripts of diffusers have it. With several
        views, it is that of the first view. Only with `buckets=`.

        Raises:
            AttributeError: `buckets` is not set, or batches have no images.
        """
    @property
    def mask(self) -> Tensor:
        """Bool [n]: False for padding (see `last_batch`) and for failed samples (`on_error="zero"`)."""
    @property
    def _mask_bytes(self) -> Tensor: ...
    def used_by(self, stream: int) -> None:
        """Let another CUDA stream read the batch, in addition to those that its tensors were passed to.

        That stream waits for the batch. The memory is not written again before the stream has completed the work that
        is queued when the last tensor of the batch is dropped. torch's `record_stream` cannot do that, because it works
        only for memory of torch. The call has no effect for a batch in CPU memory.

        Args:
            stream: A stream as in `Tensor.__dlpack__`: 1, 2 or a handle (torch: `stream.cuda_stream`, CuPy:
                `stream.ptr`). 0, which those return for their default stream, is the legacy one. It must exist as long
                as the batch.

        Raises:
            ConfigError: `stream` is not a stream, or captures a CUDA graph.
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
        """Return the state of this iteration like `Loader.state_dict`, also if the loader has begun another one."""
    def stats(self) -> dict[str, Any]:
        """Return seconds of each stage, summed over its threads, and counters of this epoch so far.

        Counters of reads:

        - `source_bytes`: bytes that were read from the dataset's storage.
        - `source_bytes_skipped`: bytes of packed images that no view needs, and that were not read.
        - `source_reads`: reads from the system or from a server.
        - `source_requests`: requests to servers. Of these, `source_retries` repeat a failed request, and
          `source_hedges` were sent in addition to a slow one.
        - `blocks_unpacked`, `blocks_unpacked_bytes`: compressed blocks of samples, counted at each decompression, and
          their decompressed bytes.

        Counters of images and samples:

        - `decoded_region`: images that Foreload's own JPEG decoder decoded. Each other decoder of the CPU has such a
          number, for example `decoded_png`.
        - `rows_known`: images of `decoded_region` whose row positions were known from an earlier decode, so that less
          of the file is read.
        - `concealed`: damaged JPEGs that were decoded anyway.
        - `rebuilt`: files that were rebuilt from packed images, because their bytes were requested.
        - `errors`: samples that were skipped or replaced by zeros.

        On a GPU, there is also the dict `gpu`:

        - `decoders`: texts by name that say what each of the GPU's decoders can do, and why not more.
        - `decoded_cuda_packed`, `decoded_cuda_indexed`, `decoded_hardware`, `decoded_cuda_batched`, `decoded_cuda`,
          `decoded_cpu`: images by backend.
        - `decoded_again`: images that a decoder reported as decoded but may not have written, and damaged packed and
          indexed images.
        - `h2d_bytes`: bytes of files, planes and rows that were copied to the GPU.
        - `copy_seconds`, `decode_seconds`, `augment_seconds`: sums over batches that are processed concurrently. Packed
          and indexed images are also read in `decode_seconds`.
        - `idle_seconds`: the time in which nothing was queued on the GPU.

        With a cache, there is also the dict `cache` for this epoch:

        - `source_reads`, `source_bytes`: samples that were read from the dataset's storage when they were needed.
        - `looks`: files that were checked for changes.
        - `staged_bytes`, `staged_requests` (to servers, of `source_requests`), `staged_samples`, `staged_units` of
          `units`: filled ahead.
        - `last_error`: a text, or None.
        - `tiers`: a dict for each tier by its name (`ram`, `nvme`, `peers`), from the fastest to the slowest.

        Each tier has these counters:

        - `hits`, `bytes`: samples that it gave, and the bytes of them that were read.
        - `fallbacks`: samples that it had and could not give.
        - `stale`, `mismatched`: copies of samples that have changed.
        - `admitted_samples`, `admitted_bytes`: samples that were written.
        - `converted_samples`, `unconvertible_samples`: copies that were converted to the storage format, and copies
          that stay as they are.
        - `dropped_busy`, `dropped_full`, `dropped_off`, `dropped_changed`: samples that were not kept, because writing
          was behind, the tier is full (a slower one may have taken them), a write had failed, or the file changed.
        - `write_errors`, `damaged`, `evicted_bytes`.
        - `held_samples`, `held_bytes`, `quota`: the current values.

        With `peers=`, there is also the dict `peers`, since the loader's first epoch. `nodes` has for each node of the
        job, by its name, a dict of the requests to it and their outcomes. `served` has the work of this process for
        other nodes, or None if another process of its node serves them.
        """
