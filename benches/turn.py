"""CPU time of images by their orientation: `orientation="apply"` on the same files with other EXIF data.

Usage: `.venv/bin/python benches/turn.py [--program target/release/foreload] [--rounds 9]`. Rounds alternate between
the orientations, each with its own seed, and the medians of the ratios to orientation 1 are printed. Orientations 2 to
4 are mirrored by the view; 5 to 8 transpose the decoded planes. `exact` makes an upright image first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
from pathlib import Path

from harness.datasets import synthesise, whole

ORIENTATIONS = (1, 3, 6, 8)
PROFILES = {"imagenet": 1000, "phone": 24}
"""The number of images of each profile."""


def turned(file: bytes, orientation: int) -> bytes:
    """Return a JPEG with this orientation instead of its EXIF data."""
    entry = struct.pack(">HHIHH", 0x112, 3, 1, orientation, 0)
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + b"\0\0\0\0"
    segments, at = [], 2
    while file[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        if file[at + 1] != 0xE1:
            segments.append(file[at:end])
        at = end
    return b"".join([file[:2], b"\xff\xe1", struct.pack(">H", 2 + len(exif)), exif, *segments, file[at:]])


def datasets(program: Path, data: Path, profile: str) -> dict[int, Path]:
    """Return the datasets of a profile by orientation; missing ones are made."""
    source = data / profile
    synthesise(program, source, "--profile", profile, "--images", PROFILES[profile])
    made = {orientation: data / f"{profile}-{orientation}" for orientation in ORIENTATIONS}
    for orientation, folder in made.items():
        if folder.exists():
            continue
        with whole(folder) as new:
            for path in source.rglob("*.jpg"):
                copy = new / path.relative_to(source)
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(turned(path.read_bytes(), orientation))
    return made


def milliseconds(program: Path, folder: Path, decode: str, seed: int) -> float:
    """Return the CPU milliseconds of an image, in two epochs on one thread."""
    options = [
        "--orientation",
        "apply",
        "--decode",
        decode,
        "--seed",
        seed,
        "--threads",
        1,
        "--batch-size",
        8,
    ]
    command = [program, "bench", folder, "--json", *options]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    epochs = json.loads(done.stdout)["epochs"]
    return 1000 * sum(of["cpu_seconds"] for of in epochs) / sum(of["images"] for of in epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=Path("target/release/foreload"))
    parser.add_argument("--data", type=Path, default=Path("data/turn"))
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    for profile in PROFILES:
        folders = datasets(chosen.program, chosen.data, profile)
        for decode in ("fast", "exact"):
            times: dict[int, list[float]] = {orientation: [] for orientation in ORIENTATIONS}
            for seed in range(chosen.rounds):
                for orientation, folder in folders.items():
                    times[orientation].append(milliseconds(chosen.program, folder, decode, seed))
            for orientation, measured in times.items():
                ratios = [own / upright for own, upright in zip(measured, times[1], strict=True)]
                median, ratio = statistics.median(measured), statistics.median(ratios)
                print(
                    f"{profile} {decode} {orientation}: {median:.3f} ms, {ratio:.3f} of upright", flush=True
                )


if __name__ == "__main__":
    main()
