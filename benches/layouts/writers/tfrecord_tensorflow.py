"""Writes TFRecord files of tf.Example with TensorFlow: an image and its class in every record."""

from __future__ import annotations

import source
import tensorflow as tf


def example(sample: source.Sample) -> bytes:
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample.image()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[sample.label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def main() -> None:
    job = source.job()
    count = -(-len(job.samples) // job.shard_samples)
    for number, samples in job.shards():
        path = job.output / f"train-{number:05}-of-{count:05}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for sample in samples:
                writer.write(example(sample))


if __name__ == "__main__":
    main()
