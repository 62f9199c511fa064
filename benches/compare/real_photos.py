"""Makes a dataset of real photographs for the comparison: crops of photographs, downscaled and encoded again.

It takes a folder of photographs (any format Pillow reads, the larger the better) and writes one class folder per
photograph. Between photograph and sample there are only a crop, a Lanczos downscale and libjpeg-turbo's encoder, so
that content and encoder differ from those of `foreload synth`. Sizes are about ImageNet's.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import statistics
import sys
from pathlib import Path

from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"}
# Width, height and frequency: most of ImageNet's photographs are 500 wide and 375 high, or the other way round.
SIZES = {
    (500, 375): 50,
    (375, 500): 15,
    (500, 333): 15,
    (333, 500): 5,
    (500, 500): 5,
    (640, 480): 5,
    (400, 300): 5,
}
# The best quality is the likeliest: the median of ImageNet's files is 4.5 bits per pixel, which takes fine
# quantisation.
QUALITIES = (85, 96)
SHARE_OF_420 = 0.9
SMALLEST_SIDE = 200


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photographs", type=Path, help="folder of photographs, searched with its subfolders")
    parser.add_argument("output", type=Path, help="image folder to make; must not exist")
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def sample(photograph: Image.Image, rng: random.Random) -> tuple[Image.Image, dict]:
    """Make a crop of a photograph at one of the sizes; return it with its encoding."""
    size = rng.choices(list(SIZES), list(SIZES.values()))[0]
    # A photograph with fewer pixels gives a smaller sample: nothing is ever enlarged.
    fit = min(1.0, photograph.width / size[0], photograph.height / size[1])
    width, height = int(size[0] * fit), int(size[1] * fit)
    most = min(photograph.width / width, photograph.height / height)
    # The crop is between half of the largest possible size and all of it, like a typical view of a photograph.
    factor = math.exp(rng.uniform(math.log(max(1.0, most / 2)), math.log(most)))
    wide, high = min(int(width * factor), photograph.width), min(int(height * factor), photograph.height)
    x, y = rng.randint(0, photograph.width - wide), rng.randint(0, photograph.height - high)
    box = (x, y, x + wide, y + high)
    small = photograph.resize((width, height), Image.Resampling.LANCZOS, box)
    subsampling = "4:2:0" if rng.random() < SHARE_OF_420 else "4:4:4"
    return small, {"quality": round(rng.triangular(*QUALITIES, QUALITIES[1])), "subsampling": subsampling}


def load(path: Path) -> Image.Image | None:
    """Open a photograph; return None for one that is too small."""
    with Image.open(path) as image:
        return image.convert("RGB") if min(image.size) >= SMALLEST_SIDE else None


def main() -> None:
    chosen = parse_arguments()
    if chosen.output.exists():
        sys.exit(f"{chosen.output} exists: remove it or name another folder")
    paths = sorted(path for path in chosen.photographs.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        sys.exit(f"{chosen.photographs}: no photographs ({', '.join(sorted(SUFFIXES))})")
    sizes, rates = [], []
    for number, path in enumerate(paths):
        photograph = load(path)
        if photograph is None:
            print(f"{path}: smaller than {SMALLEST_SIDE} pixels, left out", file=sys.stderr)
            continue
        folder = chosen.output / f"{number:03}-{path.stem}"
        folder.mkdir(parents=True)
        rng = random.Random(f"{chosen.seed} {number}")
        for index in range(chosen.images * number // len(paths), chosen.images * (number + 1) // len(paths)):
            image, encoding = sample(photograph, rng)
            encoded = io.BytesIO()
            image.save(encoded, "JPEG", **encoding)
            (folder / f"{index:05}.jpg").write_bytes(encoded.getvalue())
            sizes.append(len(encoded.getvalue()))
            rates.append(8 * sizes[-1] / (image.width * image.height))
    summary = {
        "photographs": len(paths),
        "images": len(sizes),
        "median_kilobytes": statistics.median(sizes) / 1000,
        "median_bits_per_pixel": statistics.median(rates),
        "bits_per_pixel_deciles": [round(rate, 2) for rate in statistics.quantiles(rates, n=10)],
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
