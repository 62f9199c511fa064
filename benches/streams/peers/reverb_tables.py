"""Reverb: a queue of new samples and a table of earlier ones, and tf.data, which decodes samples of both.

A thread reads the files and removes them. Reverb has no reservoir: for each new sample its table drops a stored one at
random, so that early samples become rare. It runs in this process, so its CPU time is part of the loader's.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import feeding
import numpy as np
import producer
import reverb
from harness import measure, tf_peers
from harness.tf_peers import tf

PAUSE = 0.002
AT_ONCE = 32
"""The number of samples after which the thread waits until the tables have stored them."""
NEW, KEPT = "new", "kept"
SIGNATURE = {"image": tf.TensorSpec([1], tf.string), "label": tf.TensorSpec([1], tf.int64)}


def tables(options: argparse.Namespace) -> reverb.Server:
    kept = reverb.Table(
        name=KEPT,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Uniform(),
        max_size=options.capacity,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=SIGNATURE,
    )
    queue = reverb.Table.queue(NEW, max_size=8 * options.batch_size, signature=SIGNATURE)
    return reverb.Server([queue, kept])


def insert(options: argparse.Namespace, port: int) -> None:
    incoming = options.scratch / producer.INCOMING
    classes = sorted(path.name for path in incoming.iterdir())
    with reverb.Client(f"localhost:{port}").trajectory_writer(num_keep_alive_refs=1) as writer:
        while True:
            found = [
                (name, label)
                for label, folder in enumerate(classes)
                for name in os.listdir(incoming / folder)
                if not name.startswith(".")
            ]
            for number, (name, label) in enumerate(sorted(found), start=1):
                path = incoming / classes[label] / name
                image = np.array(path.read_bytes(), dtype=object)
                writer.append({"image": image, "label": np.int64(label)})
                for table in (NEW, KEPT):
                    last = {name: column[-1:] for name, column in writer.history.items()}
                    writer.create_item(table, priority=1.0, trajectory=last)
                path.unlink()
                if number % AT_ONCE == 0:
                    writer.flush()
            writer.flush()
            if not found:
                time.sleep(PAUSE)


def batches_of(options: argparse.Namespace, port: int) -> tf.data.Dataset:
    def table(name: str) -> tf.data.Dataset:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            server_address=f"localhost:{port}",
            table=name,
            max_in_flight_samples_per_worker=2 * options.batch_size,
            num_workers_per_iterator=1,
        )
        return dataset.map(lambda sample: (sample.data["image"][0], sample.data["label"][0]))

    def load(encoded: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf_peers.view(encoded, options), label

    turns = tf.data.Dataset.range(2).repeat()
    samples = tf.data.Dataset.choose_from_datasets([table(NEW), table(KEPT)], turns)
    return tf_peers.batches_of(samples, load, options)


def main() -> None:
    options = feeding.parse_options()
    tf_peers.use_threads(options)
    server = tables(options)
    with feeding.Producer(options) as feeder:
        threading.Thread(target=insert, args=(options, server.port), daemon=True).start()

        def batches() -> Iterator[tuple[np.ndarray, int]]:
            for images, label in batches_of(options, server.port):
                yield np.asarray(images), len(np.asarray(label)) // 2

        feeder.begin()
        measure.tell(feeding.timed(batches(), feeder, options))
    # Its threads would wait forever for more samples.
    os._exit(0)


if __name__ == "__main__":
    main()
