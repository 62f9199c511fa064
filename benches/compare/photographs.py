"""The datasets of the benchmarks: made by `foreload synth` where they are missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

IMAGES = 4000
SUFFIXES = {".jpg", ".jpeg"}


def shards_beside(folder: Path) -> Path:
    """Return where the tar shards of an image folder lie: `tar` beside `folder`, `NAME-tar` beside any other."""
    return folder.parent / ("tar" if folder.name == "folder" else f"{folder.name}-tar")


def ensure(folder: Path, layout: str, program: Path, extra: tuple[str, ...] = ()) -> None:
    """Makes an ImageNet-like dataset unless something is there already."""
    if folder.is_dir():
        return
    if not program.exists():
        sys.exit(f"{folder} is missing, and so is {program}, which makes it: run `make setup` first")
    print(f"making {IMAGES} images in {folder}", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "synth", folder, "--images", IMAGES, "--layout", layout, *extra]
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def ensure_known(folder: Path, program: Path) -> None:
    """Makes `folder` with its shards, and `optimized`: the names that say what they should hold."""
    if folder.name == "folder":
        ensure(folder, "folder", program)
        ensure(shards_beside(folder), "tar", program)
    elif folder.name == "optimized":
        ensure(folder, "folder", program, ("--optimize",))


def packed_beside(folder: Path) -> Path:
    """Return where the packed shards of an image folder lie: `NAME-packed` beside it."""
    return folder.parent / f"{folder.name}-packed"


def ensure_packed(folder: Path, packed: Path, program: Path) -> None:
    """Packs an image folder into shards. What an earlier run packed of it stays; a copy of other files is an error."""
    command = [program, "pack", folder, packed]
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def part(folder: Path, images: int, scratch: Path) -> Path:
    """Return a folder of links to `images` of a folder's JPEGs, evenly spread; the folder itself if it has no more."""
    files = jpegs(folder)
    if len(files) <= images:
        return folder
    target = scratch / f"{folder.name}-{images}"
    shutil.rmtree(target, ignore_errors=True)
    for number in range(images):
        source = files[number * len(files) // images]
        link = target / source.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source.resolve())
    return target


def warm(files: list[Path]) -> int:
    """Read files, so that the page cache holds them; return how many bytes they are."""
    return sum(len(path.read_bytes()) for path in files)


def jpegs(folder: Path) -> list[Path]:
    """Return all JPEGs below a folder, sorted; end the program when there are none."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        sys.exit(f"{folder}: no JPEGs; `foreload synth {folder}` makes some")
    return found
