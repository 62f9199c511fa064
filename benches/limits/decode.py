"""Measures bare libjpeg-turbo in one thread: files in memory to full RGB, and to a resized random crop. One JSON line.

It runs in the "reference" environment: simplejpeg brings libjpeg-turbo, Pillow the antialiased bilinear resize.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="image folder")
    parser.add_argument("--images", type=int, default=1000, help="how many, spread over the dataset")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--resize", action="store_true", help="crop and resize what was decoded")
    return parser.parse_args()


def box_of(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Draw a RandomResizedCrop box: left, upper, right, lower."""
    while True:
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = rng.randint(0, width - w), rng.randint(0, height - h)
            return x, y, x + w, y + h


def main() -> None:
    """Load the files, then time the work on them alone."""
    chosen = parse_arguments()
    paths = sorted(path for path in chosen.data.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    count = min(chosen.images, len(paths))
    files = [paths[index * len(paths) // count].read_bytes() for index in range(count)]
    rng = random.Random(0)
    size = (chosen.image_size, chosen.image_size)
    simplejpeg.decode_jpeg(files[0], "RGB")
    started, cpu_before = time.perf_counter(), time.process_time()
    touched = 0
    for data in files:
        pixels = simplejpeg.decode_jpeg(data, "RGB")
        if chosen.resize:
            box = box_of(pixels.shape[1], pixels.shape[0], rng)
            image = Image.fromarray(pixels[box[1] : box[3], box[0] : box[2]])
            pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        touched += int(pixels[0, 0, 0])
    result = {
        "images": count,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_before,
        "touched": touched,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
