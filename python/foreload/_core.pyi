"""Foreload's core, in Rust. Use the names that `foreload` exports."""

import os
from collections.abc import Sequence

from foreload._batches import Batch as Batch
from foreload._batches import Batches as Batches
from foreload._batches import Tensor as Tensor
from foreload._file_loader import FileLoader as FileLoader
from foreload._loader import Loader as Loader
from foreload._loaders import ImageLoader as ImageLoader
from foreload._objects import *
from foreload._streams import StreamEngine as StreamEngine

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
