"""The datasets of the benchmarks: missing ones are made with `foreload synth`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGES = 4000
IMAGES_OF_PAGES = 2000
"""The number of images of the web profile: they are larger than ImageNet's."""
SUFFIXES = {".jpg", ".jpeg"}


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `folder` at the end of the block; an interrupted run leaves none."""
    beside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    yield beside
    beside.rename(folder)


@contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """Yield an empty directory, which is removed at the end of the block."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def synthesise(program: Path, folder: Path, *options: object) -> None:
    """Make a dataset with `foreload synth` if it does not exist yet."""
    if folder.exists():
        return
    if not program.exists():
        sys.exit(f"{folder} is missing, and so is {program}, which makes it: run `make setup` first")
    print(f"making {folder}", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "synth", folder, *options]
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def ensure_known(folder: Path, program: Path) -> None:
    """Make `folder` with its shards, or `web`: the names with known contents."""
    if folder.name == "folder":
        synthesise(program, folder, "--images", IMAGES)
        synthesise(program, shards_beside(folder), "--images", IMAGES, "--layout", "tar")
    elif folder.name == "web":
        synthesise(program, folder, "--images", IMAGES_OF_PAGES, "--profile", "web")


def shards_beside(folder: Path) -> Path:
    """Return the path of an image folder's tar shards: `tar` next to `folder`, `NAME-tar` next to any other."""
    return folder.parent / ("tar" if folder.name == "folder" else f"{folder.name}-tar")


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
    """Read files, so that the page cache holds them; return their number of bytes."""
    return sum(len(path.read_bytes()) for path in files)


def jpegs(folder: Path) -> list[Path]:
    """Return all JPEGs below a folder, sorted; end the program if there are none."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        sys.exit(f"{folder}: no JPEGs; `foreload synth {folder}` makes some")
    return found
