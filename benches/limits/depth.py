"""Measures files a second against the depth of reads, by threads with pread, on storage that takes milliseconds.

The storage is `slow-fs`: files behind FUSE, whose opens and reads take the given times while others go on. Nothing of
it is kept in memory. A file takes an open and a read, so that its time without depth is the sum of both.

cargo build --release -p slow-fs
.venv/bin/python benches/limits/depth.py --output benches/results/depth
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dlio"))
from harness import slow_view

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import foreload
import report
from environments import ROOT, Unavailable

BATCH = 50


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slow-fs", type=Path, default=ROOT / "target" / "release" / "slow-fs")
    parser.add_argument(
        "--rates", default="open=1ms,read=1ms", help="as `foreload bench --emulate-pfs` has it"
    )
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=20_000, help="of each file")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 4, 16, 32, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path, help="keep the result here, as .json and .md")
    return parser.parse_args()


def measure(files: Path, index: Path, depth: int) -> dict:
    """Read one epoch of all files, the start of the threads included."""
    settings = {"io": "pread", "direct": "off", "queue_depth": depth, "index_dir": index, "progress": False}
    loader = foreload.FileLoader(files, batch_size=BATCH, **settings)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    count = sum(len(batch) for batch in loader)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"files_per_s": count / seconds, "cpu_seconds_per_1000": 1000 * cpu / count, "io": loader.io}


def main() -> int:
    """Return 0 when all was measured."""
    arguments = parse_arguments()
    scratch = Path(tempfile.mkdtemp(prefix="foreload-depth-"))
    runs: dict[int, list[dict]] = {}
    try:
        files = scratch / "files"
        files.mkdir()
        for number in range(arguments.files):
            (files / f"{number:05}.bin").write_bytes(number.to_bytes(4, "little") * (arguments.bytes // 4))
        with slow_view(arguments.slow_fs, files, scratch / "slow", arguments.rates):
            for number in range(arguments.rounds):
                for depth in arguments.depths:
                    report.log(f"round {number + 1} of {arguments.rounds}: depth {depth}")
                    run = measure(scratch / "slow", scratch / "index", depth)
                    runs.setdefault(depth, []).append(run)
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch)
    result = {
        "machine": report.machine(),
        "rates": arguments.rates,
        "files": arguments.files,
        "bytes": arguments.bytes,
        "runs": [
            {
                "depth": depth,
                "io": of[0]["io"],
                "files_per_s": report.spread([run["files_per_s"] for run in of]),
                "cpu_seconds_per_1000": report.spread([run["cpu_seconds_per_1000"] for run in of]),
            }
            for depth, of in runs.items()
        ],
    }
    report.deliver(result, describe(result), arguments.json, arguments.output)
    return 0


def describe(result: dict) -> str:
    """Return the result as Markdown."""
    rows = [
        [
            str(run["depth"]),
            run["io"].split(",")[0],
            report.show(run["files_per_s"], 0),
            report.show(run["cpu_seconds_per_1000"], 2),
        ]
        for run in result["runs"]
    ]
    return "\n\n".join(
        [
            "# Depth",
            report.machine_line(result["machine"]),
            f"{result['files']} files of {result['bytes']} bytes behind FUSE: {result['rates']}; medians, least and "
            "greatest.",
            report.table(["queue_depth", "read by", "files/s", "CPU s per 1 000"], rows),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
