"""Measures the time from making a loader to its first batch, with many files, an existing index and a filled cache.

    python benches/limits/start.py --data data/start --files 1280000

The files are hard links to a hundred small ones, in a thousand directories. The first run indexes and fills the cache.
Then each start is measured in its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import programs, report

DIRECTORIES = 1000

START = """
import json, sys, time
import foreload

settings = json.loads(sys.argv[1])
begun = time.perf_counter()
loader = foreload.FileLoader(**settings)
made = time.perf_counter()
batches = iter(loader)
first = next(batches)
ended = time.perf_counter()
if sys.argv[2] == "fill":
    for _ in batches:
        pass
hits = batches.stats()["cache"]["tiers"]["nvme"]["hits"]
print(json.dumps({"loader": made - begun, "first_batch": ended - begun, "hits": hits}))
"""


def make(folder: Path, files: int) -> None:
    if (folder / "data").exists():
        return
    sources = folder / "sources"
    sources.mkdir(parents=True)
    for number in range(100):
        (sources / str(number)).write_bytes(os.urandom(100 + number))
    for directory in range(DIRECTORIES):
        path = folder / "data" / f"{directory:04}"
        path.mkdir(parents=True)
        for number in range(files // DIRECTORIES):
            os.link(sources / str(number % 100), path / f"{number:06}.bin")


def start(settings: dict, what: str) -> dict:
    return programs.json_of([sys.executable, "-c", START, json.dumps(settings), what])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", type=int, default=1_280_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    make(args.data, args.files)
    settings = {
        "path": str(args.data / "data"),
        "batch_size": 256,
        "cache": {"path": str(args.data / "cache"), "size": "4GB", "fill": "use"},
        "index_dir": str(args.data / "index"),
        "progress": False,
    }
    print("filled", start(settings, "fill"))
    # Samples that could not be written fast enough in the first epoch are written in the second.
    print("filled", start(settings, "fill"))
    starts = [start(settings, "start") for _ in range(args.rounds)]
    for key in ("loader", "first_batch"):
        print(f"{key}: {report.show(report.spread([run[key] for run in starts]), 3)} s")


if __name__ == "__main__":
    main()
