"""Measures files per second for different queue depths, with pread in threads, on storage that takes milliseconds.

The storage is `slow-fs`: files through FUSE, whose opens and reads take the given times, in parallel. No file is served
from memory. A file takes an open and a read, so with depth 1 its time is the sum of both.

cargo build --release -p slow-fs
.venv/bin/python benches/limits/depth.py --output benches/results/depth
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import foreload
from harness import options, report, storage
from harness.environments import Unavailable

BATCH = 50


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, data=None, targets=False)
    parser.add_argument("--slow-fs", type=Path, default=storage.SLOW_FS)
    parser.add_argument(
        "--rates", default="open=1ms,read=1ms", help="as `foreload bench --emulate-pfs` has it"
    )
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=20_000, help="of each file")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 4, 16, 32, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def measure(files: Path, index: Path, depth: int) -> dict:
    """Read one epoch of all files, including the start of the threads."""
    settings = {"io": "pread", "direct": "off", "queue_depth": depth, "index_dir": index, "progress": False}
    loader = foreload.FileLoader(files, batch_size=BATCH, **settings)
    before, started = time.process_time(), time.perf_counter()
    count = sum(len(batch) for batch in loader)
    seconds = time.perf_counter() - started
    cpu = time.process_time() - before
    return {"files_per_s": count / seconds, "cpu_seconds_per_1000": 1000 * cpu / count, "io": loader.io}


def main() -> int:
    chosen = parse_arguments()
    runs: dict[int, list[dict]] = {}
    with tempfile.TemporaryDirectory(prefix="foreload-depth-") as folder:
        scratch = Path(folder)
        files = scratch / "files"
        files.mkdir()
        for number in range(chosen.files):
            (files / f"{number:05}.bin").write_bytes(number.to_bytes(4, "little") * (chosen.bytes // 4))
        try:
            with storage.slow_view(chosen.slow_fs, files, scratch / "slow", chosen.rates):
                for number in range(chosen.rounds):
                    for depth in chosen.depths:
                        report.log(f"round {number + 1} of {chosen.rounds}: depth {depth}")
                        run = measure(scratch / "slow", scratch / "index", depth)
                        runs.setdefault(depth, []).append(run)
        except Unavailable as reason:
            print(reason, file=sys.stderr)
            return 1
    figures = ("files_per_s", "cpu_seconds_per_1000")
    result = {
        "machine": report.machine(),
        **options.settings(chosen, "rates files bytes"),
        "runs": [
            {"depth": depth, "io": of[0]["io"]}
            | {key: report.spread([run[key] for run in of]) for key in figures}
            for depth, of in runs.items()
        ],
    }
    report.deliver(result, describe(result), chosen)
    return 0


def describe(result: dict) -> str:
    rows = [
        [
            str(run["depth"]),
            run["io"].split(",")[0],
            report.show(run["files_per_s"], 0),
            report.show(run["cpu_seconds_per_1000"], 2),
        ]
        for run in result["runs"]
    ]
    about = (
        f"{result['files']} files of {result['bytes']} bytes behind FUSE: {result['rates']}; medians, least and "
        "greatest."
    )
    table = report.table(["queue_depth", "read by", "files/s", "CPU s per 1 000"], rows)
    return "\n\n".join(["# Depth", report.machine_line(result["machine"]), about, table])


if __name__ == "__main__":
    sys.exit(main())
