"""Foreload: a data loader for people who train on GPUs. It knows the epoch's order and loads ahead.

    import foreload

    loader = foreload.ImageLoader("data/train", batch_size=256, image_size=224, seed=0)
    for epoch in range(90):
        for batch in loader:
            images = np.from_dlpack(batch.images)  # or torch.from_dlpack: no copy

PyTorch users want `foreload.torch.ImageDataset`.

If samples are skipped or replaced, or loading is slower than it could be, Foreload issues a `foreload.Warning` through
Python's `warnings`, which says what to do. Each loader issues a warning once: when it is made, before a batch is
requested, or at the end of an epoch. If warnings are errors, no batch is lost. Other information is logged as INFO to
`logging.getLogger("foreload")`.
"""

from foreload import fields, recipes, streams, transforms
from foreload._core import (
    Batch,
    Buckets,
    ConfigError,
    DatasetChangedError,
    DatasetError,
    DecodeError,
    Directory,
    Error,
    FileLoader,
    GpuError,
    ImageLoader,
    InternalError,
    IoError,
    Loader,
    Ram,
    Resources,
    SampleError,
    Tensor,
    TooManyErrorsError,
    UnavailableError,
    Warning,
    __version__,
    release_gpus,
)
from foreload._stream_loader import Rehearsal, StreamLoader

__all__ = [
    "Batch",
    "Buckets",
    "ConfigError",
    "DatasetChangedError",
    "DatasetError",
    "DecodeError",
    "Directory",
    "Error",
    "FileLoader",
    "GpuError",
    "ImageLoader",
    "InternalError",
    "IoError",
    "Loader",
    "Ram",
    "Rehearsal",
    "Resources",
    "SampleError",
    "StreamLoader",
    "Tensor",
    "TooManyErrorsError",
    "UnavailableError",
    "Warning",
    "__version__",
    "fields",
    "recipes",
    "release_gpus",
    "streams",
    "transforms",
]
