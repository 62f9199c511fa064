"""NVIDIA DALI's CPU pipeline with its fused random-crop decoder."""

from __future__ import annotations

import measure
import numpy as np
from measure import MEAN, RATIO, SCALE, STD, Batches, Epoch, Options
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def training_pipeline(options: Options, paths: list[str], labels: list[int]):
    """Reads, decodes only the random crop, resizes with antialiasing, flips and normalises."""
    encoded, label = fn.readers.file(files=paths, labels=labels, random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(
        encoded,
        device="cpu",
        output_type=types.RGB,
        random_area=SCALE,
        random_aspect_ratio=RATIO,
        num_attempts=10,
    )
    size = [options.image_size, options.image_size]
    images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT16 if options.variant == "f16" else types.FLOAT,
        output_layout="CHW",
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=fn.random.coin_flip(probability=0.5),
    )
    return images, label


def prepare(options: Options) -> Epoch:
    """Make one pipeline for all epochs. It keeps prefetching, so it is as full at the end as at the start."""
    paths, labels = measure.list_images(options.data)
    pipeline = training_pipeline(
        options,
        paths,
        labels,
        batch_size=options.batch_size,
        num_threads=options.threads,
        device_id=None,
        seed=options.seed,
        prefetch_queue_depth=2,
    )
    pipeline.build()

    def epoch(_number: int, batches: int | None) -> Batches:
        whole = len(paths) // options.batch_size
        for _ in range(whole if batches is None else min(batches, whole)):
            images, label = pipeline.run()
            yield np.asarray(images.as_tensor()), np.asarray(label.as_tensor()).reshape(-1)

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
