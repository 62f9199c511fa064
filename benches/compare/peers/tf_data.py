"""tf.data with TensorFlow's fused decode-and-crop and an antialiased resize."""

from __future__ import annotations

from harness import measure, tf_peers
from harness.measure import Epoch, Options
from harness.tf_peers import tf


def prepare(options: Options) -> Epoch:
    """Map files in `threads` parallel calls; resize and flip by sample, normalise by batch."""
    tf_peers.use_threads(options)
    paths, labels = measure.list_images(options.data)

    def load(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf_peers.view(tf.io.read_file(path), options), label

    shuffled = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths), seed=options.seed)
    return tf_peers.epochs_of(shuffled, load, options)


if __name__ == "__main__":
    measure.main(prepare)
