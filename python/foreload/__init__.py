"""Foreload: a data loader for people who train on GPUs. It knows the epoch's order and loads ahead.

    import foreload

    loader = foreload.ImageLoader("data/train", batch_size=256, image_size=224, seed=0)
    for epoch in range(90):
        for batch in loader:
            images = np.from_dlpack(batch.images)  # or torch.from_dlpack: no copy

PyTorch users want `foreload.torch.ImageDataset`.

What is left out of a dataset, replaced or slowed though nothing failed is said by `foreload.Warning`, through Python's
`warnings`, with what to do about it: when a loader is made, before a batch is asked for and at the end of an epoch,
once of each loader. With warnings as errors no batch is lost. What is merely good to know goes, as INFO, to
`logging.getLogger("foreload")`.
"""

from foreload import fields, transforms
from foreload._core import (
    Batch,
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
    Resources,
    SampleError,
    Tensor,
    TooManyErrorsError,
    UnavailableError,
    Warning,
    __version__,
    release_gpus,
)

__all__ = [
    "Batch",
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
    "Resources",
    "SampleError",
    "Tensor",
    "TooManyErrorsError",
    "UnavailableError",
    "Warning",
    "__version__",
    "fields",
    "release_gpus",
    "transforms",
]
