"""TFRecord files of tf.Example through tf.data, with TensorFlow's fused decode-and-crop and an antialiased resize."""

from __future__ import annotations

import sys

from harness import measure, tf_peers
from harness.measure import Epoch, Options
from harness.tf_peers import tf

SHUFFLED = 1000
"""The size of the shuffle buffer in samples, the same as for WebDataset's peer."""


def prepare(options: Options) -> Epoch:
    """Read `threads` files at a time; the later steps are the same as for single files."""
    tf_peers.use_threads(options)
    names = sorted(str(path) for path in options.data.glob("*.tfrecord"))
    if not names:
        sys.exit(f"no .tfrecord files in {options.data}")
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def load(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        return tf_peers.view(example["image"], options), example["label"]

    records = (
        tf.data.Dataset.from_tensor_slices(names)
        .shuffle(len(names), seed=options.seed)
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=options.threads,
            num_parallel_calls=options.threads,
            deterministic=False,
        )
        .shuffle(SHUFFLED, seed=options.seed)
    )
    return tf_peers.epochs_of(records, load, options)


if __name__ == "__main__":
    measure.main(prepare)
