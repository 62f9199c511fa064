"""NVIDIA DALI's CPU pipeline with its fused random-crop decoder."""

from __future__ import annotations

from harness import measure
from harness.dali_peers import epochs_of
from harness.measure import MEAN, RATIO, SCALE, STD, Epoch, Options
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
    return epochs_of(training_pipeline, options, options)


if __name__ == "__main__":
    measure.main(prepare)
