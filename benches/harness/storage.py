"""Slow storage, and files that are kept out of the page cache."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.environments import ROOT, Unavailable, last_lines

SLOW_FS = ROOT / "target" / "release" / "slow-fs"
"""The emulated parallel file system: files through FUSE, with latencies and a shared bandwidth."""


@contextmanager
def slow_view(program: Path, folder: Path, mountpoint: Path, rates: str) -> Iterator[dict]:
    """Mount `folder` as an emulated parallel file system; the dictionary has its counters afterwards."""
    mountpoint.mkdir(parents=True)
    words = [program, folder, mountpoint, rates]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if process.stdout.readline() != "ready\n":
        raise Unavailable(f"no slow file system: {last_lines(process.communicate()[1])}")
    counters: dict = {}
    try:
        yield counters
    finally:
        said, _ = process.communicate()
        counters |= json.loads(said)


@contextmanager
def out_of_page_cache(*folders: Path, every: float = 1.0) -> Iterator[None]:
    """Keep dropping the pages of all files below these folders, so that memory does not serve the next epoch."""
    over = threading.Event()

    def sweep() -> None:
        while True:
            for folder in folders:
                forget_all(folder)
            if over.wait(every):
                return

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def forget_all(folder: Path) -> None:
    """Drop the pages of all files below a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            forget(Path(place, name))


def forget(path: Path) -> None:
    """Drop a file's pages; pages that are not yet written to the drive stay."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
