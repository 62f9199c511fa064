"""The common code of the DALI peers: the settings of a pipeline on the CPU, and its epochs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from nvidia.dali import Pipeline

from harness import measure
from harness.measure import Batches, Epoch, Options


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
