"""FFCV with its own file format, which is written once: JPEGs of quality 90, or raw pixels that are resized when
written.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from harness import measure
from harness.measure import MEAN, RATIO, SCALE, STD, Batches, Epoch, Options
from torchvision.datasets import ImageFolder

RAW_SIDE = 400
"""The longest side of raw images: FFCV's own ImageNet recipe resizes when it writes."""
PAGE_BYTES = 32 << 20


def write(options: Options) -> Path:
    """Write the dataset in FFCV's format, unless an earlier run did."""
    files = [(path, Path(path).stat().st_size) for path in measure.list_images(options.data)[0]]
    name = hashlib.sha256(repr(files).encode()).hexdigest()[:12]
    target = options.scratch / f"ffcv-{name}-{options.variant or 'jpg'}.beton"
    if target.is_file():
        return target
    if options.variant == "raw":
        field = RGBImageField(write_mode="raw", max_resolution=RAW_SIDE)
    else:
        field = RGBImageField(write_mode="jpg", jpeg_quality=90)
    unfinished = target.with_suffix(".part")
    writer = DatasetWriter(
        str(unfinished),
        {"image": field, "label": IntField()},
        page_size=PAGE_BYTES,
        num_workers=options.threads,
    )
    dataset = ImageFolder(str(options.data), loader=read_rgb)
    writer.from_indexed_dataset(dataset)
    unfinished.rename(target)
    return target


def read_rgb(path: str):
    """Return one image as RGB; the writer takes PIL images."""
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def prepare(options: Options) -> Epoch:
    """FFCV's loader: compiled pipelines, threads in one process, whole file in the page cache."""
    size = (options.image_size, options.image_size)
    mean = np.array([255 * value for value in MEAN])
    deviation = np.array([255 * value for value in STD])
    # NormalizeImage must come before ToTensor: in the other order, it never ends on the CPU.
    pipelines = {
        "image": [
            RandomResizedCropRGBImageDecoder(size, SCALE, RATIO),
            RandomHorizontalFlip(),
            NormalizeImage(mean, deviation, np.float32),
            ToTensor(),
            ToTorchImage(),
        ],
        "label": [IntDecoder(), ToTensor()],
    }
    copy = write(options)
    measure.FACTS["copy_bytes"] = copy.stat().st_size
    loader = Loader(
        str(copy),
        batch_size=options.batch_size,
        num_workers=options.threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        seed=options.seed,
        pipelines=pipelines,
    )

    def epoch(_number: int, _batches: int | None) -> Batches:
        # If the loader is stopped early its threads keep reading, so the warm-up is a whole epoch.
        for images, labels in loader:
            yield images.numpy(), labels.numpy().reshape(-1)

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
