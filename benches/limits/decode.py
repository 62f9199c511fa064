"""Measures bare libjpeg-turbo in one thread: files in memory to full RGB, and to a resized random crop. One JSON line.

It runs in the "reference" environment: simplejpeg brings libjpeg-turbo, Pillow the antialiased bilinear resize.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import numpy as np
import simplejpeg
from harness import datasets
from harness.crops import draw_box
from PIL import Image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="image folder")
    parser.add_argument("--images", type=int, default=1000, help="how many, spread over the dataset")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--resize", action="store_true", help="crop and resize what was decoded")
    chosen = parser.parse_args()
    paths = datasets.jpegs(chosen.data)
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
            x, y, width, height = draw_box(pixels.shape[1], pixels.shape[0], rng)
            image = Image.fromarray(pixels[y : y + height, x : x + width])
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
