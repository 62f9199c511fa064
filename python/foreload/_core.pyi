"""Foreload's core, in Rust. Use the names that `foreload` exports."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal, final

import numpy as np

from foreload._batches import Batch as Batch
from foreload._batches import Batches as Batches
from foreload._batches import Tensor as Tensor
from foreload._types import ConcealedSample, LoaderState, SampleFailure, View
from foreload.transforms import Transform, Views

__version__: str

class Error(Exception):
    """Any failure of Foreload."""

class ConfigError(Error):
    """A setting has a value that cannot work; the message names it."""

class DatasetError(Error):
    """The dataset or its index cannot be used."""

class DatasetChangedError(DatasetError):
    """The dataset is not what it was when it was indexed."""

class IoError(Error):
    """An operation on a file failed."""

class DecodeError(Error):
    """An image cannot be decoded."""

class SampleError(Error):
    """A sample failed; `__cause__` says why."""

    sample_id: int
    path: os.PathLike[str]
    offset: int
    length: int

class TooManyErrorsError(Error):
    """More samples failed than `max_errors` allows; `__cause__` is the last failure."""

class UnavailableError(Error):
    """Something this build or machine does not have."""

class GpuError(Error):
    """A call of the GPU's driver or of a library on it failed."""

class InternalError(Error):
    """A defect in Foreload."""

class Warning(UserWarning):
    """What is left out, replaced or slowed though nothing failed, and what to do about it."""

def release_gpus() -> None:
    """Give back what this process keeps on GPUs for its next loader: nvJPEG's decoders with their memory, and kernels.

    Loaders that are in use keep what they need. It happens by itself at the end of the process.
    """

class Loader:
    """What `ImageLoader` and `FileLoader` have in common. Make one of these.

    Every iteration is of the epoch after the one before, whether that came to its end or not; the first is epoch 0.
    `set_epoch` or a loaded state says otherwise, for one iteration. One that was never asked for a batch does not
    count. The order depends on (dataset, selection, seed, epoch) alone. A loader runs one epoch at a time: a new
    iteration ends the former one. A child of `os.fork` can read the batches that its parent holds, but needs a loader
    of its own for others.
    """

    def __iter__(self) -> Batches:
        """One epoch: the chosen one, what is left of the one whose state was loaded, or else the next.

        Raises (also while iterating):
            SampleError: A sample failed and `on_error` is `raise`.
            TooManyErrorsError: More samples failed than `max_errors`.
            ConfigError: Every batch the `memory` setting allows is kept by the consumer.
            IoError: There is no memory, or the reader failed.
            GpuError: The GPU's driver or a library on it failed.
        """
    def batches(self, epoch: int | None = None, first_step: int = 0) -> Batches:
        """One epoch (None: the one that `epoch` says) from `first_step` on.

        A `first_step` at or past the end gives no batch. It has a state of its own; the loader's, and the epoch that
        comes next, are those of `for` loops over it. Raises as iterating does.
        """
    def __len__(self) -> int:
        """Batches of this rank in one epoch."""
    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration: any, also one that was run before, which is then the same again.

        A loaded state of that epoch still says where it begins.
        """
    def state_dict(self, *, at_step: int | None = None) -> LoaderState:
        """Where the latest iteration stands: `position` samples of the order of `epoch`, those of all ranks together.

        What was yielded counts, not what was read ahead. A state with all samples of its epoch yielded is of that
        epoch still.

        Args:
            at_step: The state as it was after so many steps of the epoch, for frameworks that take batches from the
                loader before they are used. None: after the last batch that was yielded.

        Raises:
            ConfigError: `at_step` is no step that this iteration yielded.
        """
    def load_state_dict(self, state: LoaderState) -> None:
        """Go on where `state` was saved.

        The next iteration is what is left of its epoch; of one that is through nothing is, and the next begins. So
        `range(loader.epoch, epochs)` is what a training has left, also with `set_epoch` in the loop. Choosing the very
        epoch that is through, before or after loading, gives an iteration without batches, and a warning.

        Reads nothing of what was yielded before, and takes as long at any position. The number of ranks may be another,
        if all together take as many samples in a step; in the middle of an epoch iterating refuses what does not fit.
        Settings of the images may be others than they were; what is drawn is the same.

        Raises:
            ConfigError: The state is of another dataset, seed, order or version; the message names what differs.
        """
    @property
    def epoch(self) -> int:
        """The epoch that is under way; while none is, the one that the next iteration runs.

        An epoch is under way from the iteration's beginning until it has no more batches, fails or is dropped.
        """
    @property
    def samples(self) -> int:
        """Samples in the dataset, whether they are drawn or not."""
    @property
    def epoch_size(self) -> int:
        """Samples an epoch draws, of all ranks together."""
    @property
    def labeled(self) -> bool:
        """Whether samples have labels: class directories, or a class number beside each image in a shard.

        Without them batches have no `labels`, and what needs classes is refused.
        """
    def _check_labeled(self) -> None: ...
    @property
    def classes(self) -> list[str]:
        """Class names by number; empty when the dataset has only numbers, or no labels."""
    @property
    def targets(self) -> np.ndarray:
        """Class numbers of all samples, drawn or not, by their number in the index: int64 [samples].

        Raises:
            AttributeError: The dataset has no labels.
            ImportError: NumPy is not installed.
        """
    @property
    def fingerprint(self) -> str:
        """SHA-256 of the dataset's layout, names, extents and labels, in hex."""
    @property
    def io(self) -> str:
        """How bytes are read, in words; empty before the first iteration."""
    @property
    def errors(self) -> list[SampleFailure]:
        """Failures of the latest iteration that were skipped or replaced by zeros (the first 1000)."""
    @property
    def concealed(self) -> list[ConcealedSample]:
        """Damaged images of the latest iteration that were decoded all the same (the first 1000), by sample; those that
        were read ahead among them. They do not count against `max_errors`."""
    def locate(self, sample_id: int) -> tuple[os.PathLike[str], int, int]:
        """File of a sample (for shards, the shard), where its bytes begin, and their number."""

@final
class ImageLoader(Loader):
    """Shuffled, augmented, normalised batches from a directory of images or of tar shards.

    The order and every crop depend on (dataset, selection, seed, epoch) alone.

    Args:
        path: `path/class/.../image.jpg` (classes as torchvision's ImageFolder sorts them), or a directory of
            WebDataset-style `.tar` shards, or one such shard. Members of a shard that share a stem are a sample,
            wherever they lie in it: `.jpg`, `.jpeg` or `.png`, and its class number in `.cls` or in `.json` (key
            `label` or `cls`). Either all samples have a class number or none has: then batches have no `labels`.
            Several datasets, in a list, are one: their samples follow one another, and classes of one name are one
            class.
        batch_size: Samples per step and rank.
        image_size: Side of the square output in pixels, or (height, width). None: 224.
        seed: Seed of order and augmentation.
        train: True: RandomResizedCrop + RandomHorizontalFlip. False: Resize + CenterCrop. Beside `transforms` it says only
            what `shuffle` and `last_batch` are by default.
        transforms: What is done to images: a list of `foreload.transforms`, or `Views` of one. It takes the place of
            `image_size`, `scale`, `ratio`, `flip`, `resize`, `dtype`, `mean` and `std`, the one-line way to the usual
            lists.
        shuffle: Shuffled order; None: as `train`.
        last_batch: What happens to the samples that do not fill the last global batch: `drop` them, `pad` the batch
            from the epoch's beginning (`mask` says which), or a `partial` batch. None: drop in training, else partial.
        indices: Numbers of the samples to draw from, each once. None: all. The order of a shuffled epoch does not
            depend on how they are listed; a sequential epoch takes them as they stand.
        classes: Names or numbers of the classes to draw from. None: all. Labels stay what they are.
        files: A text file that lists what to draw from, one path a line, relative to the dataset: images (with or
            without extension), or shards for all their samples. None: everything. Where several of `indices`, `classes`
            and `files` are given, all must hold.
        weights: How often samples are drawn beside one another: `"balanced"`, every class as often as every other; a
            dict of classes, others weigh 1; or one number for each sample of the dataset. A weight is 0, or from 1e-50
            to 1e50. In every epoch, samples of equal weight are drawn equally often, or once more, and each weight's
            share of the draws is kept to within two. A sample that comes up again in an epoch is augmented anew. None:
            every sample alike.
        ratios: Share of each of several datasets in an epoch, in any unit. None: by their samples.
        epoch_size: Samples an epoch draws, of all ranks together. None: as many as there are to draw from.
        decoded: False: batches hold the files' bytes (`files` instead of `images`) for a decoder of yours. Order,
            `labels`, `sample_ids` and `mask` stay the same; the settings of images mean nothing; what `on_error` deals
            with is what cannot be read, and what is no JPEG or PNG by its first bytes.
        keep: How many batches you will keep at once, when that is more than the latest: sizes the pools for it.
        device: Where batches end: `cpu`, `cuda` (the GPU of this process's local rank, which its launcher sets, else
            the first), `cuda:N`, or `auto`: a GPU where one serves (see `foreload doctor`), else the CPU. On a GPU,
            batches are the same as on the CPU but for the decoders' rounding.
        cpu_decode: What the CPU decodes when batches end on a GPU: `fallback`, what the GPU's decoders do not know
            (PNG, CMYK, ...) or would have the host half decode (progressive images; batches of fewer than 51 where
            there is no decoding engine); `auto`, that and as much more as makes the whole fastest; `never`: what they
            do not know is an error of its sample. What takes such a sample's place with `on_error="skip"` the CPU
            decodes in any case.
        device_memory: Cap of the memory on the GPU, beside what nvJPEG takes: bytes, or a text such as `"8GB"`. None: a
            quarter of it.
        dtype: `float32`, `float16`, `bfloat16`, or `uint8` (grey levels 0..255, not normalised). None: float32.
        memory_format: `nchw` or `nhwc`.
        mean: Per channel, of values scaled to 0..1. None: ImageNet's. Numbers above 1, as other loaders take them of
            values in 0..255, are questioned by a warning.
        std: Per channel, of values scaled to 0..1, likewise. None: ImageNet's.
        scale: Bounds of the random crop's share of the image's area. None: (0.08, 1).
        ratio: Bounds of the random crop's width / height. None: (3/4, 4/3).
        flip: Probability of a horizontal flip. None: 0.5.
        resize: Evaluation: length of the shorter side after Resize. None: 8/7 of the image size (256 for 224).
        decode: `fast` resizes the decoded planes and converts colours at output size; `exact` is what PIL and
            torchvision compute. EXIF orientation is ignored, as torchvision does.
        threads: Decoding threads. None: the processors this process may use, or its share where the other ranks of the
            node (see `local_world_size`) may use the same ones; one with `decoded=False`.
        memory: Cap of all pools together: bytes, or a text such as `"300MB"`. None: what the settings need, and more
            while batches are kept, up to a quarter of the machine's memory for all ranks of the node together. On a GPU
            some page-locked tables come on top, and where slots run short 4 MB for each of three lanes, more for larger
            images.
        io: `auto` (io_uring where it works, else threads), `io_uring` or `pread`.
        direct: Bypass the page cache: `auto` (by file system and size), `on` or `off`.
        queue_depth: Reads in flight. None: 32. With `pread` each takes a thread of its own, up to 256, and that about
            30 KB of memory; network file systems give more the more of them there are.
        cache_dir: A directory on local NVMe, made where it is missing: samples are kept there, so that they are read
            from the dataset's storage once and not in every epoch. Other loaders, ranks, jobs and datasets may share
            it; what is there is used again by the next run. The dataset itself is never touched.
        cache_size: Bytes the directory may take, or a text such as `"800GB"`; needed with `cache_dir`.
        cache_fill: `use`: with what is read anyway. `ahead`: also by whole shards in large sequential reads beside
            training, in the order of their next use (where all ranks share one cache). `auto`: by rates measured at the
            start.
        verify: How a copy of an earlier run or another process is known to be the dataset's before this run uses it:
            `stamp`, its file has the size, times and inode it had when it was copied; `checksum`, the dataset is read
            once a run and compared. What has changed is copied anew, what changes after the check is seen by the next
            run. Only a write within the same tick of the file system's clock leaves the stamp as it was.
        immutable: The dataset never changes, so copies are used without a look at its files.
        stage_bandwidth: Bytes per second that filling ahead may take of the dataset's storage, of all ranks that share
            `cache_dir` together, or a text. None: what reads in demand leave.
        local_world_size: How many ranks this node has, numbered one after another: they share `cache_dir`, processors
            and memory. None: what the launcher (see `rank`) says, else all share `cache_dir`, and this process has
            processors and memory alone.
        damaged: What happens to JPEGs with damage inside their coded data (wrong bits, lost or stray bytes or restart
            markers). `conceal`: they give, sample by sample, what PIL and torchvision make of them; training goes on as
            there, and `stats()["concealed"]`, `concealed` and a warning tell of it. What PIL refuses fails here, too,
            above all files cut short; also damaged headers, and damaged files in CMYK or of odd sampling. `refuse`: all
            damage that is found is a failure (see `on_error`); behind the crop none is looked for. On a GPU the CPU
            decodes what nvJPEG, told to be strict, refuses; what damage nvJPEG passes over it does not tell.
        on_error: `raise` the first failure of a batch; `skip` the sample: another one, chosen by (dataset, seed, epoch,
            position) alone, takes its place, so batches stay full and equal on every rank; `zero`: a zero image, mask
            False.
        max_errors: Failures an epoch of this rank survives with `skip` and `zero`, those before it was resumed too
            (from a state of another rank, that one's). None: 100.
        max_pixels: Images of more pixels are refused (decompression bombs). None: 2**27.
        rank: This process's rank. None: of an initialised `torch.distributed`, else of the launcher: torchrun, MPI's
            mpirun or Slurm's srun, by their variables; else 0. Asked anew at each iteration.
        world_size: Number of ranks, likewise.
        index_dir: Where index files are kept. None: `$FORELOAD_INDEX_DIR`, else the user's cache directory; where that
            cannot be written, a directory of the user's own among the temporary files, with a warning.
        rebuild_index: Index the dataset anew.
        changed: What happens when the dataset is not what its index says, which is looked at in every start: `rebuild`
            indexes it anew, with a warning; `warn` goes on with the old index and order, and refuses what cannot be
            right when it is read; `refuse` raises DatasetChangedError. What only looks changed (`touch`) is none of
            these.
        progress: Show a progress bar while indexing, when stderr is a terminal.

    Raises:
        ConfigError: A setting cannot work.
        DatasetError: There is no dataset at `path`, or its index cannot be read; images lie both in class directories
            and in shards beside them; a sample of a shard has two members of one kind, or a label that is no class
            number.
        UnavailableError: The device is not there or cannot serve.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int = 64,
        image_size: int | tuple[int, int] | None = None,
        seed: int = 0,
        train: bool = True,
        transforms: Sequence[Transform] | Views | Sequence[Views] | None = None,
        shuffle: bool | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = None,
        indices: Sequence[int] | None = None,
        classes: Sequence[str | int] | None = None,
        files: str | os.PathLike[str] | None = None,
        weights: Literal["balanced"] | Mapping[str | int, float] | Sequence[float] | None = None,
        ratios: Sequence[float] | None = None,
        epoch_size: int | None = None,
        decoded: bool = True,
        keep: int = 1,
        device: str = "auto",
        cpu_decode: Literal["fallback", "auto", "never"] = "fallback",
        device_memory: int | str | None = None,
        dtype: Literal["float32", "float16", "bfloat16", "uint8"] | None = None,
        memory_format: Literal["nchw", "nhwc"] = "nchw",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] | None = None,
        flip: float | None = None,
        resize: int | None = None,
        decode: Literal["fast", "exact"] = "fast",
        threads: int | None = None,
        memory: int | str | None = None,
        io: Literal["auto", "io_uring", "pread"] = "auto",
        direct: Literal["auto", "on", "off"] = "auto",
        queue_depth: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        cache_fill: Literal["auto", "use", "ahead"] = "auto",
        verify: Literal["stamp", "checksum"] = "stamp",
        immutable: bool = False,
        stage_bandwidth: int | str | None = None,
        local_world_size: int | None = None,
        damaged: Literal["conceal", "refuse"] = "conceal",
        on_error: Literal["raise", "skip", "zero"] = "raise",
        max_errors: int | None = None,
        max_pixels: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        rebuild_index: bool = False,
        changed: Literal["rebuild", "warn", "refuse"] = "rebuild",
        progress: bool = True,
    ) -> None: ...
    @property
    def device(self) -> str:
        """Where batches end: `cpu` or `cuda:N`."""
    @property
    def device_reason(self) -> str:
        """Why there: the GPU's name, or why none serves."""
    @property
    def dtype(self) -> str:
        """Element type of the images: `float32`, `float16`, `bfloat16` or `uint8`."""
    def view(self, sample_id: int, epoch: int | None = None, occurrence: int = 0) -> View:
        """What an epoch (None: the one that `epoch` says) makes of a sample, the `occurrence`-th time it is drawn.

        Source pixels x..x+width, y..y+height are resized to resized_width x resized_height, of which the output, of
        output_width x output_height, shows the window that begins at (left, top), outside of it padding; flip mirrors
        it.
        """

@final
class FileLoader(Loader):
    """Files of any kind, or the records of `.tfrecord` shards, as bytes: the reader and the cache, without images.

    Args:
        path: A directory, whose files are the samples, in whatever directories below it; or a directory of
            `*.tfrecord*` shards, whose records are. Several of them, in a list, are one dataset.
        batch_size: Samples per step and rank.
        seed: Seed of the order.
        shuffle: Shuffled order.
        last_batch: What happens to the samples that do not fill the last global batch: `drop` them, `pad` the batch
            from the epoch's beginning (`mask` says which), or a `partial` batch.
        files: A text file that lists what to draw from, one path a line, relative to the dataset: files, or shards
            for all their records. None: everything. Where `indices` is given too, both must hold.
        weights: `"balanced"`, a dict of classes (the first directories), or one number for each sample, as
            `ImageLoader` takes them.
        on_error: `raise` the first failure of a batch; `skip` the sample: another one, chosen by (dataset, seed, epoch,
            position) alone, takes its place; `zero`: a file without bytes, mask False.
        indices, ratios, epoch_size, keep, memory, io, direct, queue_depth, cache_dir, cache_size, cache_fill,
            stage_bandwidth, verify, immutable, local_world_size, max_errors, rank, world_size, index_dir,
            rebuild_index, changed, progress: As `ImageLoader`'s.

    Batches have `files`, `sample_ids`, `mask`, and where all files lie in subdirectories `labels`, the number of the
    sample's first one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int = 64,
        seed: int = 0,
        shuffle: bool = True,
        last_batch: Literal["drop", "pad", "partial"] = "drop",
        indices: Sequence[int] | None = None,
        files: str | os.PathLike[str] | None = None,
        weights: Literal["balanced"] | Mapping[str | int, float] | Sequence[float] | None = None,
        ratios: Sequence[float] | None = None,
        epoch_size: int | None = None,
        keep: int = 1,
        memory: int | str | None = None,
        io: Literal["auto", "io_uring", "pread"] = "auto",
        direct: Literal["auto", "on", "off"] = "auto",
        queue_depth: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        cache_fill: Literal["auto", "use", "ahead"] = "auto",
        verify: Literal["stamp", "checksum"] = "stamp",
        immutable: bool = False,
        stage_bandwidth: int | str | None = None,
        local_world_size: int | None = None,
        on_error: Literal["raise", "skip", "zero"] = "raise",
        max_errors: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        rebuild_index: bool = False,
        changed: Literal["rebuild", "warn", "refuse"] = "rebuild",
        progress: bool = True,
    ) -> None: ...

def compiled_size(transforms: str) -> tuple[int, int] | None:
    """Height and width of what a list of transforms makes, of `foreload.transforms.to_json`; None where each image has
    its own.

    Raises:
        ConfigError: The list cannot be compiled: one pass cannot do it in this order.
    """

def main(arguments: Sequence[str | os.PathLike[str]]) -> int:
    """Run the command line program with `arguments` (the program's name first) and return its exit code."""
