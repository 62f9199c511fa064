"""Foreload with `buckets=`."""

from __future__ import annotations

from collections.abc import Iterator

import bucket_peer
import foreload
import numpy as np
from harness.measure import Options


def prepare(options: Options) -> tuple[list[tuple[int, int]], bucket_peer.Epoch]:
    loader = foreload.ImageLoader(
        options.data,
        batch_size=options.batch_size,
        threads=options.threads,
        buckets=foreload.Buckets(bucket_peer.AREA, bucket_peer.STEP),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        seed=options.seed,
        device="cpu",
        progress=False,
    )
    sizes = {(512, 512)}

    def epoch(number: int) -> Iterator[np.ndarray]:
        loader.set_epoch(number)
        for batch in loader:
            sizes.add(batch.bucket)
            yield np.from_dlpack(batch.images)

    return sizes, epoch


if __name__ == "__main__":
    bucket_peer.main(prepare)
