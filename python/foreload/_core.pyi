"""Foreload's core, in Rust. Use the names that `foreload` exports."""

import os
from collections.abc import Sequence

import numpy as np
from typing_extensions import disjoint_base

from foreload._batches import Batch as Batch
from foreload._batches import Batches as Batches
from foreload._batches import Tensor as Tensor
from foreload._loaders import Directory as Directory
from foreload._loaders import FileLoader as FileLoader
from foreload._loaders import ImageLoader as ImageLoader
from foreload._loaders import Resources as Resources
from foreload._types import ConcealedSample, LoaderState, SampleFailure

__version__: str

IMAGE_EXTENSIONS: tuple[str, ...]
"""Extensions of the files that are images, in lower case, without the dot."""

class Error(Exception):
    """Any failure of Foreload."""

class ConfigError(Error):
    """A setting has a value that cannot work, or there is none of that name; the message says which and what to do."""

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

@disjoint_base
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

def compiled_size(transforms: str) -> tuple[int, int] | None:
    """Height and width of what a list of transforms makes, of `foreload.transforms.to_json`; None where each image has
    its own.

    Raises:
        ConfigError: The list cannot be compiled: one pass cannot do it in this order.
    """

def main(arguments: Sequence[str | os.PathLike[str]]) -> int:
    """Run the command line program with `arguments` (the program's name first) and return its exit code."""
