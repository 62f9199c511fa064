"""NVIDIA DALI's CPU pipeline with its fused random-crop decoder."""

from __future__ import annotations

from harness import measure
from harness.dali_peers import decoded_crop, epochs_of, normalised
from harness.measure import SCALE, Epoch, Options
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def training_pipeline(options: Options, paths: list[str], labels: list[int]):
    """Reads, decodes only the random crop, resizes with antialiasing, flips and normalises."""
    encoded, label = fn.readers.file(files=paths, labels=labels, random_shuffle=True, name="reader")
    images = decoded_crop(encoded, SCALE, options.image_size, types.INTERP_LINEAR)
    images = normalised(images, types.FLOAT16 if options.variant == "f16" else types.FLOAT)
    return images, label


def prepare(options: Options) -> Epoch:
    return epochs_of(training_pipeline, options, options)


if __name__ == "__main__":
    measure.main(prepare)
