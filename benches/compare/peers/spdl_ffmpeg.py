"""SPDL: threads in one process; FFmpeg decodes, crops, scales and flips, NumPy normalises whole batches."""

from __future__ import annotations

import random

import numpy as np
import spdl.io
from harness import measure
from harness.crops import draw_box
from harness.measure import MEAN, STD, Batches, Epoch, Options
from spdl.pipeline import PipelineBuilder


def prepare(options: Options) -> Epoch:
    """Decode, aggregate and collate, with `threads` decodes at a time, as in SPDL's examples."""
    paths, labels = measure.list_images(options.data)
    rng = random.Random(options.seed)
    scale = np.array([1 / (255 * value) for value in STD], np.float32).reshape(1, 3, 1, 1)
    offset = np.array([-mean / std for mean, std in zip(MEAN, STD, strict=True)], np.float32).reshape(
        1, 3, 1, 1
    )
    size = options.image_size

    def decode(index: int) -> tuple[spdl.io.ImageFrames, int]:
        packets = spdl.io.demux_image(paths[index])
        x, y, width, height = draw_box(packets.width, packets.height, rng)
        flip = ",hflip" if rng.random() < 0.5 else ""
        filters = (
            f"crop={width}:{height}:{x}:{y}:exact=1,scale={size}:{size}:flags=bilinear{flip},format=rgb24"
        )
        return spdl.io.decode_packets(packets, filter_desc=filters), labels[index]

    def collate(samples: list[tuple[spdl.io.ImageFrames, int]]) -> tuple[np.ndarray, np.ndarray]:
        buffer = spdl.io.convert_frames([frames for frames, _ in samples])
        pixels = spdl.io.to_numpy(buffer).transpose(0, 3, 1, 2)
        images = np.empty(pixels.shape, np.float32)
        np.multiply(pixels, scale, out=images)
        images += offset
        return images, np.array([label for _, label in samples])

    def epoch(_number: int, batches: int | None) -> Batches:
        order = rng.sample(range(len(paths)), len(paths))
        if batches is not None:
            order = order[: batches * options.batch_size]
        pipeline = (
            PipelineBuilder()
            .add_source(order)
            .pipe(decode, concurrency=options.threads)
            .aggregate(options.batch_size, drop_last=True)
            .pipe(collate)
            .add_sink(2)
            .build(num_threads=options.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epoch


if __name__ == "__main__":
    measure.main(prepare)
