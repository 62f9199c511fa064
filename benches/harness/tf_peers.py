"""The common code of the peers with tf.data: a view of an image, and epochs of normalised batches."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from harness.measure import MEAN, RATIO, SCALE, STD, Batches, Epoch, Options


def use_threads(options: Options) -> None:
    """Make TensorFlow use `threads` threads; this must come before any other use of it."""
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)


def view(encoded: tf.Tensor, options: Options) -> tf.Tensor:
    """Return a JPEG that is cropped at random while it is decoded, resized and perhaps mirrored; antialiased if not
    `plain`.
    """
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded),
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        min_object_covered=0.0,
        aspect_ratio_range=RATIO,
        area_range=SCALE,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    y, x, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    image = tf.image.decode_and_crop_jpeg(encoded, tf.stack([y, x, height, width]), channels=3)
    antialias = options.variant != "plain"
    image = tf.image.resize(image, [options.image_size] * 2, method="bilinear", antialias=antialias)
    return tf.image.random_flip_left_right(image)


def batches_of(
    samples: tf.data.Dataset, load: Callable[..., tuple[tf.Tensor, tf.Tensor]], options: Options
) -> tf.data.Dataset:
    """Return normalised batches of samples; `load` makes a view and a label in `threads` parallel calls."""
    mean = tf.constant([255 * value for value in MEAN])
    deviation = tf.constant([255 * value for value in STD])

    def normalise(images: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.transpose((images - mean) / deviation, [0, 3, 1, 2]), label

    dataset = (
        samples.map(load, num_parallel_calls=options.threads, deterministic=False)
        .batch(options.batch_size, drop_remainder=True)
        .map(normalise)
        .prefetch(2)
    )
    choices = tf.data.Options()
    choices.threading.private_threadpool_size = options.threads
    choices.threading.max_intra_op_parallelism = 1
    return dataset.with_options(choices)


def epochs_of(
    samples: tf.data.Dataset, load: Callable[..., tuple[tf.Tensor, tf.Tensor]], options: Options
) -> Epoch:
    """Return epochs of samples in shuffled order."""
    dataset = batches_of(samples, load, options)

    def epoch(_number: int, batches: int | None) -> Batches:
        # np.asarray uses the tensor's memory; .numpy() would copy it.
        for images, label in dataset if batches is None else dataset.take(batches):
            yield np.asarray(images), np.asarray(label)

    return epoch
