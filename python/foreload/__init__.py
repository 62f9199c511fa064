"""Foreload: a data loader for people who train on GPUs. It knows the epoch's order and loads ahead.

    import foreload

    loader = foreload.ImageLoader("data/train", batch_size=256, image_size=224, seed=0)
    for epoch in range(90):
        for batch in loader:
            images = np.from_dlpack(batch.images)  # or torch.from_dlpack: no copy

PyTorch users want `foreload.torch.ImageDataset`.
"""

from foreload._core import (
    Batch,
    ConfigError,
    DatasetChangedError,
    DatasetError,
    DecodeError,
    Error,
    FileLoader,
    GpuError,
    ImageLoader,
    InternalError,
    IoError,
    Loader,
    SampleError,
    Tensor,
    TooManyErrorsError,
    UnavailableError,
    __version__,
)

__all__ = [
    "Batch",
    "ConfigError",
    "DatasetChangedError",
    "DatasetError",
    "DecodeError",
    "Error",
    "FileLoader",
    "GpuError",
    "ImageLoader",
    "InternalError",
    "IoError",
    "Loader",
    "SampleError",
    "Tensor",
    "TooManyErrorsError",
    "UnavailableError",
    "__version__",
]
