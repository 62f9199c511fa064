"""The slow storage of all nodes: a dataset through FUSE, with one bandwidth and one set of counters for all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.storage import slow_view

COUNTERS = ".slow-fs.json"
"""The file of a mount that contains its counters."""


@dataclass(frozen=True)
class Storage:
    """A mounted dataset."""

    path: Path
    rates: str
    """Its latencies and its bandwidth, in the format of `slow-fs`."""

    def bandwidth(self) -> float:
        """Return its bandwidth in bytes per second for all nodes together; infinity if there is no limit."""
        found = re.search(r"bandwidth=(\d+)([kMG])B", self.rates)
        return int(found[1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[found[2]] if found else float("inf")

    def bytes(self) -> int:
        """Return the bytes that it has delivered so far, to all nodes together."""
        return json.loads((self.path / COUNTERS).read_text())["bytes"]


@contextmanager
def mounted(program: Path, folder: Path, scratch: Path, rates: str) -> Iterator[Storage]:
    """Mount `folder` below the empty directory `scratch`, with the given rates."""
    with slow_view(program, folder, scratch / "storage", rates):
        yield Storage(scratch / "storage", rates)


@contextmanager
def workplace(scratch: Path) -> Iterator[None]:
    """Make `scratch` an empty directory, even if a killed run has left files there, and remove it at the end."""
    clear(scratch)
    scratch.mkdir(parents=True)
    try:
        yield
    finally:
        clear(scratch)


def clear(scratch: Path) -> None:
    """Remove a directory of this benchmark, but never files of a mounted file system."""
    # If a file system's process ended with a file still open, its mount remains, and every access to it fails.
    mounts = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in mounts:
        if scratch.absolute() in mount.parents:
            subprocess.run(["umount", "--lazy", mount], check=True)
    if scratch.exists():
        shutil.rmtree(scratch)
