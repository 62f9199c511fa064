"""NVIDIA DALI: mixed decode of the random crop on the device, antialiased resize, fused normalisation.

How much of each batch goes to the hardware engine is tuned.
"""

from __future__ import annotations

from collections.abc import Iterator

import serve
import torch
from nvidia.dali import fn, pipeline_def, types
from serve import MEAN, RATIO, SCALE, STD, Batch, Feed, Options

DEPTH = 3
HINT = 1024
"""Larger than nearly all images: buffers of this size are made at the start."""


@pipeline_def
def training_pipeline(options: Options, paths: list[str], labels: list[int], load: float):
    """As in DALI's own ImageNet examples."""
    encoded, label = fn.readers.file(
        files=paths, labels=labels, random_shuffle=True, prefetch_queue_depth=DEPTH, name="reader"
    )
    images = fn.decoders.image_random_crop(
        encoded,
        device="mixed",
        output_type=types.RGB,
        random_area=SCALE,
        random_aspect_ratio=RATIO,
        num_attempts=10,
        hw_decoder_load=load,
        preallocate_width_hint=HINT,
        preallocate_height_hint=HINT,
    )
    size = [options.image_size, options.image_size]
    images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT16 if options.dtype == "f16" else types.FLOAT,
        output_layout="CHW",
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=fn.random.coin_flip(probability=0.5),
    )
    return images, label.gpu()


class DaliFeed(Feed):
    """One pipeline; it prefetches on between epochs."""

    def __init__(self, options: Options, load: float) -> None:
        paths, labels = serve.list_images(options.data)
        self.pipeline = training_pipeline(
            options,
            paths,
            labels,
            load,
            batch_size=options.batch_size,
            num_threads=options.threads,
            device_id=0,
            seed=options.seed,
            prefetch_queue_depth=DEPTH,
        )
        self.pipeline.build()
        self.ready = 2 * DEPTH

    def batches(self) -> Iterator[Batch]:
        """Batch after batch; outputs are ready on torch's current stream and valid until the next call."""
        while True:
            images, labels = self.pipeline.run(torch.cuda.current_stream())
            yield (
                torch.from_dlpack(images.as_tensor()),
                torch.from_dlpack(labels.as_tensor()).reshape(-1),
            )

    def close(self) -> None:
        """End the threads."""
        self.pipeline.shutdown()
        del self.pipeline


if __name__ == "__main__":
    serve.serve(DaliFeed, settings=(0.65, 0.8, 0.9, 1.0))
