"""NVIDIA DALI: mixed decoding of the random crop on the device, antialiased resize, fused normalisation.

The share of each batch that goes to the hardware engine is tuned. If parts of images cannot be decoded, whole images
are decoded and cropped afterwards: nvImageCodec 0.9 fails at parts or crashes (its issue 55).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata

import serve
import torch
from harness.dali_peers import normalised
from harness.measure import RATIO, SCALE, list_images
from nvidia.dali import fn, pipeline_def, types
from serve import Batch, Feed, Options

DEPTH = 3
HINT = 1024
"""A size larger than nearly all images: buffers of this size are allocated at the start."""


@pipeline_def
def training_pipeline(options: Options, paths: list[str], labels: list[int], load: float, whole: bool):
    """The pipeline of DALI's own ImageNet examples; with `whole` the crop comes after the decoding."""
    encoded, label = fn.readers.file(
        files=paths, labels=labels, random_shuffle=True, prefetch_queue_depth=DEPTH, name="reader"
    )
    size = [options.image_size, options.image_size]
    decoding = {
        "device": "mixed",
        "output_type": types.RGB,
        "hw_decoder_load": load,
        "preallocate_width_hint": HINT,
        "preallocate_height_hint": HINT,
    }
    crop = {"random_area": SCALE, "random_aspect_ratio": RATIO, "num_attempts": 10}
    scaling = {"size": size, "interp_type": types.INTERP_LINEAR, "antialias": True}
    if whole:
        images = fn.random_resized_crop(fn.decoders.image(encoded, **decoding), **crop, **scaling)
    else:
        images = fn.resize(fn.decoders.image_random_crop(encoded, **decoding, **crop), **scaling)
    images = normalised(images, types.FLOAT16 if options.dtype == "f16" else types.FLOAT)
    return images, label.gpu()


class DaliFeed(Feed):
    """One pipeline, which keeps prefetching between epochs."""

    whole = False
    """Whether parts of images cannot be decoded here; tested once."""

    def __init__(self, options: Options, load: float) -> None:
        self.ready = 2 * DEPTH
        type(self).whole = self.whole or is_broken()
        try:
            self.open(options, load)
        except RuntimeError:
            if self.whole:
                raise
            with contextlib.suppress(Exception):
                self.close()
            type(self).whole = True
            self.open(options, load)
        self.note = "whole images, then the crop" if self.whole else ""

    def open(self, options: Options, load: float) -> None:
        """Build the pipeline, and make it produce a batch, because it fails only then."""
        paths, labels = list_images(options.data)
        self.pipeline = training_pipeline(
            options,
            paths,
            labels,
            load,
            self.whole,
            batch_size=options.batch_size,
            num_threads=options.threads,
            device_id=0,
            seed=options.seed,
            prefetch_queue_depth=DEPTH,
        )
        self.pipeline.build()
        self.pipeline.run(torch.cuda.current_stream())

    def batches(self) -> Iterator[Batch]:
        """Yield batch after batch; outputs are ready on torch's current stream and valid until the next call."""
        while True:
            images, labels = self.pipeline.run(torch.cuda.current_stream())
            yield (
                torch.from_dlpack(images.as_tensor()),
                torch.from_dlpack(labels.as_tensor()).reshape(-1),
            )

    def close(self) -> None:
        """End the threads; in older versions they end with the pipeline."""
        if hasattr(self.pipeline, "shutdown"):
            self.pipeline.shutdown()
        del self.pipeline


def is_broken() -> bool:
    """Whether this is the nvImageCodec version that may end the process when it decodes a part of an image."""
    names = (f"nvidia-nvimgcodec-cu{major}" for major in (13, 12))
    for name in names:
        try:
            return metadata.version(name).startswith("0.9.0")
        except metadata.PackageNotFoundError:
            continue
    return False


if __name__ == "__main__":
    serve.serve(DaliFeed, settings=(0.65, 0.8, 0.9, 1.0))
