"""The common code of the DALI peers: steps of their pipelines, the settings of one on the CPU, and its epochs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from nvidia.dali import Pipeline, fn, types

from harness import measure
from harness.measure import MEAN, RATIO, STD, Batches, Epoch, Options


def decoded_crop(encoded, scale: tuple[float, float], side: int, interpolation):
    """Decode a random crop on the CPU, and resize it with antialiasing."""
    images = fn.decoders.image_random_crop(
        encoded,
        device="cpu",
        output_type=types.RGB,
        random_area=scale,
        random_aspect_ratio=RATIO,
        num_attempts=10,
    )
    return fn.resize(images, size=[side, side], interp_type=interpolation, antialias=True)


def normalised(images, dtype=types.FLOAT, flip: float = 0.5):
    """Normalise images, and mirror each with probability `flip`."""
    return fn.crop_mirror_normalize(
        images,
        dtype=dtype,
        output_layout="CHW",
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=fn.random.coin_flip(probability=flip),
    )


def epochs_of(training_pipeline: Callable[..., Pipeline], about: object, options: Options) -> Epoch:
    """Return epochs of one pipeline, which keeps prefetching, so that its queue is as full at the end as at the start.

    `training_pipeline` makes the pipeline from `about`, paths and labels, and DALI's own arguments. The pipeline
    returns all views of the images, and then their labels.
    """
    paths, labels = measure.list_images(options.data)
    pipeline = training_pipeline(
        about,
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
            *views, label = pipeline.run()
            yield [np.asarray(view.as_tensor()) for view in views], np.asarray(label.as_tensor()).reshape(-1)

    return epoch
