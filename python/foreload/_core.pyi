"""Foreload's core, in Rust. Use the names that `foreload` exports."""

import os
from collections.abc import Sequence
from typing import Literal

import numpy as np
from typing_extensions import disjoint_base

from foreload._batches import Batch as Batch
from foreload._batches import Batches as Batches
from foreload._batches import Tensor as Tensor
from foreload._file_loader import FileLoader as FileLoader
from foreload._loaders import ImageLoader as ImageLoader
from foreload._objects import *
from foreload._streams import StreamEngine as StreamEngine
from foreload._types import ConcealedSample, LoaderState, SampleFailure

__version__: str

IMAGE_EXTENSIONS: tuple[str, ...]
"""The extensions of image files, in lower case, without the dot."""

LABEL_COLUMNS: tuple[str, ...]
"""The usual names of the label column in tables, the best first."""

LONE_LABEL_COLUMNS: tuple[str, ...]
"""Names of the label column if no column has a usual name and exactly one column has one of these."""

DTYPES: tuple[str, ...]
"""The names of the images' element types."""

TRANSFORMS: str
"""The table of transforms as JSON, from which `foreload.transforms` makes its classes."""

class Error(Exception):
    """Any failure of Foreload."""

class ConfigError(Error):
    """A setting has an invalid value, or no setting has this name; the message says which and what to do."""

class DatasetError(Error):
    """The dataset or its index cannot be used."""

class DatasetChangedError(DatasetError):
    """The dataset has changed since it was indexed."""

class IoError(Error):
    """An operation on a file failed."""

class DecodeError(Error):
    """An image cannot be decoded."""

class SampleError(Error):
    """A sample failed; `__cause__` is the reason."""

    sample_id: int
    key: str | None
    """The key of a sample in an uncompressed tar shard on a file system, if the tar header has its full name."""
    path: os.PathLike[str]
    offset: int
    length: int

class TooManyErrorsError(Error):
    """More samples failed than `max_errors` allows; `__cause__` is the last failure."""

class UnavailableError(Error):
    """Something that this build or machine does not have was requested."""

class GpuError(Error):
    """A call of the GPU's driver, or of a library on it, failed."""

class InternalError(Error):
    """A defect in Foreload."""

class Warning(UserWarning):
    """Something was skipped, replaced or slowed down, although nothing failed; the message says what to do."""

def release_gpus() -> None:
    """Free what this process keeps on GPUs for its next loader: nvJPEG's decoders with their memory, and kernels.

    Loaders in use keep the objects that they need. At the end of the process, all are freed automatically.
    """

@disjoint_base
class Loader:
    """The base of `ImageLoader` and `FileLoader`. Use one of these.

    Every iteration runs the epoch after the previous one, whether that was completed or not; the first is epoch 0.
    `set_epoch` or a loaded state chooses another epoch for one iteration. An iteration from which no batch was
    requested does not count. The order depends on (dataset, selection, seed, epoch) alone. A loader runs one epoch at a
    time: a new iteration ends the previous one. A child of `os.fork` can read the batches that its parent holds, but
    needs its own loader for others.
    """

    def __iter__(self) -> Batches:
        """Begin an epoch: the chosen one, the rest of the one whose state was loaded, or else the next.

        Raises (also while iterating):
            SampleError: A sample failed and `on_error` is `raise`.
            TooManyErrorsError: More samples failed than `max_errors`.
            ConfigError: The consumer keeps all batches that the `memory` setting allows.
            IoError: There is no memory, or the reader failed.
            GpuError: The GPU's driver or a library on it failed.
        """
    def batches(self, epoch: int | None = None, first_step: int = 0) -> Batches:
        """Begin an epoch (None: that of the property `epoch`) at `first_step`.

        A `first_step` at or past the end yields no batch. The iteration has its own state; the loader's state and its
        next epoch do not change. It raises the same errors as iterating.
        """
    def __len__(self) -> int:
        """Return the number of batches of this rank in one epoch."""
    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration. An epoch that was run before has the same batches again.

        A loaded state of that epoch still decides where it begins.
        """
    def state_dict(self, *, at_step: int | None = None) -> LoaderState:
        """Return the state of the latest iteration: its `position` in the order of `epoch`, counting all ranks.

        It counts batches that were yielded, not those that were read ahead. When all samples of an epoch were yielded,
        the state still belongs to that epoch.

        Args:
            at_step: The number of steps of the epoch that the state includes, for frameworks that take batches from the
                loader before they are used. None: all batches that were yielded.

        Raises:
            ConfigError: `at_step` is not a step that this iteration yielded.
        """
    def load_state_dict(self, state: LoaderState) -> None:
        """Resume where `state` was saved.

        The next iteration is the rest of the state's epoch, or the next epoch if nothing is left. So the remaining
        epochs of a training are `range(loader.epoch, epochs)`, also with `set_epoch` in the loop. Choosing a finished
        epoch, before or after loading its state, gives an iteration without batches, and a warning.

        Resuming reads nothing of what was yielded before, and takes the same time at any position. The number of ranks
        may change if all ranks together still take the same number of samples in a step. In the middle of an epoch,
        iterating raises an error for numbers that do not fit. Settings of the images may change; the random numbers
        stay the same.

        Raises:
            ConfigError: The state is of another dataset, seed, order or version; the message names what differs.
        """
    @property
    def epoch(self) -> int:
        """The current epoch, or between iterations the one that the next iteration runs.

        An epoch is current from the beginning of its iteration until that has no more batches, fails or is dropped.
        """
    @property
    def samples(self) -> int:
        """The number of samples in the dataset, whether they are drawn or not."""
    @property
    def epoch_size(self) -> int:
        """The number of samples that an epoch draws, for all ranks together."""
    @property
    def batch_size(self) -> int:
        """The number of samples per step and rank."""
    @property
    def last_batch(self) -> Literal["drop", "pad", "partial"]:
        """What happens to the samples that do not fill the last global batch; by default, the chosen value."""
    @property
    def labeled(self) -> bool:
        """Whether samples have labels: class directories, or a class number with each image in a shard.

        Without labels, batches have no `labels`, and settings that need classes are refused.
        """
    def _check_labeled(self) -> None: ...
    @property
    def _decided(self) -> dict[str, str | bool]: ...
    def _place_in_world(self) -> tuple[int, int]: ...
    @property
    def classes(self) -> list[str]:
        """Class names by number; empty if the dataset has only numbers, or no labels."""
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
        """A description of how bytes are read; empty before the first iteration."""
    @property
    def errors(self) -> list[SampleFailure]:
        """Failures of the latest iteration that were skipped or replaced by zeros (the first 1000)."""
    @property
    def concealed(self) -> list[ConcealedSample]:
        """Damaged images of the latest iteration that were decoded anyway (the first 1000), by sample.

        They include images that were read ahead, and do not count against `max_errors`.
        """
    def locate(self, sample_id: int) -> tuple[os.PathLike[str], int, int]:
        """Return the file of a sample (for shards, the shard), the offset of its bytes, and their number."""

def without_secrets(place: str) -> os.PathLike[str]:
    """Return a path, URL or command as messages may show it: without user, password and query."""

def is_for_evaluation(split: str) -> bool:
    """Return whether the name of a split means that it is for evaluation."""

def is_random(transforms: str) -> bool:
    """Return whether a list of transforms, as JSON of `foreload.transforms.to_json`, draws random numbers.

    Raises:
        ConfigError: Foreload does not support the list.
    """

def compiled_size(transforms: str) -> tuple[int, int] | None:
    """Return height and width of the images that a list of transforms, as JSON of `foreload.transforms.to_json`, makes.

    The result is None if each image has its own size.

    Raises:
        ConfigError: The list cannot be compiled to one pass in this order.
    """

def drawn_operations(transforms: str, width: int, height: int, samples: int, seed: int = 0) -> str:
    """Return the operations that a list of transforms, as JSON, draws in epoch 0 for samples of this width and height.

    The result is a JSON list with a pair for each sample: its operations and its erasures, as in `ImageLoader.view`.

    Raises:
        ConfigError: The list cannot be compiled, or one of its transforms cannot be applied to such images.
    """

def replay_operations(ops: str, levels: bytes, width: int, height: int) -> bytes:
    """Return an image, planes of R, G and B as uint8 [3, height, width], after some operations.

    `ops` is a JSON list as `ImageLoader.view` returns it. `levels` and the result are in C order.

    Raises:
        ConfigError: An operation is unknown, or cannot be applied to an image of that size, or the number of levels is
            not that of the image.
    """

def same_transforms(one: str, other: str) -> bool:
    """Return whether two lists of transforms, as JSON, are the same, with the core's defaults for omitted parameters.

    Raises:
        ConfigError: One of them is not a list of transforms.
    """

def main(arguments: Sequence[str | os.PathLike[str]]) -> int:
    """Run the command line program with `arguments` (the program's name first) and return its exit code."""
